"""The embedded store: objects in this process's memory, with Mooncake Store's semantics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from hicache_bench.errors import ConfigError, StoreClosedError
from hicache_bench.links.bandwidth import BandwidthModel
from hicache_bench.store.base import (
    EXISTS,
    INVALID_PARAMS,
    LEASED,
    MAX_SLICES_PER_CALL,
    MISS,
    NO_SPACE,
    OK,
    Buffers,
    KeyResult,
    KVStoreBackend,
    StoreCapabilities,
    StoreStats,
)
from hicache_bench.store.object_batch import ObjectBatch, is_valid_key
from hicache_bench.store.objects import Access, ObjectTable, StoredObject
from hicache_bench.store.registration import NO_RANGE, RegisteredMemory

DEFAULT_LEASE_TTL_SECONDS = 10.0
"""Mooncake's ``-default_kv_lease_ttl`` of 10,000 ms."""

DEFAULT_EVICTION_WATERMARK = 0.90
"""Used share of the capacity above which Mooncake evicts: ``-eviction_high_watermark_ratio``."""

DEFAULT_EVICTION_RATIO = 0.05
"""Share of what is stored that one eviction drops: ``-eviction_ratio``."""


class LocalKVStore(KVStoreBackend):
    """An arena in this process: insert if absent, leases, least-recently-used eviction.

    It differs from Mooncake Store in when and in what order it evicts. A put above the watermark evicts when
    its call ends, and one that finds no room evicts at once and tries again, so that ``NO_SPACE`` means "all
    else is leased, or was put by this very call". Mooncake evicts in the background, and a burst of puts can
    see ``NO_SPACE`` where this store makes room. Here the oldest last use goes first; Mooncake takes the
    oldest end of a lease, so that an object read once outlives one that was put within a TTL after the read.
    ``docs/stores.md`` lists all that differs, and how that list is held to.

    Calls may come from several threads; they run one after another.

    Args:
        capacity_bytes: size of the arena; the operating system commits it as it is written.
        lease_ttl_seconds: how long an ``exists`` or a ``get`` protects an object; 0 turns leases off.
        eviction_watermark: used share of the capacity above which eviction starts, up to 1.
        eviction_ratio: least share of the stored bytes that one eviction drops, up to 1.
        clock: seconds that never go back.
        link: adds modelled seconds to the statistics; nothing sleeps.

    Raises:
        ConfigError: an argument outside its range.
        MemoryBudgetError: this machine has no room for the arena.
    """

    def __init__(
        self,
        capacity_bytes: int,
        *,
        lease_ttl_seconds: float = DEFAULT_LEASE_TTL_SECONDS,
        eviction_watermark: float = DEFAULT_EVICTION_WATERMARK,
        eviction_ratio: float = DEFAULT_EVICTION_RATIO,
        clock: Callable[[], float] = time.monotonic,
        link: BandwidthModel | None = None,
    ) -> None:
        if capacity_bytes <= 0:
            raise ConfigError(f"a store needs a capacity of at least one byte, not {capacity_bytes}")
        if not lease_ttl_seconds >= 0:
            raise ConfigError(f"a lease lasts 0 seconds or more, not {lease_ttl_seconds}")
        if not (0 < eviction_watermark <= 1 and 0 < eviction_ratio <= 1):
            raise ConfigError(
                "eviction watermark and ratio are shares above 0 and up to 1, not "
                f"{eviction_watermark} and {eviction_ratio}"
            )
        self._stats = StoreStats()
        self._objects = ObjectTable(
            capacity_bytes, watermark=eviction_watermark, ratio=eviction_ratio, stats=self._stats
        )
        self._registered = RegisteredMemory()
        self._settings: dict[str, str | int | float] = {
            "capacity_bytes": capacity_bytes,
            "lease_ttl_seconds": lease_ttl_seconds,
            "eviction_watermark": eviction_watermark,
            "eviction_ratio": eviction_ratio,
        }
        self._lease_ttl_seconds = lease_ttl_seconds
        self._clock = clock
        self._link = link
        self._num_calls = 0
        self._closed = False
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> StoreCapabilities:
        return StoreCapabilities(
            name="local",
            moves_bytes=True,
            # Nothing breaks beyond it here; callers batch as they would for the real store.
            max_slices_per_call=MAX_SLICES_PER_CALL,
            supports_leases=self._lease_ttl_seconds > 0,
        )

    @property
    def stats(self) -> StoreStats:
        return self._stats

    @property
    def settings(self) -> dict[str, str | int | float]:
        return dict(self._settings)

    @property
    def used_bytes(self) -> int:
        """Bytes of the objects that are stored now."""
        return self._objects.used_bytes

    def __len__(self) -> int:
        return len(self._objects)

    def register_buffer(self, address: int, num_bytes: int) -> None:
        with self._lock:
            self._check_open()
            self._registered.add(address, num_bytes)

    def unregister_buffer(self, address: int) -> None:
        with self._lock:
            self._check_open()
            self._registered.discard(address)

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        with self._lock:
            self._check_open()
            access = self._new_access(self._lease_ttl_seconds)
            results = []
            for key in keys:
                stored = self._objects.find(key)
                if stored is None:
                    results.append(MISS if is_valid_key(key) else INVALID_PARAMS)
                else:
                    stored.access = access
                    results.append(OK)
            self._stats.exist_calls += 1
            self._stats.exist_keys += len(results)
            self._add_modeled_seconds(num_bytes=0, num_objects=0)
            return results

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        with self._lock:
            self._check_open()
            batch = ObjectBatch.of(keys, addresses, sizes)
            access = self._new_access(self._lease_ttl_seconds)
            unleased = access._replace(lease_end_seconds=access.seconds)
            refused: set[str] = set()
            results = [self._put(batch, index, access, unleased, refused) for index in range(len(batch))]
            num_stored, put_bytes = batch.successes(results)
            num_existing = sum(result is EXISTS for result in results)
            self._stats.put_calls += 1
            self._stats.put_keys += len(results)
            self._stats.put_bytes += put_bytes
            self._stats.put_noops += num_existing
            self._stats.put_failures += len(results) - num_stored - num_existing
            self._add_modeled_seconds(put_bytes, num_stored)
            self._objects.trim(access)
            return results

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        with self._lock:
            self._check_open()
            batch = ObjectBatch.of(keys, addresses, sizes)
            access = self._new_access(self._lease_ttl_seconds)
            results = self._get_scattered(batch, access) if batch.scattered else self._get(batch, access)
            num_read, get_bytes = batch.successes(results)
            num_missing = 0
            if num_read < len(results):
                num_missing = sum(result is MISS for result in results)
            self._stats.get_calls += 1
            self._stats.get_keys += len(results)
            self._stats.get_bytes += get_bytes
            self._stats.get_misses += num_missing
            self._stats.get_failures += len(results) - num_read - num_missing
            self._add_modeled_seconds(get_bytes, num_read)
            return results

    def remove(self, key: str, *, force: bool = False) -> KeyResult:
        with self._lock:
            self._check_open()
            stored = self._objects.find(key)
            if stored is None:
                return MISS if is_valid_key(key) else INVALID_PARAMS
            if not force and stored.access.lease_end_seconds > self._clock():
                return LEASED
            self._objects.drop(key)
            return OK

    def remove_all(self, *, force: bool = False) -> int:
        with self._lock:
            self._check_open()
            return self._objects.drop_all(self._clock(), force=force)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._objects.clear()
            self._registered.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("this local store is closed; open a new LocalKVStore")

    def _new_access(self, lease_seconds: float) -> Access:
        self._num_calls += 1
        now = self._clock()
        return Access(self._num_calls, now, now + lease_seconds)

    def _add_modeled_seconds(self, num_bytes: int, num_objects: int) -> None:
        if self._link is not None:
            self._stats.modeled_seconds += self._link.seconds(num_bytes, num_objects=num_objects)

    def _get(self, batch: ObjectBatch, access: Access) -> list[KeyResult]:
        found = list(map(self._objects.find, batch.keys))
        present = [stored for stored in found if stored]
        start, _, target = self._registered.holding(batch.addresses, batch.sizes)
        if not start or [stored.num_bytes for stored in present] != batch.sizes:
            return self._get_each(batch, found, access)
        # The usual batch: all is there, in buffers that share a range. A copy between slices of memoryviews
        # costs half of a ctypes.memmove.
        for stored, address, num_bytes in zip(present, batch.addresses, batch.sizes, strict=True):
            offset = address - start
            target[offset : offset + num_bytes] = stored.view
            stored.access = access
        return [OK] * len(found)

    def _get_each(
        self, batch: ObjectBatch, found: Sequence[StoredObject | None], access: Access
    ) -> list[KeyResult]:
        # Objects mostly share a range with the one before, or (K and V of a page) with the one before that:
        # only an address outside both costs a look-up.
        find_range = self._registered.find
        current = previous = NO_RANGE
        start, end, target = current
        results: list[KeyResult] = []
        append = results.append
        for key, stored, address, num_bytes in zip(
            batch.keys, found, batch.addresses, batch.sizes, strict=True
        ):
            stop = address + num_bytes
            if not start <= address < stop <= end:
                current, previous = previous, current
                if not current.start <= address < stop <= current.end:
                    current = find_range(address)
                start, end, target = current
                if not start <= address < stop <= end:
                    append(INVALID_PARAMS)
                    continue
            if stored is None:
                append(MISS if is_valid_key(key) else INVALID_PARAMS)
            elif stored.num_bytes != num_bytes:
                stored.access = access
                append(INVALID_PARAMS)
            else:
                target[address - start : stop - start] = stored.view
                stored.access = access
                append(OK)
        return results

    def _get_scattered(self, batch: ObjectBatch, access: Access) -> list[KeyResult]:
        results = []
        for index, key in enumerate(batch.keys):
            targets = self._views(batch, index)
            stored = self._objects.find(key)
            if not targets:
                results.append(INVALID_PARAMS)
            elif stored is None:
                results.append(MISS if is_valid_key(key) else INVALID_PARAMS)
            elif stored.num_bytes != batch.totals[index]:
                stored.access = access
                results.append(INVALID_PARAMS)
            else:
                position = 0
                for target in targets:
                    target[:] = stored.view[position : position + len(target)]
                    position += len(target)
                stored.access = access
                results.append(OK)
        return results

    def _put(
        self, batch: ObjectBatch, index: int, access: Access, unleased: Access, refused: set[str]
    ) -> KeyResult:
        key = batch.keys[index]
        sources = self._views(batch, index)
        if not sources:
            return INVALID_PARAMS
        existing = self._objects.find(key)
        if existing is not None:
            # Mooncake is asked first which keys exist, which takes a lease; what this very call put has none.
            if existing.access.call != access.call:
                existing.access = access
            return EXISTS
        if not is_valid_key(key):
            return INVALID_PARAMS
        # A key that the call gives twice is told twice what became of the first.
        stored = None if key in refused else self._objects.insert(key, batch.totals[index], unleased)
        if stored is None:
            refused.add(key)
            return NO_SPACE
        position = 0
        for source in sources:
            stored.view[position : position + len(source)] = source
            position += len(source)
        return OK

    def _views(self, batch: ObjectBatch, index: int) -> list[memoryview]:
        """The host buffers of one object; none where one of them is empty or is not registered."""
        addresses, sizes = batch.addresses[index], batch.sizes[index]
        if not batch.scattered:
            addresses, sizes = (addresses,), (sizes,)
        views = []
        for address, num_bytes in zip(addresses, sizes, strict=True):
            start, end, view = self._registered.find(address)
            if not start <= address < address + num_bytes <= end:
                return []
            views.append(view[address - start : address + num_bytes - start])
        return views
