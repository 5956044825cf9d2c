from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.pools.names import AttentionType
from hicache_bench.trace.format import Trace, read_trace
from hicache_bench.trace.metrics import (
    MeasuredReads,
    ModeledTimes,
    ReplaySummary,
    first_measured,
    percentiles,
    summarize,
    ubiquitous_pages,
)
from hicache_bench.trace.paths import page_paths
from hicache_bench.trace.replay import Limits, Replay
from tests.pool_builders import pool, window_pool
from tests.trace.test_replay import replayed
from tests.trace.traces import CONVERSATION, drawn_traces, needs_conversation, plain_prompts, trace_of

KV = pool("kv", AttentionType.FULL, page_tokens=8)
POOLS = (KV, window_pool("swa", 20, page_tokens=8))


def summary_of(
    trace: Trace,
    *,
    page_tokens: int = 8,
    capacity: int | None = None,
    limits: Limits | None = None,
    first: int = 0,
    policy: TransferPolicy = TransferPolicy.SELECTIVE,
) -> tuple[Replay, ReplaySummary]:
    paths = page_paths(trace, page_tokens)
    pools = POOLS if page_tokens == 8 else (pool("kv", AttentionType.FULL, page_tokens=page_tokens),)
    replay = replayed(paths, pools, policy, capacity=capacity, limits=limits)
    return replay, summarize(trace, paths, replay, first, ubiquitous=ubiquitous_pages(trace, paths))


def test_e83_what_is_local_was_not_asked_of_the_tier() -> None:
    # 1,000 tokens, 600 of them local, 200 of the other 400 in the tier.
    trace = trace_of((800, range(8)), (1000, [*range(8), 20, 21]), block_tokens=100)
    _, summary = summary_of(trace, page_tokens=100, limits=Limits(local_tokens=600), first=1)
    tokens = summary.tokens
    assert (1000, 600, 400, 200) == (tokens.prompt, tokens.local, tokens.queried, tokens.hit)
    assert 0.5 == tokens.hit_rate


def test_e15_the_tier_is_credited_with_what_it_adds_to_the_local_prefix() -> None:
    trace = trace_of((768, range(3)), (1000, [*range(3), 9]), block_tokens=256)
    _, summary = summary_of(trace, page_tokens=64, limits=Limits(local_tokens=320), first=1)
    assert (320, 448) == (summary.tokens.local, summary.tokens.used)


def test_e84_a_prompt_with_nothing_to_ask_for_is_skipped_and_no_miss() -> None:
    trace = trace_of((7, [1]), (40, [2, 3]), (40, [2, 3]), block_tokens=32)
    _, summary = summary_of(trace)
    requests = summary.requests
    assert (3, 2, 1, 1) == (requests.total, requests.asked, requests.skipped, requests.hit)
    assert 0.5 == requests.hit_rate


@settings(max_examples=60, deadline=None)
@given(
    trace=drawn_traces(),
    capacity=st.none() | st.integers(1, 64 * 50),
    host=st.sampled_from([None, 0, 24]),
    threshold=st.sampled_from([0, 20]),
    local=st.sampled_from([0, 16]),
    policy=st.sampled_from(TransferPolicy),
)
def test_e84_e86_every_token_ends_in_one_place_and_no_count_is_negative(
    trace: Trace,
    capacity: int | None,
    host: int | None,
    threshold: int,
    local: int,
    policy: TransferPolicy,
) -> None:
    limits = Limits(local_tokens=local, host_capacity_tokens=host, threshold_tokens=threshold)
    _, summary = summary_of(trace, capacity=capacity, limits=limits, policy=policy)
    for tokens in (summary.tokens, summary.beyond_first):
        assert tokens.prompt == tokens.local + tokens.queried
        assert tokens.hit == tokens.used + sum(tokens.unused.values())
        assert 0 <= tokens.used <= tokens.hit <= tokens.queried
        assert min(tokens.unused.values(), default=1) > 0
    for requests in (summary.requests, summary.requests_beyond_first):
        assert requests.total == requests.asked + requests.skipped
        assert 0 <= requests.hit <= requests.asked
    for traffic in summary.pools:
        assert traffic.resident_units == traffic.written_units - traffic.evicted_units >= 0


def test_e88_a_first_block_that_all_prompts_share_is_left_out_where_said() -> None:
    trace = trace_of((1024, [0, 1]), (1024, [0, 2]), (1536, [0, 2, 3]))
    _, summary = summary_of(trace, page_tokens=64)
    assert (3584, 512 + 1024) == (summary.tokens.queried, summary.tokens.hit)
    assert (3584 - 3 * 512, 512) == (summary.beyond_first.queried, summary.beyond_first.hit)
    assert (2, 1) == (summary.requests.hit, summary.requests_beyond_first.hit)


def test_a_first_block_that_half_of_the_prompts_share_is_not_left_out() -> None:
    trace = trace_of((1024, [0, 1]), (1024, [5, 2]), (1536, [0, 2, 3]))
    assert [0, 0, 0] == ubiquitous_pages(trace, page_paths(trace, 64)).tolist()


@needs_conversation
def test_e88_every_prompt_of_the_conversation_trace_begins_with_one_block() -> None:
    trace = read_trace(CONVERSATION)
    pages = ubiquitous_pages(trace, page_paths(trace, 512))
    assert [1] == np.unique(pages[trace.input_tokens >= 512]).tolist()


@pytest.mark.parametrize(
    ("first", "capacity", "warmth"), [(0, 256, "cold"), (2, 256, "full"), (2, None, "filling")]
)
def test_the_state_of_the_tier_when_measuring_began_is_told(
    first: int, capacity: int | None, warmth: str
) -> None:
    trace = trace_of((64, [1, 2]), (64, [3, 4]), (64, [1, 5]), block_tokens=32)
    _, summary = summary_of(trace, capacity=capacity, first=first)
    assert warmth == summary.warmth


@pytest.mark.parametrize(("percent", "first"), [(100, 0), (50, 6015), (1, 11_910), (99, 120)])
def test_measured_requests_are_the_last(percent: int, first: int) -> None:
    assert first == first_measured(12_031, percent)
    assert 0 == first_measured(1, percent)


def test_bytes_a_second_are_added_up_over_ten_seconds() -> None:
    trace = trace_of(*((33, [1, 50 + number]) for number in range(4)), block_tokens=32, seconds_apart=6.0)
    replay, summary = summary_of(trace)
    # Requests at 0 and 6 s, at 12 and 18 s: the first finds nothing.
    sizes = [stream.unit_bytes for stream in replay.streams]
    each = int(np.dot(sizes, replay.read[:, 1]))
    assert (each / 10, 2 * each / 10) == (summary.bandwidth.read["p50"], summary.bandwidth.read["p99"])


def test_ttft_is_asked_of_the_model_for_what_was_used_and_read() -> None:
    asked: list[MeasuredReads] = []

    def model(reads: MeasuredReads) -> ModeledTimes:
        asked.append(reads)
        seconds = (reads.prompt_tokens - reads.used_pages * 8) / 1e3
        return ModeledTimes(
            seconds={"quick": seconds, "slow": 2 * seconds}, is_cut=np.array([False, True, True])
        )

    trace = plain_prompts(64, 128, 128, block_tokens=32)
    paths = page_paths(trace, 8)
    replay = replayed(paths, POOLS)
    ttft = summarize(trace, paths, replay, 0, ubiquitous=ubiquitous_pages(trace, paths), ttft=model).ttft
    (reads,) = asked
    assert [[64, 128, 128], [7, 15, 15], [0, 8, 15], [0, 0, 0]] == [
        values.tolist()
        for values in (reads.prompt_tokens, reads.asked_pages, reads.used_pages, reads.local_pages)
    ]
    read_bytes = [[member.read_bytes for member in stream.members] for stream in reads.streams]
    assert [512, 192] == [units * size for units, (size,) in zip(reads.units[:, 1], read_bytes, strict=True)]
    expected = {"p50": 0.064, "p90": 0.064, "p99": 0.064, "mean": pytest.approx(0.136 / 3)}
    assert ttft is not None
    assert expected == ttft.seconds["quick"]
    assert ({"quick", "slow"}, 2) == (set(ttft.seconds), ttft.cut_requests)


def test_percentiles_are_values_that_occurred() -> None:
    found = percentiles(np.arange(1.0, 101.0))
    assert {"p50": 50.0, "p90": 90.0, "p99": 99.0, "mean": 50.5} == found
