"""The answers of ``presets check``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from hicache_bench.report.presets import plain_table
from hicache_bench.workflows.preset_check import FileCheck


def render_checks(checks: Sequence[FileCheck]) -> Table:
    """One row per good file."""
    table = plain_table(
        "good files", "pools", "keys", "bytes a page", left=("good files",), fold=("good files",)
    )
    for check in checks:
        table.add_row(
            Text(check.file),
            str(len(check.pools)),
            str(check.keys),
            f"{sum(pool.unit_bytes for pool in check.pools):,}",
        )
    return table


def problem_text(checks: Sequence[FileCheck]) -> str:
    """One block for each bad file, and how many there are."""
    bad = [check for check in checks if check.problems]
    blocks = ["\n".join(check.problems) for check in bad]
    return "\n\n".join([*blocks, f"{len(bad)} of {len(checks)} files bad"]) if len(checks) > 1 else blocks[0]


def checks_as_list(checks: Sequence[FileCheck]) -> list[dict[str, Any]]:
    """Every file, good or bad, as plain data."""
    return [
        {
            "file": check.file,
            "ok": not check.problems,
            "preset": check.preset.name if check.preset else None,
            "digest": check.preset.spec.digest if check.preset else None,
            "pools": len(check.pools),
            "keys": check.keys,
            "problems": list(check.problems),
        }
        for check in checks
    ]
