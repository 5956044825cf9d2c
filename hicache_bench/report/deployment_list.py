"""The shipped links or systems as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from hicache_bench.config.deployments import DeploymentSummary


def render_deployments(found: Sequence[DeploymentSummary], what: str) -> Table:
    """One row each: its name, its aliases, and what it is."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column(what, no_wrap=True)
    table.add_column("aliases", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for entry in found:
        table.add_row(entry.name, Text(", ".join(entry.aliases), style="dim"), Text(entry.summary))
    return table
