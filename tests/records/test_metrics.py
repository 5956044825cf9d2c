from __future__ import annotations

import pytest

from hicache_bench.records.kinds import KINDS
from hicache_bench.records.metrics import FAILED_CHECKS, Key, Rule, Sense, Where, metrics_of, rule_for
from tests.records.golden import golden_record

LENGTH: Where = (("results", "8192"),)
RANK: Where = (*LENGTH, ("ranks", "the only rank"))
SWA: Where = (*RANK, ("policies", "selective"), ("pools", "swa"))


def test_a_metric_has_its_place_and_its_name() -> None:
    metrics = metrics_of(golden_record("run"))
    assert 1_048_576 == metrics[Key(SWA, ("read", "num_bytes"))]
    assert 120 == metrics[Key(SWA, ("skipped", "out_of_window", "pages"))]
    assert 43_683_840 == metrics[Key((*LENGTH, ("policies", "selective")), ("read", "num_bytes"))]
    assert 0 == metrics[Key(LENGTH, (FAILED_CHECKS, "dense at 8k tokens: tokens used"))]
    assert (0.01, 0.0101, 0.0102, 0.0103, 0.0104, 0.0105) == metrics[Key(SWA[:-1], ("seconds",))]
    assert metrics[Key((), ("status",))] is True
    assert "the only rank" == metrics[Key((("pools", "swa"),), ("ranks",))]
    assert metrics[Key(SWA, ())] is True  # the account itself


def test_what_decides_nothing_is_no_metric() -> None:
    names = {part for key in metrics_of(golden_record("run")) for part in key.name}
    for field in ("created_utc", "command", "environment", "evidence", "memory_bytes", "save_seconds", "tp"):
        assert field not in names


def test_a_name_of_several_words_is_that_of_its_last_one() -> None:
    """A control keeps the largest difference of each pool, a fault the seconds of each step."""
    record = golden_record("roundtrip")
    proof = record["proofs"][0]
    before = metrics_of(record)
    proof["figures"] |= {"swa max_difference": 0.5, "a new client gives up, seconds": 1.0, "swa pages": 3}
    added = metrics_of(record).keys() - before.keys()
    assert [("figures", "swa pages")] == [key.name for key in added]


def test_what_went_on_for_a_given_time_has_no_figures_to_compare() -> None:
    record = golden_record("roundtrip")
    proof = record["proofs"][0]
    proof |= {"section": "soak", "figures": {"requests": 1000}}
    assert ("figures", "requests") not in {key.name for key in metrics_of(record)}
    proof["section"] = "fault"  # as many random faults as were asked for
    assert ("figures", "requests") in {key.name for key in metrics_of(record)}


def test_a_check_that_is_made_often_is_counted_by_its_failures() -> None:
    record = golden_record("run")
    checks = record["results"][0]["checks"]
    name = "dense at 8k tokens: tokens used"
    same = [check for check in checks if check["name"] == name]
    assert 6 == len(same)  # one for each restore that is timed
    for check in same[:2]:
        check["passed"] = False
    assert 2 == metrics_of(record)[Key(LENGTH, (FAILED_CHECKS, name))]
    checks.remove(same[2])
    assert 2 == metrics_of(record)[Key(LENGTH, (FAILED_CHECKS, name))]


def test_entries_of_one_name_stay_apart() -> None:
    record = golden_record("run")
    record["pools"].append(record["pools"][0])
    name = record["pools"][0]["name"]
    metrics = metrics_of(record)
    assert Key((("pools", name),), ()) in metrics
    assert Key((("pools", f"{name} #2"),), ()) in metrics


def test_all_of_something_is_named() -> None:
    labels = {key.where[0][1] for key in metrics_of(golden_record("bench")) if key.where}
    assert any("all" in label.split(", ") for label in labels)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_metrics(kind: str) -> None:
    metrics = metrics_of(golden_record(kind))
    assert len(metrics) > 20
    assert metrics == metrics_of(golden_record(kind))


RULES = {
    ("read", "num_bytes"): Rule(Sense.LOWER, "bytes"),
    ("read", "objects"): Rule(Sense.LOWER, "objects"),
    ("stored", "pages"): Rule(Sense.LOWER, "objects"),
    ("pages",): Rule(Sense.EXACT),
    ("figures", "stored_bytes"): Rule(Sense.EXACT),
    ("figures", "bytes_compared"): Rule(Sense.EXACT),
    ("skipped", "out_of_window", "num_bytes"): Rule(Sense.EXACT),
    ("existing", "objects"): Rule(Sense.EXACT),
    ("unused_tokens", "timeout"): Rule(Sense.EXACT),
    ("object_bytes", "k"): Rule(Sense.LOWER, "bytes"),
    ("unit_bytes",): Rule(Sense.LOWER, "bytes"),
    ("store_calls",): Rule(Sense.LOWER, "objects"),
    ("used_tokens",): Rule(Sense.HIGHER),
    ("hit_tokens",): Rule(Sense.HIGHER),
    ("hit_rate",): Rule(Sense.HIGHER, "rate"),
    ("byte_hit_rate",): Rule(Sense.HIGHER, "rate"),
    ("bytes_per_second",): Rule(Sense.HIGHER, "rate"),
    ("uncut_bytes_per_second",): Rule(Sense.LOWER, "modeled"),
    ("gb_per_s",): Rule(Sense.HIGHER, "rate"),
    ("read_seconds",): Rule(Sense.LOWER, "modeled"),
    ("ttft", "high"): Rule(Sense.LOWER, "modeled"),
    ("summary", "ttft", "seconds", "low", "p99"): Rule(Sense.LOWER, "modeled"),
    ("summary", "ttft", "cut_requests"): Rule(Sense.LOWER, "modeled"),
    ("summary", "tokens", "hit"): Rule(Sense.HIGHER),
    ("evicted_units",): Rule(Sense.LOWER, "objects"),
    ("degraded",): Rule(Sense.LOWER),
    ("status",): Rule(Sense.HIGHER),
    (FAILED_CHECKS, "restored pages"): Rule(Sense.LOWER),
    ("namespace",): Rule(Sense.EXACT),
    (): Rule(Sense.HIGHER),
}


@pytest.mark.parametrize(("name", "rule"), RULES.items(), ids=["-".join(name) or "entry" for name in RULES])
def test_which_way_is_worse(name: tuple[str, ...], rule: Rule) -> None:
    assert rule == rule_for(name, 1)


def test_samples_are_time_and_single_seconds_are_modelled() -> None:
    assert Rule(Sense.TIME, "time") == rule_for(("seconds",), (0.1, 0.2))
    assert Rule(Sense.LOWER, "modeled") == rule_for(("seconds",), 0.1)
