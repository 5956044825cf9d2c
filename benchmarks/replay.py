"""What replaying a trace costs, as whole processes, beside kvcache-simulator where that is installed.

``KVCACHE_SIMULATOR`` may name its command, in an environment of its own; else it is looked for on the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.paired import Row, at_most, paired_ratio, seconds_of
from benchmarks.table import print_rows
from hicache_bench.trace.format import write_trace
from hicache_bench.trace.generate import GenerateOptions, generate

CONVERSATION = Path(__file__).parents[2] / "shared" / "traces" / "conversation_trace.jsonl"

_REPLAY = [sys.executable, "-c", "from hicache_bench.cli.entry import main; main()", "simulate"]
_ROOT = Path(__file__).parents[1]
_SMALL, _LARGE = 4_000, 40_000


def _run(command: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    quiet = subprocess.DEVNULL
    subprocess.run(command, check=True, stdout=quiet, stderr=quiet, env=environment, cwd=_ROOT)


def _median_seconds(command: list[str]) -> float:
    """Of three runs after one that warms the caches."""
    _run(command)
    return median(seconds_of(lambda: _run(command)) for _ in range(3))


def scalar_command(trace: Path, out: Path) -> list[str]:
    """One pool, four capacities, LRU, the last half measured: what the other tool is asked for too."""
    asked = {
        "--preset": "deepseek-v3",
        "--page-tokens": "512",
        "--hit-definition": "trace",
        "--policy": "selective",
        "--capacity": "64GiB,256GiB,1TiB,4TiB",
        "--measure": "last:50%",
        "--trace": str(trace),
        "--out": str(out),
    }
    return [*_REPLAY, *(part for option in asked.items() for part in option)]


def other_command(simulator: str, trace: Path, output: Path) -> list[str]:
    """The same of kvcache-simulator, whose C++ back end is built at first use."""
    asked = {
        "--trace": str(trace),
        "--model": "deepseek-v3",
        "--block-size": "512",
        "--budgets-gib": "64,256,1024,4096",
        "--policies": "lru",
        "--format": "json",
        "--output": str(output),
    }
    return [simulator, "sweep", "--no-progress", *(part for option in asked.items() for part in option)]


def hybrid_command(trace: Path, out: Path, *more: str) -> list[str]:
    """Six pools, five capacities, three policies and the shorter save beside them."""
    return [
        *_REPLAY,
        *("--preset", "deepseek-v4-flash", "--trace", str(trace), "--out", str(out)),
        *("--capacity", "64GiB,256GiB,1TiB,4TiB,inf"),
        *more,
    ]


def growth(folder: Path) -> float:
    """Seconds a request of a trace of 40,000 requests over those of 4,000; one capacity that is full."""
    seconds = []
    for requests in (_SMALL, _LARGE):
        trace = folder / f"{requests}.jsonl"
        write_trace(generate(GenerateOptions(requests=requests, seed=1)), trace)
        command = [
            *_REPLAY,
            *("--preset", "deepseek-v4-flash", "--trace", str(trace), "--out", str(folder)),
            *("--capacity", "16GiB", "--policy", "selective", "--save-policy", "window=all"),
        ]
        seconds.append(_median_seconds(command))
    return seconds[1] / seconds[0] * _SMALL / _LARGE


def rows() -> Iterator[Row]:
    """Every bar, measured."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield at_most("seconds a request, 40,000 / 4,000 requests", growth(folder), 1.2, "×")
        if not CONVERSATION.exists():
            yield Row("conversation trace", "not measured: ../shared/traces is not there", "", kept=False)
            return
        simulator = os.environ.get("KVCACHE_SIMULATOR") or shutil.which("kvcache-simulator")
        what = "scalar pool, 4 capacities: replay / kvcache-simulator"
        if simulator is None:
            yield Row(what, "not measured: kvcache-simulator is not installed", "<= 1 ×", kept=False)
        else:
            other = other_command(simulator, CONVERSATION, folder / "out.json")
            ours = scalar_command(CONVERSATION, folder)
            ratio = paired_ratio(lambda: _run(ours), lambda: _run(other), pairs=5)
            yield at_most(what, ratio, 1.0, "×")
        hybrid = "deepseek-v4-flash, 5 capacities, 3 policies"
        for what, more in ((hybrid, ()), (f"{hybrid}, with times over a link", ("--link", "rdma-4x200g"))):
            command = hybrid_command(CONVERSATION, folder, *more)
            yield at_most(what, _median_seconds(command), 12, "s")
            yield at_most("the same, peak memory", _peak_kib(command) / (1 << 20), 1, "GiB")


def _peak_kib(command: list[str]) -> int:
    """Peak resident KiB of one command, as its own parent sees it."""
    script = (
        "import resource, subprocess, sys;"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    asked = [sys.executable, "-c", script, *command]
    return int(subprocess.run(asked, check=True, capture_output=True, text=True, cwd=_ROOT).stdout)


if __name__ == "__main__":
    print_rows(rows())
