"""Printing: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

PIPED_WIDTH = 80
_QUIET_SECONDS = 2.0


def print_result(result: RenderableType) -> None:
    """Print on stdout; 80 columns and no colour where it is not a terminal."""
    from rich.console import Console

    # A user's names are shown as they are: "[red]" and ":ok:" are no markup here.
    literal = partial(Console, markup=False, emoji=False, highlight=False)
    console = literal() if sys.stdout.isatty() else literal(width=PIPED_WIDTH, color_system=None)
    console.print(result)


def print_json(data: object) -> None:
    """Print plain data as JSON on stdout."""
    typer.echo(json.dumps(data, indent=1, allow_nan=False))


def print_note(text: str) -> None:
    """Print a line that is not a result, on stderr; one that nobody can read must not cost the result."""
    with suppress(OSError):
        typer.echo(text, err=True)


def replace_closed_streams() -> None:
    """Give a process that was started without stdout or stderr (``>&-``) somewhere to write to."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 -- lives as long as the process


def leave_quietly(exit_code: int = 0) -> None:
    """Exit although stdout takes nothing more: the interpreter must not try, and complain, at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(exit_code)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on stderr that names the current step, on a terminal and after two seconds of work only."""
    if not sys.stderr.isatty():
        yield _say_nothing
        return
    from rich.console import Console

    started = time.monotonic()
    with Console(stderr=True).status("") as status:
        status.stop()

        def report(step: str) -> None:
            status.update(step)
            if time.monotonic() - started > _QUIET_SECONDS:
                status.start()

        yield report


def _say_nothing(step: str) -> None:
    """Progress of a run that nobody watches."""
