"""Against another implementation: hit tokens that kvcache-simulator 0.1.3 found on the same trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.models.engine_profile import pools_of
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.trace.eviction import open_tier
from hicache_bench.trace.format import read_trace
from hicache_bench.trace.metrics import first_measured
from hicache_bench.trace.paths import HitDefinition, PagePaths, page_paths
from hicache_bench.trace.replay import Limits, Replayer, from_stack
from hicache_bench.trace.stack import stack_distances
from hicache_bench.trace.streams import Stream, streams_of, tier_pools
from hicache_bench.trace.tier import Eviction
from tests.trace.traces import CONVERSATION, needs_conversation, plain_prompts, trace_of

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden" / "kvcache-simulator-0.1.3.json").read_text()
)
POINTS: list[dict[str, Any]] = GOLDEN["points"]
GIB = 1 << 30


def one_pool(trace_paths: PagePaths) -> tuple[Stream, ...]:
    pools = pools_of(load_model("deepseek-v3").spec, profile="sglang-0.5.23")
    blocks = tuple(_with_pages(member, trace_paths.page_tokens) for member in tier_pools([pools]))
    return streams_of(blocks, TransferPolicy.SELECTIVE, SavePolicy(), int(trace_paths.lengths.max(initial=1)))


def _with_pages(member: Any, page_tokens: int) -> Any:
    from dataclasses import replace

    scale = page_tokens // member.pool.page_tokens
    return replace(member, stored_bytes=member.stored_bytes * scale, read_bytes=member.read_bytes * scale)


@pytest.fixture(scope="module")
def paths() -> PagePaths:
    if not CONVERSATION.exists():
        pytest.skip("../shared/traces/conversation_trace.jsonl is not there")
    return page_paths(read_trace(CONVERSATION), 512, definition=HitDefinition.TRACE)


def hit_tokens(paths: PagePaths, eviction: Eviction, gib: int) -> int:
    streams = one_pool(paths)
    replayer = Replayer(paths, streams, TransferPolicy.SELECTIVE, SavePolicy())
    replay = replayer.run(open_tier(eviction, paths, streams, gib * GIB))
    return int(paths.tokens_at(replay.hit)[first_measured(len(paths), 50) :].sum())


@pytest.mark.slow
@needs_conversation
@pytest.mark.parametrize("eviction", [Eviction.FIFO, Eviction.OPTIMAL], ids=str)
@pytest.mark.parametrize("point", POINTS[1::2], ids=lambda point: f"{point['gib']:g}GiB")
def test_hit_tokens_are_those_of_kvcache_simulator(
    paths: PagePaths, eviction: Eviction, point: dict[str, Any]
) -> None:
    assert point["hit_tokens"][eviction.value] == hit_tokens(paths, eviction, int(point["gib"]))


@needs_conversation
def test_lru_hit_tokens_of_every_budget_come_from_one_pass(paths: PagePaths) -> None:
    (stream,) = one_pool(paths)
    assert GOLDEN["bytes_per_block"] == stream.unit_bytes
    distances, first = stack_distances(paths), first_measured(len(paths), 50)
    found = {
        point["gib"]: int(
            paths.tokens_at(from_stack(paths, stream, distances, int(point["gib"]) * GIB, Limits()).hit)[
                first:
            ].sum()
        )
        for point in POINTS
    }
    assert {point["gib"]: point["hit_tokens"]["lru"] for point in POINTS} == found


@pytest.mark.slow
@needs_conversation
def test_golden_figures_are_what_kvcache_simulator_prints() -> None:
    simulator = pytest.importorskip("kvcache_sim", reason="kvcache-simulator is not installed")
    from kvcache_sim.trace import parse_trace_file  # type: ignore[import-not-found]

    found = simulator.run_sweep(
        parse_trace_file(CONVERSATION, block_size=512),
        model_id="deepseek-v3",
        budgets_gib=[point["gib"] for point in POINTS],
    )
    assert (GOLDEN["total_tokens"], GOLDEN["ceiling_hit_tokens"]) == (
        found["metadata"]["totalMeasuredTokens"],
        found["ceiling"]["hitTokens"],
    )
    assert POINTS == [
        {
            "gib": point["gib"],
            "cache_blocks": point["cacheBlocks"],
            "hit_tokens": {name: result["hitTokens"] for name, result in point["results"].items()},
        }
        for point in found["points"]
    ]


@pytest.mark.parametrize(
    ("eviction", "expected"),
    [
        (Eviction.LRU, [0, 0, 1, 0, 0, 0]),
        (Eviction.FIFO, [0, 0, 1, 0, 1, 0]),
        (Eviction.OPTIMAL, [0, 0, 1, 0, 1, 1]),
    ],
    ids=["lru", "fifo", "optimal"],
)
def test_three_evictions_told_apart_by_hand(eviction: Eviction, expected: list[int]) -> None:
    # Room for two of a, b, c, asked for as a b a c b a. Where c comes, LRU drops b, first in first out drops
    # a, and who knows the future drops c itself.
    trace = trace_of(*((513, [block, 100 + number]) for number, block in enumerate((1, 2, 1, 3, 2, 1))))
    small = page_paths(trace, 512)
    streams = one_pool(small)
    replayer = Replayer(small, streams, TransferPolicy.SELECTIVE, SavePolicy())
    replay = replayer.run(open_tier(eviction, small, streams, 2 * streams[0].unit_bytes))
    assert expected == replay.hit.tolist()


@pytest.mark.parametrize("eviction", Eviction, ids=str)
def test_a_prompt_longer_than_the_tier_leaves_its_beginning_or_its_end(eviction: Eviction) -> None:
    small = page_paths(plain_prompts(512 * 5, 512 * 5), 512)
    streams = one_pool(small)
    replayer = Replayer(small, streams, TransferPolicy.SELECTIVE, SavePolicy())
    replay = replayer.run(open_tier(eviction, small, streams, 3 * streams[0].unit_bytes))
    # First in, first out drives out the beginning, without which the rest is of no use.
    assert [0, 0 if eviction is Eviction.FIFO else 3] == replay.hit.tolist()
    assert 3 * streams[0].unit_bytes == replay.resident_bytes[-1]


@pytest.mark.parametrize("eviction", Eviction, ids=str)
def test_a_tier_smaller_than_a_unit_holds_nothing(eviction: Eviction) -> None:
    small = page_paths(plain_prompts(1024, 1024), 512)
    streams = one_pool(small)
    replayer = Replayer(small, streams, TransferPolicy.SELECTIVE, SavePolicy())
    replay = replayer.run(open_tier(eviction, small, streams, streams[0].unit_bytes - 1))
    assert ([0, 0], [0, 0]) == (replay.hit.tolist(), replay.resident_bytes.tolist())
