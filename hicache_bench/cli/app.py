"""The ``hicache-bench`` command. Heavy imports happen inside the commands, so that ``--help`` is quick."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import typer

from hicache_bench import __version__
from hicache_bench.cli import doctor, presets, run
from hicache_bench.cli.terminal import print_note
from hicache_bench.errors import HicacheBenchError

INTERRUPTED = 130

app = typer.Typer(
    name="hicache-bench",
    help="Benchmark and validate the KV-cache storage tier of hybrid and sparse language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run_command)
app.add_typer(presets.app, name="presets")
app.command("doctor")(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hicache-bench {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Benchmark and validate the KV-cache storage tier of hybrid and sparse language models."""


def main() -> None:
    """Run the command line: one line on stderr for a user's mistake, no traceback; documented exit codes."""
    # A terminated run must close its store and stop its master as an interrupted one does.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except HicacheBenchError as error:
        print_note(f"error: {error}")
        sys.exit(error.exit_code)
    except SystemExit as stop:
        # Typer turns an interrupt into this exit code, and a closed pipe (`| head`) into 1, without a word.
        if stop.code == INTERRUPTED:
            print_note("interrupted: what was started is stopped, and nothing was written")
        elif isinstance(stop.__context__, BrokenPipeError):
            sys.exit(0)
        raise


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
