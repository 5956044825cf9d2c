from __future__ import annotations

import pytest

from hicache_bench.records.judge import Finding, Outcome
from hicache_bench.records.metrics import FAILED_CHECKS
from hicache_bench.report.gate_rows import counts_of, groups_of, metric_name, place_of
from tests.report.outputs import many, report


def finding(*where: tuple[str, str], name: tuple[str, ...] = ("read", "num_bytes")) -> Finding:
    return Finding(where=where, name=name, baseline=1, new=2, change=1.0, outcome=Outcome.REGRESSED)


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ((), "the whole record"),
        ((("results", "8192"), ("ranks", "the only rank"), ("policies", "dense"), ("pools", "kv")),
         "8k tokens, dense, kv"),
        ((("results", "1000"), ("ranks", "tp1")), "1,000 tokens, rank tp1"),
        ((("results", "1048576"), ("ranks", "rank 3")), "1M tokens, rank 3"),
        ((("results", "8192"), ("saved", "swa")), "8k tokens, saved swa"),
        ((("series", "save, all"),), "series save, all"),
    ],
)  # fmt: skip
def test_places(where: tuple[tuple[str, str], ...], place: str) -> None:
    assert place == place_of(finding(*where))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ((), "all of it"),
        (("read", "num_bytes"), "read bytes"),
        (("skipped", "out_of_window", "pages"), "skipped out_of_window pages"),
        ((FAILED_CHECKS, "tokens used"), "failed: tokens used"),
    ],
)
def test_names(name: tuple[str, ...], shown: str) -> None:
    assert shown == metric_name(name)


def test_pools_come_before_the_sums_over_them() -> None:
    (pair,) = (pair for pair in many().pairs if pair.subject == "regressed")
    first, second = groups_of(pair)
    assert ("8k tokens, hit_policy, swa", ("8k tokens, selective, swa",)) == (first.place, first.others)
    assert "out_of_window 120 -> 0 pages" == first.reason
    assert ("8k tokens, hit_policy", "") == (second.place, second.reason)
    assert "8k tokens, hit_policy; also 8k tokens, selective" == second.title


def test_outcomes_are_counted() -> None:
    assert "1 pass, 1 improved, 1 inconclusive, 2 not comparable, 2 regressed" == counts_of(many().pairs)
    assert "1 pass" == counts_of(report((), ()).pairs)
    assert "" == counts_of([])
