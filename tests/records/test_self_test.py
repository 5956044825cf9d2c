from __future__ import annotations

from typing import Any

import pytest

from hicache_bench.records import compare as comparing
from hicache_bench.records import metrics, self_test
from hicache_bench.records.judge import Judge, Outcome
from hicache_bench.records.kinds import KINDS
from hicache_bench.records.metrics import Rule, Sense
from hicache_bench.records.self_test import SelfTest
from hicache_bench.records.thresholds import DEFAULT_THRESHOLDS, parse_thresholds
from tests.records.changes import Data, changed, counted, with_times
from tests.records.golden import golden_record


def noticed(record: Data, thresholds: str | None = None) -> SelfTest:
    return self_test.self_test(
        record, DEFAULT_THRESHOLDS if thresholds is None else parse_thresholds(thresholds)
    )


@pytest.mark.parametrize("kind", ["bench", "simulate"])
def test_every_perturbation_is_noticed(kind: str) -> None:
    record = golden_record(kind)
    found = noticed(record)
    assert () == found.missed
    assert found.perturbations > 500
    assert golden_record(kind) == record  # and taken back


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"bench", "simulate"}))
def test_every_perturbation_of_a_large_record_is_noticed(kind: str) -> None:
    found = noticed(golden_record(kind))
    assert () == found.missed
    assert found.perturbations > 500


def small(*changes: Any) -> Data:
    """One length with one policy of one pool."""
    record = changed(golden_record("run"), *changes)
    result = record["results"][0]
    result["policies"] = result["policies"][2:]
    result["checks"] = result["checks"][-2:]
    rank = result["ranks"][0]
    rank["saved"] = rank["saved"][1:2]
    rank["policies"] = rank["policies"][2:]
    rank["policies"][0]["pools"] = rank["policies"][0]["pools"][1:2]
    record["pools"] = record["pools"][2:3]
    record["sharing"] = record["sharing"][1:2]
    return record


@pytest.mark.parametrize(
    "thresholds", [None, "bytes=50%,objects=20%,time=300%", "time=0%"], ids=["default", "loose", "tight"]
)
def test_whatever_is_allowed(thresholds: str | None) -> None:
    found = noticed(small(), thresholds)
    assert () == found.missed
    assert found.perturbations > 150


def test_too_few_samples_are_enough_to_be_told_apart_from_a_pass() -> None:
    assert () == noticed(small(lambda record: with_times(record, 1, samples=2))).missed
    assert () == noticed(small(counted)).missed


def test_a_metric_that_the_gate_does_not_see_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = metrics.metrics_of
    monkeypatch.setattr(
        comparing,
        "metrics_of",
        lambda data: {key: value for key, value in original(data).items() if key.name[-1:] != ("objects",)},
    )
    missed = noticed(small()).missed
    assert missed
    assert all("objects" in place for place in missed)


def test_figures_of_a_proof_that_the_gate_does_not_see_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    record = golden_record("roundtrip")
    record["proofs"] = [proof for proof in record["proofs"] if "bytes_compared" in proof["figures"]]
    assert () == noticed(record).missed
    original = metrics.metrics_of
    monkeypatch.setattr(
        comparing,
        "metrics_of",
        lambda data: {key: value for key, value in original(data).items() if "figures" not in key.name},
    )
    missed = noticed(record).missed
    for name in ("bytes_compared: more", "pages_restored: less", "saved: another text", "stored_bytes: gone"):
        assert f"proofs[0].figures.{name}: pass" in missed
    assert not any("gb_per_s" in place for place in missed)


def test_a_setting_that_the_gate_does_not_see_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = comparing.differing_settings
    monkeypatch.setattr(
        comparing,
        "differing_settings",
        lambda before, after: [name for name in original(before, after) if name != "queries"],
    )
    assert ("queries: another setting: pass",) == noticed(small()).missed


def test_a_gate_that_never_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Judge, "drafts", lambda *_: iter(()))
    found = noticed(small())
    assert len(found.missed) > 100


def test_a_gate_that_calls_everything_better_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Judge.drafts

    def blind(*arguments: Any) -> Any:
        for draft in original(*arguments):
            yield draft._replace(finding=replace_outcome(draft.finding))

    def replace_outcome(finding: Any) -> Any:
        from dataclasses import replace

        return replace(finding, outcome=Outcome.IMPROVED)

    monkeypatch.setattr(Judge, "drafts", blind)
    assert any("both called better" in place for place in noticed(small()).missed)


def test_a_gate_that_judges_the_wrong_way_round_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hicache_bench.records.judge.rule_for", lambda _name, _value: Rule(Sense.HIGHER))
    missed = noticed(small(counted)).missed
    assert any("read.num_bytes: more: improved" in place for place in missed)
    monkeypatch.setattr("hicache_bench.records.judge.rule_for", lambda _name, _value: Rule(Sense.LOWER))
    missed = noticed(small(counted)).missed
    assert any("used_tokens: less: improved" in place for place in missed)


def test_a_record_that_does_not_pass_against_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    record = small()
    original = comparing.Comparer.compare

    def always_worse(comparer: Any, new: Any) -> Any:
        from dataclasses import replace

        return replace(original(comparer, new), outcome=Outcome.REGRESSED)

    monkeypatch.setattr(comparing.Comparer, "compare", always_worse)
    assert "the record itself: does not pass" == noticed(record).missed[0]
