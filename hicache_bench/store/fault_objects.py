"""Changes to what a store holds, made behind the backs of its users: damaged, foreign and stale objects."""

from __future__ import annotations

import numpy as np

from hicache_bench.errors import StoreError
from hicache_bench.store.base import MISS, OK, KeyResult, KVStoreBackend


class ObjectEditor:
    """Reads and replaces whole objects of a store, whoever holds a lease on them.

    Args:
        store: the store itself, below every wrapper.
        max_object_bytes: the largest object that it will meet.
    """

    def __init__(self, store: KVStoreBackend, max_object_bytes: int) -> None:
        self._store = store
        self._scratch = np.zeros(max_object_bytes, dtype=np.uint8)
        self._address = int(self._scratch.ctypes.data)
        store.register_buffer(self._address, self._scratch.nbytes)

    def close(self) -> None:
        """Give the scratch buffer back; the store stays open."""
        self._store.unregister_buffer(self._address)

    def read(self, key: str, num_bytes: int) -> bytes:
        """The bytes of an object of exactly this size.

        Raises:
            StoreError: the store does not give them.
        """
        self._done("read", key, self._store.batch_get_into([key], [self._address], [num_bytes]), OK)
        return self._scratch[:num_bytes].tobytes()

    def replace(self, key: str, content: bytes) -> None:
        """Let ``key`` hold ``content``, whatever it held before.

        Raises:
            StoreError: the store does not do it.
        """
        self.remove(key)
        self._scratch[: len(content)] = np.frombuffer(content, dtype=np.uint8)
        self._done("write", key, self._store.batch_put_from([key], [self._address], [len(content)]), OK)

    def remove(self, key: str) -> None:
        """Let ``key`` hold nothing.

        Raises:
            StoreError: the store does not do it.
        """
        self._done("remove", key, [self._store.remove(key, force=True)], OK, MISS)

    @staticmethod
    def _done(verb: str, key: str, results: list[KeyResult], *allowed: KeyResult) -> None:
        if results[0] not in allowed:
            raise StoreError(f"cannot {verb} {key!r} behind the users' backs: {results[0]}; is the store up?")


def flip_bit(content: bytes, bit: int) -> bytes:
    """``content`` with one bit inverted."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
