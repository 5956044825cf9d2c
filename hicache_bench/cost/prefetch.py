"""How far HiCache's prefetch from L3 to L2 comes before a request starts, and what that is good for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from types import MappingProxyType

import numpy as np

from hicache_bench.cost.volumes import RankRead
from hicache_bench.links.link import Link
from hicache_bench.planning.plan import SkipReason
from hicache_bench.planning.policy import IntVector, TransferPolicy, first_needed_at
from hicache_bench.planning.resolve import Resolution, num_units, resolve, resolve_ranks
from hicache_bench.pools.names import HitPolicy


class PrefetchPolicy(str, Enum):
    """When a request stops waiting for its prefetch (SGLang's ``hicache_storage_prefetch_policy``)."""

    TIMEOUT = "timeout"
    BEST_EFFORT = "best_effort"
    WAIT_COMPLETE = "wait_complete"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchProfile:
    """The prefetch of one release: ``timeout = min(cap, base + per 1,024 tokens)``, in seconds.

    Tokens are those to fetch. ``all_or_nothing`` discards what landed before a cut if the model has trailing
    pools; ``cuts_side_pools`` cuts also where only they are pending and KV has landed.
    """

    name: str
    base_seconds: float
    seconds_per_ki_token: float
    cap_seconds: float | None
    threshold_tokens: int
    all_or_nothing: bool
    cuts_side_pools: bool
    source: str

    def timeout_seconds(self, tokens: int) -> float:
        """How long a request waits for the prefetch of ``tokens``."""
        seconds = self.base_seconds + self.seconds_per_ki_token * tokens / 1024
        return seconds if self.cap_seconds is None else min(self.cap_seconds, seconds)

    @property
    def formula(self) -> str:
        """The timeout in words."""
        cap = "no cap" if self.cap_seconds is None else f"at most {self.cap_seconds:g} s"
        return f"{self.base_seconds:g} s + {self.seconds_per_ki_token:g} s per 1,024 tokens, {cap}"


PREFETCH_PROFILES: Mapping[str, PrefetchProfile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            PrefetchProfile(
                name="sglang-0.5.23",
                base_seconds=1.0,
                seconds_per_ki_token=0.25,
                cap_seconds=None,
                threshold_tokens=256,
                all_or_nothing=True,
                cuts_side_pools=False,
                source="SGLang 0.5.23, mem_cache/unified_radix_cache.py",
            ),
            PrefetchProfile(
                name="sglang-main",
                base_seconds=2.0,
                seconds_per_ki_token=0.1,
                cap_seconds=30.0,
                threshold_tokens=256,
                all_or_nothing=False,
                cuts_side_pools=True,
                source="SGLang pull request 23309 (timeout); 35181, open when read (pending side pools)",
            ),
        )
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchOptions:
    """How a request prefetches; it waits ``queue_seconds`` for its turn whatever the prefetch does."""

    policy: PrefetchPolicy = PrefetchPolicy.TIMEOUT
    profile: PrefetchProfile = PREFETCH_PROFILES["sglang-0.5.23"]
    queue_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetched:
    """What a prefetch came to. Seconds count from the request's arrival.

    ``stop_seconds`` is when it ended, ``finish_seconds`` when it would have been complete;
    ``timeout_seconds`` the wait that the profile grants after the queue, None under another policy.
    ``landed_calls`` counts, per rank, the store calls that had ended.
    """

    stop_seconds: float
    finish_seconds: float
    lookup_seconds: float
    timeout_seconds: float | None
    landed_calls: tuple[int, ...]
    is_complete: bool


def prefetch(ranks: Sequence[RankRead], link: Link, options: PrefetchOptions, *, sharers: int) -> Prefetched:
    """Play the prefetch of all ``ranks`` while ``sharers`` equal transfers use a node's link."""
    lookup = max(link.lookup_seconds(rank.lookup_keys, rank.lookup_calls) for rank in ranks)
    ends = [call_ends(rank, link, sharers=sharers, start=lookup) for rank in ranks]
    finish = max((times[-1] for times in ends if times), default=lookup)
    tokens = ranks[0].plan.loaded_tokens
    timeout = None
    limit = finish
    if options.policy is PrefetchPolicy.TIMEOUT:
        timeout = options.profile.timeout_seconds(tokens)
        limit = options.queue_seconds + timeout
        kv_landed = all(
            not rank.kv_calls or times[rank.kv_calls - 1] <= limit
            for rank, times in zip(ranks, ends, strict=True)
        )
        if kv_landed and not options.profile.cuts_side_pools:
            limit = max(limit, finish)
    elif options.policy is PrefetchPolicy.BEST_EFFORT:
        limit = options.queue_seconds
    stop = min(finish, limit)
    return Prefetched(
        stop_seconds=stop,
        finish_seconds=finish,
        lookup_seconds=min(lookup, stop),
        timeout_seconds=timeout,
        landed_calls=tuple(sum(end <= stop for end in times) for times in ends),
        is_complete=finish <= stop,
    )


def call_ends(rank: RankRead, link: Link, *, sharers: int, start: float = 0.0) -> list[float]:
    """When each call of a rank ends: one after the other from ``start`` on, as the engine makes them."""
    durations: dict[tuple[tuple[int, int], ...], float] = {}
    for call in rank.calls:
        if call.groups not in durations:
            durations[call.groups] = link.op.value + link.move_seconds(call.groups, sharers=sharers)
    return list(accumulate((durations[call.groups] for call in rank.calls), initial=start))[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """The endpoint that the model resumes from, and the bytes of it that each rank read.

    ``fulfilled_tokens`` are whole with what landed and what is local; ``used_tokens`` at least the local
    prefix. ``wasted_bytes`` landed and are of no use.
    """

    fulfilled_tokens: int
    used_tokens: int
    landed_pages: int
    rank_bytes: tuple[int, ...]
    wasted_bytes: int


def usable(
    ranks: Sequence[RankRead], landed_calls: Sequence[int], profile: PrefetchProfile, *, is_complete: bool
) -> Usable:
    """What landed with so many calls of each rank, resolved again.

    That is the largest endpoint that is legal on every rank with what is there.
    """
    plan = ranks[0].plan
    page_tokens = plan.pools[0].pool.page_tokens
    landed = [rank.landed_units(calls) for rank, calls in zip(ranks, landed_calls, strict=True)]
    pages = plan.endpoint_pages
    # What an index left out was chosen for the planned endpoint; at a shorter one it would be other blocks.
    narrowed = any(SkipReason.NOT_SELECTED in item.skipped for rank in ranks for item in rank.plan.pools)
    if not is_complete:
        has_trailing = any(
            item.pool.hit_policy is HitPolicy.TRAILING_PAGES and item.pool.constrains
            for rank in ranks
            for item in rank.plan.pools
        )
        if narrowed or (profile.all_or_nothing and has_trailing):
            pages = plan.local_tokens // page_tokens
        else:
            pages = resolve_ranks(
                [_resolved(rank, units) for rank, units in zip(ranks, landed, strict=True)]
            ).hit_pages
    rank_bytes = tuple(_used_bytes(rank, units, pages) for rank, units in zip(ranks, landed, strict=True))
    arrived = sum(
        rank.copies * sum(call.num_bytes for call in rank.calls[:calls])
        for rank, calls in zip(ranks, landed_calls, strict=True)
    )
    return Usable(
        fulfilled_tokens=pages * page_tokens,
        used_tokens=max(pages * page_tokens, plan.local_tokens),
        landed_pages=_landed_pages(ranks, landed),
        rank_bytes=rank_bytes,
        wasted_bytes=arrived - sum(rank.copies * used for rank, used in zip(ranks, rank_bytes, strict=True)),
    )


def _resolved(rank: RankRead, landed: Mapping[str, IntVector]) -> Resolution:
    plan = rank.plan
    presence = {}
    for item in plan.pools:
        present = np.zeros(num_units(item.pool, plan.endpoint_pages), dtype=np.bool_)
        present[landed[item.pool.name]] = True
        presence[item.pool.name] = present
    pools = [item.pool for item in plan.pools]
    return resolve(pools, presence, plan.policy, plan.endpoint_pages, local_tokens=plan.local_tokens)


def _used_bytes(rank: RankRead, landed: Mapping[str, IntVector], pages: int) -> int:
    total = 0
    for item in rank.plan.pools:
        end = num_units(item.pool, pages)
        dense = rank.plan.policy is TransferPolicy.DENSE
        first = 0 if dense else first_needed_at(item.pool, rank.plan.policy, end)
        units = landed[item.pool.name]
        total += int(((units >= first) & (units < end)).sum()) * item.pool.unit_bytes
    return total


def _landed_pages(ranks: Sequence[RankRead], landed: Sequence[Mapping[str, IntVector]]) -> int:
    """Pages of the all-pages pools that landed on every rank."""
    counts = [
        len(units[item.pool.name]) * item.pool.unit_pages
        for rank, units in zip(ranks, landed, strict=True)
        for item in rank.plan.pools
        if item.pool.hit_policy is HitPolicy.ALL_PAGES and len(item.units)
    ]
    return min(counts, default=0)
