"""A model's prefixes saved and restored through the engine, rightly or broken on purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hicache_bench.engine.controller import HybridKVController, UnitSelector, remove_prefix
from hicache_bench.engine.host import HostPool as EngineHostPool
from hicache_bench.engine.prefix import Prefix
from hicache_bench.engine.reports import RestoreReport
from hicache_bench.errors import StoreError
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.numerics.cache import PagedCache, Prompt
from hicache_bench.numerics.dtypes import Floats
from hicache_bench.planning.plan import PoolPlan, TransferPlan
from hicache_bench.planning.policy import BoolVector, SavePolicy, StateSave, TransferPolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.keys import page_hashes
from hicache_bench.pools.registry import PoolDescriptorRegistry
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.workflows.prefix import PrefixLayout, build_registry, lay_out
from hicache_bench.workflows.roundtrip.numeric_model import Caches, Continuation, Ids, NumericModel
from hicache_bench.workflows.variant import Variant

SAVE_ALL = SavePolicy(states=StateSave.ALL)


@dataclass(frozen=True, slots=True)
class Restored:
    """Host pools after a restore, as caches, and the engine's account of it."""

    caches: Caches
    host_pools: dict[str, HostPool]
    report: RestoreReport


@dataclass(frozen=True, slots=True)
class Spoiling:
    """How a restore is broken on purpose.

    ``plan`` changes what is read. ``index`` gives the caches whose index is asked, instead of those that were
    just restored.
    """

    plan: Callable[[TransferPlan], TransferPlan] = lambda plan: plan
    index: Mapping[str, PagedCache] | None = None


RIGHT = Spoiling()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A prefix of ``pages`` that was restored, and what follows it.

    ``selective`` is what a selective restore left; ``dense``
    is what follows a dense one, ``whole`` the outputs of the whole prompt without a cache.
    """

    pages: int
    tokens: Ids
    selective: Restored
    dense: Continuation
    whole: Floats


@dataclass(frozen=True)
class NumericRig:
    """One layout of a model's pools on an open store."""

    model: NumericModel
    variant: Variant
    store: KVStoreBackend

    @cached_property
    def registry(self) -> PoolDescriptorRegistry:
        """Its pools."""
        (pools,) = self.variant.pools.values()
        return build_registry(pools)

    @property
    def pools(self) -> tuple[KVPoolDescriptor, ...]:
        """The pools that reach the store."""
        return self.registry.registered

    def layout(self, num_pages: int) -> PrefixLayout:
        """A slot for every unit of a prefix."""
        return lay_out(self.registry, num_pages * self.model.page_tokens, SAVE_ALL)

    def prefix(self, tokens: Ids, num_pages: int) -> Prefix:
        """The first pages of a prompt."""
        num_tokens = num_pages * self.model.page_tokens
        return Prefix(
            prompt_tokens=num_tokens + 1,
            page_tokens=self.model.page_tokens,
            hashes=page_hashes(
                tokens[:num_tokens].astype(np.uint32),
                self.model.page_tokens,
                parent=self.variant.chain_seed,
            ),
            slots=self.layout(num_pages).slots,
        )

    def save(self, tokens: Ids, num_pages: int) -> Caches:
        """Compute a prefix into host pools and save them; those caches, which no restore touches.

        Raises:
            StoreError: the store does not keep it.
        """
        prefix = self.prefix(tokens, num_pages)
        host_pools = self.layout(num_pages).host_pools(backed=True)
        for host_pool in host_pools.values():
            host_pool.poison()
        caches = self._caches(host_pools, prefix)
        inputs = self.model.reference.embed(tokens[: num_pages * self.model.page_tokens])
        self.model.reference.forward(inputs, 0, Prompt(caches))
        with self._controller(host_pools) as controller:
            report = controller.save(prefix, SAVE_ALL)
        if not report.complete:
            raise StoreError(
                f"{self.model.name}: the store kept {report.stored_pages} of {num_pages} pages of a prefix; "
                "give it more room"
            )
        return caches

    def restore(
        self,
        tokens: Ids,
        num_pages: int,
        policy: TransferPolicy,
        spoiling: Spoiling = RIGHT,
    ) -> Restored:
        """Restore what the store has of the first pages of a prompt, into poisoned pools.

        A selective restore reads the index first, and then what the continuation selects by it.
        """
        prefix = self.prefix(tokens, num_pages)
        host_pools = self.layout(num_pages).host_pools(backed=True)
        for host_pool in host_pools.values():
            host_pool.poison()
        caches = self._caches(host_pools, prefix)
        with self._controller(host_pools) as controller:
            lookup = controller.lookup(prefix)
            if lookup.errors:
                raise StoreError(
                    f"{self.model.name}: the store could not say whether it holds {lookup.errors} keys; see "
                    "that its master is running and reachable"
                )
            plan = spoiling.plan(controller.plan(lookup, policy))
            selector = self._selector(spoiling.index or caches, tokens, plan.endpoint_pages)
            report = controller.restore(prefix, plan, selector=selector)
        return Restored(caches, host_pools, report)

    def read_over(
        self,
        restored: Restored,
        pool: KVPoolDescriptor,
        tokens: Ids,
        num_pages: int,
        moved: Mapping[int, int],
    ) -> None:
        """Read units of a prompt over those of a restore; ``moved`` gives the slot of each unit."""
        prefix = self.prefix(tokens, num_pages)
        slots = prefix.slots[pool.name].copy()
        for unit, slot in moved.items():
            slots[unit] = slot
        units = {pool.name: np.array(sorted(moved))}
        nothing = np.zeros(0, dtype=np.int64)
        plan = TransferPlan(
            policy=TransferPolicy.DENSE,
            num_pages=num_pages,
            hit_pages=num_pages,
            endpoint_pages=num_pages,
            pools=tuple(PoolPlan(pool=each, units=units.get(each.name, nothing)) for each in self.pools),
        )
        with self._controller(restored.host_pools) as controller:
            report = controller.restore(replace(prefix, slots={**prefix.slots, pool.name: slots}), plan)
        if len(report.arrived[pool.name]) != len(moved):
            raise StoreError(f"{self.model.name}: pages of pool {pool.name!r} are no longer in the store")

    def remove(self, tokens: Ids, num_pages: int) -> int:
        """Take a prefix out of the store; how many of its objects may still be there."""
        return remove_prefix(self.pools, self.variant.keys, self.store, self.prefix(tokens, num_pages))

    def _selector(self, caches: Mapping[str, PagedCache], tokens: Ids, end: int) -> UnitSelector:
        found: dict[str, BoolVector] = {}

        def select(pool: KVPoolDescriptor, _index: EngineHostPool) -> BoolVector:
            # All pools that wait do so for indexes that have arrived by now.
            if not found:
                found.update(self.model.selected_units(caches, tokens, end))
            return found[pool.name]

        return select

    def _caches(self, host_pools: Mapping[str, HostPool], prefix: Prefix) -> Caches:
        return {
            pool.name: PagedCache(
                pool,
                [host_pools[pool.name].view(index) for index in range(len(pool.stored_components))],
                prefix.slots[pool.name],
            )
            for pool in self.pools
        }

    def _controller(self, host_pools: Mapping[str, Any]) -> HybridKVController:
        return HybridKVController(self.registry, host_pools, self.variant.keys, self.store)
