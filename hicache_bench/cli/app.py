"""The commands of ``hicache-bench``. Heavy imports happen inside them, so that ``--help`` is quick."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from hicache_bench import __version__
from hicache_bench.cli.entry import was_interrupted
from hicache_bench.cli.terminal import leave_quietly, prepare_streams, print_aside
from hicache_bench.errors import HicacheBenchError, OutputError

COMMANDS: Mapping[str, str] = {
    "run": "run:run_command",
    "roundtrip": "roundtrip:roundtrip_command",
    "simulate": "simulate:simulate_command",
    "bench": "bench:bench_command",
    "trace": "trace:app",
    "plot": "plot:plot_command",
    "gate": "gate:gate_command",
    "records": "records:app",
    "presets": "presets:app",
    "keys": "keys:keys_command",
    "doctor": "doctor:doctor_command",
}
"""The commands as ``--help`` orders them: a module beside this one, and what it has, a function or an app."""


class _Commands(Mapping[str, Any]):
    """The commands, each imported and built when it is asked for: no start has to wait for all of them."""

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = COMMANDS[name].partition(":")
        found = getattr(import_module(f"hicache_bench.cli.{module}"), attribute)
        holder = typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            holder.add_typer(found, name=name)
        else:
            holder.command(name)(found)
        return get_group(holder).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _LazyGroup(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes | {"commands": _Commands()})


app = typer.Typer(
    name="hicache-bench",
    cls=_LazyGroup,
    help="Benchmark and validate the KV-cache storage tier of hybrid and sparse language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


def run_app() -> None:
    """Parse and run a command; one line on stderr for what went wrong, and its exit code.

    An interrupt goes on to whoever started this (:mod:`hicache_bench.cli.entry`).
    """
    try:
        prepare_streams()
        try:
            app()
        except Exception as error:
            if was_interrupted():
                raise KeyboardInterrupt from error
            raise
        finally:
            gc.freeze()  # the collector would walk every imported module once more at exit: 0.1 s for nothing
            sys.stdout.flush()  # here, where a full disk or a closed pipe can still be told
    except HicacheBenchError as error:
        print_aside(f"error: {error}")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        leave_quietly()
    except OSError as error:
        print_aside(f"error: the output cannot be written: {error.strerror or error}")
        leave_quietly(OutputError.exit_code)
    except MemoryError:
        print_aside("error: this takes more memory than there is; use fewer tokens, or larger pages")
        sys.exit(OutputError.exit_code)
    except SystemExit as stop:
        # Typer turns a closed pipe (`| head`) into 1, without a word.
        if isinstance(stop.__context__, BrokenPipeError):
            leave_quietly()
        raise
