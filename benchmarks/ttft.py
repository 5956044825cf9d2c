"""Seconds of a TTFT table after start-up: one preset, four lengths, four rows each, records written."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

from benchmarks.paired import Row, at_most, median_seconds
from benchmarks.table import print_rows
from hicache_bench.cli.app import app

PRESETS = ("deepseek-v4-flash", "deepseek-v3", "qwen3-next-80b-a3b")
BAR_SECONDS = 0.5
REPEATS = 5


def make_table(preset: str, directory: Path) -> None:
    """One table, as the command line makes it."""
    arguments = ["simulate", "--preset", preset, "--out", str(directory)]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        app(arguments, standalone_mode=False)


def rows() -> Iterator[Row]:
    """Every bar, measured; the first table of a process imports what it needs, and is not counted."""
    with tempfile.TemporaryDirectory() as directory:
        for preset in PRESETS:
            seconds = median_seconds(partial(make_table, preset, Path(directory)), samples=REPEATS)
            yield at_most(f"TTFT table of {preset}, after start-up", seconds, BAR_SECONDS, "s")


if __name__ == "__main__":
    print_rows(rows())
