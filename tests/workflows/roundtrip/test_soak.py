"""Random faults and the soak: they pass on what is right, and find, shrink and repeat what is planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hicache_bench.engine import controller, transfer
from hicache_bench.planning import ledger, policy, resolve
from hicache_bench.store import checksum
from hicache_bench.store.base import OK
from hicache_bench.store.local import LocalKVStore
from hicache_bench.units import MIB
from hicache_bench.workflows.roundtrip import fault_draw, soak, soak_world
from hicache_bench.workflows.roundtrip.soak import Soak, injection_proofs, soak_proofs
from hicache_bench.workflows.roundtrip.soak_world import Counters, Step, StepKind, World


@pytest.fixture
def store() -> Iterator[LocalKVStore]:
    store = LocalKVStore(64 * MIB)
    yield store
    store.close()


def silent(_text: str) -> None:
    """Progress that nobody reads."""


def soaked(store: LocalKVStore, num_faults: int, *, seed: int = 0, with_checksum: bool = False) -> Soak:
    soak = Soak(store, seed, with_checksum)
    soak.run(lambda counters: counters.faults < num_faults)
    return soak


@pytest.mark.parametrize("with_checksum", [False, True], ids=["plain", "checksum"])
def test_random_faults_break_no_promise(store: LocalKVStore, with_checksum: bool) -> None:
    (proof,) = injection_proofs(250, store, seed=11, checksum=with_checksum, progress=silent)
    assert () == tuple(check for check in proof.checks if not check.passed)
    assert ("fault", "250 random faults") == (proof.section, proof.subject)
    assert 250 == proof.figures["faults"]
    assert 150 < proof.figures["requests"]  # type: ignore[operator]
    assert 0 < proof.figures["bytes_compared"]  # type: ignore[operator]
    assert 0 == len(store)
    assert [] == store._registered._starts


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_random_faults_break_no_promise(store: LocalKVStore) -> None:
    (proof,) = injection_proofs(10_000, store, seed=2026, checksum=False, progress=silent)
    assert () == tuple(check for check in proof.checks if not check.passed)


def test_soak_ends_when_the_time_is_up(store: LocalKVStore) -> None:
    told: list[str] = []
    (proof,) = soak_proofs(1.0, store, seed=3, checksum=False, progress=told.append)
    assert proof.passed
    assert "soak" == proof.section
    assert 1.0 <= proof.seconds < 10
    assert told
    assert "random requests" in told[0]


@pytest.mark.parametrize("seed", range(5))
def test_a_short_soak_goes_on_until_bytes_were_compared(store: LocalKVStore, seed: int) -> None:
    for (proof,) in (
        injection_proofs(1, store, seed=seed, checksum=False, progress=silent),
        soak_proofs(0.0, store, seed=seed, checksum=False, progress=silent),
    ):
        assert proof.passed
        assert 0 < proof.figures["bytes_compared"]  # type: ignore[operator]


def test_a_soak_that_compared_nothing_proves_nothing(
    store: LocalKVStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "_draw_step", lambda _chance, before: Step(StepKind.SAVE, before % 3, before))
    (proof,) = soak_proofs(0.0, store, seed=3, checksum=False, progress=silent)
    assert not proof.passed
    assert soak._MAX_EMPTY_STEPS == proof.figures["steps"]


def test_a_soak_repeats(store: LocalKVStore) -> None:
    assert soaked(store, 40, seed=4).counters == soaked(store, 40, seed=4).counters
    assert soaked(store, 40, seed=4).counters != soaked(store, 40, seed=5).counters


def _trusts_the_lookup(plan: Any, _arrivals: Any) -> int:
    return int(plan.endpoint_pages)


def _any_component(results: Any, keys_per_unit: int) -> Any:
    flags = np.array([result is OK for result in results], dtype=np.bool_)
    return flags.reshape(-1, keys_per_unit).any(axis=1)


def _off_by_one(_pool: Any, ends: Any) -> Any:
    return np.maximum(ends - 1, 0)


def _minimum_of_maxima(legal_by_pool: Any, num_pages: int, matchable: int) -> resolve.Resolution:
    best = [resolve._largest(legal[: matchable + 1]) for legal in legal_by_pool.values()]
    every = np.ones(num_pages + 1, dtype=np.bool_)
    return resolve.Resolution(hit_pages=min(best), legal=every, matchable=matchable)


def _gives_up_nothing(_results: Any) -> list[int]:
    return []


PLANTED: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "re-resolution off": (ledger, "_used_pages", _trusts_the_lookup),
    "half a unit is a unit": (controller, "arrived_units", _any_component),
    "minimum of maxima": (resolve, "_resolution", _minimum_of_maxima),
    "failed puts go unseen": (controller, "unstored", _gives_up_nothing),
    "trailing window of one unit": (policy, "_trailing", _off_by_one),
    "no digest is compared": (
        checksum.ChecksumStore,
        "_digests",
        lambda _self, _batch, found: [0] * len(found),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found_and_shrunk(
    store: LocalKVStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    where, what, broken = PLANTED[name]
    monkeypatch.setattr(where, what, broken)
    soak = soaked(store, 2000, with_checksum=name == "no digest is compared")
    violation = soak.violation
    assert violation is not None
    assert 1 <= len(violation.steps) <= 4
    assert f"world seed {violation.world_seed}" in str(violation)
    assert all(str(step) in str(violation) for step in violation.steps)
    # It repeats from what was reported, and not one of its steps can be left out.
    again = soak.replay(violation.world_seed, violation.digests, violation.steps)
    assert again is not None
    assert again[1].name == violation.check.name
    for index in range(len(violation.steps)):
        rest = violation.steps[:index] + violation.steps[index + 1 :]
        assert soak.replay(violation.world_seed, violation.digests, rest) is None
    monkeypatch.undo()
    assert soak.replay(violation.world_seed, violation.digests, violation.steps) is None


def test_a_violation_is_in_the_proof(store: LocalKVStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_used_pages", _trusts_the_lookup)
    (proof,) = injection_proofs(2000, store, seed=0, checksum=False, progress=silent)
    assert not proof.passed
    (check,) = [check for check in proof.checks if not check.passed]
    assert "restore(" in check.actual
    assert "resolved again" in check.actual
    assert proof.figures["faults"] < 2000  # type: ignore[operator]


def test_an_error_is_a_violation(store: LocalKVStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: object) -> None:
        raise ValueError("operands could not be broadcast")

    monkeypatch.setattr(transfer, "page_batches", fails)
    violation = soaked(store, 100).violation
    assert violation is not None
    assert 1 == len(violation.steps)
    assert "ValueError: operands could not be broadcast" == violation.check.actual


def test_a_store_that_keeps_what_was_lost_is_found(
    store: LocalKVStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(store, 0, digest=None, max_seconds=10)
    assert [] == world.step(Step(StepKind.SAVE, 0, 1))
    monkeypatch.setattr(LocalKVStore, "remove", lambda self, key, *, force=False: OK)
    (check,) = world.step(Step(StepKind.LOSE, 0, 2))
    assert "objects of which store and memory disagree" == check.name
    monkeypatch.undo()
    world.close()


@pytest.mark.parametrize("draw", ["draw_put_fault", "draw_read_fault"])
def test_every_kind_of_fault_is_drawn(
    store: LocalKVStore, monkeypatch: pytest.MonkeyPatch, draw: str
) -> None:
    real = getattr(fault_draw, draw)
    kinds: set[str] = set()

    def watched(*arguments: Any, **options: Any) -> Any:
        drawn = real(*arguments, **options)
        kinds.update(type(rule).__name__ for rule in drawn.rules)
        return drawn

    monkeypatch.setattr(soak_world, draw, watched)
    soaked(store, 150)
    expected = {
        "draw_put_fault": {"FailCalls", "FailKeys", "FailRandomly"},
        "draw_read_fault": {
            "CorruptGet", "EvictBeforeGet", "FailCalls", "FailKeys", "FailRandomly", "ShortGet",
        },
    }  # fmt: skip
    assert expected[draw] == kinds


def test_counters_add_up() -> None:
    total = Counters(1, 2, 3, 4)
    total.add(Counters(10, 20, 30, 40))
    assert Counters(11, 22, 33, 44) == total
