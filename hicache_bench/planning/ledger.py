"""What became of every stored object and of every hit token.

Per pool, in objects and in bytes, always: ``total = read + skipped + missed + failed``. Bytes that arrived
but could not be used are ``wasted``; they are a part of ``read``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from hicache_bench.errors import ConfigError
from hicache_bench.planning.plan import PoolPlan, SkipReason, TransferPlan
from hicache_bench.planning.policy import BoolVector, IntVector, TransferPolicy, first_needed_at
from hicache_bench.planning.resolve import num_units, resolve
from hicache_bench.pools.descriptor import KVPoolDescriptor


@dataclass(frozen=True, slots=True)
class Volume:
    """An amount of one pool: its units, the objects of their components, and the bytes of these."""

    units: int = 0
    objects: int = 0
    num_bytes: int = 0

    def __add__(self, other: Volume) -> Volume:
        return Volume(
            self.units + other.units, self.objects + other.objects, self.num_bytes + other.num_bytes
        )

    def __sub__(self, other: Volume) -> Volume:
        return Volume(
            self.units - other.units, self.objects - other.objects, self.num_bytes - other.num_bytes
        )


def volume(pool: KVPoolDescriptor, units: int) -> Volume:
    """``units`` whole units of ``pool``."""
    return Volume(units, units * len(pool.stored_components), units * pool.unit_bytes)


def total_volume(volumes: Iterable[Volume]) -> Volume:
    """Sum of ``volumes``."""
    return sum(volumes, Volume())


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolArrival:
    """What a read of one pool brought.

    ``units`` are those whose every component arrived, in rising order. A unit counts as failed if any of its
    objects failed, else as missed if any was absent, else as read; objects and bytes are counted one by one.
    """

    units: IntVector
    read: Volume
    missed: Volume = Volume()
    failed: Volume = Volume()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLedger:
    """One pool's account of one restore."""

    pool: str
    read: Volume
    skipped: Mapping[SkipReason, Volume] = field(default_factory=dict)
    missed: Volume = Volume()
    failed: Volume = Volume()
    wasted: Volume = Volume()
    degraded: bool = False

    @property
    def skipped_total(self) -> Volume:
        """Everything that was left in the store, whatever the reason."""
        return total_volume(self.skipped.values())

    @property
    def total(self) -> Volume:
        """Every object that lookup found, or that the plan needed."""
        return self.read + self.skipped_total + self.missed + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The account of one restore, in three numbers of tokens.

    ``hit`` was promised; ``fulfilled`` is the endpoint that is whole with the bytes that arrived; ``used`` is
    where the model resumes within the hit: there, or at the end of its local prefix if that is longer. A hit
    token is either used or in ``unused_tokens`` under the one reason that ended it.
    """

    policy: TransferPolicy
    hit_tokens: int
    fulfilled_tokens: int
    used_tokens: int
    pools: tuple[PoolLedger, ...]
    unused_tokens: Mapping[SkipReason, int] = field(default_factory=dict)

    @property
    def read(self) -> Volume:
        """Everything that was read."""
        return total_volume(pool.read for pool in self.pools)

    @property
    def total(self) -> Volume:
        """Everything that the store holds for the prefix, or that was needed and absent."""
        return total_volume(pool.total for pool in self.pools)


def settle(plan: TransferPlan, arrivals: Mapping[str, PoolArrival]) -> Ledger:
    """Close the account: resolve again with what really arrived.

    An object lost between lookup and read shortens ``used`` and never corrupts it: the restore falls back to
    the largest endpoint that is legal with the arrived units in *all* pools, else to the local prefix.

    Raises:
        ConfigError: a planned pool has no arrival; dropping it would lose bytes from the account. Or none was
            planned.
    """
    if not plan.pools:
        raise ConfigError("a plan without a physical pool moves nothing, and has no account")
    absent = [pool_plan.pool.name for pool_plan in plan.pools if pool_plan.pool.name not in arrivals]
    if absent:
        raise ConfigError(f"no arrival was reported for planned pools {', '.join(absent)}")
    used_pages = _used_pages(plan, arrivals)
    page_tokens = plan.pools[0].pool.page_tokens
    hit, planned = plan.hit_pages * page_tokens, plan.endpoint_pages * page_tokens
    fulfilled = used_pages * page_tokens
    used = max(fulfilled, plan.local_tokens)
    unused = {
        reason: tokens
        for reason, tokens in (
            (plan.shortfall or SkipReason.BEYOND_ENDPOINT, hit - planned),
            (SkipReason.TRANSFER_SHORTFALL, planned - used),
        )
        if tokens
    }
    return Ledger(
        policy=plan.policy,
        hit_tokens=hit,
        fulfilled_tokens=fulfilled,
        used_tokens=used,
        unused_tokens=unused,
        pools=tuple(
            _pool_ledger(pool_plan, arrivals[pool_plan.pool.name], plan.policy, used_pages)
            for pool_plan in plan.pools
        ),
    )


def _used_pages(plan: TransferPlan, arrivals: Mapping[str, PoolArrival]) -> int:
    presence = {
        pool_plan.pool.name: _presence(pool_plan, arrivals[pool_plan.pool.name].units, plan)
        for pool_plan in plan.pools
    }
    pools = [pool_plan.pool for pool_plan in plan.pools]
    hit = resolve(pools, presence, plan.policy, plan.endpoint_pages, local_tokens=plan.local_tokens).hit_pages
    narrowed = any(SkipReason.NOT_SELECTED in pool_plan.skipped for pool_plan in plan.pools)
    # The index chose for the planned endpoint; at a shorter one it would have chosen other blocks.
    return hit if hit == plan.endpoint_pages or not narrowed else 0


def _presence(pool_plan: PoolPlan, arrived: IntVector, plan: TransferPlan) -> BoolVector:
    pool = pool_plan.pool
    present = np.zeros(num_units(pool, plan.endpoint_pages), dtype=np.bool_)
    present[arrived] = True
    if SkipReason.NOT_SELECTED in pool_plan.skipped:
        # What the index left out is not needed; a selected unit that did not arrive is.
        unplanned = np.ones(len(present), dtype=np.bool_)
        unplanned[pool_plan.units] = False
        present |= unplanned
    return present


def _pool_ledger(
    pool_plan: PoolPlan, arrival: PoolArrival, policy: TransferPolicy, used_pages: int
) -> PoolLedger:
    pool = pool_plan.pool
    end = num_units(pool, used_pages)
    first = 0 if policy is TransferPolicy.DENSE else first_needed_at(pool, policy, end)
    start, stop = np.searchsorted(arrival.units, (first, end)).tolist()
    used = volume(pool, stop - start)
    return PoolLedger(
        pool=pool.name,
        read=arrival.read,
        skipped={reason: volume(pool, units) for reason, units in pool_plan.skipped.items()},
        missed=arrival.missed + volume(pool, pool_plan.missing),
        failed=arrival.failed,
        wasted=arrival.read - used,
        degraded=not pool.constrains and (pool_plan.missing > 0 or len(arrival.units) < len(pool_plan.units)),
    )
