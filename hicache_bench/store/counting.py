"""A store of sizes alone, for prefixes of millions of tokens."""

# ruff: noqa: ARG002 -- the contract hands over addresses and force, which a store of sizes has no use for.
from __future__ import annotations

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
from hicache_bench.store.object_batch import ObjectBatch, is_valid_key


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
        sizes = self._sizes
        self._stats.exist_calls += 1
        self._stats.exist_keys += len(keys)
        return [OK if key in sizes else MISS if is_valid_key(key) else INVALID_PARAMS for key in keys]

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        self._check_open()
        batch = ObjectBatch.of(keys, addresses, sizes)
        stored_sizes = self._sizes
        results: list[KeyResult] = []
        put_bytes = num_existing = num_failed = 0
        for key, num_bytes in zip(batch.keys, _valid_sizes(batch), strict=True):
            if not num_bytes or not is_valid_key(key):
                num_failed += 1
                results.append(INVALID_PARAMS)
            elif key in stored_sizes:
                num_existing += 1
                results.append(EXISTS)
            else:
                stored_sizes[key] = num_bytes
                put_bytes += num_bytes
                results.append(OK)
        self._stats.put_calls += 1
        self._stats.put_keys += len(results)
        self._stats.put_bytes += put_bytes
        self._stats.put_noops += num_existing
        self._stats.put_failures += num_failed
        return results

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        self._check_open()
        batch = ObjectBatch.of(keys, addresses, sizes)
        find_size = self._sizes.get
        results: list[KeyResult] = []
        get_bytes = num_missing = num_failed = 0
        for key, num_bytes in zip(batch.keys, _valid_sizes(batch), strict=True):
            stored_bytes = find_size(key)
            if num_bytes and stored_bytes == num_bytes:
                get_bytes += num_bytes
                results.append(OK)
            elif num_bytes and stored_bytes is None and is_valid_key(key):
                num_missing += 1
                results.append(MISS)
            else:
                num_failed += 1
                results.append(INVALID_PARAMS)
        self._stats.get_calls += 1
        self._stats.get_keys += len(results)
        self._stats.get_bytes += get_bytes
        self._stats.get_misses += num_missing
        self._stats.get_failures += num_failed
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

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("this counting store is closed; open a new CountingStore")


def _valid_sizes(batch: ObjectBatch) -> list[int]:
    """Bytes of each object; 0 where a buffer has no bytes or a NULL address."""
    if not batch.scattered:
        if not batch.keys or (min(batch.sizes) > 0 and min(batch.addresses) > 0):
            return batch.totals
        return [
            size if size > 0 and address > 0 else 0
            for address, size in zip(batch.addresses, batch.sizes, strict=True)
        ]
    return [
        total if sizes and min(sizes) > 0 and min(addresses) > 0 else 0
        for addresses, sizes, total in zip(batch.addresses, batch.sizes, batch.totals, strict=True)
    ]
