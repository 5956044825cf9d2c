from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hicache_bench.config.catalogue import presets_folder
from hicache_bench.errors import InputError
from hicache_bench.trace.format import read_trace, write_trace
from hicache_bench.trace.generate import GenerateOptions, TraceKind, generate
from hicache_bench.trace.paths import OutputSave, PagePaths, page_paths

DIGESTS = {
    TraceKind.MULTI_TURN: "a235fad5a583d8d8",
    TraceKind.SHARED_SYSTEM_PROMPT: "4cb6a93b054e6ff5",
    TraceKind.AGENT: "5a7a14e05f28dd99",
}


def hit_share(paths: PagePaths) -> float:
    hit = np.minimum(paths.seen_pages(), paths.matchable)
    return float(paths.tokens_at(hit).sum() / paths.input_tokens.sum())


@pytest.mark.parametrize("kind", TraceKind, ids=str)
def test_one_seed_gives_one_trace_on_every_machine(kind: TraceKind) -> None:
    assert DIGESTS[kind] == generate(GenerateOptions(kind=kind, requests=200, seed=7)).digest
    assert DIGESTS[kind] != generate(GenerateOptions(kind=kind, requests=200, seed=8)).digest


@pytest.mark.parametrize("kind", TraceKind, ids=str)
def test_a_generated_trace_keeps_the_rules_of_the_format(tmp_path: Path, kind: TraceKind) -> None:
    trace = generate(GenerateOptions(kind=kind, requests=150, block_tokens=128))
    write_trace(trace, tmp_path / "t.jsonl")
    assert 150 == len(read_trace(tmp_path / "t.jsonl"))
    assert 0 == trace.prompts.ids[0]


def test_a_conversation_goes_on_where_its_last_output_ended() -> None:
    trace = generate(GenerateOptions(requests=400))
    without, with_outputs = (
        page_paths(trace, 64, outputs=outputs) for outputs in (OutputSave.NONE, OutputSave.ALL)
    )
    assert hit_share(without) + 0.03 < hit_share(with_outputs)


def test_single_requests_share_their_system_prompt_alone() -> None:
    options = GenerateOptions(
        kind=TraceKind.SHARED_SYSTEM_PROMPT, requests=300, system_prompts=1, system_tokens=2048
    )
    paths = page_paths(generate(options), 64)
    assert {0, 2048 // 64} == set(np.minimum(paths.seen_pages(), paths.matchable).tolist())


def test_the_shipped_trace_is_one_that_anybody_can_make(tmp_path: Path) -> None:
    write_trace(generate(GenerateOptions(requests=300, seed=1)), tmp_path / "t.jsonl")
    shipped = presets_folder("traces") / "multi-turn.jsonl"
    assert (tmp_path / "t.jsonl").read_bytes() == shipped.read_bytes()


@pytest.mark.parametrize(
    "bad",
    [
        {"requests": 0},
        {"block_tokens": 0},
        {"turns": 0},
        {"system_tokens": -1},
        {"output_tokens": 1 << 30},
        {"requests_per_second": 0.0},
        {"requests_per_second": float("nan")},
        {"requests_per_second": float("inf")},
    ],
    ids=str,
)
def test_traffic_that_cannot_be_made_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot be generated"):
        GenerateOptions(**bad)
