"""Named faults: they pass on what is right, and fail on an engine that is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hicache_bench.engine import controller, lookup, transfer
from hicache_bench.errors import ConfigError
from hicache_bench.planning import ledger, policy, resolve
from hicache_bench.planning.policy import IntVector
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.records.proof import Proof
from hicache_bench.store import checksum
from hicache_bench.store.base import OK, KVStoreBackend
from hicache_bench.store.counting import CountingStore
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.objects import Access
from hicache_bench.units import MIB
from hicache_bench.workflows.roundtrip.fault_catalogue import FAULT_CASES
from hicache_bench.workflows.roundtrip.fault_write_scenarios import SCENARIOS
from hicache_bench.workflows.roundtrip.faults import fault_proofs


@pytest.fixture
def store() -> Iterator[LocalKVStore]:
    store = LocalKVStore(64 * MIB)
    yield store
    store.close()


def prove(store: KVStoreBackend, name: str, *, seed: int = 0, with_checksum: bool = False) -> Proof:
    (proof,) = fault_proofs([name], store, seed=seed, checksum=with_checksum, progress=lambda _text: None)
    return proof


def test_every_fault_has_a_scenario() -> None:
    assert {case.name for case in FAULT_CASES} == set(SCENARIOS)


@pytest.mark.parametrize("with_checksum", [False, True], ids=["plain", "checksum"])
@pytest.mark.parametrize("case", FAULT_CASES, ids=lambda case: case.name)
def test_fault_passes_and_leaves_nothing(store: LocalKVStore, case: Any, with_checksum: bool) -> None:
    proof = prove(store, case.name, with_checksum=with_checksum)
    assert () == tuple(check for check in proof.checks if not check.passed)
    assert proof.passed
    assert ("fault", case.name, case.cases) == (proof.section, proof.subject, proof.cases)
    assert 0 < proof.figures["restores"]  # type: ignore[operator]
    assert ("silent" in str(proof.figures["found_by"])) == (
        case.seen_by == "content" or (case.seen_by == "digest" and not with_checksum)
    )
    assert 0 == len(store)
    assert [] == store._registered._starts


def test_places_differ_with_the_seed_and_repeat(store: LocalKVStore) -> None:
    labels = [
        [check.name for check in prove(store, "evicted-before-read", seed=seed).checks] for seed in (1, 1, 2)
    ]
    assert labels[0] == labels[1] != labels[2]


def test_faults_of_another_backend_are_left_out(store: LocalKVStore) -> None:
    class Elsewhere(LocalKVStore):
        @property
        def capabilities(self) -> Any:
            return replace(super().capabilities, name="elsewhere")

    with Elsewhere(64 * MIB) as other:
        names = ["arena-full", "store-full"]
        proofs = fault_proofs(names, other, seed=0, checksum=False, progress=lambda _text: None)
    assert ["store-full"] == [proof.subject for proof in proofs]


def test_a_store_that_counts_is_refused() -> None:
    with CountingStore() as counting, pytest.raises(ConfigError, match="moves bytes"):
        prove(counting, "flipped-bit")


# Broken engines: each of these must be found.


def _trusts_the_lookup(plan: Any, arrivals: Any) -> int:
    return int(plan.endpoint_pages)


def _minimum_of_maxima(legal_by_pool: Any, num_pages: int, matchable: int) -> resolve.Resolution:
    best = {name: resolve._largest(legal[: matchable + 1]) for name, legal in legal_by_pool.items()}
    return resolve.Resolution(
        hit_pages=min(best.values()), legal=np.ones(num_pages + 1, dtype=np.bool_), matchable=matchable
    )


def _short_window(pool: KVPoolDescriptor, ends: IntVector) -> IntVector:
    return np.maximum(ends - 1, 0)


def _all_ok(results: Any, keys_per_unit: int) -> Any:
    return np.ones(len(results) // keys_per_unit, dtype=np.bool_)


def _any_component(results: Any, keys_per_unit: int) -> Any:
    flags = np.array([result is OK for result in results], dtype=np.bool_)
    return flags.reshape(-1, keys_per_unit).any(axis=1)


def _overwrites(self: LocalKVStore, batch: Any, index: int, *more: Any) -> Any:
    if self._objects.find(batch.keys[index]) is not None:
        self._objects.drop(batch.keys[index])
    return _REAL_PUT(self, batch, index, *more)


def _truncates(self: LocalKVStore, batch: Any, access: Any) -> Any:
    sizes = [
        stored.num_bytes if (stored := self._objects.find(key)) is not None else size
        for key, size in zip(batch.keys, batch.sizes, strict=True)
    ]
    return _REAL_GET(self, replace(batch, sizes=sizes), access)


def _nothing_failed(results: Any) -> list[int]:
    return []


_REAL_PUT = LocalKVStore._put
_REAL_GET = LocalKVStore._get
_REAL_DIGESTS = checksum.ChecksumStore._digests


def _constant(self: Any, batch: Any, indices: Any) -> list[int]:
    return [0 for _ in indices]


BROKEN: dict[str, tuple[Any, str, Callable[..., Any], str, bool]] = {
    "no second resolution": (ledger, "_used_pages", _trusts_the_lookup, "evicted-before-read", False),
    "no second resolution, index": (ledger, "_used_pages", _trusts_the_lookup, "index-evicted", False),
    "no second resolution, batch": (ledger, "_used_pages", _trusts_the_lookup, "failed-batch-read", False),
    "no second resolution, lookup": (ledger, "_used_pages", _trusts_the_lookup, "lookup-lies", False),
    "no second resolution, lease": (ledger, "_used_pages", _trusts_the_lookup, "lease-expired", False),
    "minimum of maxima": (resolve, "_resolution", _minimum_of_maxima, "null-state", False),
    "half a state is a state": (lookup, "arrived_units", _any_component, "killed-writer", False),
    "conv is lost unnoticed": (controller, "arrived_units", _any_component, "zero-size-component", False),
    "lost reads count": (controller, "arrived_units", _all_ok, "truncated-object", False),
    "oversized reads count": (LocalKVStore, "_get", _truncates, "oversized-object", False),
    "shorter pages count": (controller, "arrived_units", _all_ok, "foreign-dtype", False),
    "put overwrites": (LocalKVStore, "_put", _overwrites, "stale-object", False),
    "put overwrites, two writers": (LocalKVStore, "_put", _overwrites, "duplicate-writers", False),
    "failed puts are not seen": (transfer, "unstored", _nothing_failed, "failed-batch-write", False),
    "full store is not seen": (transfer, "unstored", _nothing_failed, "store-full", False),
    "digest of nothing, bit": (checksum.ChecksumStore, "_digests", _constant, "flipped-bit", True),
    "digest of nothing, empty": (checksum.ChecksumStore, "_digests", _constant, "empty-read", True),
    "digest of nothing, pool": (checksum.ChecksumStore, "_digests", _constant, "foreign-pool", True),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_engine_is_found(store: LocalKVStore, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    where, what, broken, fault, with_checksum = BROKEN[name]
    monkeypatch.setattr(where, what, broken)
    assert not prove(store, fault, with_checksum=with_checksum).passed


def test_a_window_that_is_too_short_is_found(store: LocalKVStore, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {
        name: _short_window if rule is policy._window else rule for name, rule in policy._SELECTIVE.items()
    }
    monkeypatch.setattr(policy, "_SELECTIVE", rules)
    assert not prove(store, "evicted-before-read").passed


def test_an_engine_that_ends_with_an_error_is_a_finding(
    store: LocalKVStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: object) -> None:
        raise ValueError("operands could not be broadcast")

    monkeypatch.setattr(ledger, "_used_pages", fails)
    proof = prove(store, "store-full")
    assert "ValueError: operands could not be broadcast" == proof.checks[-1].actual
    assert not proof.passed
    assert 0 == len(store)


def test_a_draft_that_shortens_the_prefix_is_found(
    store: LocalKVStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KVPoolDescriptor, "constrains", property(lambda self: not self.is_logical))
    assert not prove(store, "draft-missing").passed


def test_an_eviction_of_leased_objects_is_found(store: LocalKVStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalKVStore, "_new_access", _unleased)
    assert not prove(store, "arena-full").passed


def _unleased(self: LocalKVStore, _lease_seconds: float) -> Any:
    self._num_calls += 1
    return Access(self._num_calls, self._clock(), self._clock())
