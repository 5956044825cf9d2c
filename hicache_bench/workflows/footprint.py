"""What a deployed model stores and needs, on each rank and in the whole cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain

from hicache_bench.errors import ConfigError
from hicache_bench.models.engine_profile import BY_KIND, SGLANG, cluster_pools
from hicache_bench.planning.footprint import Footprint, Slope, distinct_pools, slope, total_footprint
from hicache_bench.planning.policy import SavePolicy, TransferPolicy, trailing_units
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.names import STATE_ATTENTION, HitPolicy
from hicache_bench.workflows.prefix import build_registry
from hicache_bench.workflows.variant import Variant

LENGTHS = (1 << 10, 8 << 10, 32 << 10, 128 << 10, 1 << 20)
"""Prefix lengths that are shown, in tokens."""

COMPARED_TOKENS = 32 << 10
"""Prefix length at which engine profiles are compared."""

PAGE_HASH = "<page hash>"
"""Stands in an example key for the hash of its page."""

POLICIES = (TransferPolicy.HIT_POLICY, TransferPolicy.SELECTIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleKey:
    """One object of a page: its component, its bytes, and its key on the first rank that has it."""

    component: str
    num_bytes: int
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolBytes:
    """One pool of the cluster. ``pool`` is that of the first rank that has it.

    ``rank_bytes`` are those of a page on the ranks that hold least and most, ``cluster_bytes`` those of all
    ``shards``: what the store keeps. ``copies`` compares them with a model on one tensor-parallel rank: 2
    where there are half as many KV heads as ranks.
    """

    pool: KVPoolDescriptor
    num_ranks: int
    shards: int
    rank_bytes: tuple[int, int]
    cluster_bytes: int
    copies: float
    keys: tuple[ExampleKey, ...]

    @property
    def trailing_pages(self) -> int | None:
        """Pages that an engine restores; None where it needs all."""
        return trailing_units(self.pool) if self.pool.hit_policy is HitPolicy.TRAILING_PAGES else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileBytes:
    """Bytes under one engine profile, or why it cannot group the model's layers."""

    profile: str
    footprint: Footprint | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantBytes:
    """Everything counted of a variant. Slopes and footprints are the cluster's, by policy and by length.

    ``rank_slopes`` are those of the rank that reads most.
    """

    variant: Variant
    save_policy: SavePolicy
    pools: tuple[PoolBytes, ...]
    slopes: Mapping[TransferPolicy, Slope]
    rank_slopes: Mapping[TransferPolicy, Slope]
    footprints: Mapping[int, Footprint]
    profiles: tuple[ProfileBytes, ...]


def count_bytes(variant: Variant) -> VariantBytes:
    """Count the bytes of ``variant``; nothing is allocated or moved.

    The profiles are compared where SGLang serves the model: else there is nothing that it would do with it.

    Raises:
        ConfigError: a combination that the engine refuses, pools that cannot be stored, or one without a key
            in the chosen scheme.
    """
    ranks = variant.pools
    for pools in ranks.values():
        build_registry(pools)
    alone = replace(variant.deployment, tp_size=1, cp_size=1, cp_sharded=False, dcp_size=1, tp_lcm=None)
    whole = cluster_pools(variant.spec, profile=variant.profile, deployment=alone)
    stored = distinct_pools(ranks.values())
    save = SavePolicy()
    served = SGLANG in variant.spec.served_by
    return VariantBytes(
        variant=variant,
        save_policy=save,
        pools=tuple(
            _pool_bytes(variant, name, whole)
            for name in dict.fromkeys(pool.name for pool in chain.from_iterable(ranks.values()))
        ),
        slopes={policy: slope(stored, policy) for policy in POLICIES},
        rank_slopes={policy: _largest(ranks, policy) for policy in POLICIES},
        footprints={tokens: total_footprint(stored, tokens, save) for tokens in LENGTHS},
        profiles=tuple(_profile_bytes(variant, profile, save) for profile in (SGLANG, BY_KIND) if served),
    )


def _pool_bytes(variant: Variant, name: str, whole: Mapping[Rank, tuple[KVPoolDescriptor, ...]]) -> PoolBytes:
    one_copy = [pool for pools in whole.values() for pool in pools if pool.name == name]
    held = [pool for pools in variant.pools.values() for pool in pools if pool.name == name]
    shards = distinct_pools([held])
    sizes = [pool.unit_bytes for pool in held]
    return PoolBytes(
        pool=held[0],
        num_ranks=len(held),
        shards=0 if held[0].is_logical else len(shards),
        rank_bytes=(min(sizes), max(sizes)),
        cluster_bytes=sum(pool.unit_bytes for pool in shards),
        copies=0.0 if held[0].is_logical else float(_density(shards) / _density(one_copy)),
        keys=tuple(
            ExampleKey(
                component=template.component.name,
                num_bytes=template.component.object_bytes,
                key=template.key(PAGE_HASH),
            )
            for template in variant.keys.templates(held[0])
        ),
    )


def _density(pools: Sequence[KVPoolDescriptor]) -> Fraction:
    """Bytes per token, or of one state: decode-context ranks have longer pages, and states of one size."""
    return sum(
        (
            Fraction(pool.unit_bytes, 1 if pool.attention in STATE_ATTENTION else pool.unit_tokens)
            for pool in pools
        ),
        Fraction(0),
    )


def _largest(ranks: Mapping[Rank, tuple[KVPoolDescriptor, ...]], policy: TransferPolicy) -> Slope:
    alike = {tuple(replace(pool, rank=Rank()) for pool in pools) for pools in ranks.values()}
    slopes = [slope(pools, policy) for pools in alike]
    return max(slopes, key=lambda found: (found.per_token, found.fixed))


def _profile_bytes(variant: Variant, profile: str, save: SavePolicy) -> ProfileBytes:
    try:
        ranks = cluster_pools(variant.spec, profile=profile, deployment=variant.deployment)
    except ConfigError as error:
        return ProfileBytes(profile=profile, refusal=str(error))
    pools = distinct_pools(ranks.values())
    return ProfileBytes(profile=profile, footprint=total_footprint(pools, COMPARED_TOKENS, save))
