"""The tables of results in the README and the docs, made of the committed baselines.

``python -m tests.results_table`` writes them again; a test compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hicache_bench.config.load import list_presets
from hicache_bench.units import format_size, format_tokens

ROOT = Path(__file__).parents[1]
SHOWN_FIRST = (
    "deepseek-v4-flash",
    "deepseek-v3.2",
    "gpt-oss-120b",
    "qwen3-next-80b-a3b",
    "kimi-linear-48b-a3b",
    "gemma-3-27b",
    "llama-4-scout",
    "llama-3.1-70b",
)
_HEAD = (
    "| model | prefix | dense | hit_policy | selective | hit_policy ÷ dense | selective ÷ hit_policy |\n"
    "|---|---:|---:|---:|---:|---:|---:|"
)
_BEGIN, _END = "<!-- results: made of results/baselines -->\n", "<!-- end of results -->"


def table(names: Iterable[str]) -> str:
    """Bytes read by each policy, of every prefix length that the baselines have."""
    rows = [row for name in names for row in _rows(name)]
    return "\n".join([_HEAD, *rows]) + "\n"


def _rows(name: str) -> list[str]:
    record = json.loads((ROOT / "results" / "baselines" / f"{name}.json").read_text(encoding="utf-8"))
    return [_row(name, result) for result in record["results"]]


def _row(name: str, result: dict[str, Any]) -> str:
    read = {policy["policy"]: policy["read"]["num_bytes"] for policy in result["policies"]}
    dense, hit, selective = read["dense"], read["hit_policy"], read["selective"]
    sizes = " | ".join(map(format_size, (dense, hit, selective)))
    ratios = f"{hit / dense:.1%} | {selective / hit:.1%}"
    return f"| `{name}` | {format_tokens(result['tokens'])} | {sizes} | {ratios} |"


def pages() -> dict[Path, str]:
    """The table that belongs on each page."""
    every = [preset.name for preset in list_presets()]
    return {ROOT / "README.md": table(SHOWN_FIRST), ROOT / "docs" / "results.md": table(every)}


def with_table(text: str, made: str) -> str:
    """``text`` with ``made`` between its marks."""
    before, rest = text.split(_BEGIN)
    return before + _BEGIN + made + _END + rest.split(_END)[1]


if __name__ == "__main__":
    for page, made in pages().items():
        page.write_text(with_table(page.read_text(encoding="utf-8"), made), encoding="utf-8")
