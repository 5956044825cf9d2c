"""A model as it is deployed, and what each of its ranks reads of a prefix: no store, no bytes moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hicache_bench.cost.volumes import RankRead, plan_calls
from hicache_bench.engine.lookup import LOOKUP_KEYS_PER_CALL
from hicache_bench.errors import InputError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.engine_profile import cluster_pools
from hicache_bench.models.spec import ModelSpec
from hicache_bench.planning.plan import build_plan
from hicache_bench.planning.policy import BoolVector, SavePolicy, TransferPolicy
from hicache_bench.planning.resolve import (
    Resolution,
    alignment_warning,
    matchable_pages,
    num_units,
    resolve,
    resolve_ranks,
)
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.units import format_tokens
from hicache_bench.workflows.prefix import build_registry
from hicache_bench.workflows.variant import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixRequest:
    """What a request asks of the tier: a saved prefix, and the tokens behind it.

    ``host_capacity_tokens`` is the room in host memory, None for enough; ``threshold_tokens`` the least that
    is worth a read.
    """

    prefix_tokens: int
    suffix_tokens: int
    save_policy: SavePolicy
    local_tokens: int = 0
    host_capacity_tokens: int | None = None
    threshold_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the whole prompt."""
        return self.prefix_tokens + self.suffix_tokens


@dataclass(frozen=True)
class Served:
    """A model, the profile that makes its pools, and its ranks."""

    spec: ModelSpec
    profile: str
    deployment: Deployment

    @classmethod
    def of(cls, variant: Variant) -> Served:
        """The same without the preset's prose and the keys."""
        return cls(variant.spec, variant.profile, variant.deployment)

    @cached_property
    def stages(self) -> tuple[tuple[tuple[KVPoolDescriptor, ...], tuple[Rank, ...]], ...]:
        """Registered pools of ranks that have them alike, and these ranks.

        Raises:
            ConfigError: pools that the engine refuses, that collide or cannot be stored.
        """
        found: dict[tuple[KVPoolDescriptor, ...], tuple[Sequence[KVPoolDescriptor], list[Rank]]] = {}
        pools_by_rank = cluster_pools(self.spec, profile=self.profile, deployment=self.deployment)
        for rank, pools in pools_by_rank.items():
            alike = tuple(replace(pool, rank=Rank()) for pool in pools)
            found.setdefault(alike, (pools, []))[1].append(rank)
        return tuple((build_registry(pools).registered, tuple(ranks)) for pools, ranks in found.values())

    @property
    def layers_of_a_rank(self) -> int:
        """Layers that a rank loads one after the other."""
        return max(1, len(self.spec.layers) // self.deployment.pp_size)

    def warning(self, num_tokens: int) -> str | None:
        """What keeps every endpoint of such a prefix from being legal, if anything does."""
        return alignment_warning([pool for pools, _ in self.stages for pool in pools], num_tokens)

    def reads(self, request: PrefixRequest, policy: TransferPolicy) -> tuple[RankRead, ...]:
        """What each kind of rank reads for the endpoint of all ranks.

        Raises:
            InputError: a prefix shorter than a page.
        """
        page_tokens = self.stages[0][0][0].page_tokens
        num_pages = request.prefix_tokens // page_tokens
        if num_pages < 1:
            raise InputError(
                f"a prefix of {format_tokens(request.prefix_tokens)} tokens is shorter than a page of "
                f"{page_tokens}; give --prefix {page_tokens} or more"
            )
        saved = [_saved(pools, num_pages, request.save_policy) for pools, _ in self.stages]
        matchable = min(num_pages, matchable_pages(request.prompt_tokens, page_tokens))
        resolution = resolve_ranks(
            [
                resolve(
                    pools, present, policy, num_pages, matchable=matchable, local_tokens=request.local_tokens
                )
                for (pools, _), present in zip(self.stages, saved, strict=True)
            ]
        )
        return tuple(
            _rank_read(pools, present, resolution, policy, request, copies=len(ranks))
            for (pools, ranks), present in zip(self.stages, saved, strict=True)
        )


def _saved(pools: Iterable[KVPoolDescriptor], num_pages: int, policy: SavePolicy) -> Mapping[str, BoolVector]:
    return {pool.name: policy.saved_units(pool, num_units(pool, num_pages)) for pool in pools}


def _rank_read(
    pools: Sequence[KVPoolDescriptor],
    presence: Mapping[str, BoolVector],
    resolution: Resolution,
    policy: TransferPolicy,
    request: PrefixRequest,
    *,
    copies: int,
) -> RankRead:
    capacity = request.host_capacity_tokens
    plan = build_plan(
        pools,
        presence,
        resolution,
        policy,
        local_tokens=request.local_tokens,
        host_capacity_pages=None if capacity is None else capacity // pools[0].page_tokens,
        threshold_tokens=request.threshold_tokens,
    )
    keys = sum(len(presence[pool.name]) * len(pool.stored_components) for pool in pools)
    return RankRead(
        plan=plan,
        calls=plan_calls(plan),
        lookup_keys=keys,
        lookup_calls=-(-keys // LOOKUP_KEYS_PER_CALL),
        copies=copies,
    )
