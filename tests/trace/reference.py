"""A second tier, unit by unit in dictionaries, whose rules are those of ``planning`` itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hicache_bench.planning.plan import build_plan
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.planning.resolve import num_units, resolve
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.trace.paths import PagePaths
from hicache_bench.trace.replay import Limits
from hicache_bench.trace.tier import Eviction

Unit = tuple[str, int]
"""Pool and page of the tree at which the unit ends."""


@dataclass
class ReferenceTier:
    """What each request found, and what the tier holds."""

    paths: PagePaths
    pools: Sequence[KVPoolDescriptor]
    policy: TransferPolicy
    save: SavePolicy
    eviction: Eviction
    capacity: int | None
    limits: Limits = field(default_factory=Limits)
    hit: list[int] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    read_bytes: list[int] = field(default_factory=list)
    resident_bytes: list[int] = field(default_factory=list)
    written: dict[str, int] = field(default_factory=dict)
    evicted: dict[str, int] = field(default_factory=dict)

    def run(self) -> ReferenceTier:
        self.sizes = {pool.name: pool.unit_bytes for pool in self.pools}
        self.rank: dict[Unit, tuple[int, ...]] = {}  # what is lowest leaves first
        self.seen: set[int] = set()
        self.written = dict.fromkeys(self.sizes, 0)
        self.evicted = dict.fromkeys(self.sizes, 0)
        for request in range(len(self.paths)):
            self._request(request)
        return self

    def _request(self, request: int) -> None:
        path = self.paths.of(request).tolist()
        matchable = int(self.paths.matchable[request])
        known = 0
        while known < matchable and path[known] in self.seen:
            known += 1
        local_tokens = min(known, self.limits.local_tokens // self.paths.page_tokens) * self.paths.page_tokens
        presence = {
            pool.name: np.array(
                [(pool.name, page) in self.rank for page in self._ends(pool, path[:matchable])],
                dtype=np.bool_,
            )
            for pool in self.pools
        }
        found = resolve(self.pools, presence, self.policy, matchable, local_tokens=local_tokens)
        host = self.limits.host_capacity_tokens
        plan = build_plan(
            self.pools,
            presence,
            found,
            self.policy,
            local_tokens=local_tokens,
            host_capacity_pages=None if host is None else host // self.paths.page_tokens,
            threshold_tokens=self.limits.threshold_tokens,
        )
        self.hit.append(found.hit_pages)
        self.used.append(plan.endpoint_pages)
        self.read_bytes.append(plan.read_bytes)
        touched: set[Unit] = set()
        for item in plan.pools:
            ends = self._ends(item.pool, path)
            touched |= {(item.pool.name, ends[unit]) for unit in item.units.tolist()}
            saved = self.save.saved_units(item.pool, num_units(item.pool, len(path)))
            used_units = plan.endpoint_pages // item.pool.unit_pages
            touched |= {
                (item.pool.name, page)
                for unit, page in enumerate(ends)
                if saved[unit] and (unit >= used_units or item.pool.hit_policy.value == "all_pages")
            }
        self.seen |= set(path)
        self._settle(request, path, touched)
        self.resident_bytes.append(sum(self.sizes[name] for name, _ in self.rank))

    def _ends(self, pool: KVPoolDescriptor, path: Sequence[int]) -> list[int]:
        return list(path[pool.unit_pages - 1 :: pool.unit_pages])

    def _settle(self, request: int, path: list[int], touched: set[Unit]) -> None:
        place = {page: position for position, page in enumerate(path)}
        for unit in touched:
            if unit not in self.rank:
                self.written[unit[0]] += 1
        if self.eviction is Eviction.LRU:
            self.rank.update({unit: (request, -place[unit[1]]) for unit in touched})
        else:
            self.rank.update(dict.fromkeys(touched, ()))
            for unit in self.rank:
                if unit[1] in place:
                    following = self._next(request, unit[1])
                    self.rank[unit] = (-following, -place[unit[1]])
        while self.capacity is not None and sum(self.sizes[name] for name, _ in self.rank) > self.capacity:
            lowest = min(self.rank.values())
            for unit in [unit for unit, rank in self.rank.items() if rank == lowest]:
                del self.rank[unit]
                self.evicted[unit[0]] += 1

    def _next(self, request: int, page: int) -> int:
        """The next request that has ``page``; if none has, one behind all, later the later it was had."""
        for later in range(request + 1, len(self.paths)):
            if page in self.paths.of(later):
                return later
        return len(self.paths) + request
