"""The ranks of a deployment: what each holds, what they share, and how often it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from hicache_bench.engine.controller import remove_prefix
from hicache_bench.engine.prefix import Prefix
from hicache_bench.models.engine_profile import cluster_pools
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.keys import KeyBuilder
from hicache_bench.pools.names import AttentionType, Sharding
from hicache_bench.pools.registry import Decision, PoolDescriptorRegistry
from hicache_bench.records.schema import PoolRecord, SharingRecord
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.workflows.prefix import PrefixLayout, build_registry, lay_out
from hicache_bench.workflows.variant import Variant

_PER_STATE = (AttentionType.RECURRENT, AttentionType.COMPRESSOR_STATE)
"""Pools whose unit has the same bytes however many tokens a page has."""


class Member(NamedTuple):
    """One rank and its pools.

    ``owned`` are those whose objects no rank before it has: it writes them, and the others find them there.
    """

    rank: Rank
    registry: PoolDescriptorRegistry
    owned: tuple[KVPoolDescriptor, ...]


class ClusterLayout(NamedTuple):
    """A prefix in the host pools of every rank, in the order of ``members``."""

    members: tuple[Member, ...]
    layouts: tuple[PrefixLayout, ...]

    @property
    def num_tokens(self) -> int:
        """Length of the prefix."""
        return self.layouts[0].num_tokens

    @property
    def pools(self) -> tuple[KVPoolDescriptor, ...]:
        """The registered pools of all ranks."""
        return tuple(pool for layout in self.layouts for pool in layout.pools)

    @property
    def host_bytes(self) -> int:
        """Memory of one set of host pools of the rank that has most: they live one after the other."""
        return max(layout.host_bytes for layout in self.layouts)

    @property
    def stored_bytes(self) -> int:
        """Bytes that the store holds once every rank has saved: each shard once."""
        total = 0
        for member, layout in zip(self.members, self.layouts, strict=True):
            counts = layout.num_kept
            total += sum(counts[pool.name] * pool.unit_bytes for pool in member.owned)
        return total


def members_of(variant: Variant) -> tuple[Member, ...]:
    """Every rank of a deployment.

    Raises:
        ConfigError: pools that the engine refuses, that collide, cannot be stored or have no key.
    """
    members = []
    found: set[tuple[tuple[str, str], ...]] = set()
    for rank, pools in variant.pools.items():
        registry = build_registry(pools)
        owned = []
        for pool in registry.registered:
            shard = shard_keys(variant.keys, pool)
            if shard not in found:
                found.add(shard)
                owned.append(pool)
        members.append(Member(rank=rank, registry=registry, owned=tuple(owned)))
    return tuple(members)


def shard_keys(keys: KeyBuilder, pool: KVPoolDescriptor) -> tuple[tuple[str, str], ...]:
    """What stands around the page hash in the keys of ``pool``: where it agrees, ranks share objects."""
    return tuple((template.prefix, template.suffix) for template in keys.templates(pool))


def lay_out_ranks(
    members: Sequence[Member], num_tokens: int, policy: SavePolicy, *, ring_pages: int | None = None
) -> ClusterLayout:
    """Give every unit that ``policy`` keeps of a prefix a slot on every rank; with ``ring_pages``, in turn.

    Raises:
        InputError: a prefix that is shorter than a page.
    """
    layouts = tuple(lay_out(member.registry, num_tokens, policy, ring_pages=ring_pages) for member in members)
    return ClusterLayout(tuple(members), layouts)


def remove_prefixes(
    parts: Iterable[tuple[Sequence[KVPoolDescriptor], Prefix]], keys: KeyBuilder, store: KVStoreBackend
) -> int:
    """Take prefixes out of a store that goes on; return how many objects may still be there.

    ``parts`` are the pools to clear and the prefix in them. The first part that cannot be cleared ends it,
    and all objects of the others are counted: each would wait anew for a master that is gone.
    """
    remaining = 0
    for pools, prefix in parts:
        if not remaining:
            remaining = remove_prefix(pools, keys, store, prefix)
            continue
        for pool in pools:
            num_units = int(np.count_nonzero(prefix.slots[pool.name] >= 0))
            remaining += num_units * len(pool.stored_components)
    return remaining


def pool_records(members: Sequence[Member]) -> tuple[PoolRecord, ...]:
    """Every pool of every rank, logical ones included; ranks that have one alike stand together."""
    groups: list[tuple[PoolRecord, list[str]]] = []
    for member in members:
        for pool in member.registry:
            described = _described(pool)
            ranks = next((ranks for record, ranks in groups if record == described), None)
            if ranks is None:
                groups.append((described, [str(member.rank)]))
            else:
                ranks.append(str(member.rank))
    return tuple(replace(record, ranks=tuple(ranks)) for record, ranks in groups)


def sharing_of(variant: Variant, members: Sequence[Member]) -> tuple[SharingRecord, ...]:
    """How the ranks share each stored pool, in the order in which the ranks have them."""
    held = _by_name(member.registry.registered for member in members)
    owned = _by_name(member.owned for member in members)
    whole = _by_name(_unsharded(variant).values())
    return tuple(
        SharingRecord(
            pool=name,
            ranks=len(pools),
            shards=len(owned[name]),
            copies=float(sum(map(_unit_bytes, owned[name])) / sum(map(_unit_bytes, whole[name]))),
            kv_heads=_kv_heads(whole[name][0]),
        )
        for name, pools in held.items()
    )


def _described(pool: KVPoolDescriptor) -> PoolRecord:
    return PoolRecord(
        name=str(pool.name),
        attention=pool.attention.value,
        decision=(Decision.SKIP if pool.is_logical else Decision.REGISTER).value,
        hit_policy=pool.hit_policy.value,
        dtype=pool.dtype,
        layout=pool.layout.value,
        sharding=pool.sharding.value,
        unit_pages=pool.unit_pages,
        unit_bytes=pool.unit_bytes,
        unit_objects=len(pool.stored_components),
        object_bytes={component.name: component.object_bytes for component in pool.stored_components},
        window_tokens=pool.window_tokens,
        engine_window_tokens=pool.engine_window_tokens,
        selected_by=pool.selection.index_pool if pool.selection else None,
        ranks=(),
    )


def _by_name(ranks: Iterable[Iterable[KVPoolDescriptor]]) -> Mapping[str, Sequence[KVPoolDescriptor]]:
    named: dict[str, list[KVPoolDescriptor]] = {}
    for pools in ranks:
        for pool in pools:
            named.setdefault(pool.name, []).append(pool)
    return named


def _unsharded(variant: Variant) -> Mapping[Rank, tuple[KVPoolDescriptor, ...]]:
    """The pools that one worker a pipeline stage would have."""
    deployment = variant.deployment
    alone = replace(deployment, tp_size=1, cp_size=1, cp_sharded=False, dcp_size=1, tp_lcm=None)
    if alone == deployment:
        return variant.pools
    return cluster_pools(variant.spec, profile=variant.profile, deployment=alone)


def _unit_bytes(pool: KVPoolDescriptor) -> Fraction:
    """Bytes per token, or of one state: decode-context ranks have longer pages."""
    return Fraction(pool.unit_bytes, 1 if pool.attention in _PER_STATE else pool.unit_tokens)


def _kv_heads(whole: KVPoolDescriptor) -> int | None:
    """The model's KV heads, where the pool has heads."""
    headed = whole.sharding is Sharding.SHARDED and whole.attention is not AttentionType.RECURRENT
    return whole.components[0].heads if headed else None
