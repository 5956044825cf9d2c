"""What this tool costs besides moving bytes: planning, counting, starting, memory.

``python -m benchmarks.overhead`` prints a table and exits 1 if a bar is not kept. Whole processes are medians
of several runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from statistics import median

import numpy as np

from benchmarks.paired import Row, at_most, median_seconds, seconds_of
from benchmarks.table import print_rows
from hicache_bench.config.load import list_presets, load_model
from hicache_bench.models.engine_profile import pools_of
from hicache_bench.planning.plan import build_plan
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.planning.resolve import num_units, resolve

_COMMAND = [sys.executable, "-c", "from hicache_bench.cli.entry import main; main()"]


def resolve_and_plan(samples: int = 51) -> float:
    """Milliseconds to resolve and plan 16,384 pages of ``deepseek-v4-flash``, every page present."""
    preset = load_model("deepseek-v4-flash")
    pools = pools_of(preset.spec, profile=preset.profile)
    pages = 16_384
    presence = {pool.name: np.ones(num_units(pool, pages), dtype=np.bool_) for pool in pools}

    def work() -> None:
        build_plan(
            pools,
            presence,
            resolve(pools, presence, TransferPolicy.SELECTIVE, pages),
            TransferPolicy.SELECTIVE,
        )

    return 1e3 * median_seconds(work, samples=samples)


def _environment() -> dict[str, str]:
    """That of a user: Python keeps what it compiled."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def whole_process(arguments: list[str], runs: int = 5) -> float:
    """Median seconds of a whole command."""
    with tempfile.TemporaryDirectory() as directory:
        command = [*_COMMAND, *arguments, *(["--out", directory] if "run" in arguments else [])]

        def run() -> None:
            quiet = subprocess.DEVNULL
            subprocess.run(command, check=True, stdout=quiet, stderr=quiet, env=_environment())

        run()
        return median(seconds_of(run) for _ in range(runs))


def rows() -> Iterator[Row]:
    """Every bar, measured."""
    yield at_most("resolve + plan, 16,384 pages of V4-Flash", resolve_and_plan(), 2, "ms")
    slowest = max(
        (whole_process(["run", "--preset", preset.name, "--tokens", "1M", "--store", "count"]), preset.name)
        for preset in list_presets()
    )
    yield at_most(f"ledger of 1M tokens on count (slowest: {slowest[1]})", slowest[0], 1.0, "s")
    yield at_most("hicache-bench --help", whole_process(["--help"]), 0.3, "s")
    yield at_most("run --preset deepseek", whole_process(["run", "--preset", "deepseek"]), 10, "s")
    peak_kib = _peak_of(["run", "--preset", "deepseek"])
    yield at_most("run --preset deepseek, peak memory", peak_kib / (1 << 20), 2, "GiB")


def _peak_of(arguments: list[str]) -> int:
    """Peak resident KiB of one command, as its own parent sees it."""
    script = (
        "import resource, subprocess, sys;"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-c", script, *_COMMAND, *arguments, "--out", directory]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    print_rows(rows())
