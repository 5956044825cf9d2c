"""Two presets side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hicache_bench.report.presets import plain_table
from hicache_bench.workflows.preset_diff import Difference, Value


def render_diff(first: str, second: str, differences: Sequence[Difference]) -> RenderableType:
    """One row per difference, under a heading for each section."""
    if not differences:
        return Text(f"no difference between {first} and {second}, names and prose apart")
    table: Table = plain_table("", first, second, left=("", first, second), fold=("", first, second))
    section = ""
    for difference in differences:
        if difference.section != section:
            section = difference.section
            table.add_section()
            table.add_row(Text(_HEADINGS[section], style="bold"))
        table.add_row(
            Text(f"  {difference.field}"), Text(_shown(difference.first)), Text(_shown(difference.second))
        )
    return table


_HEADINGS = {
    "field": "fields",
    "layers": "layers",
    "dimension": "dimensions",
    "pool": "pools [counted]",
    "needed": "needed [counted]",
}


def _shown(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, (int, float)) else value or "none"
