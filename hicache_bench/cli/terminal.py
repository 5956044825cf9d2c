"""Printing: results on stdout, everything else on stderr."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING

import typer

from hicache_bench.errors import OutputError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.status import Status
    from rich.text import Text

PIPED_WIDTH = 80
_QUIET_SECONDS = 2.0
_IS_SILENT = ContextVar("is_silent", default=False)

# A terminal obeys these, and a name in a preset or a path may hold them: C0 but tab and line feed, DEL, C1.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def visible(text: str) -> str:
    """``text`` with control characters, tab and line feed apart, written out: a backslash, ``x1b``."""
    return text.translate(_CONTROLS)


def print_result(result: RenderableType) -> None:
    """Print on stdout; where it is not a terminal, 80 columns, no colour, no blanks at the end of a line.

    A narrower terminal wraps the lines itself: tables squeezed into it would have names of one letter a line.
    """
    from rich.console import Console
    from rich.segment import Segment, Segments

    # A user's names are shown as they are: "[red]" and ":ok:" are no markup here.
    literal = partial(Console, markup=False, emoji=False, highlight=False)
    is_terminal = sys.stdout.isatty()
    console = literal() if is_terminal else literal(width=PIPED_WIDTH, color_system=None)
    console.width = max(console.width, PIPED_WIDTH)
    segments = Segments(
        Segment(text if control else visible(text), style, control)
        for text, style, control in console.render(result)
    )
    if is_terminal:
        console.print(segments, end="")
        return
    with console.capture() as capture:
        console.print(segments, end="")
    sys.stdout.write("\n".join(line.rstrip(" ") for line in capture.get().split("\n")))
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Print text that ends its own lines, and that a replaced character would spoil: a key, a file."""
    typer.echo(visible(text), nl=False)


def print_json(data: object) -> None:
    """Print plain data as JSON on stdout."""
    typer.echo(json.dumps(data, indent=1, allow_nan=False))


def print_note(text: str) -> None:
    """Print a line that is not a result, on stderr, unless notes are :func:`silenced`."""
    if not _IS_SILENT.get():
        print_aside(text)


def print_aside(text: str) -> None:
    """Print a line on stderr in any case: an error, or a result where another has stdout.

    One that nobody can read must not cost the result.
    """
    with suppress(OSError):
        typer.echo(visible(text), err=True)


def prepare_streams() -> None:
    """Make both streams take any text; a process started without stderr (``2>&-``) says nothing there.

    Raises:
        OutputError: stdout is closed (``>&-``), so that no result could be seen.
    """
    if sys.stderr is None:
        # Lives as long as the process.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    if sys.stdout is None:
        raise OutputError(
            "stdout is closed, and results go there; open it, or send it to a file or /dev/null"
        )
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A stream of few characters, such as ASCII, must not cost the result; stderr escapes what it lacks.
        sys.stdout.reconfigure(errors="replace")


def leave_quietly(exit_code: int = 0) -> None:
    """Exit although stdout takes nothing more: the interpreter must not try, and complain, at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(exit_code)


@contextmanager
def silenced() -> Iterator[None]:
    """Notes and progress are left out until the block ends."""
    token = _IS_SILENT.set(True)
    try:
        yield
    finally:
        _IS_SILENT.reset(token)


@contextmanager
def progress(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[str], None]]:
    """A line on stderr that names the current step, on a terminal and after two seconds of work only."""
    if _IS_SILENT.get() or not sys.stderr.isatty():
        yield _say_nothing
        return
    line = _StatusLine(clock)
    timer = threading.Timer(_QUIET_SECONDS, line.show)
    timer.daemon = True
    timer.start()
    try:
        yield line.report
    finally:
        timer.cancel()
        line.remove()


class _StatusLine:
    """The current step and the seconds since the start, redrawn until it is removed.

    A timer shows it, not the next step: a first step that takes minutes is what needs it most.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._step = ""
        self._status: Status | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def report(self, step: str) -> None:
        self._step = step

    def show(self) -> None:
        from rich.console import Console

        with self._lock:
            if not self._is_over:
                # Redrawn rarely: the samples of a run are being timed.
                self._status = Console(stderr=True).status(self, refresh_per_second=4)
                self._status.start()

    def remove(self) -> None:
        with self._lock:
            self._is_over = True
            if self._status is not None:
                self._status.stop()

    def __rich__(self) -> Text:
        from rich.text import Text

        from hicache_bench.workflows.meter import format_duration

        # As it is: a bar or a name in brackets is no markup. One line: a terminal cannot erase a wrapped one.
        passed = format_duration(self._clock() - self._started)
        return Text(f"{passed}  {visible(self._step)}", no_wrap=True, overflow="ellipsis")


def _say_nothing(step: str) -> None:
    """Progress of a run that nobody watches."""
