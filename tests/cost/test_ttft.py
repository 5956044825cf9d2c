from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.cost.compute import FittedPrefill
from hicache_bench.cost.prefetch import PREFETCH_PROFILES, PrefetchOptions, PrefetchPolicy
from hicache_bench.cost.ttft import Scene, first_token
from hicache_bench.links.link import Link
from tests.cost.rig import KV, STATE, plan_of, read_of
from tests.links.rig import fit, link, number, system

MAIN = PREFETCH_PROFILES["sglang-main"]
WAIT = PrefetchOptions(policy=PrefetchPolicy.WAIT_COMPLETE)


def scene(path: Link, *, h2d: float = 1000.0, **changes: Any) -> Scene:
    """A prompt of 100 tokens more than 512 pages, computed at a millisecond a token and 0.5 s."""
    node = system(fit(c0=0.5, c1=1e-3), h2d=h2d)
    values: dict[str, Any] = {
        "link": path,
        "system": node,
        "compute": FittedPrefill(fit=node.prefill["m"], scale=number(1.0), gpus=1),
        "num_ranks": 1,
        "num_layers": 4,
        "prompt_tokens": 2148,
        "local_tokens": 0,
        "prefetch": WAIT,
    }
    return Scene(**{**values, **changes})


READ = read_of(plan_of(KV, num_pages=512), keys=1024)  # 5,120 bytes in four calls


def test_parts_add_up_without_overlap() -> None:
    path = link({1: 1280}, op=0.25, lookup_call=0.5)
    token = first_token([READ], scene(path))
    parts = [token.lookup_seconds, token.read_seconds, token.h2d_seconds, token.compute_seconds]
    assert [0.5, 5.0, 5.12, 0.6] == pytest.approx(parts)
    assert 0.5 + 5.0 + 5.12 + 0.6 == pytest.approx(token.total.none)


@pytest.mark.parametrize(("h2d", "behind"), [(1000.0, 5.12), (10240.0, 0.125 + 0.6)])
def test_with_overlap_the_first_layer_and_the_longer_of_both_are_seen(h2d: float, behind: float) -> None:
    token = first_token([READ], scene(link({1: 5120}), h2d=h2d))
    assert 1.0 + behind == pytest.approx(token.total.full)


def test_recomputing_waits_for_the_queue_alone() -> None:
    options = replace(WAIT, queue_seconds=3.0)
    assert 3.0 + 0.5 + 2.148 == pytest.approx(scene(link(), prefetch=options).recompute_seconds)
    assert 0.5 + 1.148 == pytest.approx(scene(link(), local_tokens=1000).recompute_seconds)


def test_a_prefetch_hides_in_the_queue() -> None:
    options = replace(WAIT, queue_seconds=3.0)
    for rate, admitted in ((5120, 3.0), (1280, 4.0)):
        token = first_token([READ], scene(link({1: rate}), prefetch=options))
        assert admitted + 5.12 + 0.6 == pytest.approx(token.total.none)


def test_ranks_and_requests_share_a_nodes_link() -> None:
    ranks = [replace(READ, copies=16)]
    one = first_token([READ], scene(link({1: 5120})))
    spread = first_token(ranks, scene(link({1: 5120}), num_ranks=16, concurrency=3))
    assert 8 * 3 * one.read_seconds == pytest.approx(spread.read_seconds)
    # Two nodes of 8 GPUs, each rank over its own path.
    assert one.h2d_seconds == pytest.approx(spread.h2d_seconds)


def test_the_nodes_memory_feeds_all_gpus() -> None:
    node = replace(system(fit(), h2d=1000.0), h2d_node=number(2000.0))
    token = first_token([replace(READ, copies=8)], scene(link(), system=node, num_ranks=8))
    assert 8 * 5120 / 2000 == pytest.approx(token.h2d_seconds)


def test_a_cut_recomputes_what_did_not_land() -> None:
    profile = replace(MAIN, base_seconds=1.0, seconds_per_ki_token=0.0)
    options = PrefetchOptions(profile=profile)
    token = first_token([READ], scene(link({1: 2600}), prefetch=options))
    assert (1024, 1.0) == (token.usable.used_tokens, token.fetched.stop_seconds)
    assert 0.5 + 1.124 == pytest.approx(token.compute_seconds)
    assert 2.56 == token.h2d_seconds


@pytest.mark.parametrize("profile", list(PREFETCH_PROFILES))
@given(st.floats(100.0, 5000.0))
def test_at_the_rate_that_is_named_nothing_is_cut(profile: str, rate: float) -> None:
    options = PrefetchOptions(profile=replace(PREFETCH_PROFILES[profile], base_seconds=0.3))
    read = read_of(plan_of(KV, STATE, num_pages=512))
    token = first_token([read], scene(link({1: rate}, op=0.01), prefetch=options))
    enough = token.uncut_bytes_per_second
    assert (enough is None) == token.fetched.is_complete
    if enough is not None:
        assert enough > rate
        at = {
            factor: first_token([read], scene(link({1: enough * factor}, op=0.01), prefetch=options))
            for factor in (0.999, 1.001)
        }
        assert [False, True] == [token.fetched.is_complete for token in at.values()]


def test_no_rate_is_enough_where_the_calls_alone_take_longer() -> None:
    profile = replace(MAIN, base_seconds=1.0, seconds_per_ki_token=0.0)
    token = first_token([READ], scene(link({1: 1e9}, op=0.3), prefetch=PrefetchOptions(profile=profile)))
    assert (False, None) == (token.fetched.is_complete, token.uncut_bytes_per_second)


@given(st.floats(10.0, 1e7), st.floats(10.0, 1e7), st.integers(1, 80))
def test_hiding_never_costs_and_never_saves_more_than_it_hides(rate: float, h2d: float, layers: int) -> None:
    token = first_token([READ], scene(link({1: rate}), h2d=h2d, num_layers=layers))
    assert token.total.full <= token.total.none * (1 + 1e-9)
    hidden = token.total.none - token.total.full
    assert hidden <= min(token.h2d_seconds, token.compute_seconds) * (1 + 1e-9) + 1e-9
