"""The option by which every command that says more than its result keeps it to itself, declared once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from hicache_bench.cli.signature import parameters_of, show_parameters


def takes_quiet(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` the option ``--quiet``: notes and progress are left out, errors and results stay."""
    added = parameters_of(_is_quiet)

    @wraps(command)
    def with_option(**values: Any) -> None:
        if not _is_quiet(values.pop("quiet")):
            command(**values)
            return
        from hicache_bench.cli.terminal import silenced

        with silenced():
            command(**values)

    show_parameters(with_option, [*parameters_of(command), *added])
    return with_option


def _is_quiet(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes, no progress; errors stay.")] = False,
) -> bool:
    return quiet
