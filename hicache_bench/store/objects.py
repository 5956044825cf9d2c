"""What the embedded store holds: objects in one arena, and which of them give way to others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hicache_bench.errors import MemoryBudgetError
from hicache_bench.store.arena import ExtentAllocator
from hicache_bench.store.base import StoreStats
from hicache_bench.units import format_size


class Access(NamedTuple):
    """One call as the objects that it used remember it.

    ``call`` is its number: it orders what a still clock cannot. ``lease_end_seconds`` is when the lease that
    the call took ends; ``seconds`` itself where it took none.
    """

    call: int
    seconds: float
    lease_end_seconds: float


@dataclass(slots=True)
class StoredObject:
    """Bytes of one key and their last use."""

    offset: int
    num_bytes: int
    view: memoryview
    access: Access


class ObjectTable:
    """Objects by key, with eviction of the least recently used.

    An object under a lease is never evicted, nor is one that the running call put or used.

    Raises:
        MemoryBudgetError: this machine has no room for the arena.
    """

    __slots__ = ("_arena", "_memory", "_objects", "_ratio", "_stats", "_watermark", "find")

    def __init__(self, capacity_bytes: int, *, watermark: float, ratio: float, stats: StoreStats) -> None:
        try:
            memory = np.empty(capacity_bytes, dtype=np.uint8)
        except (MemoryError, ValueError) as failure:  # ValueError: beyond what an address can hold.
            raise MemoryBudgetError(
                f"this machine has no room for a store of {format_size(capacity_bytes)}; "
                "give a smaller capacity"
            ) from failure
        self._arena = ExtentAllocator(capacity_bytes)
        self._memory = memoryview(memory.data)
        self._objects: dict[str, StoredObject] = {}
        self._watermark = watermark
        self._ratio = ratio
        self._stats = stats
        # The dict's own bound method: a wrapper would cost more than the look-up.
        self.find: Callable[[str], StoredObject | None] = self._objects.get

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def capacity_bytes(self) -> int:
        """Bytes of the arena."""
        return self._arena.capacity_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes of all objects."""
        return self._arena.used_bytes

    def insert(self, key: str, num_bytes: int, access: Access) -> StoredObject | None:
        """A new object of undefined bytes, evicting for it where it must; None where that gives no room."""
        offset = self._arena.allocate(num_bytes)
        if offset is None:
            offset = self._evict_for(num_bytes, access)
        if offset is None:
            return None
        stored = StoredObject(offset, num_bytes, self._memory[offset : offset + num_bytes], access)
        self._objects[key] = stored
        return stored

    def drop(self, key: str) -> int:
        """Remove an object and say how many bytes it had."""
        stored = self._objects.pop(key)
        self._arena.release(stored.offset, stored.num_bytes)
        return stored.num_bytes

    def drop_all(self, now_seconds: float, *, force: bool) -> int:
        """Remove every object that has no lease (with ``force``: every object) and count them."""
        removable = [
            key
            for key, stored in self._objects.items()
            if force or stored.access.lease_end_seconds <= now_seconds
        ]
        for key in removable:
            self.drop(key)
        return len(removable)

    def trim(self, access: Access) -> None:
        """Evict where the used share is above the watermark."""
        excess = self._arena.used_bytes / self._arena.capacity_bytes - self._watermark
        if excess <= 0:
            return
        # Mooncake's target (master_service.cpp) is the ratio and the excess, of all objects; here, of bytes.
        remaining_bytes = (self._ratio + excess) * self._arena.used_bytes
        for key in self._evictable(access):
            if remaining_bytes <= 0:
                return
            remaining_bytes -= self._evict(key)

    def clear(self) -> None:
        """Forget every object and let the arena go."""
        self._objects.clear()
        self._memory = memoryview(b"")

    def _evict_for(self, num_bytes: int, access: Access) -> int | None:
        evictable = self._evictable(access)
        room = self._arena.free_bytes + sum(self._objects[key].num_bytes for key in evictable)
        if num_bytes > room:
            return None
        # No less than a usual eviction, lest a full store searches for a victim at every put.
        least_bytes = self._ratio * self._arena.used_bytes
        evicted_bytes = 0
        for key in evictable:
            evicted_bytes += self._evict(key)
            if evicted_bytes >= least_bytes:
                offset = self._arena.allocate(num_bytes)
                if offset is not None:
                    return offset
        return self._arena.allocate(num_bytes)

    def _evictable(self, access: Access) -> list[str]:
        """Keys that may go, by last use, oldest first."""
        idle = [
            (stored.access.call, key)
            for key, stored in self._objects.items()
            if stored.access.lease_end_seconds <= access.seconds and stored.access.call != access.call
        ]
        # Sorting is stable: objects of one call go in the order in which they were stored.
        idle.sort(key=lambda item: item[0])
        return [key for _, key in idle]

    def _evict(self, key: str) -> int:
        num_bytes = self.drop(key)
        self._stats.evicted_keys += 1
        self._stats.evicted_bytes += num_bytes
        return num_bytes
