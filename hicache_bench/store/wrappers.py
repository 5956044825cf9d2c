"""Stores around a store: they log, delay or (in :mod:`hicache_bench.store.faults`) break its calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from hicache_bench.links.bandwidth import BandwidthModel
from hicache_bench.store.base import OK, Buffers, KeyResult, KVStoreBackend, StoreCapabilities, StoreStats
from hicache_bench.store.object_batch import ObjectBatch


class Operation(str, Enum):
    """A batched call of a store."""

    EXISTS = "exists"
    PUT = "put"
    GET = "get"


class StoreWrapper(KVStoreBackend):
    """Hands every call to another store; a subclass changes what it needs to."""

    def __init__(self, inner: KVStoreBackend) -> None:
        self._inner = inner

    @property
    def inner(self) -> KVStoreBackend:
        """The store inside."""
        return self._inner

    @property
    def capabilities(self) -> StoreCapabilities:
        return self._inner.capabilities

    @property
    def metrics(self) -> Any:
        return self._inner.metrics

    @property
    def stats(self) -> StoreStats:
        return self._inner.stats

    @property
    def settings(self) -> dict[str, str | int | float]:
        return self._inner.settings

    def register_buffer(self, address: int, num_bytes: int) -> None:
        self._inner.register_buffer(address, num_bytes)

    def unregister_buffer(self, address: int) -> None:
        self._inner.unregister_buffer(address)

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        return self._inner.batch_exists(keys)

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        return self._inner.batch_put_from(keys, addresses, sizes)

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        return self._inner.batch_get_into(keys, addresses, sizes)

    def remove(self, key: str, *, force: bool = False) -> KeyResult:
        return self._inner.remove(key, force=force)

    def remove_all(self, *, force: bool = False) -> int:
        return self._inner.remove_all(force=force)

    def close(self) -> None:
        self._inner.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCall:
    """One batched call: what it asked for, and how many keys answered ``OK``.

    ``num_slices`` is keys x buffers, ``num_bytes`` the bytes asked for; a look-up has neither.
    """

    operation: Operation
    num_keys: int
    num_ok: int
    num_slices: int = 0
    num_bytes: int = 0


@dataclass(slots=True)
class CallLog:
    """Batched calls in the order in which they returned."""

    calls: list[StoreCall] = field(default_factory=list)

    def of(self, operation: Operation) -> list[StoreCall]:
        """The calls of one kind."""
        return [call for call in self.calls if call.operation is operation]

    def clear(self) -> None:
        """Start again."""
        self.calls.clear()


class CountingWrapper(StoreWrapper):
    """Logs every batched call. Share one log between wrappers to see the order of their calls."""

    def __init__(self, inner: KVStoreBackend, log: CallLog | None = None) -> None:
        super().__init__(inner)
        self._log = CallLog() if log is None else log

    @property
    def log(self) -> CallLog:
        """The calls so far."""
        return self._log

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        results = super().batch_exists(keys)
        self._log.calls.append(
            StoreCall(operation=Operation.EXISTS, num_keys=len(keys), num_ok=_num_ok(results))
        )
        return results

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        results = super().batch_put_from(keys, addresses, sizes)
        self._append(Operation.PUT, ObjectBatch.of(keys, addresses, sizes), results)
        return results

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        results = super().batch_get_into(keys, addresses, sizes)
        self._append(Operation.GET, ObjectBatch.of(keys, addresses, sizes), results)
        return results

    def _append(self, operation: Operation, batch: ObjectBatch, results: list[KeyResult]) -> None:
        self._log.calls.append(
            StoreCall(
                operation=operation,
                num_keys=len(batch),
                num_ok=_num_ok(results),
                num_slices=sum(batch.widths) if batch.scattered else len(batch),
                num_bytes=sum(batch.totals),
            )
        )


class LatencyStore(StoreWrapper):
    """Takes the time that a link would take for the bytes that moved.

    The seconds go to ``sleep`` and into ``modeled_seconds`` of the statistics. Give a ``sleep`` that does
    nothing, or that moves a test's clock, to wait for nothing.
    """

    def __init__(
        self, inner: KVStoreBackend, link: BandwidthModel, *, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        super().__init__(inner)
        self._link = link
        self._sleep = sleep
        self._added_seconds = 0.0

    @property
    def stats(self) -> StoreStats:
        inner = super().stats
        return replace(inner, modeled_seconds=inner.modeled_seconds + self._added_seconds)

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        results = super().batch_exists(keys)
        self._wait(num_bytes=0, num_objects=0)
        return results

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        results = super().batch_put_from(keys, addresses, sizes)
        self._wait_for(ObjectBatch.of(keys, addresses, sizes), results)
        return results

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        results = super().batch_get_into(keys, addresses, sizes)
        self._wait_for(ObjectBatch.of(keys, addresses, sizes), results)
        return results

    def _wait_for(self, batch: ObjectBatch, results: list[KeyResult]) -> None:
        moved = [total for total, result in zip(batch.totals, results, strict=True) if result is OK]
        self._wait(sum(moved), len(moved))

    def _wait(self, num_bytes: int, num_objects: int) -> None:
        seconds = self._link.seconds(num_bytes, num_objects=num_objects)
        self._added_seconds += seconds
        self._sleep(seconds)


def _num_ok(results: list[KeyResult]) -> int:
    return sum(result is OK for result in results)
