"""The differential driver itself: stores that agree pass, and each way to differ is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from hicache_bench.store.base import MISS, NO_SPACE, OK, Buffers, KeyResult, KVStoreBackend
from hicache_bench.store.faults import CorruptGet, FaultyStore
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.wrappers import StoreWrapper
from hicache_bench.units import KIB, MIB
from tests.store.differential import Differential, Outcome
from tests.store.differential_model import Rules

LEASE_SECONDS = 5.0
Wrap = Callable[[KVStoreBackend], KVStoreBackend]


class Clock:
    """A millisecond passes whenever somebody looks."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        self.seconds += 0.001
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def drive(wrap: Wrap, *, evicts: bool, num_operations: int = 1500, seed: int = 0) -> Outcome:
    """A local store against a local store inside of something else."""
    clock = Clock()
    rules = Rules((2 if evicts else 64) * MIB, LEASE_SECONDS, evicts)
    inner = [
        LocalKVStore(rules.capacity_bytes, lease_ttl_seconds=LEASE_SECONDS, clock=clock) for _ in range(2)
    ]
    pair = Differential(
        [("plain", inner[0]), ("wrapped", wrap(inner[1]))],
        rules,
        seed=seed,
        num_keys=40,
        max_object_bytes=(128 if evicts else 4) * KIB,
        clock=clock,
        sleep=clock.sleep,
    )
    return pair.run(num_operations)


class Overwrites(StoreWrapper):
    """A put replaces what is there."""

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        for key in keys:
            if key.isascii() and key:
                self.inner.remove(key, force=True)
        return super().batch_put_from(keys, addresses, sizes)


class ForgetsLeases(StoreWrapper):
    """A removal never minds a lease."""

    def remove(self, key: str, *, force: bool = False) -> KeyResult:
        return super().remove(key, force=True)


class LeasesNoDuplicate(StoreWrapper):
    """A put of an object that exists takes no lease: the store is not asked."""

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        assert isinstance(self.inner, LocalKVStore)
        kept = {key: stored.access for key in keys if (stored := self.inner._objects.find(key))}
        results = super().batch_put_from(keys, addresses, sizes)
        for key, access in kept.items():
            if stored := self.inner._objects.find(key):
                stored.access = access
        return results


class Loses(StoreWrapper):
    """Every 50th key that is asked for is gone."""

    asked = 0

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        self.asked += len(keys)
        if self.asked > 50 and keys[0].isascii():
            self.asked = 0
            self.inner.remove(keys[0], force=True)
        return super().batch_exists(keys)


class RemovesTooFew(StoreWrapper):
    """Says that it removed one object less."""

    def remove_all(self, *, force: bool = False) -> int:
        return super().remove_all(force=force) - 1


class CountsTwice(StoreWrapper):
    """Its statistics have more existence queries than were made."""

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        super().batch_exists([])
        return super().batch_exists(keys)


class NeverFull(StoreWrapper):
    """Reports success where there was no room."""

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        results = super().batch_put_from(keys, addresses, sizes)
        return [OK if result is NO_SPACE else result for result in results]


class AlwaysFull(StoreWrapper):
    """Refuses what it has room for."""

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        assert isinstance(self.inner, LocalKVStore)
        results = super().batch_put_from(keys, addresses, sizes)
        for index, (key, result) in enumerate(zip(keys, results, strict=True)):
            if result is OK and self.inner.used_bytes < MIB // 2:
                self.inner.remove(key, force=True)
                results[index] = NO_SPACE
        return results


class EvictsLeased(StoreWrapper):
    """Answers a miss for what was asked for a moment ago."""

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        results = super().batch_get_into(keys, addresses, sizes)
        repeated = super().batch_exists(keys[:1])
        return [MISS, *results[1:]] if results[0] is OK and repeated == [OK] and len(keys) == 3 else results


class CorruptsAnywhere(CorruptGet):
    """One bit of the first key of every seventh read."""

    def spoils(self, call: int, key: str) -> bool:
        return call % 7 == 0


@pytest.mark.parametrize("evicts", [False, True])
def test_two_stores_of_a_kind_agree(evicts: bool) -> None:
    outcome = drive(StoreWrapper, evicts=evicts, num_operations=2000)
    assert ([], 2000) == (outcome.differences, outcome.operations)
    answered = {answer.partition(": ")[2] for answer in outcome.answers}
    assert {"ok", "miss", "exists", "leased", "error(-600)"} | ({"no_space"} if evicts else set()) == answered


@pytest.mark.parametrize(
    "wrap",
    [Overwrites, ForgetsLeases, LeasesNoDuplicate, Loses, RemovesTooFew, CountsTwice],
    ids=lambda wrap: wrap.__name__,
)
def test_a_store_that_differs_is_found(wrap: Wrap) -> None:
    assert drive(wrap, evicts=False, num_operations=4000).differences


@pytest.mark.parametrize(
    "wrap", [ForgetsLeases, NeverFull, AlwaysFull, EvictsLeased], ids=lambda wrap: wrap.__name__
)
def test_a_store_that_breaks_an_invariant_under_pressure_is_found(wrap: Wrap) -> None:
    assert drive(wrap, evicts=True, num_operations=2000).differences


@pytest.mark.parametrize("evicts", [False, True])
def test_a_wrong_bit_is_found(evicts: bool) -> None:
    outcome = drive(lambda store: FaultyStore(store, [CorruptsAnywhere(frozenset())]), evicts=evicts)
    assert any("expected the bytes that were put, found others" in told for told in outcome.differences)
