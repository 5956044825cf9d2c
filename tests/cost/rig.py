"""Small models of pools for cost tests: a page of kv is 10 bytes, a state 100, a window's page 1."""

from __future__ import annotations

import numpy as np

from hicache_bench.cost.volumes import RankRead, plan_calls
from hicache_bench.planning.plan import TransferPlan, build_plan
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.planning.resolve import num_units, resolve
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.names import AttentionType

PAGE_TOKENS = 4
KV = KVPoolDescriptor(
    name="kv",
    attention=AttentionType.FULL,
    page_tokens=PAGE_TOKENS,
    components=(Component("k", 1, 1, 6), Component("v", 1, 1, 4)),
)
STATE = KVPoolDescriptor(
    name="mamba",
    attention=AttentionType.RECURRENT,
    page_tokens=PAGE_TOKENS,
    components=(Component("temporal", 1, 1, 100),),
)
WINDOW = KVPoolDescriptor(
    name="swa",
    attention=AttentionType.SWA,
    page_tokens=PAGE_TOKENS,
    window_tokens=6,
    components=(Component("k", 1, 1, 1),),
)


def plan_of(
    *pools: KVPoolDescriptor,
    num_pages: int,
    policy: TransferPolicy = TransferPolicy.SELECTIVE,
    local_tokens: int = 0,
    host_capacity_pages: int | None = None,
    threshold_tokens: int = 0,
) -> TransferPlan:
    """A restore of a prefix of which everything is stored."""
    presence = {pool.name: np.ones(num_units(pool, num_pages), dtype=np.bool_) for pool in pools}
    resolution = resolve(pools, presence, policy, num_pages, local_tokens=local_tokens)
    return build_plan(
        pools,
        presence,
        resolution,
        policy,
        local_tokens=local_tokens,
        host_capacity_pages=host_capacity_pages,
        threshold_tokens=threshold_tokens,
    )


def read_of(plan: TransferPlan, *, batch_pages: int = 128, copies: int = 1, keys: int = 0) -> RankRead:
    """The plan in its calls; no existence query unless ``keys`` are asked for."""
    return RankRead(
        plan=plan,
        calls=plan_calls(plan, batch_pages=batch_pages),
        lookup_keys=keys,
        lookup_calls=bool(keys),
        copies=copies,
    )
