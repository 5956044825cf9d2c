"""From modelled times to what a record says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite

from hicache_bench.cost.breakeven import break_even, fast25_break_even
from hicache_bench.cost.flops import FlopsModel
from hicache_bench.cost.prefetch import PrefetchPolicy
from hicache_bench.cost.ttft import FirstToken, Scene, first_token
from hicache_bench.cost.volumes import RankRead
from hicache_bench.links.system import System
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.records.simulation import BreakEvenTime, PolicyTime, Span

Reads = Mapping[TransferPolicy, tuple[RankRead, ...]]

MAP_BANDWIDTHS = (1e9, 2.5e9, 5e9, 10e9, 25e9, 50e9, 100e9, 200e9, 400e9)
"""Bytes per second over a node's link for which a map of speed-ups has a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corners:
    """A request with every constant at its value, at the quick and at the slow end of its band."""

    value: Scene
    quick: Scene
    slow: Scene


def recompute_span(corners: Corners) -> Span:
    """Time to first token if nothing is read."""
    seconds = corners.value.recompute_seconds
    return Span(
        full_overlap=seconds,
        no_overlap=seconds,
        low=corners.quick.recompute_seconds,
        high=corners.slow.recompute_seconds,
    )


def policy_times(reads: Reads, corners: Corners) -> tuple[PolicyTime, ...]:
    """Every policy; speed-ups compare what nothing hides, the end that promises least."""
    found = {policy: first_token(ranks, corners.value) for policy, ranks in reads.items()}
    dense = found.get(TransferPolicy.DENSE)
    return tuple(
        _policy_time(
            policy,
            reads[policy],
            token,
            corners,
            Span(
                full_overlap=token.total.full,
                no_overlap=token.total.none,
                low=first_token(reads[policy], corners.quick).total.full,
                high=first_token(reads[policy], corners.slow).total.none,
            ),
            dense,
        )
        for policy, token in found.items()
    )


def _policy_time(
    policy: TransferPolicy,
    ranks: tuple[RankRead, ...],
    token: FirstToken,
    corners: Corners,
    ttft: Span,
    dense: FirstToken | None,
) -> PolicyTime:
    scene = corners.value
    plan = ranks[0].plan
    page_tokens = plan.pools[0].pool.page_tokens
    hit, planned = plan.hit_pages * page_tokens, plan.endpoint_pages * page_tokens
    used = token.usable.used_tokens
    cut_by = "timeout" if scene.prefetch.policy is PrefetchPolicy.TIMEOUT else "best_effort"
    unused = {
        plan.shortfall.value if plan.shortfall else cut_by: hit - max(planned, plan.local_tokens),
        cut_by: max(planned, plan.local_tokens) - used,
    }
    return PolicyTime(
        policy=policy.value,
        hit_tokens=hit,
        fulfilled_tokens=token.usable.fulfilled_tokens,
        used_tokens=used,
        unused_tokens={reason: tokens for reason, tokens in unused.items() if tokens > 0},
        num_bytes=sum(rank.copies * rank.num_bytes for rank in ranks),
        objects=sum(rank.copies * rank.num_objects for rank in ranks),
        rank_bytes=max(rank.num_bytes for rank in ranks),
        rank_calls=max(len(rank.calls) for rank in ranks),
        landed_calls=min(token.fetched.landed_calls),
        landed_pages=token.usable.landed_pages,
        wasted_bytes=token.usable.wasted_bytes,
        lookup_keys=sum(rank.copies * rank.lookup_keys for rank in ranks),
        is_cut=not token.fetched.is_complete,
        timeout_seconds=token.fetched.timeout_seconds,
        finish_seconds=token.fetched.finish_seconds,
        lookup_seconds=token.lookup_seconds,
        read_seconds=token.read_seconds,
        h2d_seconds=token.h2d_seconds,
        compute_seconds=token.compute_seconds,
        ttft=ttft,
        speed_up_over_recompute=scene.recompute_seconds / token.total.none,
        speed_up_over_dense=dense.total.none / token.total.none if dense else None,
        uncut_bytes_per_second=token.uncut_bytes_per_second,
    )


def break_evens(
    reads: Reads, scene: Scene, flops: FlopsModel | None, system: System
) -> tuple[BreakEvenTime, ...]:
    """The break-even of every policy, and its speed-up by bandwidth; nothing is cut here."""
    waiting = replace(scene, prefetch=replace(scene.prefetch, policy=PrefetchPolicy.WAIT_COMPLETE))
    return tuple(_break_even(policy, ranks, waiting, flops, system) for policy, ranks in reads.items())


def _break_even(
    policy: TransferPolicy,
    ranks: tuple[RankRead, ...],
    scene: Scene,
    flops: FlopsModel | None,
    system: System,
) -> BreakEvenTime:
    found = break_even(ranks, scene)
    used = ranks[0].plan.endpoint_pages * ranks[0].plan.pools[0].pool.page_tokens
    at_peak = None
    if flops is not None and used > scene.local_tokens:
        at_peak = fast25_break_even(
            flops,
            num_bytes=found.node_bytes // scene.concurrency,
            tokens=used,
            local_tokens=scene.local_tokens,
            flops_per_second=scene.num_ranks * system.flops.value,
        )
    return BreakEvenTime(
        policy=policy.value,
        node_bytes=found.node_bytes,
        full_overlap=_finite(found.rate.full),
        no_overlap=_finite(found.rate.none),
        at_peak=at_peak,
        speed_up={
            f"{rate:g}": scene.recompute_seconds
            / first_token(ranks, replace(scene, link=scene.link.at_bandwidth(rate))).total.none
            for rate in MAP_BANDWIDTHS
        },
    )


def _finite(rate: float) -> float | None:
    return rate if isfinite(rate) else None
