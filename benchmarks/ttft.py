"""Seconds of a TTFT table after start-up: one preset, four lengths, four rows each, records written."""

from __future__ import annotations

import io
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from statistics import median

from hicache_bench.cli.app import app

PRESETS = ("deepseek-v4-flash", "deepseek-v3", "qwen3-next-80b-a3b")
BAR_SECONDS = 0.5
REPEATS = 5


def table_seconds(preset: str, directory: Path) -> float:
    """One table, as the command line makes it."""
    arguments = ["simulate", "--preset", preset, "--out", str(directory)]
    started = time.perf_counter()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        app(arguments, standalone_mode=False)
    return time.perf_counter() - started


def main() -> None:
    """Print the first table of the process, which imports what it needs, and the median of later ones."""
    with tempfile.TemporaryDirectory() as directory:
        for preset in PRESETS:
            first, *later = (table_seconds(preset, Path(directory)) for _ in range(REPEATS + 1))
            print(
                f"ttft table {preset}: {median(later) * 1e3:.0f} ms, the first {first * 1e3:.0f} ms "
                f"(bar {BAR_SECONDS * 1e3:.0f} ms)"
            )


if __name__ == "__main__":
    main()
