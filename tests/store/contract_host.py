"""Host memory and helpers of the contract suite; the tests are in :mod:`tests.store.contract`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from hicache_bench.store.base import OK, KVStoreBackend, StoreStats
from hicache_bench.units import MIB

GUARD_BYTE = 0xA5
"""What a target buffer holds before a read: a byte still 0xA5 outside the asked range was not touched."""

STRANGE_KEYS = [
    "plain",
    "with space",
    "with/slash",
    "with\nnewline",
    "with\ttab",
    "percent%2Fencoded",
    "accent é",
    "cjk 鍵",
    "emoji 🔑",
    "Case",
    "case",
    "trailing ",
    " leading",
    "x" * 1024,
    "x" * 1023 + "y",
]


@dataclass(frozen=True, slots=True)
class Host:
    """Two host buffers that the store under test knows: puts read ``source``, gets write ``target``."""

    source: npt.NDArray[np.uint8]
    target: npt.NDArray[np.uint8]

    def source_at(self, offset: int = 0) -> int:
        """Address of a byte of the source."""
        return int(self.source.ctypes.data) + offset

    def target_at(self, offset: int = 0) -> int:
        """Address of a byte of the target."""
        return int(self.target.ctypes.data) + offset

    def source_bytes(self, offset: int, num_bytes: int) -> bytes:
        """Bytes that a put from there stores."""
        return self.source[offset : offset + num_bytes].tobytes()

    def target_bytes(self, offset: int, num_bytes: int) -> bytes:
        """Bytes that a get left there."""
        return self.target[offset : offset + num_bytes].tobytes()


@cache
def host_memory() -> Host:
    """The buffers of every test: kept for good, since memory must outlive the store that knows it."""
    random = np.random.default_rng(20260829)
    source = random.integers(0, 256, 2 * MIB, dtype=np.uint8)
    return Host(source, np.empty(2 * MIB, dtype=np.uint8))


def offsets_of(sizes: Sequence[int]) -> list[int]:
    """Where each object starts when they lie end to end."""
    return [sum(sizes[:index]) for index in range(len(sizes))]


def growth(after: StoreStats, before: StoreStats, name: str) -> int:
    """How much one counter grew."""
    return int(getattr(after, name)) - int(getattr(before, name))


class ContractBase:
    """What every contract test stands on: memory the store knows, and ways to look past the tested path."""

    def peek(self, store: KVStoreBackend, host: Host, key: str, num_bytes: int) -> bytes:
        """Bytes stored under ``key``, read without the tested path where a subclass can."""
        assert [OK] == store.batch_get_into([key], [host.target_at()], [num_bytes])
        return host.target_bytes(0, num_bytes)

    def plant(self, store: KVStoreBackend, host: Host, key: str, offset: int, num_bytes: int) -> None:
        """Store source bytes under ``key``, without the tested path where a subclass can."""
        assert [OK] == store.batch_put_from([key], [host.source_at(offset)], [num_bytes])

    def assert_stored(self, store: KVStoreBackend, host: Host, key: str, offset: int, num_bytes: int) -> None:
        """``key`` holds exactly these source bytes (or, in a store that counts, this many)."""
        stored = self.peek(store, host, key, num_bytes)
        if store.capabilities.moves_bytes:
            assert host.source_bytes(offset, num_bytes) == stored

    def assert_read(
        self, store: KVStoreBackend, host: Host, source: int, target: int, num_bytes: int
    ) -> None:
        """The target holds these source bytes (nothing to see in a store that counts)."""
        if store.capabilities.moves_bytes:
            assert host.source_bytes(source, num_bytes) == host.target_bytes(target, num_bytes)

    @pytest.fixture
    def host(self, store: KVStoreBackend) -> Host:
        memory = host_memory()
        memory.target.fill(GUARD_BYTE)
        store.register_buffer(memory.source_at(), memory.source.nbytes)
        store.register_buffer(memory.target_at(), memory.target.nbytes)
        return memory
