from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hicache_bench.engine.controller import HybridKVController
from hicache_bench.engine.reports import Lookup
from hicache_bench.errors import ConfigError, MemoryBudgetError, StoreContractError, StoreError
from hicache_bench.planning import resolve
from hicache_bench.planning.plan import TransferPlan
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.records.proof import RoundtripRecord
from hicache_bench.records.schema import Check
from hicache_bench.store.local import LocalKVStore
from hicache_bench.workflows.roundtrip import isolation, job, numerics
from hicache_bench.workflows.roundtrip.findings import BREAKDOWNS, findings
from hicache_bench.workflows.roundtrip.job import RoundtripOptions, roundtrip
from hicache_bench.workflows.roundtrip.rule_proofs import SCENES
from tests.workflows.roundtrip.rig import POLICIES, variant_of
from tests.workflows.runs import quiet


def raising(error: BaseException) -> Callable[..., Any]:
    def broken(*_arguments: Any, **_options: Any) -> Any:
        raise error

    return broken


@pytest.mark.parametrize("kind", BREAKDOWNS)
def test_a_breakdown_is_a_failed_check(kind: type[Exception]) -> None:
    checks: list[Check] = []
    with findings(checks):
        raising(kind("pages 3"))()
    (check,) = checks
    assert (False, "errors that it ends with", "none") == (check.passed, check.name, check.expected)
    assert check.actual.startswith(kind.__name__)
    assert "pages 3" in check.actual


@pytest.mark.parametrize("error", [StoreError("gone"), MemoryBudgetError("no room"), KeyboardInterrupt()])
def test_what_is_not_the_engines_passes(error: BaseException) -> None:
    checks: list[Check] = []
    with pytest.raises(type(error)), findings(checks):
        raising(error)()
    assert [] == checks


def test_the_errors_of_a_store_of_its_own_are_breakdowns() -> None:
    checks: list[Check] = []
    with findings(checks, own_store=True):
        raising(StoreContractError("one result too few"))()
    assert ["StoreContractError: one result too few"] == [check.actual for check in checks]


_NOT_RESTORED = {"a pool that derives from another", "a lookup with few questions"}


def prove(**options: Any) -> RoundtripRecord:
    chosen = {"presets": (variant_of("kitchen-sink"),), "lengths": (1, 6), "batch_pages": 4, **options}
    return roundtrip(RoundtripOptions(**chosen), quiet)


def broken(record: RoundtripRecord) -> set[tuple[str, str]]:
    """Section and name of the proofs that end with an error of the engine."""
    return {
        (proof.section, proof.name)
        for proof in record.proofs
        for check in proof.checks
        if (check.name, check.passed) == ("errors that it ends with", False)
    }


@pytest.mark.parametrize(
    ("owner", "name", "expected"),
    [
        (HybridKVController, "restore", {("bytes", "1 page"), ("bytes", "6 pages")}),
        (resolve, "_largest", {("bytes", "1 page"), ("bytes", "6 pages")}),
        (SavePolicy, "saved_units", {("bytes", "any length"), ("control", "any control")}),
    ],
    ids=["restore", "resolve", "save policy"],
)
def test_everything_is_proved_still_when_the_engine_breaks(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, expected: set[tuple[str, str]]
) -> None:
    monkeypatch.setattr(owner, name, raising(IndexError("list index out of range")))
    record = prove()
    assert "failed" == record.status
    found = broken(record)
    assert expected <= found
    assert {"control", "rules", "bytes", "isolation"} == {section for section, _ in found}
    assert {name for section, name in found if section == "rules"} >= {*SCENES} - _NOT_RESTORED
    assert {name for section, name in found if section == "isolation"} >= {"extended prefix", "two salts"}


def test_one_broken_length_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    right = HybridKVController.plan

    def plan(
        self: HybridKVController, lookup: Lookup, policy: TransferPolicy, **options: Any
    ) -> TransferPlan:
        assert lookup.prefix.num_pages != 6, "six"
        return right(self, lookup, policy, **options)

    monkeypatch.setattr(HybridKVController, "plan", plan)
    for other in ("byte_controls", "_rule_proofs", "isolation_proofs"):
        monkeypatch.setattr(job, other, lambda *_: ())
    record = prove()
    assert ["1 page", "6 pages"] == [proof.name for proof in record.proofs]
    assert {("bytes", "6 pages")} == broken(record)
    (failed,) = record.failed_checks
    assert failed.actual.startswith("AssertionError: six")
    # What was saved is taken out all the same.
    left = Check("objects of it that stay in the store", "0", "0", passed=True)
    assert all(left in proof.checks for proof in record.proofs)


def test_a_scene_that_breaks_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_wrote_all", raising(KeyError("kv")))
    store = LocalKVStore(isolation.STORE_BYTES)
    with store:
        proofs = isolation.isolation_proofs(variant_of("llama-3.1-8b"), store, POLICIES, 0, quiet)
        assert 0 == len(store)
    failed = {proof.name for proof in proofs if not proof.passed}
    apart = {"two salts", "two adapters", "adapter and salt, cut elsewhere", "two models", "two revisions"}
    assert {*apart, "writer and reader of another dtype"} == failed
    assert all(1 == len(proof.checks) for proof in proofs if not proof.passed)


def test_arithmetic_that_breaks_keeps_what_was_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "numeric_controls", raising(ValueError("cannot be broadcast")))
    *proved, last = numerics.numeric_proofs(variant_of("llama-3.1-8b"), 0, quiet)
    assert len(proved) > 3
    assert all(proof.passed for proof in proved)
    assert ("to its end", ["ValueError: cannot be broadcast"]) == (
        last.name,
        [check.actual for check in last.checks],
    )


def test_the_errors_of_a_user_are_not_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "plan_bytes", raising(ConfigError("no pool has bytes")))
    with pytest.raises(ConfigError, match="no pool has bytes"):
        prove()
