"""What an interrupt makes of a command that is still being imported, and which signals are one."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

from hicache_bench.cli import app, entry
from tests.cli.command import ENTRY, LIMIT_SECONDS, Command

TOLD = "interrupted: what was started is stopped; a record is there whole or not at all\n"

# An import of this module asks the process to end, as a Ctrl-C does at that moment.
INTERRUPTED_IMPORT = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            {act}
sys.meta_path.insert(0, Finder)
"""
KILL = "os.kill(os.getpid(), signal.{signal})"
# What Python 3.11 makes of an interrupt in a class body, and pybind11 of one in an extension.
DISGUISED = """\
try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt as stop:
                raise {error} from stop
"""


def run_interrupted(act: str, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = INTERRUPTED_IMPORT.format(module=module, act=act) + ENTRY
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("SIGINT", "typer"),
        ("SIGTERM", "typer"),
        ("SIGHUP", "typer"),
        ("SIGINT", "hicache_bench.cli.app"),
        ("SIGINT", "hicache_bench.cli.doctor"),
        ("SIGINT", "hicache_bench.workflows.doctor"),
    ],
)
def test_an_interrupted_import_is_told_in_one_line(name: str, module: str) -> None:
    done = run_interrupted(KILL.format(signal=name), module, "doctor")
    assert (130, "", TOLD) == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("error", ["RuntimeError('__set_name__')", "ImportError('failed')", "OSError('x')"])
@pytest.mark.parametrize("module", ["typer", "hicache_bench.workflows.doctor"])
def test_an_interrupt_that_comes_out_as_an_error_is_one(module: str, error: str) -> None:
    done = run_interrupted(DISGUISED.format(error=error), module, "doctor")
    assert (130, "", TOLD) == (done.returncode, done.stdout, done.stderr)


def test_an_error_without_an_interrupt_is_no_interrupt() -> None:
    done = run_interrupted("raise RuntimeError('a fault of ours')", "typer", "doctor")
    assert 1 == done.returncode
    assert "a fault of ours" in done.stderr
    assert TOLD not in done.stderr


def test_an_interrupt_that_a_user_cannot_read_keeps_its_code() -> None:
    done = run_interrupted(f"os.close(2); {KILL.format(signal='SIGINT')}", "typer", "doctor")
    assert (130, "") == (done.returncode, done.stderr)
    done = run_interrupted(f"sys.stderr = None; {KILL.format(signal='SIGINT')}", "typer", "doctor")
    assert (130, "") == (done.returncode, done.stderr)


def test_signals_that_nohup_has_ignored_stay_ignored(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[signal.Signals, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_IGN,
    }
    outside = {number: signal.signal(number, handler) for number, handler in given.items()}
    inside: list[object] = []
    monkeypatch.setattr(app, "run_app", lambda: inside.extend(map(signal.getsignal, given)))
    try:
        command("--version")
    finally:
        for number, handler in outside.items():
            signal.signal(number, handler)
    assert [entry._interrupt, entry._interrupt, signal.SIG_IGN] == inside


def test_while_things_are_stopped_more_interrupts_are_only_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("hicache_bench.cli.entry.time.monotonic", lambda: now[0])
    monkeypatch.setattr(entry, "_received", [])
    with pytest.raises(KeyboardInterrupt):
        entry._interrupt(signal.SIGINT, None)
    for now[0] in (100.001, 105.0, 110.0):
        entry._interrupt(signal.SIGTERM, None)
    now[0] = 110.1
    with pytest.raises(KeyboardInterrupt):  # it hangs, and somebody wants it to end
        entry._interrupt(signal.SIGINT, None)
    assert entry.was_interrupted()


def test_a_burst_of_signals_is_one_interrupt() -> None:
    act = "[os.kill(os.getpid(), number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]"
    done = run_interrupted(act, "hicache_bench.workflows.doctor", "doctor")
    assert (130, "", TOLD) == (done.returncode, done.stdout, done.stderr)


def test_an_interrupt_of_an_earlier_command_is_forgotten(command: Command) -> None:
    entry._received.append(0.0)
    command("run", "--preset", "kitchen-sink", "--tokens", "eight").assert_refused(2, "'eight'")
    assert not entry.was_interrupted()


def test_nothing_heavy_is_imported_before_the_handlers_stand() -> None:
    script = (
        "import sys; before = set(sys.modules); from hicache_bench.cli import entry;"
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    ours = {name for name in loaded if name.startswith("hicache_bench")}
    assert {"hicache_bench", "hicache_bench.cli", "hicache_bench.cli.entry"} == ours
    assert {"typing", "typer", "importlib.metadata", "subprocess", "threading"}.isdisjoint(loaded)
