"""The command line, run in this process where that is enough, else in one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import hicache_bench
from hicache_bench.cli.entry import main

LIMIT_SECONDS = 60.0
ENTRY = "from hicache_bench.cli.entry import main; main()"
_ROOT = Path(hicache_bench.__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    def assert_refused(self, code: int, *parts: str) -> None:
        """One clear message on stderr, nothing on stdout, no traceback, and this exit code."""
        assert (code, "") == (self.code, self.out)
        message = " ".join(self.err.split())
        for part in parts:
            assert part in message
        assert "Traceback" not in self.err
        assert self.err.count("error:") + self.err.count("Error:") == 1


Command = Callable[..., Answer]


def run_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> Answer:
    """Run the command in this process."""
    monkeypatch.setattr(sys, "argv", ["hicache-bench", *map(str, arguments)])
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    capsys.readouterr()
    try:
        main()
        code: object = 0
    except SystemExit as stop:
        code = stop.code
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    said = capsys.readouterr()
    assert isinstance(code, int) or code is None
    return Answer(code or 0, said.out, said.err)


@contextmanager
def start(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Start the command in a process that is killed, at the latest, when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENTRY, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        env={**os.environ, "COLUMNS": "200"},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[str]) -> Answer:
    """Wait for the end of a started command."""
    out, err = process.communicate(timeout=LIMIT_SECONDS)
    return Answer(process.returncode, out, err)


def run_apart(*arguments: object) -> Answer:
    """Run the command in a process of its own, to its end."""
    with start(*arguments) as process:
        return finish(process)


def resident_bytes(pid: int) -> int:
    """Memory that a process has touched."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> dict[int, str]:
    """Processes below ``pid``, by name."""
    found: dict[int, str] = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found[int(child)] = Path(f"/proc/{child}/comm").read_text().strip()
        found.update(descendants(int(child)))
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs, zombies apart."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(reached: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for something that a running command does."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not reached():
        assert process.poll() is None, f"the command ended with {process.returncode}"
        assert time.monotonic() < deadline
        time.sleep(0.02)
