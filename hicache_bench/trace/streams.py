"""Pools whose units are always touched together, as one stream with summed bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from hicache_bench.errors import ConfigError
from hicache_bench.planning.policy import IntVector, SavePolicy, TransferPolicy, first_needed
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.names import AttentionType, HitPolicy
from hicache_bench.trace.paths import OutputSave

_STATES = frozenset({AttentionType.RECURRENT, AttentionType.COMPRESSOR_STATE})


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPool:
    """A pool of a whole deployment, as the tier keeps it.

    ``stored_bytes`` are those of one unit over all its shards, each stored once; ``read_bytes`` what all
    ranks read together; ``objects`` are the store's keys of one unit.
    """

    pool: KVPoolDescriptor
    stored_bytes: int
    read_bytes: int
    objects: int


def tier_pools(ranks: Iterable[Sequence[KVPoolDescriptor]]) -> tuple[TierPool, ...]:
    """The stored pools of all ranks, one of each name.

    Raises:
        ConfigError: a pool whose last unit may be used in part: whose key a trace does not tell.
    """
    held: dict[str, list[KVPoolDescriptor]] = {}
    for pools in ranks:
        for pool in pools:
            if not pool.is_logical:
                held.setdefault(pool.name, []).append(pool)
    found = []
    for name, pools in held.items():
        if pools[0].partial_units:
            raise ConfigError(f"pool {name!r} has units that are used in part, which a replay cannot follow")
        objects = {
            (component.name, pool.shard_of(component)): component.object_bytes
            for pool in pools
            for component in pool.stored_components
        }
        found.append(
            TierPool(
                pool=replace(pools[0], rank=Rank()),
                stored_bytes=sum(objects.values()),
                read_bytes=sum(pool.unit_bytes for pool in pools),
                objects=len(objects),
            )
        )
    return tuple(found)


@dataclass(frozen=True)
class Stream:
    """Pools that are touched together; ``pool`` stands for them in every rule.

    ``first`` says for each endpoint, in units, which unit is the first that it needs under the policy that
    the streams were made for. ``touches_all`` means that a request touches every unit of its pages, reading
    or saving it, whatever hits.
    """

    members: tuple[TierPool, ...]
    touches_all: bool
    first: IntVector = field(repr=False)

    @cached_property
    def pool(self) -> KVPoolDescriptor:
        """The pool whose rule holds for the others too."""
        return min(
            (member.pool for member in self.members),
            key=lambda pool: (not pool.constrains, pool.hit_policy is not HitPolicy.ALL_PAGES),
        )

    @cached_property
    def constrains(self) -> bool:
        """Whether a missing unit may shorten a prefix."""
        return self.pool.constrains

    @cached_property
    def unit_pages(self) -> int:
        """Pages of one unit."""
        return self.pool.unit_pages

    @cached_property
    def unit_bytes(self) -> int:
        """Bytes that the tier keeps of one unit."""
        return sum(member.stored_bytes for member in self.members)

    @cached_property
    def is_state(self) -> bool:
        """What it keeps are states, which a decode phase may or may not save."""
        return self.pool.attention in _STATES

    @cached_property
    def behaviour(self) -> tuple[object, ...]:
        """Streams that are equal here are touched alike, by whatever policy they were made for."""
        names = tuple(member.pool.name for member in self.members)
        return names, self.touches_all, self.first.tobytes()


def streams_of(
    pools: Iterable[TierPool],
    policy: TransferPolicy,
    save: SavePolicy,
    max_pages: int,
    *,
    outputs: OutputSave = OutputSave.NONE,
    merge_dense: bool = True,
) -> tuple[Stream, ...]:
    """Group ``pools`` by what they have in common: unit, needed units at each endpoint, what a save keeps.

    Under ``dense``, windows and states of which a save keeps everything are there exactly as long as the
    pages beside them, and join their stream. ``merge_dense`` says that nothing else breaks this, as a local
    prefix does (it is not read), and as first-in first-out does (units of one page leave one by one).
    """
    pools = tuple(pools)
    whole_units = {
        member.pool.unit_pages
        for member in pools
        if member.pool.hit_policy is HitPolicy.ALL_PAGES and member.pool.constrains
    }
    groups: dict[tuple[object, ...], list[TierPool]] = {}
    tables: dict[tuple[object, ...], IntVector] = {}
    for member in pools:
        pool = member.pool
        units = max_pages // pool.unit_pages
        first = first_needed(pool, policy, np.arange(units + 1, dtype=np.int64))
        by_halves = outputs is OutputSave.ATTENTION and pool.attention in _STATES
        key: tuple[object, ...]
        if pool.hit_policy is HitPolicy.ALL_PAGES or (
            merge_dense
            and policy is TransferPolicy.DENSE
            and pool.unit_pages in whole_units
            and not by_halves
            and save.saved_units(pool, units).all()
        ):
            key, first = (True, pool.unit_pages), np.zeros_like(first)
        else:
            kept = _kept(pool, save, units)
            key = (False, pool.unit_pages, pool.constrains, first.tobytes(), by_halves, kept)
        groups.setdefault(key, []).append(member)
        tables[key] = first
    found = [
        Stream(members=tuple(members), touches_all=bool(key[0]), first=tables[key])
        for key, members in groups.items()
    ]
    return tuple(sorted(found, key=lambda stream: not stream.touches_all))


def _kept(pool: KVPoolDescriptor, save: SavePolicy, max_units: int) -> object:
    """What tells two savings apart: the rule of states, or the first unit kept at each length."""
    if pool.attention is AttentionType.RECURRENT:
        return AttentionType.RECURRENT
    if save.window_extra_pages is None:
        return None
    return tuple(int(np.argmax(save.saved_units(pool, units))) for units in range(1, max_units + 1))
