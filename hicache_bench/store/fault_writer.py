"""Writers that do not get to their end, and writers that meet another one half-way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hicache_bench.errors import StoreError
from hicache_bench.store.base import Buffers, KeyResult, KVStoreBackend
from hicache_bench.store.object_batch import ObjectBatch
from hicache_bench.store.wrappers import StoreWrapper


class WriterKilledError(StoreError):
    """The process that was writing is gone."""


class DyingWriter(StoreWrapper):
    """Takes the first ``num_objects`` puts; the writer dies at the next one, in mid-call.

    What it had put stays in the store, as it does when the process of a writer is killed.
    """

    def __init__(self, inner: KVStoreBackend, num_objects: int) -> None:
        super().__init__(inner)
        self._num_left = num_objects

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        batch = ObjectBatch.of(keys, addresses, sizes)
        part = batch.pick(range(min(self._num_left, len(batch))))
        results = super().batch_put_from(part.keys, part.addresses, part.sizes)
        self._num_left -= len(part)
        if len(part) < len(batch):
            raise WriterKilledError(f"killed after {len(part)} of {len(batch)} objects of a put")
        return results


class InterruptedWriter(StoreWrapper):
    """Lets ``action`` happen once, just before the ``call``-th put: another writer's turn."""

    def __init__(self, inner: KVStoreBackend, call: int, action: Callable[[], object]) -> None:
        super().__init__(inner)
        self._calls_left = call
        self._action = action

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        self._calls_left -= 1
        if not self._calls_left:
            self._action()
        return super().batch_put_from(keys, addresses, sizes)
