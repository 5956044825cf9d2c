"""The ``hicache-bench`` command. Heavy imports happen inside the commands, so that ``--help`` is quick."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

import typer

from hicache_bench import __version__
from hicache_bench.cli import (
    bench,
    doctor,
    gate,
    keys,
    plot,
    presets,
    records,
    roundtrip,
    run,
    simulate,
    trace,
)
from hicache_bench.cli.terminal import leave_quietly, prepare_streams, print_note
from hicache_bench.errors import HicacheBenchError, OutputError

INTERRUPTED = 130
_INTERRUPTED = "interrupted: what was started is stopped; a record is there whole or not at all"

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
app.command("roundtrip")(roundtrip.roundtrip_command)
app.command("simulate")(simulate.simulate_command)
app.command("bench")(bench.bench_command)
app.add_typer(trace.app, name="trace")
app.command("plot")(plot.plot_command)
app.command("gate")(gate.gate_command)
app.add_typer(records.app, name="records")
app.add_typer(presets.app, name="presets")
app.command("keys")(keys.keys_command)
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
    # A run that is terminated, or whose terminal goes away, must close its store and stop its master too.
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _interrupt)
    # No command does linear algebra that threads would help, and starting them slows numpy's import: 60 ms
    # where the other processors are busy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(100_000)  # imports alone make the collector run hundreds of times, and find nothing
    try:
        prepare_streams()
        try:
            app()
        finally:
            gc.freeze()  # the collector would walk every imported module once more at exit: 0.1 s for nothing
            sys.stdout.flush()  # here, where a full disk or a closed pipe can still be told
    except HicacheBenchError as error:
        print_note(f"error: {error}")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        leave_quietly()
    except OSError as error:
        print_note(f"error: the output cannot be written: {error.strerror or error}")
        leave_quietly(OutputError.exit_code)
    except MemoryError:
        print_note("error: this takes more memory than there is; use fewer tokens, or larger pages")
        sys.exit(OutputError.exit_code)
    except KeyboardInterrupt:
        print_note(_INTERRUPTED)
        sys.exit(INTERRUPTED)
    except SystemExit as stop:
        # Typer turns an interrupt into this exit code, and a closed pipe (`| head`) into 1, without a word.
        if stop.code == INTERRUPTED:
            print_note(_INTERRUPTED)
        elif isinstance(stop.__context__, BrokenPipeError):
            leave_quietly()
        raise


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
