from __future__ import annotations

import numpy as np
import pytest

from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.records.schema import Check
from hicache_bench.workflows import rank
from hicache_bench.workflows.roundtrip import byte_controls as controls
from hicache_bench.workflows.roundtrip.byte_controls import CONTROLS, byte_controls
from hicache_bench.workflows.roundtrip.byte_proofs import TalliedBytes
from tests.workflows.runs import quiet


def test_every_fault_is_found_by_its_own_check() -> None:
    proofs = byte_controls(3, quiet)
    assert list(CONTROLS) == [proof.name for proof in proofs]
    assert {"control"} == {proof.section for proof in proofs}
    assert all(proof.passed for proof in proofs)


def blind_to_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TalliedBytes.mismatched
    monkeypatch.setattr(TalliedBytes, "mismatched", lambda *arguments: right(*arguments)[:0])


def blind_to_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TalliedBytes, "disturbed", lambda *_: [])


def blind_to_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostPool, "guards_intact", lambda _self: True)


def blind_to_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls._ByteCount, "stats", property(lambda self: self.inner.stats))


@pytest.mark.parametrize(
    ("blind", "missed"),
    [
        (blind_to_bytes, list(CONTROLS)[1:4]),
        (blind_to_poison, ["a skipped page that was overwritten"]),
        (blind_to_guards, ["a guard zone that was written to"]),
        (blind_to_counts, ["a byte count that disagrees"]),
    ],
)
def test_a_check_that_is_blind_fails_its_controls(
    monkeypatch: pytest.MonkeyPatch, blind: object, missed: list[str]
) -> None:
    assert callable(blind)
    blind(monkeypatch)
    assert missed == [proof.name for proof in byte_controls(3, quiet) if not proof.passed]


def test_an_engine_that_saves_nothing_breaks_no_control(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control has nothing to break then, and says so."""
    monkeypatch.setattr(
        SavePolicy, "saved_units", lambda _self, _pool, units: np.zeros(units, dtype=np.bool_)
    )
    found = {proof.name: proof.checks for proof in byte_controls(3, quiet) if not proof.passed}
    assert set(CONTROLS) == set(found)
    assert all(not check.passed for checks in found.values() for check in checks)


def test_checks_that_always_pass_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        rank, "equal", lambda name, expected, actual: Check(name, expected, actual, passed=True)
    )
    monkeypatch.setattr(rank, "none_of", lambda name, _found: Check(name, "none", "none", passed=True))
    assert list(CONTROLS)[1:] == [proof.name for proof in byte_controls(3, quiet) if not proof.passed]


def test_a_check_that_always_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TalliedBytes, "disturbed", lambda *_: ["kv:0"])
    assert "nothing is broken" in [proof.name for proof in byte_controls(3, quiet) if not proof.passed]
