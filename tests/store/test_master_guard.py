"""The guard's promise: what it runs does not outlive the process that started it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hicache_bench.store import master_guard

GUARD = [sys.executable, "-I", "-S", master_guard.__file__]
SLEEP = ["sleep", "300"]
LIMIT_SECONDS = 15.0


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie whose parent has not looked yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_ends(pid: int) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


def start(command: list[str]) -> tuple[subprocess.Popen[str], int]:
    guard = subprocess.Popen(
        [*GUARD, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert guard.stdout is not None
    return guard, int(guard.stdout.readline())


@pytest.fixture
def sleeper() -> Iterator[tuple[subprocess.Popen[str], int]]:
    guard, pid = start(SLEEP)
    with guard:
        yield guard, pid
        guard.kill()


def test_closing_the_pipe_ends_the_command(sleeper: tuple[subprocess.Popen[str], int]) -> None:
    guard, pid = sleeper
    assert is_alive(pid)
    assert guard.stdin is not None
    guard.stdin.close()
    assert 128 + signal.SIGTERM == guard.wait(LIMIT_SECONDS)
    assert not is_alive(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_command_dies_with_its_guard(
    sleeper: tuple[subprocess.Popen[str], int], number: signal.Signals
) -> None:
    guard, pid = sleeper
    guard.send_signal(number)
    guard.wait(LIMIT_SECONDS)
    assert_ends(pid)


def test_command_dies_with_a_killed_parent() -> None:
    source = (
        "import subprocess, sys, time\n"
        "guard = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True)\n"
        "time.sleep(300)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", source, *GUARD, *SLEEP], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    assert_ends(pid)


def test_command_that_ignores_termination_is_killed() -> None:
    ignoring = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
    guard, pid = start([sys.executable, "-c", ignoring])
    with guard:
        wait_until_ignored(pid, signal.SIGTERM)
        assert guard.stdin is not None
        guard.stdin.close()
        assert 128 + signal.SIGKILL == guard.wait(LIMIT_SECONDS)


def wait_until_ignored(pid: int, number: signal.Signals) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        (mask,) = [int(line.split()[1], 16) for line in lines if line.startswith("SigIgn")]
        if mask >> (number - 1) & 1:
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_exit_code_is_the_commands() -> None:
    guard, _ = start(["sh", "-c", "exit 7"])
    with guard:
        assert 7 == guard.wait(LIMIT_SECONDS)


def test_command_that_cannot_start_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing-here")
    guard = subprocess.run(
        [*GUARD, missing], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert (126, "") == (guard.returncode, guard.stdout)
    assert f"cannot start {missing}: No such file" in guard.stderr


def test_guard_is_no_module_of_the_library() -> None:
    # It runs with -I -S: importing the package, or NumPy, would fail there and slow every start.
    lines = Path(master_guard.__file__).read_text().splitlines()
    imported = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
    assert imported <= {"__future__", "ctypes", "os", "select", "signal", "subprocess", "sys"}
