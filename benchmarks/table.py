"""The table of a benchmark, printed as it fills."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.paired import Row


def print_rows(rows: Iterable[Row]) -> None:
    """Print each figure as it comes, then all of them; exit 1 if a bar is not kept."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    where = Path(sys.executable).resolve()  # two builds of one version may differ by a fifth
    table = Table("what", "figure", "bar", "", caption=f"{python}, {where}", caption_justify="left")
    kept = True
    for row in rows:
        table.add_row(row.what, row.figure, row.bar, "kept" if row.kept else "NOT KEPT")
        print(f"{row.what}: {row.figure} ({row.bar})", file=sys.stderr, flush=True)
        kept = kept and row.kept
    Console().print(table)
    sys.exit(not kept)
