"""Mooncake Store behind the common contract.

The wrapper is given a ``MooncakeDistributedStore`` that is already set up and imports nothing of Mooncake.
It exists because the native binding is a sharp tool: several calls crash the process after ``close``, a NULL
address stores garbage with code 0, a put of an existing key reports success, a read into a larger buffer
succeeds, a key read twice in one call fills one buffer and reports two, and more than about 2,048 slices in
flight to one peer break that peer for good.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from hicache_bench.errors import StoreClosedError, StoreContractError, StoreError, StoreUnavailableError
from hicache_bench.store.base import (
    EXISTS,
    INVALID_PARAMS,
    LEASED,
    MAX_SLICES_PER_CALL,
    MISS,
    NO_SPACE,
    OK,
    Buffers,
    KeyResult,
    KVStoreBackend,
    StoreCapabilities,
    StoreStats,
    error,
)
from hicache_bench.store.mooncake_codes import describe_code
from hicache_bench.store.object_batch import ObjectBatch, is_valid_key, valid_key_indices
from hicache_bench.store.registration import RegisteredMemory

_LONGEST_CALL_SECONDS = 90.0
"""A call comes back within this: 60 s when a peer's queue is poisoned, or when a peer is stopped."""

_TRANSFER_FAIL = -800
_MASTER_GONE = frozenset({-900, -901})
_STATUS_OF_EXISTS = {1: OK, 0: MISS}
# -705 is in Mooncake's enum although no put was seen to answer it: an existing key answers 0.
_STATUS_OF_PUT = {-200: NO_SPACE, -600: INVALID_PARAMS, -705: EXISTS}
_STATUS_OF_GET = {-704: MISS, -600: INVALID_PARAMS}
_STATUS_OF_REMOVE = {0: OK, -704: MISS, -706: LEASED}


_Part = TypeVar("_Part", Sequence[str], ObjectBatch)


class NativeStore(Protocol):
    """The part of ``mooncake.store.MooncakeDistributedStore`` that the backend calls."""

    def health_check(self) -> int: ...
    def register_buffer(self, address: int, num_bytes: int, /) -> int: ...
    def unregister_buffer(self, address: int, /) -> int: ...
    def batch_is_exist(self, keys: Sequence[str], /) -> list[int]: ...
    def batch_put_from(
        self, keys: Sequence[str], addresses: Sequence[int], sizes: Sequence[int], /
    ) -> list[int]: ...
    def batch_put_from_multi_buffers(
        self, keys: Sequence[str], addresses: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]], /
    ) -> list[int]: ...
    def batch_get_into(
        self, keys: Sequence[str], addresses: Sequence[int], sizes: Sequence[int], /
    ) -> list[int]: ...
    def batch_get_into_multi_buffers(
        self, keys: Sequence[str], addresses: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]], /
    ) -> list[int]: ...
    def get_size(self, key: str, /) -> int: ...
    def remove(self, key: str, force: bool, /) -> int: ...
    def remove_all(self, force: bool, /) -> int: ...
    def close(self) -> int: ...


class _RunningCall:
    """Keeps the native store open until the block ends: a call into a closed one is a segfault."""

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Callable[[], NativeStore], end: Callable[[], None]) -> None:
        self._begin, self._end = begin, end

    def __enter__(self) -> NativeStore:
        return self._begin()

    def __exit__(self, *_problem: object) -> None:
        self._end()


class MooncakeStoreBackend(KVStoreBackend):
    """A :class:`KVStoreBackend` over a Mooncake client that is already set up, which it then owns.

    A put asks for the keys first, so that an existing key is told from a stored one (the native answer is 0
    for both) and costs no transfer; that question renews the lease of the keys that exist. Between question
    and put another writer may still win: that put then counts as stored although the other's bytes remain.

    Calls may come from several threads; ``close`` waits for those that run. A key with more buffers than
    ``max_slices_per_call`` answers ``INVALID_PARAMS``. ``evicted_keys`` and ``evicted_bytes`` stay 0: the
    master evicts, and its metrics count that.

    Raises:
        StoreClosedError: the client was never set up or is closed.
        StoreUnavailableError: the client has lost its master.
    """

    def __init__(
        self,
        store: NativeStore,
        settings: Mapping[str, str | int | float],
        max_slices_per_call: int = MAX_SLICES_PER_CALL,
    ) -> None:
        health = store.health_check()
        if health == 1:
            raise StoreClosedError("the Mooncake client is not set up or is closed; call its setup() first")
        if health != 0:
            raise StoreUnavailableError(f"the Mooncake client has lost its master (health_check: {health})")
        self._native = store
        self._settings = {**settings, "max_slices_per_call": max_slices_per_call}
        self._max_slices_per_call = max_slices_per_call
        self._registered = RegisteredMemory()
        self._stats = StoreStats()
        self._call = _RunningCall(self._begin_call, self._end_call)
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._num_running_calls = 0
        self._closed = False
        self._owner_pid = os.getpid()
        # A client must leave before its master stops, else tearing it down takes up to 20 s at exit. Exit
        # handlers run last in, first out, and the master's was registered first.
        atexit.register(self.close)

    @property
    def capabilities(self) -> StoreCapabilities:
        return StoreCapabilities(
            name="mooncake",
            moves_bytes=True,
            max_slices_per_call=self._max_slices_per_call,
            supports_leases=True,
        )

    @property
    def stats(self) -> StoreStats:
        with self._lock:
            return replace(self._stats)

    @property
    def native(self) -> NativeStore:
        """The wheel's own client, for a caller that measures it bare; calls on it skip every guard here."""
        return self._native

    @property
    def settings(self) -> dict[str, str | int | float]:
        return dict(self._settings)

    def register_buffer(self, address: int, num_bytes: int) -> None:
        with self._call as native:
            self._registered.add(address, num_bytes)
            code = native.register_buffer(address, num_bytes)
            if code != 0:
                self._registered.discard(address)
                raise StoreError(
                    f"Mooncake refused to register {num_bytes} bytes at {address:#x}: {describe_code(code)}"
                )

    def unregister_buffer(self, address: int) -> None:
        with self._call as native:
            self._registered.discard(address)
            code = native.unregister_buffer(address)
            if code != 0:
                raise StoreError(f"Mooncake refused to unregister {address:#x}: {describe_code(code)}")

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        with self._call as native:
            results = [INVALID_PARAMS] * len(keys)
            valid = valid_key_indices(keys)
            codes = self._ask_existence(native, [keys[index] for index in valid])
            for index, code in zip(valid, codes, strict=True):
                results[index] = _STATUS_OF_EXISTS.get(code) or error(code)
        with self._lock:
            self._stats.exist_calls += 1
            self._stats.exist_keys += len(keys)
        return results

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        with self._call as native:
            batch = ObjectBatch.of(keys, addresses, sizes)
            results = [INVALID_PARAMS] * len(keys)
            first_of_key: dict[str, int] = {}
            for index in (admitted := batch.admitted(self._registered, self._max_slices_per_call)):
                first_of_key.setdefault(batch.keys[index], index)
            firsts = list(first_of_key.values())
            for index, result in zip(firsts, self._put(native, batch.pick(firsts)), strict=True):
                results[index] = result
            num_bytes = sum(batch.totals[index] for index in firsts if results[index] is OK)
            if len(firsts) != len(admitted):
                for index in admitted:
                    first = first_of_key[batch.keys[index]]
                    if index != first:
                        results[index] = EXISTS if results[first] is OK else results[first]
        with self._lock:
            stats, num_noops = self._stats, results.count(EXISTS)
            stats.put_calls += 1
            stats.put_keys += len(results)
            stats.put_bytes += num_bytes
            stats.put_noops += num_noops
            stats.put_failures += len(results) - num_noops - results.count(OK)
        return results

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        with self._call as native:
            batch = ObjectBatch.of(keys, addresses, sizes)
            admitted = batch.admitted(self._registered, self._max_slices_per_call)
            batch = batch.pick(admitted)
            answers = self._read_each(native, batch)
        if answers == batch.totals and len(answers) == len(keys):
            results, num_bytes, num_misses, num_failures = [OK] * len(keys), sum(answers), 0, 0
        else:
            results, num_bytes = [INVALID_PARAMS] * len(keys), 0
            for index, answer, total in zip(admitted, answers, batch.totals, strict=True):
                if answer == total:
                    results[index] = OK
                    num_bytes += total
                elif answer < 0:
                    results[index] = _STATUS_OF_GET.get(answer) or error(answer)
            num_misses = results.count(MISS)
            num_failures = len(results) - num_misses - results.count(OK)
        with self._lock:
            stats = self._stats
            stats.get_calls += 1
            stats.get_keys += len(results)
            stats.get_bytes += num_bytes
            stats.get_misses += num_misses
            stats.get_failures += num_failures
        return results

    def remove(self, key: str, *, force: bool = False) -> KeyResult:
        with self._call as native:
            if not is_valid_key(key):
                return INVALID_PARAMS
            code = native.remove(key, force)
        return _STATUS_OF_REMOVE.get(code) or error(code)

    def remove_all(self, *, force: bool = False) -> int:
        with self._call as native:
            count = native.remove_all(force)
        if count < 0:
            raise StoreError(f"Mooncake could not remove all objects: {describe_code(count)}")
        return count

    def close(self) -> None:
        """Leave the cluster: an owned segment and the objects in it are gone.

        Takes 0.1-2 s, about 6 s when the master does not answer within the RPC timeout of 1 s, up to 20 s
        when its port is closed. The native call holds the GIL for that long.
        """
        if os.getpid() != self._owner_pid:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            idle = self._idle.wait_for(lambda: self._num_running_calls == 0, _LONGEST_CALL_SECONDS)
        if not idle:
            raise StoreError("a call to Mooncake has not come back; its client cannot be closed under it")
        atexit.unregister(self.close)
        code = self._native.close()
        if code != 0:
            raise StoreError(f"Mooncake could not close its client: {describe_code(code)}")

    def _begin_call(self) -> NativeStore:
        if os.getpid() != self._owner_pid:
            # A forked child shares the client's sockets: its calls hang and garble the parent's answers.
            raise StoreError(
                f"this Mooncake client belongs to process {self._owner_pid}; open one in this process, "
                "and start processes with spawn instead of fork"
            )
        with self._lock:
            if self._closed:
                raise StoreClosedError("the Mooncake store is closed; open a new one")
            self._num_running_calls += 1
        return self._native

    def _end_call(self) -> None:
        with self._lock:
            self._num_running_calls -= 1
            if self._closed:  # only a close waits for it
                self._idle.notify_all()

    def _ask_existence(self, native: NativeStore, keys: Sequence[str]) -> list[int]:
        step = self._max_slices_per_call
        parts = (keys[start : start + step] for start in range(0, len(keys), step))
        return _in_turn(partial(_answers, "batch_is_exist", native.batch_is_exist), parts)

    def _put(self, native: NativeStore, batch: ObjectBatch) -> list[KeyResult]:
        """Put objects whose keys differ from each other."""
        codes = self._ask_existence(native, batch.keys)
        results = [OK if code == 0 else EXISTS if code == 1 else error(code) for code in codes]
        absent = [index for index, code in enumerate(codes) if code == 0]
        parts = batch.pick(absent).split(self._max_slices_per_call)
        for index, answer in zip(absent, _in_turn(partial(_write, native), parts), strict=True):
            if answer != 0:
                results[index] = _STATUS_OF_PUT.get(answer) or error(answer)
        return results

    def _read_each(self, native: NativeStore, batch: ObjectBatch) -> list[int]:
        """What :meth:`_read` answers, in as many calls as the limits ask for."""
        # A key given twice in one native call answers success for both and fills the last buffer only.
        rounds = batch.distinct_rounds()
        if len(rounds) == 1 and not batch.scattered and len(batch) <= self._max_slices_per_call:
            return self._read(native, batch)  # the usual one: nothing more is made between two native calls
        read = partial(self._read, native)
        if len(rounds) == 1:
            return _in_turn(read, batch.split(self._max_slices_per_call))
        answers = [0] * len(batch)
        for positions in rounds:
            parts = batch.pick(positions).split(self._max_slices_per_call)
            for position, answer in zip(positions, _in_turn(read, parts), strict=True):
                answers[position] = answer
        return answers

    def _read(self, native: NativeStore, batch: ObjectBatch) -> list[int]:
        """The size of each object that was read, else a negative code."""
        if not batch.scattered:
            name, get = "batch_get_into", native.batch_get_into
            return _answers(name, get, batch.keys, batch.addresses, batch.sizes)
        name, get_scattered = "batch_get_into_multi_buffers", native.batch_get_into_multi_buffers
        answers = _answers(name, get_scattered, batch.keys, batch.addresses, batch.sizes)
        # Buffers that add up to more than the object answer TRANSFER_FAIL, as a broken transfer does; only
        # the object's size tells which it was. Once the master stops answering, each question costs seconds.
        for index, answer in enumerate(answers):
            if answer == _TRANSFER_FAIL:
                num_bytes = native.get_size(batch.keys[index])
                if num_bytes >= 0 and num_bytes != batch.totals[index]:
                    answers[index] = num_bytes
                elif num_bytes in _MASTER_GONE:
                    break
        return answers


def _write(native: NativeStore, batch: ObjectBatch) -> list[int]:
    if batch.scattered:
        name, put_scattered = "batch_put_from_multi_buffers", native.batch_put_from_multi_buffers
        return _answers(name, put_scattered, batch.keys, batch.addresses, batch.sizes)
    return _answers("batch_put_from", native.batch_put_from, batch.keys, batch.addresses, batch.sizes)


def _answers(name: str, call: Callable[..., list[int]], keys: Sequence[str], *lists: Any) -> list[int]:
    answers = call(keys, *lists)
    if len(answers) != len(keys):
        raise StoreContractError(
            f"Mooncake's {name} answered {len(answers)} results for {len(keys)} keys; which key each belongs "
            "to cannot be known. Open a new client"
        )
    return answers


def _in_turn(call: Callable[[_Part], list[int]], parts: Iterable[_Part]) -> list[int]:
    """Answers of successive calls.

    Once a call finds the master gone for all its keys, the rest share its answer: each further call would
    wait out the RPC timeout again.
    """
    answers: list[int] = []
    code_of_rest = 0
    for part in parts:
        if code_of_rest:
            answers += [code_of_rest] * len(part)
            continue
        answers_of_part = call(part)
        if _MASTER_GONE.issuperset(answers_of_part):
            code_of_rest = answers_of_part[0]
        answers += answers_of_part
    return answers
