"""Faults as data: what breaks, for which keys, in which call; and a store that breaks so."""

# ruff: noqa: ARG002 -- hooks have one signature for all rules; each rule uses its part of it.
from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence
from dataclasses import dataclass

from hicache_bench.store.base import OK, Buffers, KeyResult, KVStoreBackend, error
from hicache_bench.store.object_batch import ObjectBatch
from hicache_bench.store.wrappers import Operation, StoreWrapper

TRANSFER_FAIL = error(-800)
"""Mooncake's ``TRANSFER_FAIL`` (``types.h``): the object is known, its bytes did not come."""

_Buffers = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One rule. Calls of each operation are numbered from 1; the hooks of this class break nothing."""

    def answer(self, operation: Operation, call: int, key: str, chance: random.Random) -> KeyResult | None:
        """What ``key`` answers without reaching the store, or None to let it through."""
        return None

    def before_get(self, call: int) -> frozenset[str]:
        """Keys that vanish from the store just before this read."""
        return frozenset()

    def spoils(self, call: int, key: str) -> bool:
        """Whether :meth:`spoil` changes what a read of ``key`` delivers."""
        return False

    def spoil(self, content: bytes, chance: random.Random) -> bytes:
        """What the destination holds in the end, where it should hold ``content``."""
        return content

    def listed(self, operation: Operation, call: int, results: list[KeyResult]) -> list[KeyResult]:
        """The list that a call returns, where it should return ``results``."""
        return results


@dataclass(frozen=True, slots=True)
class FailCalls(Fault):
    """Every key of the given calls answers ``result``."""

    operation: Operation
    calls: frozenset[int]
    result: KeyResult = TRANSFER_FAIL

    def answer(self, operation: Operation, call: int, key: str, chance: random.Random) -> KeyResult | None:
        return self.result if operation is self.operation and call in self.calls else None


@dataclass(frozen=True, slots=True)
class FailKeys(Fault):
    """The given keys answer ``result``, in the first ``num_calls`` calls of the operation or for ever.

    With ``OK`` as the result the store lies: a look-up promises what is not there, a put loses its bytes, a
    read leaves the destination as it was.
    """

    operation: Operation
    keys: frozenset[str]
    result: KeyResult = TRANSFER_FAIL
    num_calls: int | None = None

    def answer(self, operation: Operation, call: int, key: str, chance: random.Random) -> KeyResult | None:
        hit = operation is self.operation and key in self.keys
        return self.result if hit and (self.num_calls is None or call <= self.num_calls) else None


@dataclass(frozen=True, slots=True)
class FailRandomly(Fault):
    """Each key answers ``result`` with this probability, drawn from the store's seed."""

    operation: Operation
    probability: float
    result: KeyResult = TRANSFER_FAIL

    def answer(self, operation: Operation, call: int, key: str, chance: random.Random) -> KeyResult | None:
        if operation is not self.operation:
            return None
        return self.result if chance.random() < self.probability else None


@dataclass(frozen=True, slots=True)
class EvictBeforeGet(Fault):
    """The given keys are evicted between the look-up and the ``call``-th read, leases or not."""

    keys: frozenset[str]
    call: int = 1

    def before_get(self, call: int) -> frozenset[str]:
        return self.keys if call == self.call else frozenset()


@dataclass(frozen=True, slots=True)
class CorruptGet(Fault):
    """A read of the given keys answers ``OK`` and one bit of each is wrong."""

    keys: frozenset[str]

    def spoils(self, call: int, key: str) -> bool:
        return key in self.keys

    def spoil(self, content: bytes, chance: random.Random) -> bytes:
        spoiled = bytearray(content)
        spoiled[chance.randrange(len(spoiled))] ^= 1 << chance.randrange(8)
        return bytes(spoiled)


@dataclass(frozen=True, slots=True)
class ShortGet(Fault):
    """A read of the given keys answers ``OK``, but the last ``num_missing_bytes`` of each never came.

    The destination holds stale bytes there; each differs from the right one, so that a check cannot miss it.
    """

    keys: frozenset[str]
    num_missing_bytes: int = 1

    def spoils(self, call: int, key: str) -> bool:
        return key in self.keys

    def spoil(self, content: bytes, chance: random.Random) -> bytes:
        num_arrived = max(0, len(content) - self.num_missing_bytes)
        return content[:num_arrived] + bytes(byte ^ 0xFF for byte in content[num_arrived:])


@dataclass(frozen=True, slots=True)
class WrongLength(Fault):
    """The lists of the given calls are ``num_extra`` results too long, or too short where it is negative."""

    operation: Operation
    calls: frozenset[int]
    num_extra: int

    def listed(self, operation: Operation, call: int, results: list[KeyResult]) -> list[KeyResult]:
        if operation is not self.operation or call not in self.calls:
            return results
        return results[: max(0, len(results) + self.num_extra)] + [OK] * self.num_extra


def exists_lies(*keys: str) -> FailKeys:
    """Look-ups promise these keys, whether they are there or not."""
    return FailKeys(Operation.EXISTS, frozenset(keys), OK)


class FaultyStore(StoreWrapper):
    """A store that breaks by rule. The first rule that has an answer for a key gives it.

    The statistics are those of the store inside: it never sees a key that a rule answers for. Two runs of
    the same calls with the same rules and seed break alike.
    """

    def __init__(self, inner: KVStoreBackend, faults: Sequence[Fault], *, seed: int = 0) -> None:
        super().__init__(inner)
        self.arm(faults, seed=seed)

    def arm(self, faults: Sequence[Fault], *, seed: int = 0) -> None:
        """Break by these rules from now on; calls are numbered from 1 again."""
        self._faults = tuple(faults)
        self._chance = random.Random(seed)  # noqa: S311 -- faults must repeat, not surprise
        self._num_calls = dict.fromkeys(Operation, 0)

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        answers, passed = self._answers(Operation.EXISTS, keys)
        results = super().batch_exists([keys[index] for index in passed])
        return self._listed(Operation.EXISTS, _merge(answers, passed, results))

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        batch = ObjectBatch.of(keys, addresses, sizes)
        answers, passed = self._answers(Operation.PUT, keys)
        rest = batch.pick(passed)
        results = super().batch_put_from(rest.keys, rest.addresses, rest.sizes)
        return self._listed(Operation.PUT, _merge(answers, passed, results))

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        batch = ObjectBatch.of(keys, addresses, sizes)
        answers, passed = self._answers(Operation.GET, keys)
        call = self._num_calls[Operation.GET]
        for fault in self._faults:
            for key in sorted(fault.before_get(call)):
                self.inner.remove(key, force=True)
        rest = batch.pick(passed)
        results = super().batch_get_into(rest.keys, rest.addresses, rest.sizes)
        if self.capabilities.moves_bytes:
            self._spoil(rest, results, call)
        return self._listed(Operation.GET, _merge(answers, passed, results))

    def _answers(self, operation: Operation, keys: Sequence[str]) -> tuple[list[KeyResult | None], list[int]]:
        """The rules' answers, and the positions of the keys that they let through."""
        self._num_calls[operation] += 1
        call = self._num_calls[operation]
        answers = [self._answer(operation, call, key) for key in keys]
        return answers, [index for index, answer in enumerate(answers) if answer is None]

    def _listed(self, operation: Operation, results: list[KeyResult]) -> list[KeyResult]:
        for fault in self._faults:
            results = fault.listed(operation, self._num_calls[operation], results)
        return results

    def _spoil(self, batch: ObjectBatch, results: list[KeyResult], call: int) -> None:
        for index, key in enumerate(batch.keys):
            for fault in self._faults:
                # Only an OK proves that the addresses can be followed.
                if results[index] is OK and fault.spoils(call, key):
                    buffers = _buffers(batch, index)
                    _write(buffers, fault.spoil(_read(buffers), self._chance))

    def _answer(self, operation: Operation, call: int, key: str) -> KeyResult | None:
        for fault in self._faults:
            answer = fault.answer(operation, call, key, self._chance)
            if answer is not None:
                return answer
        return None


def _merge(answers: list[KeyResult | None], passed: list[int], results: list[KeyResult]) -> list[KeyResult]:
    merged = list(answers)
    for index, result in zip(passed, results, strict=True):
        merged[index] = result
    return [result for result in merged if result is not None]


def _buffers(batch: ObjectBatch, index: int) -> _Buffers:
    if not batch.scattered:
        return [(batch.addresses[index], batch.sizes[index])]
    return list(zip(batch.addresses[index], batch.sizes[index], strict=True))


def _read(buffers: _Buffers) -> bytes:
    return b"".join(ctypes.string_at(address, num_bytes) for address, num_bytes in buffers)


def _write(buffers: _Buffers, content: bytes) -> None:
    position = 0
    for address, num_bytes in buffers:
        ctypes.memmove(address, content[position : position + num_bytes], num_bytes)
        position += num_bytes
