"""A store of sizes alone, for prefixes of millions of tokens."""

# ruff: noqa: ARG002 -- the contract hands over addresses and force, which a store of sizes has no use for.
from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hicache_bench.errors import StoreClosedError
from hicache_bench.store.base import (
    EXISTS,
    INVALID_PARAMS,
    MAX_SLICES_PER_CALL,
    MISS,
    OK,
    Buffers,
    KeyResult,
    KVStoreBackend,
    StoreCapabilities,
    StoreStats,
)
from hicache_bench.store.object_batch import ObjectBatch, is_valid_key, valid_key_indices


class CountingStore(KVStoreBackend):
    """Keeps the size of each object and follows no address.

    Every answer is the one that a store of unlimited capacity without leases would give; bytes in the
    statistics are bytes that would have moved. An address may be any number above zero. The slice limit is
    Mooncake's, so that calls are counted in the batches that the real store would see.
    """

    def __init__(self, *, max_slices_per_call: int = MAX_SLICES_PER_CALL) -> None:
        self._max_slices_per_call = max_slices_per_call
        self._sizes: dict[str, int] = {}
        self._stats = StoreStats()
        self._closed = False

    @property
    def capabilities(self) -> StoreCapabilities:
        return StoreCapabilities(
            name="count",
            moves_bytes=False,
            max_slices_per_call=self._max_slices_per_call,
            needs_registration=False,
        )

    @property
    def stats(self) -> StoreStats:
        return self._stats

    def __len__(self) -> int:
        return len(self._sizes)

    def register_buffer(self, address: int, num_bytes: int) -> None:
        self._check_open()

    def unregister_buffer(self, address: int) -> None:
        self._check_open()

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        self._check_open()
        self._stats.exist_calls += 1
        self._stats.exist_keys += len(keys)
        # Passes in C: a look into a dict of many objects is a walk to memory, and Python doubles its price.
        found = list(map(self._sizes.__contains__, keys))
        results = list(map((MISS, OK).__getitem__, found))
        if not all(found) and len(valid_key_indices(keys)) != len(keys):  # an invalid key is never stored
            return [
                OK if there else MISS if is_valid_key(key) else INVALID_PARAMS
                for key, there in zip(keys, found, strict=True)
            ]
        return results

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        self._check_open()
        batch = ObjectBatch.of(keys, addresses, sizes)
        object_sizes = _valid_sizes(batch)
        results = self._put_new(batch.keys, object_sizes) or list(map(self._put, batch.keys, object_sizes))
        self._stats.put_calls += 1
        self._stats.put_keys += len(batch)
        self._stats.put_bytes += _bytes_of_ok(object_sizes, results)
        self._stats.put_noops += results.count(EXISTS)
        self._stats.put_failures += results.count(INVALID_PARAMS)
        return results

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        self._check_open()
        batch = ObjectBatch.of(keys, addresses, sizes)
        object_sizes = _valid_sizes(batch)
        self._stats.get_calls += 1
        self._stats.get_keys += len(batch)
        found = list(map(self._sizes.get, batch.keys))
        if found == object_sizes:  # no stored object has 0 bytes, so no invalid one is among these
            self._stats.get_bytes += sum(object_sizes)
            return [OK] * len(batch)
        results = list(map(_get, batch.keys, object_sizes, found))
        self._stats.get_bytes += _bytes_of_ok(object_sizes, results)
        self._stats.get_misses += results.count(MISS)
        self._stats.get_failures += results.count(INVALID_PARAMS)
        return results

    def remove(self, key: str, *, force: bool = False) -> KeyResult:
        self._check_open()
        if self._sizes.pop(key, None) is not None:
            return OK
        return MISS if is_valid_key(key) else INVALID_PARAMS

    def remove_all(self, *, force: bool = False) -> int:
        self._check_open()
        num_removed = len(self._sizes)
        self._sizes.clear()
        return num_removed

    def close(self) -> None:
        self._closed = True
        self._sizes.clear()

    def _put_new(self, keys: Sequence[str], object_sizes: Sequence[int]) -> list[KeyResult] | None:
        """Put a batch that is valid and new, as the usual one is, in one pass in C; else change nothing."""
        if 0 in object_sizes or len(valid_key_indices(keys)) != len(keys):
            return None
        num_before = len(self._sizes)
        deque(map(self._sizes.setdefault, keys, object_sizes), maxlen=0)
        num_new = len(self._sizes) - num_before
        if num_new == len(keys):
            return [OK] * num_new
        for _ in range(num_new):
            self._sizes.popitem()  # the newest go first
        return None

    def _put(self, key: str, num_bytes: int) -> KeyResult:
        if not num_bytes or not is_valid_key(key):
            return INVALID_PARAMS
        if key in self._sizes:
            return EXISTS
        self._sizes[key] = num_bytes
        return OK

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("this counting store is closed; open a new CountingStore")


def _get(key: str, num_bytes: int, stored_bytes: int | None) -> KeyResult:
    if num_bytes and stored_bytes == num_bytes:
        return OK
    return MISS if num_bytes and stored_bytes is None and is_valid_key(key) else INVALID_PARAMS


def _bytes_of_ok(object_sizes: Sequence[int], results: Sequence[KeyResult]) -> int:
    if results.count(OK) == len(results):
        return sum(object_sizes)
    return sum(size for size, result in zip(object_sizes, results, strict=True) if result is OK)


def _valid_sizes(batch: ObjectBatch) -> list[int]:
    """Bytes of each object; 0 where a buffer has no bytes or a NULL address."""
    if not batch.scattered:
        # Few sizes, each many times over: their set is made sooner than their list is searched.
        if not batch.keys or (min(set(batch.sizes)) > 0 and min(batch.addresses) > 0):
            return batch.totals
        return [
            size if size > 0 and address > 0 else 0
            for address, size in zip(batch.addresses, batch.sizes, strict=True)
        ]
    return [
        total if sizes and min(sizes) > 0 and min(addresses) > 0 else 0
        for addresses, sizes, total in zip(batch.addresses, batch.sizes, batch.totals, strict=True)
    ]
