"""Which units of which pools a restore reads, and why it leaves the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from hicache_bench.planning.policy import (
    BoolVector,
    IntVector,
    TransferPolicy,
    first_needed_at,
    index_dtype,
)
from hicache_bench.planning.resolve import Presence, Resolution, num_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType


class SkipReason(str, Enum):
    """Why a stored unit is not read, or why hit tokens are not used."""

    OUT_OF_WINDOW = "out_of_window"
    SUPERSEDED_STATE = "superseded_state"
    NOT_SELECTED = "not_selected"
    LOGICAL = "logical"
    LOCAL_PREFIX = "local_prefix"
    BEYOND_ENDPOINT = "beyond_endpoint"
    REPLAY_BOUNDARY = "replay_boundary"
    HOST_CAPACITY = "host_capacity"
    BELOW_THRESHOLD = "below_threshold"
    TRANSFER_SHORTFALL = "transfer_shortfall"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """What happens to one pool.

    ``units`` are read, in rising order. ``skipped`` counts stored units that are not. ``missing`` are needed
    units that the store does not hold: of a pool required for speed only, else the endpoint were not legal.
    """

    pool: KVPoolDescriptor
    units: IntVector = field(repr=False)
    skipped: Mapping[SkipReason, int] = field(default_factory=dict)
    missing: int = 0

    @property
    def read_bytes(self) -> int:
        """Bytes that this plan reads of the pool."""
        return len(self.units) * self.pool.unit_bytes

    def used_tokens(self, unit: int, endpoint_pages: int) -> int:
        """Tokens of ``unit`` that an endpoint uses; fewer than it holds where it is used in part."""
        start = unit * self.pool.unit_tokens
        return min(self.pool.unit_tokens, endpoint_pages * self.pool.page_tokens - start)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPlan:
    """A restore of ``[0, endpoint_pages)`` under one policy.

    ``hit_pages`` is what lookup promised, and ``limited_by`` the pools that kept it from being longer. Where
    the plan stops short of it, ``shortfall`` says why. ``local_tokens`` are already in host or device memory
    and are not read again. ``num_pages`` is the length of the prefix that was looked up.
    """

    policy: TransferPolicy
    num_pages: int
    hit_pages: int
    endpoint_pages: int
    pools: tuple[PoolPlan, ...]
    local_tokens: int = 0
    shortfall: SkipReason | None = None
    limited_by: tuple[str, ...] = ()

    @property
    def read_bytes(self) -> int:
        """Bytes that this plan reads, over its pools."""
        return sum(pool.read_bytes for pool in self.pools)

    @property
    def loaded_tokens(self) -> int:
        """Tokens that the store contributes beyond the local ones."""
        if not self.pools:
            return 0
        return max(0, self.endpoint_pages * self.pools[0].pool.page_tokens - self.local_tokens)


def build_plan(
    pools: Sequence[KVPoolDescriptor],
    presence: Presence,
    resolution: Resolution,
    policy: TransferPolicy,
    *,
    local_tokens: int = 0,
    host_capacity_pages: int | None = None,
    threshold_tokens: int = 0,
) -> TransferPlan:
    """Plan the restore of ``resolution.hit_pages``; the resolution must know of the same ``local_tokens``.

    A host without room for what is not local gets the largest *legal* endpoint that fits, never a plain cut.
    A hit that brings fewer than ``threshold_tokens`` beyond the local prefix is not read at all.
    """
    num_pages = len(resolution.legal) - 1
    endpoint, shortfall = resolution.hit_pages, None
    page_tokens = pools[0].page_tokens if pools else 1
    local_pages = local_tokens // page_tokens
    if host_capacity_pages is not None and endpoint > local_pages + host_capacity_pages:
        endpoint = int(np.flatnonzero(resolution.legal[: local_pages + host_capacity_pages + 1])[-1])
        shortfall = SkipReason.HOST_CAPACITY
    if 0 < endpoint * page_tokens - local_tokens < threshold_tokens:
        endpoint, shortfall = min(endpoint, local_pages), SkipReason.BELOW_THRESHOLD
    beyond = shortfall or (
        SkipReason.REPLAY_BOUNDARY if resolution.replay_boundary else SkipReason.BEYOND_ENDPOINT
    )
    return TransferPlan(
        policy=policy,
        num_pages=num_pages,
        hit_pages=resolution.hit_pages,
        endpoint_pages=endpoint,
        local_tokens=min(local_tokens, endpoint * page_tokens),
        shortfall=shortfall,
        limited_by=resolution.limited_by,
        pools=tuple(
            _plan_pool(pool, presence, policy, endpoint, num_pages, local_tokens, beyond)
            for pool in pools
            if not pool.is_logical
        ),
    )


def _plan_pool(
    pool: KVPoolDescriptor,
    presence: Presence,
    policy: TransferPolicy,
    endpoint_pages: int,
    num_pages: int,
    local_tokens: int,
    beyond: SkipReason,
) -> PoolPlan:
    present = presence.get(pool.name)
    if present is None:
        present = np.zeros(num_units(pool, num_pages), dtype=np.bool_)
    end = num_units(pool, endpoint_pages)
    # Whole local units only: one that is local in part is read again as a whole (cases E15), unless that part
    # is all that the endpoint uses of it.
    is_local = endpoint_pages * pool.page_tokens <= local_tokens
    local = end if is_local else min(local_tokens // pool.unit_tokens, end)
    needed = first_needed_at(pool, policy, end)
    start = local if policy is TransferPolicy.DENSE else max(needed, local)
    planned = present[start:end]
    dtype = index_dtype(pool, end)
    units = (
        np.arange(start, end, dtype=dtype) if planned.all() else np.flatnonzero(planned).astype(dtype) + start
    )
    counts = {
        SkipReason.LOCAL_PREFIX: int(np.count_nonzero(present[:local])),
        _stale(pool): int(np.count_nonzero(present[local:start])),
        beyond: int(np.count_nonzero(present[end:])),
    }
    skipped = {reason: count for reason, count in counts.items() if count}
    first = max(needed, local)
    missing = end - first - int(np.count_nonzero(present[first:end]))
    return PoolPlan(pool=pool, units=units, skipped=skipped, missing=missing)


def _stale(pool: KVPoolDescriptor) -> SkipReason:
    if pool.attention in (AttentionType.RECURRENT, AttentionType.COMPRESSOR_STATE):
        return SkipReason.SUPERSEDED_STATE
    return SkipReason.OUT_OF_WINDOW


def narrow(plan: PoolPlan, selected: BoolVector) -> PoolPlan:
    """Keep only the planned units that an index selected (one flag per unit of the pool)."""
    keep = selected[plan.units]
    dropped = int(len(plan.units) - keep.sum())
    skipped = {**plan.skipped, SkipReason.NOT_SELECTED: dropped} if dropped else plan.skipped
    return replace(plan, units=plan.units[keep], skipped=skipped)
