from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hicache_bench.records.proof import Proof
from hicache_bench.records.schema import Check
from hicache_bench.store.local import LocalKVStore
from hicache_bench.workflows.roundtrip import rule_controls as module
from hicache_bench.workflows.roundtrip.rule_controls import CONTROLS, rule_controls
from hicache_bench.workflows.roundtrip.rule_proofs import NUM_PAGES
from tests.workflows.runs import quiet


def controlled() -> tuple[Proof, ...]:
    store = LocalKVStore(16 << 20)
    with store:
        proofs = rule_controls(store, 3, quiet)
        assert 0 == len(store)
    return proofs


def test_every_mistake_is_found() -> None:
    proofs = controlled()
    assert list(CONTROLS) == [proof.name for proof in proofs]
    assert {"control"} == {proof.section for proof in proofs}
    assert [] == [proof.name for proof in proofs if not proof.passed]


def judged(*, passed: bool) -> Callable[..., Any]:
    return lambda *_, **__: [Check("any", "yes", "yes" if passed else "no", passed)]


def test_a_judge_that_sees_nothing_fails_its_controls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "judge", judged(passed=True))
    # Nothing mistaken is found by none, and the last control asks the resolver itself.
    assert list(CONTROLS)[1:-1] == [proof.name for proof in controlled() if not proof.passed]


def test_a_judge_that_never_passes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "judge", judged(passed=False))
    assert ["nothing is mistaken"] == [proof.name for proof in controlled() if not proof.passed]


def test_a_resolver_that_does_not_look_fails_its_control(monkeypatch: pytest.MonkeyPatch) -> None:
    class Resolution:
        hit_pages = NUM_PAGES

    monkeypatch.setattr(module, "resolve", lambda *_: Resolution)
    assert [list(CONTROLS)[-1]] == [proof.name for proof in controlled() if not proof.passed]
