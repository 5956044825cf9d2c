"""The shipped presets as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from hicache_bench.config.catalogue import PresetSummary


def render_list(presets: Sequence[PresetSummary]) -> Table:
    """One row per preset: its name, with its aliases below, who serves it, and what it is."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("preset, aliases", no_wrap=True)
    table.add_column("served by", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for preset in presets:
        names = Text(preset.name).append("".join(f"\n  {alias}" for alias in preset.aliases), style="dim")
        table.add_row(names, Text("\n".join(preset.served_by) or "no engine"), Text(preset.summary))
    return table
