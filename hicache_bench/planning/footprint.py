"""Bytes that a prefix stores and that a restore of it needs, from geometry alone.

Nothing is looked up: the prefix is taken to be saved as a whole, and its last page is the endpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd

from hicache_bench.planning.policy import SavePolicy, TransferPolicy, first_needed_at, trailing_units
from hicache_bench.planning.resolve import num_units
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.names import AttentionType, HitPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes of a prefix: ``stored`` by a save, ``needed`` by the restore of its last page under a policy.

    ``dense`` has no rule of its own: it reads what is stored.
    """

    stored: int
    hit_policy: int
    selective: int

    def __add__(self, other: Footprint) -> Footprint:
        return Footprint(
            stored=self.stored + other.stored,
            hit_policy=self.hit_policy + other.hit_policy,
            selective=self.selective + other.selective,
        )

    def __mul__(self, count: int) -> Footprint:
        return Footprint(
            stored=self.stored * count, hit_policy=self.hit_policy * count, selective=self.selective * count
        )


NOTHING = Footprint(stored=0, hit_policy=0, selective=0)
"""Of a logical anchor, and of a prefix shorter than a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """How the bytes that a restore needs grow: ``per_token`` for every token, ``fixed`` once an endpoint.

    Two numbers, since their quotient says nothing: ``fixed`` + n·``per_token`` bytes for a prefix of n tokens
    that is longer than every window. A chunked pool needs at most so much under ``selective``, and nothing at
    the end of a chunk.
    """

    per_token: Fraction
    fixed: int


def distinct_pools(ranks: Iterable[Sequence[KVPoolDescriptor]]) -> tuple[KVPoolDescriptor, ...]:
    """The pools of a cluster without those whose bytes an earlier rank holds; pools of one name together.

    A replicated pool is stored once whatever the number of ranks; a sharded one once a shard.
    """
    found: dict[str, dict[object, KVPoolDescriptor]] = {}
    for pools in ranks:
        for pool in pools:
            shards = tuple(pool.shard_of(component) for component in pool.stored_components)
            found.setdefault(pool.name, {}).setdefault(shards, pool)
    return tuple(pool for shards in found.values() for pool in shards.values())


def footprint(pool: KVPoolDescriptor, num_tokens: int, save: SavePolicy) -> Footprint:
    """Bytes of ``pool`` for a prefix of ``num_tokens``; a last incomplete page is not cached."""
    if pool.is_logical:
        return NOTHING
    units = num_units(pool, num_tokens // pool.page_tokens)
    kept = int(save.saved_units(pool, units).sum())
    needed = {
        policy: (units - first_needed_at(pool, policy, units)) * pool.unit_bytes
        for policy in (TransferPolicy.HIT_POLICY, TransferPolicy.SELECTIVE)
    }
    return Footprint(
        stored=kept * pool.unit_bytes,
        hit_policy=needed[TransferPolicy.HIT_POLICY],
        selective=needed[TransferPolicy.SELECTIVE],
    )


def total_footprint(pools: Iterable[KVPoolDescriptor], num_tokens: int, save: SavePolicy) -> Footprint:
    """Sum over ``pools``."""
    # Shards of one size are counted once: a cluster may have thousands.
    alike = Counter(replace(pool, rank=Rank()) for pool in pools)
    return sum((footprint(pool, num_tokens, save) * count for pool, count in alike.items()), NOTHING)


def slope(pools: Iterable[KVPoolDescriptor], policy: TransferPolicy) -> Slope:
    """The two numbers of ``pools`` under ``hit_policy`` or ``selective``."""
    per_token, fixed = Fraction(0), 0
    for pool in pools:
        if pool.hit_policy is HitPolicy.ALL_PAGES:
            per_token += Fraction(pool.unit_bytes, pool.unit_tokens)
        else:
            fixed += trailing_most(pool, policy) * pool.unit_bytes
    return Slope(per_token=per_token, fixed=fixed)


def trailing_most(pool: KVPoolDescriptor, policy: TransferPolicy) -> int:
    """Most units of a trailing pool that an endpoint needs, however long the prefix is."""
    if policy is not TransferPolicy.SELECTIVE:
        return trailing_units(pool)
    if pool.attention is AttentionType.SWA:
        assert pool.window_tokens is not None
        return -(-(pool.window_tokens - 1) // pool.unit_tokens)
    if pool.attention is AttentionType.CHUNKED:
        assert pool.window_tokens is not None
        # Endpoints lie at all multiples of the common divisor behind a chunk's start.
        furthest = pool.window_tokens - gcd(pool.window_tokens, pool.unit_tokens)
        return -(-furthest // pool.unit_tokens)
    return 1
