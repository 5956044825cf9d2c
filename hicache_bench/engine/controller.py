"""Saving, finding and restoring a prompt's prefix over the pools of one rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hicache_bench.engine.host import HostPool, buffer_ranges, check_host_pool
from hicache_bench.engine.lookup import EndpointSearch, look_up_endpoint, look_up_prefix, resolve_lookup
from hicache_bench.engine.prefix import Prefix, PrefixKeys
from hicache_bench.engine.reports import Lookup, RestoreReport, SaveReport
from hicache_bench.engine.transfer import (
    PoolWork,
    SelectiveTransferEngine,
    Transfer,
    arrived_units,
    unstored,
)
from hicache_bench.errors import ConfigError, StoreError
from hicache_bench.planning.ledger import PoolArrival, Volume, settle, volume
from hicache_bench.planning.plan import PoolPlan, TransferPlan, build_plan, narrow
from hicache_bench.planning.policy import BoolVector, IntVector, SavePolicy, TransferPolicy
from hicache_bench.planning.resolve import Resolution, ends_of, num_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.keys import KeyBuilder
from hicache_bench.pools.names import HitPolicy
from hicache_bench.pools.registry import PoolDescriptorRegistry
from hicache_bench.store.base import EXISTS, MISS, OK, KeyResult, KVStoreBackend

if TYPE_CHECKING:
    from hicache_bench.engine.metrics import MetricsSink

UnitSelector = Callable[[KVPoolDescriptor, HostPool], BoolVector]
"""Scores a restored index: given the selected pool and the index's host pool, one flag per unit."""


class HybridKVController:
    """Save, look up, plan and restore for the pools of one rank.

    Registers the host buffers with the store, and unregisters them on :meth:`close`, or at the end of a
    ``with`` block. Logical pools are known and never touched.

    Raises:
        ConfigError: nothing to store, or a physical pool without a host pool.
        LayoutError: a host pool whose layout or bytes are not those of its descriptor.
        StoreError: buffers that the store cannot register; none stays registered.
    """

    def __init__(
        self,
        registry: PoolDescriptorRegistry,
        host_pools: Mapping[str, HostPool],
        keys: KeyBuilder,
        store: KVStoreBackend,
        *,
        metrics: MetricsSink | None = None,
        engine: SelectiveTransferEngine | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        registry.check()
        absent = [pool.name for pool in registry.registered if pool.name not in host_pools]
        if absent:
            raise ConfigError(f"pools {', '.join(absent)} have no host pool; give one for each physical pool")
        self.pools = registry.registered
        self._host_pools = host_pools
        self._keys = PrefixKeys(keys)
        self._store = store
        self._engine = engine or SelectiveTransferEngine(store, clock=clock)
        self._metrics: MetricsSink | None = metrics or store.metrics
        self._clock = clock
        for pool in self.pools:
            check_host_pool(pool, host_pools[pool.name])
        self._registered: list[int] = []
        try:
            self._register_buffers()
        except BaseException:
            self._release()
            raise

    def _register_buffers(self) -> None:
        if not self._store.capabilities.needs_registration:
            return
        for pool in self.pools:
            for address, num_bytes in buffer_ranges(self._host_pools[pool.name]):
                if num_bytes:
                    self._store.register_buffer(address, num_bytes)
                    self._registered.append(address)

    def close(self) -> None:
        """Unregister the host buffers, all of them. The store stays open: who opened it closes it.

        Raises:
            StoreError: the first one that the store refused.
        """
        refused = self._release()
        if refused:
            raise refused[0]

    def _release(self) -> list[StoreError]:
        refused = []
        while self._registered:
            try:
                self._store.unregister_buffer(self._registered.pop())
            except StoreError as error:  # noqa: PERF203 -- each is a call to a server
                refused.append(error)
        return refused

    def __enter__(self) -> HybridKVController:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A store that is lost refuses this too, and why it was lost is what must be heard.
        if kind is None:
            self.close()
        else:
            self._release()

    def save(self, prefix: Prefix, policy: SavePolicy) -> SaveReport:
        """Put what ``policy`` keeps of the prefix, in batches; stop at a batch that fails for good."""
        started = self._clock()
        kept = {
            pool.name: np.flatnonzero(
                policy.saved_units(pool, num_units(pool, prefix.num_pages))
                & (prefix.slots[pool.name] >= 0)
                & prefix.is_keyed(pool)
            )
            for pool in self.pools
        }
        work = [self._work(pool, prefix, kept[pool.name]) for pool in self.pools]
        transfer = self._engine.write(work)
        seconds = self._clock() - started - transfer.hook_seconds
        stored = self._stored_pages(prefix, work, transfer)
        report = SaveReport(
            written=self._volumes(transfer, OK),
            existing=self._volumes(transfer, EXISTS),
            failed={
                item.pool.name: volume(item.pool, len(item.units))
                - self._volume(item.pool, transfer, OK, EXISTS)
                for item in work
            },
            stored_pages=stored,
            failed_pages=prefix.num_pages - stored,
            transfer=transfer,
            seconds=seconds,
        )
        if self._metrics is not None:
            self._metrics.record_save(report.written, seconds)
        return report

    def lookup(self, prefix: Prefix) -> Lookup:
        """Ask the store for every object of the prefix."""
        return look_up_prefix(self.pools, self._keys, self._store, prefix, clock=self._clock)

    def lookup_endpoint(
        self,
        prefix: Prefix,
        policy: TransferPolicy,
        *,
        local_tokens: int = 0,
        host_capacity_pages: int | None = None,
    ) -> Lookup:
        """Ask the store for what decides the endpoint under ``policy``, and what its restore reads, alone.

        Give :meth:`resolve` and :meth:`plan` the same arguments: the lookup holds for them only.
        """
        search = EndpointSearch(
            self.pools,
            self._keys,
            self._store.batch_exists,
            prefix,
            policy,
            local_tokens=local_tokens,
            clock=self._clock,
        )
        return look_up_endpoint([search], host_capacity_pages=host_capacity_pages)[0]

    def resolve(self, lookup: Lookup, policy: TransferPolicy, *, local_tokens: int = 0) -> Resolution:
        """The endpoint that the prompt may use under ``policy``; its first ``local_tokens`` are there."""
        return resolve_lookup(self.pools, lookup, policy, local_tokens=local_tokens)

    def plan(
        self,
        lookup: Lookup,
        policy: TransferPolicy,
        *,
        resolution: Resolution | None = None,
        local_tokens: int = 0,
        host_capacity_pages: int | None = None,
        threshold_tokens: int = 0,
    ) -> TransferPlan:
        """What to read for the endpoint that ``lookup`` allows, or that ``resolution`` of all ranks does."""
        local_tokens = max(local_tokens, lookup.prefix.first_page * lookup.prefix.page_tokens)
        return build_plan(
            self.pools,
            lookup.presence,
            resolution or self.resolve(lookup, policy, local_tokens=local_tokens),
            policy,
            local_tokens=local_tokens,
            host_capacity_pages=host_capacity_pages,
            threshold_tokens=threshold_tokens,
        )

    def restore(
        self, prefix: Prefix, plan: TransferPlan, *, selector: UnitSelector | None = None
    ) -> RestoreReport:
        """Read what ``plan`` names into the host pools and close its account.

        With a ``selector``, pools that an index selects from wait for the index: it is read first, scored,
        and only the blocks that it selects follow.
        """
        started = self._clock()
        selection_seconds = 0.0
        selects = selector is not None and plan.policy is TransferPolicy.SELECTIVE
        waiting = {item.pool.name: item for item in plan.pools if selects and item.pool.selection is not None}
        transfer = self._read(prefix, [item for item in plan.pools if item.pool.name not in waiting])
        if waiting and selector is not None and not self._index_arrived(waiting.values(), transfer, plan):
            # Poison would be scored. Everything is read, and the endpoint is what arrived.
            transfer = _merged(transfer, self._read(prefix, waiting.values()))
        elif waiting and selector is not None:
            selection_started = self._clock()
            narrowed = {
                name: narrow(item, self._selected(item.pool, selector)) for name, item in waiting.items()
            }
            selection_seconds = self._clock() - selection_started
            transfer = _merged(transfer, self._read(prefix, narrowed.values()))
            plan = replace(plan, pools=tuple(narrowed.get(item.pool.name, item) for item in plan.pools))
        arrivals = {item.pool.name: self._arrival(item, transfer) for item in plan.pools}
        seconds = self._clock() - started - selection_seconds - transfer.hook_seconds
        ledger = settle(plan, arrivals)
        if self._metrics is not None:
            self._metrics.record_restore(
                ledger, seconds, prompt_tokens=prefix.prompt_tokens, local_tokens=plan.local_tokens
            )
        return RestoreReport(
            plan=plan,
            ledger=ledger,
            arrived={name: arrival.units for name, arrival in arrivals.items()},
            transfer=transfer,
            seconds=seconds,
            selection_seconds=selection_seconds,
        )

    def _index_arrived(self, waiting: Iterable[PoolPlan], transfer: Transfer, plan: TransferPlan) -> bool:
        indexes = {item.pool.selection.index_pool for item in waiting if item.pool.selection is not None}
        return all(
            self._arrival(item, transfer).units.size == item.units.size
            for item in plan.pools
            if item.pool.name in indexes
        )

    def _selected(self, pool: KVPoolDescriptor, selector: UnitSelector) -> BoolVector:
        assert pool.selection is not None
        return selector(pool, self._host_pools[pool.selection.index_pool])

    def _read(self, prefix: Prefix, plans: Iterable[PoolPlan]) -> Transfer:
        work = [self._work(item.pool, prefix, item.units) for item in plans]
        return self._engine.read(work)

    def _work(self, pool: KVPoolDescriptor, prefix: Prefix, units: IntVector) -> PoolWork:
        slots = prefix.slots[pool.name][units]
        if len(slots) and slots.min() < 0:
            raise ConfigError(
                f"pool {pool.name!r}: unit {int(units[int(np.argmin(slots))])} has no host slot to move to; "
                "allocate one for every unit that a plan may read"
            )
        return PoolWork(
            pool=pool,
            host_pool=self._host_pools[pool.name],
            units=units,
            ends=ends_of(pool, units, prefix.num_pages),
            slots=slots,
            keys=self._keys.of_units(pool, prefix, units),
        )

    def _stored_pages(self, prefix: Prefix, work: Sequence[PoolWork], transfer: Transfer) -> int:
        """Pages before the first object that was not stored: it failed, or the host lacks a needed page."""
        stored = prefix.num_pages
        for item in work:
            if item.pool.hit_policy is HitPolicy.ALL_PAGES:
                lacking = np.flatnonzero((prefix.slots[item.pool.name] < 0) & prefix.is_keyed(item.pool))
                stored = min([stored, *(lacking[:1] * item.pool.unit_pages).tolist()])
            failed = unstored(transfer.results[item.pool.name])
            if failed:
                unit = int(item.units[failed[0] // self._keys.per_unit(item.pool)])
                stored = min(stored, unit * item.pool.unit_pages)
        return stored

    def _volumes(self, transfer: Transfer, *wanted: KeyResult) -> dict[str, Volume]:
        return {pool.name: self._volume(pool, transfer, *wanted) for pool in self.pools}

    def _volume(self, pool: KVPoolDescriptor, transfer: Transfer, *wanted: KeyResult) -> Volume:
        """Units whose every object has one of the ``wanted`` results, and all objects that have."""
        results = transfer.results[pool.name]
        sizes = [component.object_bytes for component in pool.stored_components]
        found = sum(results.count(result) for result in wanted)
        if found in (0, len(results)):
            return volume(pool, found // len(sizes))
        flags = np.array([result in wanted for result in results], dtype=np.bool_).reshape(-1, len(sizes))
        return Volume(
            int(flags.all(axis=1).sum()), int(flags.sum()), int(flags.sum(axis=0) @ np.array(sizes))
        )

    def _arrival(self, item: PoolPlan, transfer: Transfer) -> PoolArrival:
        results = transfer.results[item.pool.name]
        whole = arrived_units(results, self._keys.per_unit(item.pool))
        planned = volume(item.pool, len(item.units))
        if whole.all():
            return PoolArrival(units=item.units, read=planned)
        read, missed = (self._volume(item.pool, transfer, wanted) for wanted in (OK, MISS))
        not_failed = self._volume(item.pool, transfer, OK, MISS)
        return PoolArrival(
            units=item.units[whole],
            read=read,
            missed=replace(missed, units=not_failed.units - read.units),
            failed=planned - not_failed,
        )


def remove_prefix(
    pools: Iterable[KVPoolDescriptor], keys: KeyBuilder, store: KVStoreBackend, prefix: Prefix
) -> int:
    """Take the prefix's objects out of the store, leased or not; return how many may still be there.

    The first error ends it: a store that has lost its master takes seconds to refuse each key.
    """
    prefix_keys = PrefixKeys(keys)
    remaining = [
        key
        for pool in pools
        for key in prefix_keys.of_units(pool, prefix, np.flatnonzero(prefix.slots[pool.name] >= 0))
    ]
    while remaining:
        if store.remove(remaining[-1], force=True) not in (OK, MISS):
            break
        remaining.pop()
    return len(remaining)


def _merged(first: Transfer, second: Transfer) -> Transfer:
    return Transfer(
        results={**first.results, **second.results},
        store_seconds=first.store_seconds + second.store_seconds,
        hook_seconds=first.hook_seconds + second.hook_seconds,
        calls=first.calls + second.calls,
        batches=first.batches + second.batches,
        retried=first.retried + second.retried,
    )
