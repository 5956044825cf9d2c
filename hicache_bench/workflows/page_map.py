"""Page by page, what a store holds of a prefix and what each policy reads of it, as the planner answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hicache_bench.errors import ConfigError
from hicache_bench.planning.plan import PoolPlan, SkipReason, TransferPlan, build_plan, narrow
from hicache_bench.planning.policy import BoolVector, SavePolicy, TransferPolicy, first_needed_at
from hicache_bench.planning.resolve import num_units, resolve, unit_ends
from hicache_bench.planning.sparse import select_units
from hicache_bench.pools.descriptor import KVPoolDescriptor

READ, ABSENT = "read", "absent"
"""States of a unit beside the skip reasons."""

_BEYOND = frozenset({SkipReason.BEYOND_ENDPOINT, SkipReason.REPLAY_BOUNDARY})


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRow:
    """One restore of one pool: the state of each unit, :data:`READ`, :data:`ABSENT` or a skip reason."""

    label: str
    states: tuple[str, ...]

    def count(self, state: str) -> int:
        """Units in ``state``."""
        return self.states.count(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMap:
    """One pool. ``needed`` are the units that must exist for the endpoint; a logical one has no rows."""

    pool: KVPoolDescriptor
    stored: tuple[bool, ...]
    needed: tuple[bool, ...]
    rows: tuple[MapRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageMap:
    """A prompt of ``num_pages`` whole pages, of which the store has seen the first ``shared_pages``."""

    num_pages: int
    shared_pages: int
    endpoint_pages: int
    page_tokens: int
    save_policy: SavePolicy
    pools: tuple[PoolMap, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseQueries:
    """Queries whose scores are seeded noise, for the pools that an index selects from."""

    numbers: tuple[int, ...]
    num_layers: int
    seed: int

    def select(self, pool: KVPoolDescriptor, units: int, number: int) -> BoolVector:
        """Units of ``pool`` that the first ``number`` queries select; more queries never select fewer."""
        assert pool.selection is not None
        rows_per_unit = pool.unit_tokens // pool.selection.group_tokens
        layers = [
            np.random.default_rng([self.seed, layer]).standard_normal(
                (max(self.numbers), units * rows_per_unit)
            )
            for layer in range(self.num_layers)
        ]
        return select_units(
            (scores[:number] for scores in layers),
            top_k=pool.selection.top_k,
            rows_per_unit=rows_per_unit,
            num_units=units,
        )


def page_map(
    pools: Sequence[KVPoolDescriptor],
    num_pages: int,
    save_policy: SavePolicy,
    *,
    shared_pages: int | None = None,
    queries: NoiseQueries | None = None,
) -> PageMap:
    """Save ``num_pages``, look up a prompt that shares the first ``shared_pages`` (default: all), plan it.

    Raises:
        ConfigError: the policies resume at different endpoints, so that one map cannot show them.
    """
    shared = num_pages if shared_pages is None else shared_pages
    physical = [pool for pool in pools if not pool.is_logical]
    presence = {
        pool.name: save_policy.saved_units(pool, num_units(pool, num_pages))
        & (unit_ends(pool, num_pages) <= shared)
        for pool in physical
    }
    plans = {
        policy: build_plan(pools, presence, resolve(pools, presence, policy, num_pages), policy)
        for policy in TransferPolicy
    }
    endpoints = {plan.endpoint_pages for plan in plans.values()}
    if len(endpoints) > 1:
        raise ConfigError(f"the policies resume at different endpoints, {sorted(endpoints)}: draw each apart")
    (endpoint,) = endpoints
    return PageMap(
        num_pages=num_pages,
        shared_pages=shared,
        endpoint_pages=endpoint,
        page_tokens=pools[0].page_tokens,
        save_policy=save_policy,
        pools=tuple(
            PoolMap(pool=pool, stored=(), needed=(), rows=())
            if pool.is_logical
            else _pool_map(pool, presence[pool.name], endpoint, plans, queries)
            for pool in pools
        ),
    )


def _pool_map(
    pool: KVPoolDescriptor,
    present: BoolVector,
    endpoint_pages: int,
    plans: Mapping[TransferPolicy, TransferPlan],
    queries: NoiseQueries | None,
) -> PoolMap:
    end = num_units(pool, endpoint_pages)
    first = first_needed_at(pool, TransferPolicy.SELECTIVE, end)
    rows = []
    for policy, plan in plans.items():
        (planned,) = (planned for planned in plan.pools if planned.pool == pool)
        rows.append(_row(policy.value, planned, present, end))
        if policy is TransferPolicy.SELECTIVE and queries is not None and pool.selection is not None:
            for number in queries.numbers:
                plural = "query" if number == 1 else "queries"
                selected = queries.select(pool, len(present), number)
                rows.append(_row(f"{number} {plural}", narrow(planned, selected), present, end))
    return PoolMap(
        pool=pool,
        stored=tuple(map(bool, present)),
        needed=tuple(first <= unit < end for unit in range(len(present))),
        rows=tuple(rows),
    )


def _row(label: str, plan: PoolPlan, present: BoolVector, end: int) -> MapRow:
    """Give each unit its reason: without a local prefix, a plan has one below the endpoint and one beyond."""
    read = set(plan.units.tolist())
    below = next((reason for reason in plan.skipped if reason not in _BEYOND), None)
    beyond = next((reason for reason in plan.skipped if reason in _BEYOND), None)

    def state(unit: int) -> str:
        if unit in read:
            return READ
        return str(beyond if unit >= end else below) if present[unit] else ABSENT

    return MapRow(label=label, states=tuple(map(state, range(len(present)))))
