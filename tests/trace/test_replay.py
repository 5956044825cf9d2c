from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType, Requirement
from hicache_bench.trace.eviction import open_tier
from hicache_bench.trace.format import Trace
from hicache_bench.trace.paths import HitDefinition, OutputSave, PagePaths, page_paths
from hicache_bench.trace.replay import SHORTFALLS, Limits, Replay, Replayer, can_use_stack, from_stack
from hicache_bench.trace.stack import stack_distances
from hicache_bench.trace.streams import streams_of, tier_pools
from hicache_bench.trace.tier import Eviction
from tests.pool_builders import pool, window_pool
from tests.trace.reference import ReferenceTier
from tests.trace.traces import drawn_traces, plain_prompts, trace_of

SELECTIVE, DENSE = TransferPolicy.SELECTIVE, TransferPolicy.DENSE
KV = pool("kv", AttentionType.FULL, page_tokens=8)
POOL_SETS = {
    "one pool": (KV,),
    "two of one stream": (KV, pool("indexer", AttentionType.SPARSE_INDEX, page_tokens=8)),
    "window": (KV, window_pool("swa", 20, page_tokens=8)),
    "window, another for the engine": (KV, window_pool("swa", 20, engine_window=40, page_tokens=8)),
    "state": (KV, pool("mamba", AttentionType.RECURRENT, page_tokens=8)),
    "chunked": (KV, pool("swa", AttentionType.CHUNKED, window_tokens=24, page_tokens=8)),
    "long units": (KV, pool("far", AttentionType.FULL, page_tokens=8, unit_pages=2)),
    "long states": (KV, pool("mamba", AttentionType.RECURRENT, page_tokens=8, unit_pages=3)),
    "all at once, a draft too": (
        KV,
        window_pool("swa", 20, page_tokens=8),
        pool("mamba", AttentionType.RECURRENT, page_tokens=8),
        pool("c4_state", AttentionType.COMPRESSOR_STATE, page_tokens=8, derived_from="kv"),
        window_pool("draft_swa", 9, page_tokens=8, required_for=Requirement.SPEED),
        pool("draft", AttentionType.FULL, page_tokens=8, required_for=Requirement.SPEED),
    ),
}
SAVES = tuple(
    SavePolicy.parse(text)
    for text in (
        "state=every:16,window=all",
        "state=all,window=all",
        "state=last,window=trailing:+0",
        "state=every:24,window=trailing:+2",
    )
)


def with_states(page_tokens: int) -> tuple[KVPoolDescriptor, ...]:
    return (
        pool("kv", AttentionType.FULL, page_tokens=page_tokens),
        pool("mamba", AttentionType.RECURRENT, page_tokens=page_tokens),
    )


def replayed(
    paths: PagePaths,
    pools: tuple[KVPoolDescriptor, ...],
    policy: TransferPolicy = SELECTIVE,
    save: SavePolicy = SAVES[0],
    *,
    capacity: int | None = None,
    eviction: Eviction = Eviction.LRU,
    limits: Limits | None = None,
    outputs: OutputSave = OutputSave.NONE,
    merge_dense: bool = False,
) -> Replay:
    streams = streams_of(
        tier_pools([pools]),
        policy,
        save,
        int(paths.lengths.max()),
        outputs=outputs,
        merge_dense=merge_dense,
    )
    replayer = Replayer(paths, streams, policy, save, limits=limits, outputs=outputs)
    return replayer.run(open_tier(eviction, paths, streams, capacity))


def totals(replay: Replay, counts: Any) -> dict[str, int]:
    return {
        member.pool.name: int(counts[index].sum())
        for index, stream in enumerate(replay.streams)
        for member in stream.members
    }


def assert_same(replay: Replay, reference: ReferenceTier) -> None:
    assert replay.hit.tolist() == reference.hit
    assert replay.used.tolist() == reference.used
    sizes = np.array([sum(member.read_bytes for member in stream.members) for stream in replay.streams])
    assert (sizes @ replay.read).tolist() == reference.read_bytes
    assert replay.resident_bytes.tolist() == reference.resident_bytes
    assert totals(replay, replay.written) == reference.written
    assert totals(replay, replay.evicted) == reference.evicted


@pytest.mark.parametrize("eviction", [Eviction.LRU, Eviction.OPTIMAL], ids=str)
@pytest.mark.parametrize("pools", POOL_SETS.values(), ids=POOL_SETS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_every_request_finds_what_a_tier_of_dictionaries_finds(
    eviction: Eviction, pools: tuple[KVPoolDescriptor, ...], data: st.DataObject
) -> None:
    paths = page_paths(data.draw(drawn_traces()), 8)
    policy, save = data.draw(st.sampled_from(TransferPolicy)), data.draw(st.sampled_from(SAVES))
    capacity = data.draw(st.none() | st.integers(1, 64 * 40))
    # A unit that a local prefix covers in part is read and not local, so whole units only.
    local = data.draw(st.sampled_from([0, 0, 48]))
    limits = Limits(
        local_tokens=local if eviction is Eviction.LRU else 0,
        host_capacity_tokens=data.draw(st.sampled_from([None, None, 24, 64])),
        threshold_tokens=data.draw(st.sampled_from([0, 0, 17])),
    )
    replay = replayed(paths, pools, policy, save, capacity=capacity, eviction=eviction, limits=limits)
    reference = ReferenceTier(paths, pools, policy, save, eviction, capacity, limits).run()
    assert_same(replay, reference)


@settings(max_examples=40, deadline=None)
@given(trace=drawn_traces(), pages=st.integers(0, 60), definition=st.sampled_from(HitDefinition))
def test_the_stack_says_what_a_simulation_says(trace: Trace, pages: int, definition: HitDefinition) -> None:
    paths = page_paths(trace, 8, definition=definition)
    pools = POOL_SETS["two of one stream"]
    limits = Limits(local_tokens=16, host_capacity_tokens=56, threshold_tokens=9)
    simulated = replayed(paths, pools, capacity=pages * 128, limits=limits)
    assert can_use_stack(simulated.streams)
    stack = from_stack(paths, simulated.streams[0], stack_distances(paths), pages * 128, limits)
    for name in ("hit", "used", "local", "shortfall", "read", "written", "evicted", "resident_bytes"):
        assert getattr(stack, name).tolist() == getattr(simulated, name).tolist(), name


@settings(max_examples=40, deadline=None)
@given(trace=drawn_traces(), capacity=st.integers(1, 64 * 60))
def test_dense_pools_of_which_all_is_saved_are_one_stream(trace: Trace, capacity: int) -> None:
    paths = page_paths(trace, 8)
    pools, save = POOL_SETS["all at once, a draft too"], SavePolicy.parse("state=all,window=all")
    apart = replayed(paths, pools, DENSE, save, capacity=capacity)
    merged = replayed(paths, pools, DENSE, save, capacity=capacity, merge_dense=True)
    assert len(merged.streams) == 1 < len(apart.streams)
    assert merged.hit.tolist() == apart.hit.tolist()
    assert merged.resident_bytes.tolist() == apart.resident_bytes.tolist()
    assert totals(merged, merged.evicted) == totals(apart, apart.evicted)


@settings(max_examples=40, deadline=None)
@given(
    trace=drawn_traces(),
    capacity=st.integers(1, 64 * 60),
    eviction=st.sampled_from(Eviction),
    policy=st.sampled_from(TransferPolicy),
)
def test_what_was_written_is_resident_or_evicted(
    trace: Trace, capacity: int, eviction: Eviction, policy: TransferPolicy
) -> None:
    paths = page_paths(trace, 8)
    replay = replayed(
        paths, POOL_SETS["all at once, a draft too"], policy, capacity=capacity, eviction=eviction
    )
    sizes = np.array([stream.unit_bytes for stream in replay.streams])
    left = np.cumsum(replay.written - replay.evicted, axis=1)
    assert (sizes @ left).tolist() == replay.resident_bytes.tolist()
    assert left.min() >= 0
    assert replay.resident_bytes.max() <= capacity
    assert (replay.local <= replay.used).all()
    assert (replay.used <= replay.hit).all()
    assert (replay.hit <= paths.matchable).all()


def test_e09_a_window_saved_to_the_page_helps_nobody_who_diverges_earlier() -> None:
    # Full block 32, window block 16, W = 1,024; the producer has 4,100 tokens, the reader shares 4,090.
    pools = (
        pool("kv", AttentionType.FULL, page_tokens=16, unit_pages=2),
        window_pool("swa", 1024, page_tokens=16),
    )
    shared = trace_of(
        (4100, [*range(128), 900, 901]), (4090 + 100, [*range(127), 902, 903, 904, 905]), block_tokens=32
    )
    paths = page_paths(shared, 16)
    exact, two_more = (SavePolicy.parse(f"window=trailing:+{extra}") for extra in (0, 2))
    assert [0, 0] == replayed(paths, pools, save=exact).hit.tolist()
    assert [0, 4064 // 16] == replayed(paths, pools, save=two_more).hit.tolist()


@pytest.mark.parametrize(
    ("save", "expected"), [("state=last", [0, 0, 0]), ("state=every:1k", [0, 5120, 4992 // 1024 * 1024])]
)
def test_e24_states_near_the_end_serve_no_prefix_that_is_shared_in_part(
    save: str, expected: list[int]
) -> None:
    # Requests of 6,000 tokens that share 5,120 and 4,992 of them, in blocks of 64.
    first = [*range(93), 1000]
    trace = trace_of(
        (6000, first),
        (6000, [*first[:80], *range(2000, 2014)]),
        (6000, [*first[:78], *range(3000, 3016)]),
        block_tokens=64,
    )
    pools = with_states(64)
    replay = replayed(page_paths(trace, 64), pools, save=SavePolicy.parse(save))
    assert expected == (replay.hit * 64).tolist()


@pytest.mark.parametrize(
    ("outputs", "expected"), [(OutputSave.ATTENTION, 4096), (OutputSave.ALL, 5120), (OutputSave.NONE, 4096)]
)
def test_e23_a_second_turn_hits_as_far_as_decode_states_were_saved(
    outputs: OutputSave, expected: int
) -> None:
    trace = trace_of(
        (4096, range(8)),
        (5320, [*range(10), 20]),
        outputs=[(1024, [8, 9]), (10, [21])],
    )
    pools = with_states(64)
    paths = page_paths(trace, 64, outputs=outputs)
    replay = replayed(paths, pools, save=SavePolicy.parse("state=last"), outputs=outputs)
    assert expected == replay.hit[1] * 64


def test_e22_a_prompt_that_is_there_as_a_whole_recomputes_its_last_page() -> None:
    pools = with_states(512)
    replay = replayed(page_paths(plain_prompts(8192, 8192), 512), pools, save=SavePolicy.parse("state=all"))
    assert 7680 == replay.hit[1] * 512


def test_e13_a_hit_is_shortened_to_what_the_host_takes_and_says_so() -> None:
    pools = (pool("kv", AttentionType.FULL, page_tokens=1),)
    paths = page_paths(plain_prompts(16_010, 16_011), 1)
    replay = replayed(paths, pools, limits=Limits(host_capacity_tokens=2551))
    assert (15_872, 2551) == (replay.hit[1], replay.used[1])  # 31 whole blocks: ids tell no more
    assert "host_capacity" == SHORTFALLS[replay.shortfall[1] - 1].value


def test_a_hit_below_the_threshold_is_not_read() -> None:
    paths = page_paths(plain_prompts(512, 1024), 64)
    pools = (pool("kv", AttentionType.FULL, page_tokens=64),)
    replay = replayed(paths, pools, limits=Limits(threshold_tokens=513))
    assert (8, 0, 0) == (replay.hit[1], replay.used[1], replay.read[0, 1])
    assert "below_threshold" == SHORTFALLS[replay.shortfall[1] - 1].value


def test_a_save_cannot_write_a_state_that_the_request_neither_computed_nor_read() -> None:
    # The third request resumes behind 1,024 tokens: the state at 512, lost meanwhile, stays lost.
    pools = with_states(512)
    paths = page_paths(plain_prompts(512 + 1, 2048 + 1, 2048 + 1), 512)
    replay = replayed(paths, pools, save=SavePolicy.parse("state=last"))
    assert [0, 1, 4] == replay.hit.tolist()
    states = next(index for index, stream in enumerate(replay.streams) if not stream.touches_all)
    assert [1, 1, 0] == replay.written[states].tolist()
