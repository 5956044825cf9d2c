"""A store whose calls are counted in the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from hicache_bench.engine.metrics import MetricsSink, StoreAnswer
from hicache_bench.store.base import EXISTS, MISS, OK, Buffers, KeyResult, KVStoreBackend
from hicache_bench.store.object_batch import ObjectBatch
from hicache_bench.store.wrappers import Operation, StoreWrapper


class MeteredStore(StoreWrapper):
    """Counts every batched call as the store answered it: keys, bytes that moved, hits, misses, failures.

    A controller on this store counts its restores and saves in the same metrics, unless it is given others.

    A key that a put finds there is a hit; one that it stores is a miss. A call that raises is not counted:
    nothing is known of its keys.
    """

    def __init__(
        self,
        inner: KVStoreBackend,
        metrics: MetricsSink,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(inner)
        self._metrics = metrics
        self._clock = clock
        self._backend = inner.capabilities.name

    @property
    def metrics(self) -> MetricsSink:
        return self._metrics

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        started = self._clock()
        results = super().batch_exists(keys)
        self._count(Operation.EXISTS, started, results, hit=OK, miss=MISS)
        return results

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        started = self._clock()
        results = super().batch_put_from(keys, addresses, sizes)
        self._count(Operation.PUT, started, results, EXISTS, OK, ObjectBatch.of(keys, addresses, sizes))
        return results

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        started = self._clock()
        results = super().batch_get_into(keys, addresses, sizes)
        self._count(Operation.GET, started, results, OK, MISS, ObjectBatch.of(keys, addresses, sizes))
        return results

    def _count(
        self,
        operation: Operation,
        started: float,
        results: Sequence[KeyResult],
        hit: KeyResult,
        miss: KeyResult,
        batch: ObjectBatch | None = None,
    ) -> None:
        seconds = self._clock() - started
        hits, misses = results.count(hit), results.count(miss)
        self._metrics.record_store_call(
            StoreAnswer(
                backend=self._backend,
                operation=operation,
                hits=hits,
                misses=misses,
                failures=len(results) - hits - misses,
                num_bytes=0 if batch is None else _moved_bytes(batch, results),
                seconds=seconds,
            )
        )


def _moved_bytes(batch: ObjectBatch, results: Sequence[KeyResult]) -> int:
    if results.count(OK) == len(results):
        return sum(batch.totals)
    return sum(total for total, result in zip(batch.totals, results, strict=True) if result is OK)
