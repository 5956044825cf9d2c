"""The options by which every command that moves bytes shows its metrics, declared once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hicache_bench.cli.signature import parameters_of, show_parameters

if TYPE_CHECKING:
    import inspect


class _Wanted(NamedTuple):
    file: Path | None
    port: int | None


def takes_metrics(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` these options; its parameter ``metrics`` gets a sink, None where no one looks at it.

    What the command records is shown until it returns or raises.
    """
    own = parameters_of(command)
    added = _added_parameters()

    @wraps(command)
    def with_options(**values: Any) -> None:
        wanted = _wanted(**{parameter.name: values.pop(parameter.name) for parameter in added})
        if wanted == (None, None):
            command(**values, metrics=None)
            return
        from hicache_bench.cli.terminal import print_note
        from hicache_bench.engine.metrics import MetricsSink
        from hicache_bench.workflows.metrics_export import exported

        metrics = MetricsSink()
        with exported(metrics, file=wanted.file, port=wanted.port, announce=print_note):
            command(**values, metrics=metrics)

    show_parameters(with_options, [*(parameter for parameter in own if parameter.name != "metrics"), *added])
    return with_options


@cache
def _added_parameters() -> list[inspect.Parameter]:
    return parameters_of(_wanted)


def _wanted(
    metrics_file: Annotated[
        Path | None,
        typer.Option(help="Keep metrics in this .prom file (for a node exporter) or .json file."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Serve metrics on this loopback port while running; 0: a free one."
        ),
    ] = None,
) -> _Wanted:
    return _Wanted(metrics_file, metrics_port)
