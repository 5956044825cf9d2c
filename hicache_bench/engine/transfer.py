"""Moving the units that a plan names: batches across pools, zero copy, one result per object."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from hicache_bench.engine.batching import call_spans, page_batches
from hicache_bench.engine.host import HostPool, as_pieces, has_pieces, page_buffers, slices_per_key
from hicache_bench.errors import StoreContractError
from hicache_bench.planning.policy import BoolVector, IntVector
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.store.base import (
    EXISTS,
    NOT_SENT,
    OK,
    Buffers,
    KeyResult,
    KVStoreBackend,
    Status,
)

BATCH_PAGES = 128
"""Pages of one store call. Source: SGLang 0.5.23 ``STORAGE_BATCH_SIZE`` (golden file)."""

RETRY_DELAY_SECONDS = 0.05
"""Wait before a failed put is tried again: Mooncake evicts asynchronously, within tens of milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWork:
    """Units of one pool to move.

    ``units[i]`` ends page ``ends[i]`` (exclusive) and lies in host slot ``slots[i]``. ``keys`` are those of
    all units, the components of a unit together.
    """

    pool: KVPoolDescriptor
    host_pool: HostPool
    units: IntVector
    ends: IntVector
    slots: IntVector
    keys: list[str] = field(repr=False)


BatchHook = Callable[[Mapping[str, IntVector]], None]
"""Told which units of which pools are in a batch."""


@dataclass(slots=True)
class Transfer:
    """What moving some work came to.

    ``results`` holds one result per object of each pool, in the order of the work. ``store_seconds`` is the
    time inside store calls, ``calls`` their number. ``hook_seconds`` were spent in hooks.
    """

    results: dict[str, list[KeyResult]] = field(default_factory=dict)
    store_seconds: float = 0.0
    hook_seconds: float = 0.0
    calls: int = 0
    batches: int = 0
    retried: int = 0


@dataclass(frozen=True, slots=True)
class _Request:
    """Keys and buffers of one pool's work, page by page."""

    pool: str
    keys: list[str]
    addresses: Buffers
    sizes: Buffers
    keys_per_unit: int
    units: IntVector
    ends: IntVector

    def units_of(self, span: slice) -> IntVector:
        """The units of a span of keys."""
        return self.units[span.start // self.keys_per_unit : span.stop // self.keys_per_unit]


class _Batch(NamedTuple):
    """One request over all pools."""

    spans: list[tuple[_Request, slice]]
    keys: list[str]
    addresses: Buffers
    sizes: Buffers


_Call = Callable[[Sequence[str], Buffers, Buffers], list[KeyResult]]


class SelectiveTransferEngine:
    """Executes work against a store.

    A batch is one store call for the objects of at most ``batch_pages`` pages over *all* pools; it is split
    only where it has more slices than the store takes at once.

    Host pages may be fewer than a prefix has: a slot serves one unit of each batch. ``before_put`` then fills
    the slots of a batch, and ``after_get`` takes from them the units that arrived whole.
    """

    def __init__(
        self,
        store: KVStoreBackend,
        *,
        batch_pages: int = BATCH_PAGES,
        put_retries: int = 1,
        before_put: BatchHook | None = None,
        after_get: BatchHook | None = None,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._max_slices = store.capabilities.max_slices_per_call
        self._batch_pages = batch_pages
        self._put_retries = put_retries
        self._before_put = before_put
        self._after_get = after_get
        self._clock = clock
        self._sleep = sleep

    def write(self, work: Sequence[PoolWork]) -> Transfer:
        """Put every unit. A batch that still fails after its retries ends the save: no later one is sent."""
        return self._run(work, self._put, before=self._before_put)

    def read(self, work: Sequence[PoolWork]) -> Transfer:
        """Get every unit. A batch in which *every* object fails with an error (not a miss) ends the read."""
        return self._run(work, self._get, after=self._after_get)

    def _run(
        self,
        work: Sequence[PoolWork],
        move: Callable[[Transfer, list[str], Buffers, Buffers], tuple[list[KeyResult], bool]],
        *,
        before: BatchHook | None = None,
        after: BatchHook | None = None,
    ) -> Transfer:
        transfer = Transfer(results={item.pool.name: [] for item in work})
        requests = _requests(work)
        # All batches are made before the first one is sent: a store that moves megabytes empties the
        # processor's caches, and what runs between two of its calls then costs several times as much. Each is
        # let go as soon as it is done, while its keys are still in these caches.
        batches = deque(_batches(requests, self._batch_pages))
        while batches:
            batch = batches.popleft()
            transfer.batches += 1
            if before is not None:
                self._tell(
                    before, transfer, {request.pool: request.units_of(span) for request, span in batch.spans}
                )
            results, go_on = move(transfer, batch.keys, batch.addresses, batch.sizes)
            position = 0
            for request, span in batch.spans:
                count = span.stop - span.start
                transfer.results[request.pool] += results[position : position + count]
                position += count
            if after is not None:
                arrived = {}
                for request, span in batch.spans:
                    whole = arrived_units(transfer.results[request.pool][span], request.keys_per_unit)
                    arrived[request.pool] = request.units_of(span)[whole]
                self._tell(after, transfer, arrived)
            if not go_on:
                break
        for request in requests:
            answered = transfer.results[request.pool]
            answered += [NOT_SENT] * (len(request.keys) - len(answered))
        return transfer

    def _tell(self, hook: BatchHook, transfer: Transfer, units: Mapping[str, IntVector]) -> None:
        started = self._clock()
        hook(units)
        transfer.hook_seconds += self._clock() - started

    def _put(
        self, transfer: Transfer, keys: list[str], addresses: Buffers, sizes: Buffers
    ) -> tuple[list[KeyResult], bool]:
        results = self._call(self._store.batch_put_from, transfer, keys, addresses, sizes)
        for _ in range(self._put_retries):
            failed = unstored(results)
            if not failed:
                break
            transfer.retried += len(failed)
            self._sleep(RETRY_DELAY_SECONDS)
            again = self._call(
                self._store.batch_put_from,
                transfer,
                [keys[i] for i in failed],
                [addresses[i] for i in failed],
                [sizes[i] for i in failed],
            )
            for i, result in zip(failed, again, strict=True):
                results[i] = result
        return results, not unstored(results)

    def _get(
        self, transfer: Transfer, keys: list[str], addresses: Buffers, sizes: Buffers
    ) -> tuple[list[KeyResult], bool]:
        results = self._call(self._store.batch_get_into, transfer, keys, addresses, sizes)
        return results, any(result.status is not Status.ERROR for result in results)

    def _call(
        self, call: _Call, transfer: Transfer, keys: list[str], addresses: Buffers, sizes: Buffers
    ) -> list[KeyResult]:
        if len(keys) <= self._max_slices and not has_pieces(sizes):
            return self._call_once(call, transfer, keys, addresses, sizes)
        results: list[KeyResult] = []
        for span in _slice_spans(sizes, self._max_slices):
            results += self._call_once(call, transfer, keys[span], addresses[span], sizes[span])
        return results

    def _call_once(
        self, call: _Call, transfer: Transfer, keys: list[str], addresses: Buffers, sizes: Buffers
    ) -> list[KeyResult]:
        started = self._clock()
        answered = call(keys, addresses, sizes)
        transfer.store_seconds += self._clock() - started
        transfer.calls += 1
        if len(answered) != len(keys):
            raise StoreContractError(f"the store answered {len(answered)} results for {len(keys)} keys")
        return answered


def unstored(results: Sequence[KeyResult]) -> list[int]:
    """Positions of the objects that a put left out of the store."""
    if results.count(OK) + results.count(EXISTS) == len(results):
        return []
    return [i for i, result in enumerate(results) if result is not OK and result is not EXISTS]


def arrived_units(results: Sequence[KeyResult], keys_per_unit: int) -> BoolVector:
    """One flag per unit: every one of its components is there."""
    if results.count(OK) == len(results):
        return np.ones(len(results) // keys_per_unit, dtype=np.bool_)
    flags = np.array([result is OK for result in results], dtype=np.bool_)
    whole: BoolVector = np.logical_and.reduce(flags.reshape(-1, keys_per_unit), axis=1)
    return whole


def _requests(work: Sequence[PoolWork]) -> list[_Request]:
    """What is to move, pool by pool; all in multi-buffer form as soon as one pool needs it."""
    requests = []
    for item in work:
        if len(item.units):
            per_unit = len(item.keys) // len(item.units)
            addresses, sizes = page_buffers(item.host_pool, item.slots, per_unit)
            requests.append(
                _Request(item.pool.name, item.keys, addresses, sizes, per_unit, item.units, item.ends)
            )
    if any(has_pieces(request.sizes) for request in requests):
        return [
            replace(request, addresses=as_pieces(request.addresses), sizes=as_pieces(request.sizes))
            for request in requests
        ]
    return requests


def _batches(requests: Sequence[_Request], batch_pages: int) -> Iterator[_Batch]:
    """The requests, cut at the same pages."""
    for parts in page_batches([request.ends for request in requests], batch_pages):
        spans = [
            (request, slice(start * request.keys_per_unit, stop * request.keys_per_unit))
            for request, (start, stop) in zip(requests, parts, strict=True)
        ]
        yield _Batch(
            spans,
            _joined([request.keys[span] for request, span in spans]),
            _joined([request.addresses[span] for request, span in spans]),
            _joined([request.sizes[span] for request, span in spans]),
        )


def _joined(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else [*chain.from_iterable(parts)]


def _slice_spans(sizes: Buffers, limit: int) -> list[slice]:
    """Cut a request so that no part has more than ``limit`` slices."""
    if not has_pieces(sizes):
        return call_spans(len(sizes), limit)
    spans, start, slices = [], 0, 0
    for index, count in enumerate(slices_per_key(sizes)):
        if slices and slices + count > limit:
            spans.append(slice(start, index))
            start, slices = index, 0
        slices += count
    return [*spans, slice(start, len(sizes))]
