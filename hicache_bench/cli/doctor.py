"""``hicache-bench doctor``: what this machine offers to a run."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hicache_bench.cli.terminal import visible

if TYPE_CHECKING:
    from hicache_bench.workflows.doctor import Check

_WIDTH = 80
_NAME_WIDTH = 11
_COLOURS = {"ok": "green", "info": "blue", "warn": "yellow", "fail": "red"}


def doctor_command(
    out: Annotated[Path, typer.Option(help="Directory that records would go to.")] = Path("results/runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Check what this machine has of what the commands need.

    Looks at Python, libraries, memory, ports, the results directory and Mooncake.

    Exits 0 when the embedded store can run, and 1 when a check failed. A missing Mooncake is a warning.

    Example: hicache-bench doctor --out results/runs
    """
    # Imported here: `hicache-bench --help` needs none of it.
    from hicache_bench.workflows.doctor import CheckStatus, diagnose

    checks = diagnose(out)
    failed = any(check.status is CheckStatus.FAIL for check in checks)
    if as_json:
        typer.echo(json.dumps({"ok": not failed, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        for check in checks:
            typer.echo(_render(check))
    if failed:
        raise typer.Exit(1)


def _render(check: Check) -> str:
    """Two columns and a hanging text, which a list of fields and commands reads better in than in a table."""
    status = typer.style(f"{check.status.value:<5}", fg=_COLOURS[check.status.value])
    indent = " " * (5 + _NAME_WIDTH)
    lines = _wrap(check.found, indent)
    if check.advice is not None:
        lines += _wrap(f"-> {check.advice}", indent)
    return f"{status}{check.name:<{_NAME_WIDTH}}" + "\n".join(lines).removeprefix(indent)


def _wrap(text: str, indent: str) -> list[str]:
    # A command that is broken inside a word cannot be copied.
    return textwrap.wrap(
        visible(text),
        width=_WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
