"""A digest beside every object: a read whose bytes are not those that were put is a failure, not a hit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hicache_bench.errors import ConfigError, StoreContractError
from hicache_bench.store.base import (
    EXISTS,
    INVALID_PARAMS,
    MISS,
    OK,
    Buffers,
    KeyResult,
    KVStoreBackend,
    StoreCapabilities,
    StoreStats,
    error,
)
from hicache_bench.store.object_batch import ObjectBatch
from hicache_bench.store.registration import RegisteredMemory
from hicache_bench.store.wrappers import StoreWrapper

CONTENT_MISMATCH = error(-20001)
"""The object was read, and its bytes are not those that were put under its key. No store uses this number."""

DIGEST_BYTES = 8
"""What an object grows by: one little-endian 64-bit word after its payload."""

Digest = Callable[[bytes | memoryview], int]
"""64 bits of some bytes, such as ``xxhash.xxh3_64_intdigest``. The library has none of its own."""

_WORD = (1 << 64) - 1
_Call = Callable[[Sequence[str], Buffers, Buffers], list[KeyResult]]


class ChecksumStore(StoreWrapper):
    """Stores 8 bytes of digest as the last slice of each object, and compares them after each read.

    The digest covers the key and the payload, so that an object copied under another key fails as well.
    A mismatch answers :data:`CONTENT_MISMATCH`; an object that was put without a digest has another size and
    answers ``INVALID_PARAMS``. What was put wrong in the first place has a right digest: only a comparison
    with the source finds that.

    The payload moves without a copy. Calls are split so that each stays within the slices that the store
    inside takes. The statistics count payload bytes; :attr:`overhead_bytes` and :attr:`digest_seconds` are
    what the digests cost.

    Raises:
        ConfigError: a store that only counts, and has no bytes to digest.
    """

    def __init__(self, inner: KVStoreBackend, digest: Digest) -> None:
        super().__init__(inner)
        if not inner.capabilities.moves_bytes:
            raise ConfigError("a store that only counts has no bytes to check; use one that moves them")
        self._digest = digest
        self._memory = RegisteredMemory()
        self._stats = StoreStats()
        self._lock = threading.Lock()
        self._overhead_bytes = 0
        self._digest_seconds = 0.0
        # An object takes two slices at least, so a call within the limit never has more digests.
        self._max_slices = inner.capabilities.max_slices_per_call
        self._words = np.zeros(max(1, self._max_slices // 2), dtype="<u8")
        self._words_address = int(self._words.ctypes.data)
        inner.register_buffer(self._words_address, self._words.nbytes)

    @property
    def capabilities(self) -> StoreCapabilities:
        # One slice less: the object with most of them still has room for its digest.
        return replace(
            self.inner.capabilities, max_slices_per_call=self._max_slices - 1, needs_registration=True
        )

    @property
    def settings(self) -> dict[str, str | int | float]:
        return {**self.inner.settings, "digest_bytes": DIGEST_BYTES}

    @property
    def stats(self) -> StoreStats:
        inner = self.inner.stats
        return replace(
            self._stats,
            exist_calls=inner.exist_calls,
            exist_keys=inner.exist_keys,
            evicted_keys=inner.evicted_keys,
            evicted_bytes=inner.evicted_bytes - DIGEST_BYTES * inner.evicted_keys,
            modeled_seconds=inner.modeled_seconds,
        )

    @property
    def overhead_bytes(self) -> int:
        """Bytes of digests that were stored or read."""
        return self._overhead_bytes

    @property
    def digest_seconds(self) -> float:
        """Seconds spent on digests, apart from the store's own."""
        return self._digest_seconds

    def detach(self) -> None:
        """Let go of the store inside without closing it; this wrapper is of no use afterwards."""
        self.inner.unregister_buffer(self._words_address)

    def register_buffer(self, address: int, num_bytes: int) -> None:
        super().register_buffer(address, num_bytes)
        self._memory.add(address, num_bytes)

    def unregister_buffer(self, address: int) -> None:
        super().unregister_buffer(address)
        self._memory.discard(address)

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        batch = ObjectBatch.of(keys, addresses, sizes)
        with self._lock:
            results = self._move(self.inner.batch_put_from, batch, self._put_part)
            self._stats.put_calls += 1
            self._stats.put_keys += len(results)
            num_stored, num_bytes = batch.successes(results)
            num_existing = results.count(EXISTS)
            self._stats.put_bytes += num_bytes
            self._stats.put_noops += num_existing
            self._stats.put_failures += len(results) - num_stored - num_existing
        return results

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        batch = ObjectBatch.of(keys, addresses, sizes)
        with self._lock:
            results = self._move(self.inner.batch_get_into, batch, self._get_part)
            self._stats.get_calls += 1
            self._stats.get_keys += len(results)
            num_read, num_bytes = batch.successes(results)
            num_missing = results.count(MISS)
            self._stats.get_bytes += num_bytes
            self._stats.get_misses += num_missing
            self._stats.get_failures += len(results) - num_read - num_missing
        return results

    def _move(
        self, call: _Call, batch: ObjectBatch, move: Callable[[_Call, ObjectBatch], list[KeyResult]]
    ) -> list[KeyResult]:
        # Digests follow addresses, so nothing that is not registered may come so far.
        admitted = batch.admitted(self._memory, self._max_slices - 1)
        results = [INVALID_PARAMS] * len(batch)
        moved: list[KeyResult] = []
        for part in _parts(batch.pick(admitted), self._max_slices):
            answered = move(call, part)
            if len(answered) != len(part):
                raise StoreContractError(
                    f"the store answered {len(answered)} results for {len(part)} keys; none can be trusted"
                )
            moved += answered
        for index, result in zip(admitted, moved, strict=True):
            results[index] = result
        return results

    def _put_part(self, put: _Call, part: ObjectBatch) -> list[KeyResult]:
        started = time.perf_counter()
        self._words[: len(part)] = self._digests(part, range(len(part)))
        self._digest_seconds += time.perf_counter() - started
        results = put(part.keys, *self._with_digests(part))
        self._overhead_bytes += DIGEST_BYTES * results.count(OK)
        return results

    def _get_part(self, get: _Call, part: ObjectBatch) -> list[KeyResult]:
        # A digest that does not come must not be that of an earlier read.
        self._words[: len(part)] = 0
        results = get(part.keys, *self._with_digests(part))
        started = time.perf_counter()
        read = [index for index, result in enumerate(results[: len(part)]) if result is OK]
        stored = self._words[read].tolist()
        for index, word, expected in zip(read, stored, self._digests(part, read), strict=True):
            if word != expected:
                results[index] = CONTENT_MISMATCH
        self._overhead_bytes += DIGEST_BYTES * len(read)
        self._digest_seconds += time.perf_counter() - started
        return results

    def _digests(self, batch: ObjectBatch, indices: Sequence[int]) -> list[int]:
        digest = self._digest
        digests = []
        for index in indices:
            payload = digest(self._payload(batch, index)) & _WORD
            named = batch.keys[index].encode() + payload.to_bytes(8, "little")
            digests.append(digest(named) & _WORD)
        return digests

    def _payload(self, batch: ObjectBatch, index: int) -> bytes | memoryview:
        """The bytes of an object; those in several buffers are joined, for the digest alone."""
        if not batch.scattered:
            return self._view(batch.addresses[index], batch.sizes[index])
        return b"".join(map(self._view, batch.addresses[index], batch.sizes[index]))

    def _view(self, address: int, num_bytes: int) -> memoryview:
        found = self._memory.find(address)
        return found.view[address - found.start : address - found.start + num_bytes]

    def _with_digests(self, part: ObjectBatch) -> tuple[Buffers, Buffers]:
        """Addresses and sizes of the part, each object with its digest as the last slice."""
        first = self._words_address
        words = range(first, first + DIGEST_BYTES * len(part), DIGEST_BYTES)
        if part.scattered:
            addresses = [[*own, word] for own, word in zip(part.addresses, words, strict=True)]
            return addresses, [[*own, DIGEST_BYTES] for own in part.sizes]
        addresses = [[own, word] for own, word in zip(part.addresses, words, strict=True)]
        return addresses, [[own, DIGEST_BYTES] for own in part.sizes]


def _parts(batch: ObjectBatch, max_slices: int) -> list[ObjectBatch]:
    """The batch in parts that stay within ``max_slices`` with a digest for each object; one part at least.

    An empty batch still reaches the store, which may be closed.
    """
    parts, start, num_slices = [], 0, 0
    for index in range(len(batch)):
        width = 1 + (batch.widths[index] if batch.scattered else 1)
        if num_slices + width > max_slices:
            parts.append(batch.pick(range(start, index)))
            start, num_slices = index, 0
        num_slices += width
    return [*parts, batch.pick(range(start, len(batch)))]
