from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.cost.prefetch import (
    PREFETCH_PROFILES,
    Prefetched,
    PrefetchOptions,
    PrefetchPolicy,
    PrefetchProfile,
    Usable,
    prefetch,
    usable,
)
from hicache_bench.cost.volumes import RankRead, plan_calls
from hicache_bench.planning.plan import narrow
from hicache_bench.planning.policy import TransferPolicy
from tests.cost.rig import KV, STATE, WINDOW, plan_of, read_of
from tests.links.rig import link

OLD, MAIN = PREFETCH_PROFILES["sglang-0.5.23"], PREFETCH_PROFILES["sglang-main"]


def strict(profile: PrefetchProfile, seconds: float = 1.0) -> PrefetchProfile:
    """The profile with a fixed timeout."""
    return replace(profile, base_seconds=seconds, seconds_per_ki_token=0.0, cap_seconds=None)


def play(
    read: RankRead,
    rate: float,
    profile: PrefetchProfile = MAIN,
    policy: PrefetchPolicy = PrefetchPolicy.TIMEOUT,
    queue: float = 0.0,
) -> tuple[Prefetched, Usable]:
    """Prefetch over a link of ``rate`` bytes per second."""
    options = PrefetchOptions(policy=policy, profile=profile, queue_seconds=queue)
    fetched = prefetch([read], link({1: rate}), options, sharers=1)
    return fetched, usable([read], fetched.landed_calls, profile, is_complete=fetched.is_complete)


# --- the timeout ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "tokens", "seconds"),
    [
        (MAIN, 16_384, 3.6),
        (OLD, 16_384, 5.0),
        (MAIN, 1_048_576, 30.0),
        (OLD, 1_048_576, 257.0),
        (MAIN, 0, 2.0),
        (OLD, 512, 1.125),
    ],
)
def test_timeouts_are_those_of_the_engine(
    profile: PrefetchProfile, tokens: int, seconds: float
) -> None:  # cases E62
    assert seconds == pytest.approx(profile.timeout_seconds(tokens))


def test_only_tokens_to_fetch_count() -> None:  # cases E62
    whole = play(read_of(plan_of(KV, num_pages=512)), 1e9, OLD)[0]
    behind_local = play(read_of(plan_of(KV, num_pages=512, local_tokens=1024)), 1e9, OLD)[0]
    assert (1.5, 1.25) == (whole.timeout_seconds, behind_local.timeout_seconds)


def test_profiles_say_what_they_do() -> None:
    assert "1 s + 0.25 s per 1,024 tokens, no cap" == OLD.formula
    assert "2 s + 0.1 s per 1,024 tokens, at most 30 s" == MAIN.formula
    assert {256} == {profile.threshold_tokens for profile in PREFETCH_PROFILES.values()}


# --- what lands -----------------------------------------------------------------------------------------

LONG = plan_of(KV, num_pages=512)  # four batches of 1,280 bytes


@pytest.mark.parametrize(
    ("rate", "landed", "used"), [(1e9, 4, 512), (2600, 2, 256), (1281, 1, 128), (1279, 0, 0)]
)
def test_a_cut_leaves_whole_batches(rate: float, landed: int, used: int) -> None:
    fetched, found = play(read_of(LONG), rate, strict(MAIN))
    assert (landed,) == fetched.landed_calls
    assert (used * 4, used, used * 10) == (found.used_tokens, found.landed_pages, found.rank_bytes[0])
    assert (landed == 4) == fetched.is_complete
    assert 0 == found.wasted_bytes


def test_a_cut_ends_at_the_timeout_and_not_later() -> None:
    fetched, _ = play(read_of(LONG), 1300, strict(MAIN, 2.5))
    assert (2.5, False) == (fetched.stop_seconds, fetched.is_complete)
    assert 5120 / 1300 == pytest.approx(fetched.finish_seconds)


def test_waiting_to_the_end_cuts_nothing() -> None:
    fetched, found = play(read_of(LONG), 10, policy=PrefetchPolicy.WAIT_COMPLETE)
    assert (512.0, True, 2048) == (fetched.stop_seconds, fetched.is_complete, found.used_tokens)
    assert fetched.timeout_seconds is None


def test_best_effort_takes_what_the_queue_gave_time_for() -> None:
    read = read_of(LONG)
    for queue, pages in ((0.0, 0), (1.1, 128), (2.1, 256), (4.1, 512)):
        fetched, found = play(read, 1280, policy=PrefetchPolicy.BEST_EFFORT, queue=queue)
        assert pages * 4 == found.used_tokens
        assert min(queue, 4.0) == pytest.approx(fetched.stop_seconds)


def test_the_timeout_begins_when_the_queue_ends() -> None:
    assert (2,) == play(read_of(LONG), 1280, strict(MAIN, 1.5), queue=0.6)[0].landed_calls
    assert (1,) == play(read_of(LONG), 1280, strict(MAIN, 1.5), queue=0.4)[0].landed_calls


def test_queries_come_before_the_first_call() -> None:
    read = read_of(LONG, keys=1024)
    options = PrefetchOptions(policy=PrefetchPolicy.WAIT_COMPLETE)
    path = link({1: 1280}, op=0.25, lookup_call=0.5, lookup_key=1e-3)
    fetched = prefetch([read], path, options, sharers=1)
    assert [1.524, 1.524 + 4 * 1.25] == pytest.approx([fetched.lookup_seconds, fetched.finish_seconds])


def test_sharers_share_the_bytes_and_not_the_latency() -> None:
    options = PrefetchOptions(policy=PrefetchPolicy.WAIT_COMPLETE)
    fetched = prefetch([read_of(LONG)], link({1: 1280}, op=0.25), options, sharers=3)
    assert 4 * 0.25 + 4 * 3.0 == pytest.approx(fetched.finish_seconds)


# --- hybrids: the matrix of nothing, KV, all done ---------------------------------------------------------

HYBRID = plan_of(KV, STATE, num_pages=4)


def hybrid() -> RankRead:
    """One call of kv (40 bytes), then one of the state alone (100 bytes)."""
    return replace(read_of(HYBRID), calls=plan_calls(HYBRID, max_objects=8))


@pytest.mark.parametrize(
    ("profile", "policy", "seconds", "used", "wasted"),
    [
        # a second is 10 bytes: kv lands after 4 s, the state after 14 s
        (MAIN, PrefetchPolicy.TIMEOUT, 3.0, 0, 0),
        (MAIN, PrefetchPolicy.TIMEOUT, 5.0, 0, 40),
        (MAIN, PrefetchPolicy.TIMEOUT, 15.0, 16, 0),
        (OLD, PrefetchPolicy.TIMEOUT, 3.0, 0, 0),
        (OLD, PrefetchPolicy.TIMEOUT, 5.0, 16, 0),  # not cut: KV has landed
        (OLD, PrefetchPolicy.TIMEOUT, 15.0, 16, 0),
        (MAIN, PrefetchPolicy.BEST_EFFORT, 3.0, 0, 0),
        (MAIN, PrefetchPolicy.BEST_EFFORT, 5.0, 0, 40),
        (MAIN, PrefetchPolicy.BEST_EFFORT, 15.0, 16, 0),
        (MAIN, PrefetchPolicy.WAIT_COMPLETE, 3.0, 16, 0),
        (OLD, PrefetchPolicy.WAIT_COMPLETE, 5.0, 16, 0),
    ],
)
def test_a_side_pool_that_is_late(
    profile: PrefetchProfile, policy: PrefetchPolicy, seconds: float, used: int, wasted: int
) -> None:  # cases E64
    queue = seconds if policy is PrefetchPolicy.BEST_EFFORT else 0.0
    fetched, found = play(hybrid(), 10, strict(profile, seconds), policy, queue)
    assert (used, wasted) == (found.used_tokens, found.wasted_bytes)
    late = not profile.cuts_side_pools and policy is PrefetchPolicy.TIMEOUT and seconds >= 4
    expected = 14.0 if late or policy is PrefetchPolicy.WAIT_COMPLETE else min(seconds, 14.0)
    assert expected == pytest.approx(fetched.stop_seconds)


def test_dense_leaves_an_endpoint_where_the_selective_one_does_not() -> None:
    """Dense reads the window of every endpoint, so that a cut leaves a shorter one."""
    for policy, used in ((TransferPolicy.DENSE, 1024), (TransferPolicy.SELECTIVE, 0)):
        read = read_of(plan_of(KV, WINDOW, num_pages=512, policy=policy))
        assert used == play(read, 3000, strict(MAIN))[1].used_tokens


def test_0_5_23_discards_everything_of_a_model_with_trailing_pools() -> None:
    read = read_of(plan_of(KV, WINDOW, num_pages=512, policy=TransferPolicy.DENSE))
    fetched, found = play(read, 3000, strict(OLD))
    assert ((2,), 0, 256 * 11) == (fetched.landed_calls, found.used_tokens, found.wasted_bytes)


def test_0_5_23_clamps_a_model_without_trailing_pools() -> None:
    assert 1024 == play(read_of(LONG), 2600, strict(OLD))[1].used_tokens


def test_local_tokens_stay_whatever_is_cut() -> None:
    read = read_of(plan_of(KV, STATE, num_pages=512, local_tokens=400))
    fetched, found = play(read, 100, strict(OLD))
    assert (0, 400) == (fetched.landed_calls[0], found.used_tokens)


def test_an_index_chose_for_the_planned_endpoint_alone() -> None:
    plan = plan_of(KV, num_pages=512)
    selected = plan.pools[0].units % 2 == 0
    narrowed = replace(plan, pools=(narrow(plan.pools[0], selected),))
    assert (0, 2048) == tuple(
        play(read_of(narrowed), rate, strict(MAIN))[1].used_tokens for rate in (1300, 1e9)
    )


def test_the_slowest_rank_decides() -> None:
    few, many = read_of(plan_of(KV, num_pages=512)), read_of(plan_of(KV, WINDOW, num_pages=512))
    options = PrefetchOptions(profile=strict(MAIN))
    fetched = prefetch([few, many], link({1: 5120}), options, sharers=1)
    assert (4, 3) == fetched.landed_calls
    assert not fetched.is_complete
    assert 0 == usable([few, many], fetched.landed_calls, MAIN, is_complete=fetched.is_complete).used_tokens


# --- host capacity and threshold --------------------------------------------------------------------------


@pytest.mark.parametrize(("capacity", "used"), [(2551, 2551), (0, 0)])
def test_host_memory_bounds_what_is_fetched(capacity: int, used: int) -> None:  # cases E13
    pool = replace(KV, page_tokens=1)
    plan = plan_of(pool, num_pages=16_010, host_capacity_pages=capacity)
    found = play(read_of(plan), 1e9)[1]
    assert (16_010, used, "host_capacity") == (plan.hit_pages, found.used_tokens, str(plan.shortfall))


@pytest.mark.parametrize(("pages", "calls"), [(63, 0), (64, 1)])
def test_a_short_hit_is_not_read(pages: int, calls: int) -> None:  # cases E63
    plan = plan_of(KV, num_pages=pages, threshold_tokens=MAIN.threshold_tokens)
    read = read_of(plan)
    found = play(read, 1e9)[1]
    assert (calls, calls * pages * 4) == (len(read.calls), found.used_tokens)


@given(
    st.integers(1, 600), st.floats(1.0, 1e5), st.floats(0.0, 4.0), st.sampled_from(list(TransferPolicy)),
    st.sampled_from([OLD, MAIN]), st.sampled_from(list(PrefetchPolicy)),
)  # fmt: skip
def test_a_prefetch_never_gives_more_than_was_promised(
    num_pages: int,
    rate: float,
    queue: float,
    policy: TransferPolicy,
    profile: PrefetchProfile,
    stop: PrefetchPolicy,
) -> None:
    read = read_of(plan_of(KV, WINDOW, STATE, num_pages=num_pages, policy=policy))
    fetched, found = play(read, rate, profile, stop, queue)
    assert 0 <= found.fulfilled_tokens <= found.used_tokens <= read.plan.hit_pages * 4
    assert found.wasted_bytes >= 0
    assert fetched.stop_seconds <= fetched.finish_seconds
    if fetched.is_complete:
        assert (read.num_bytes, num_pages * 4) == (found.rank_bytes[0], found.used_tokens)
