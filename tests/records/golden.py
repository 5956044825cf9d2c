"""One record of each kind, kept for good: what a release wrote must still load in the next.

``python -m tests.records.golden`` writes those of the current schema version again. That is right only as
long as no release has written that version.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

from hicache_bench.cli.entry import main
from hicache_bench.records.io import read_record
from hicache_bench.records.schema import SCHEMA_VERSION

FOLDER = Path(__file__).parents[1] / "golden" / "records"

COMMANDS = {
    "bench": ("bench", "--preset", "kitchen-sink", "--tokens", "1k", "--repeat", "6"),
    "replay": (
        "simulate", "--trace", "multi-turn", "--preset", "deepseek", "--capacity", "1GiB,inf",
        "--system", "h200",
    ),
    "roundtrip": ("roundtrip", "--preset", "kitchen-sink", "--lengths", "1", "--policy", "selective"),
    "run": ("run", "--preset", "kitchen-sink", "--tokens", "8k", "--repeat", "6"),
    "simulate": ("simulate", "--preset", "deepseek", "--prefix", "8k"),
}  # fmt: skip
"""By kind, a command that writes a small record of it."""


def golden_path(kind: str, version: int = SCHEMA_VERSION) -> Path:
    """Where the record of a kind and version is kept."""
    return FOLDER / f"{kind}.v{version}.json"


def golden_record(kind: str) -> dict[str, Any]:
    """The kept record of a kind, as plain data of the current version, new each time."""
    return read_record(golden_path(kind))


def write(kind: str) -> None:
    """Make the record of a kind again."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"  # its name is in the record
        arguments = ["hicache-bench", *COMMANDS[kind], "--out", str(out)]
        with mock.patch.object(sys, "argv", arguments), suppress(SystemExit):
            main()
        (path,) = out.glob("*.json")
        data = json.loads(path.read_text())
    if kind == "run":
        _set_times(data)
    golden_path(kind).write_text(json.dumps(data, indent=1) + "\n")


def _set_times(data: dict[str, Any]) -> None:
    """Round times, 1 % apart, so that what is printed of them does not depend on the day."""
    (result,) = data["results"]
    for rank in result["ranks"]:
        rank["save_seconds"], rank["lookup_seconds"] = 0.05, 0.0005
        for policy, milliseconds in zip(rank["policies"], (16, 12, 10), strict=True):
            samples = [milliseconds * (100 + index) / 100_000 for index in range(6)]
            policy["seconds"] = samples
            policy["store_seconds"] = [round(sample * 0.75, 9) for sample in samples]


if __name__ == "__main__":
    for name in COMMANDS:
        write(name)
