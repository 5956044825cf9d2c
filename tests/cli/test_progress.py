"""The line on a terminal: when it is there, what it says, and that ``--quiet`` leaves it out."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from hicache_bench.cli import terminal
from tests.cli.command import ENTRY


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What stderr shows from here on. No fixture: between a set-up and its test, pytest takes stderr back."""
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(terminal, "_QUIET_SECONDS", 0.0)
    return shown


def wait_for(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_step_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar in brackets, or a preset's name, is no markup, and moves no cursor."""
    screen = on_screen(monkeypatch)
    with terminal.progress() as report:
        report("[##--] 3 of 4 of [red] \x1b[31m")
        wait_for(lambda: "[##--] 3 of 4 of [red] \\x1b[31m" in screen.getvalue())


def test_the_seconds_so_far_are_shown_though_no_step_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    now = [100.0]
    with terminal.progress(lambda: now[0]) as report:
        report("the only one")
        wait_for(lambda: "0 s  the only one" in screen.getvalue())
        now[0] += 75
        wait_for(lambda: "1 min 15 s  the only one" in screen.getvalue())


def test_a_long_step_stays_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    with terminal.progress() as report:
        report("x" * 200)
        wait_for(lambda: "x" * 70 in screen.getvalue())
    assert "x" * 80 not in screen.getvalue()


def test_nothing_is_shown_of_quick_work(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    monkeypatch.setattr(terminal, "_QUIET_SECONDS", 60.0)
    with terminal.progress() as report:
        report("quick")
    assert "" == screen.getvalue()


def test_nothing_is_shown_when_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    with terminal.silenced():
        with terminal.progress() as report:
            report("step")
        terminal.print_note("note")
        terminal.print_aside("error: stays")
    assert "error: stays\n" == screen.getvalue()
    terminal.print_note("note")
    assert "error: stays\nnote\n" == screen.getvalue()


def shown_on_a_terminal(*options: str) -> str:
    """What a real command sends to a terminal on stderr, whose line is there from the first moment."""
    reader, writer = os.openpty()
    at_once = "from hicache_bench.cli import terminal; terminal._QUIET_SECONDS = 0.0; " + ENTRY
    arguments = ["gate", "results/baselines/kitchen-sink.json", "--self-test", *options]
    with os.fdopen(reader, "rb", buffering=0) as screen:
        done = subprocess.run(
            [sys.executable, "-c", at_once, *arguments],
            stdout=subprocess.PIPE,
            stderr=writer,
            check=False,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
        )
        os.write(writer, b"end")
        os.close(writer)
        assert (0, True) == (done.returncode, b"noticed" in done.stdout)
        return screen.read(1 << 16).decode()


def test_a_command_shows_its_step_on_a_terminal_unless_quiet() -> None:
    assert "perturbing kitchen-sink" in shown_on_a_terminal()
    assert "end" == shown_on_a_terminal("-q")
