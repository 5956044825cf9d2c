"""Medians, intervals and tests of samples."""

from __future__ import annotations

import json
import math
import random
import statistics
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import InputError
from hicache_bench.stats import (
    bootstrap_interval,
    can_reach,
    jain_fairness,
    mad,
    mann_whitney,
    median,
    percentile,
    samples_for,
)

# Printed by scipy and numpy, whose versions the file names.
ORACLE: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "statistics.json").read_text())
NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@pytest.mark.parametrize("case", ORACLE["mann_whitney"], ids=lambda case: case["name"])
def test_mann_whitney_is_that_of_scipy(case: dict[str, Any]) -> None:
    assert mann_whitney(case["a"], case["b"]) == pytest.approx(case["p"], rel=1e-9)


@pytest.mark.parametrize("case", ORACLE["percentiles"], ids=lambda case: f"{len(case['samples'])} samples")
def test_percentiles_are_those_of_numpy(case: dict[str, Any]) -> None:
    for percent, expected in case["percentiles"].items():
        assert percentile(case["samples"], float(percent)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("n", "m", "u", "p"),
    [  # two-sided 5 % critical values of U, Mann and Whitney (1947); Siegel, table K
        (5, 5, 2, 0.05),
        (6, 6, 5, 0.05),
        (8, 8, 13, 0.05),
        (10, 10, 23, 0.05),
        (20, 20, 127, 0.05),
    ],
)
def test_published_critical_values(n: int, m: int, u: int, p: float) -> None:
    def with_u(u: int) -> tuple[list[float], list[float]]:
        """``a`` beats ``b`` exactly ``u`` times."""
        a = [-float(n - i) for i in range(n)]
        for position in range(n - 1, -1, -1):
            beaten = min(m, u)
            u -= beaten
            if beaten:
                a[position] = beaten - 0.5 + position * 1e-3
        return a, [float(j) for j in range(m)]

    assert mann_whitney(*with_u(u)) <= p < mann_whitney(*with_u(u + 1))


@given(NUMBERS, NUMBERS)
def test_mann_whitney_is_symmetric_and_a_probability(a: list[float], b: list[float]) -> None:
    assert mann_whitney(a, b) == pytest.approx(mann_whitney(b, a))
    assert 0 < mann_whitney(a, b) <= 1


@pytest.mark.parametrize(("n", "m"), [(2, 3), (3, 3), (4, 3)])
def test_exact_p_counts_every_ranking(n: int, m: int) -> None:
    everything = [tuple(chosen) for chosen in combinations(range(n + m), n)]

    def u_of(chosen: tuple[int, ...]) -> int:
        return sum(value > other for value in chosen for other in range(n + m) if other not in chosen)

    for chosen in everything:
        rest = [float(value) for value in range(n + m) if value not in chosen]
        larger = max(u_of(chosen), n * m - u_of(chosen))
        expected = min(1, 2 * sum(u_of(other) >= larger for other in everything) / len(everything))
        assert mann_whitney([float(value) for value in chosen], rest) == pytest.approx(expected)


def test_equal_samples_are_no_difference() -> None:
    assert mann_whitney([1.0] * 6, [1.0] * 6) == 1


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 5), (6, 6), (7, 6), (6, 30)])
@pytest.mark.parametrize("alpha", [0.05, 0.002])
def test_what_can_be_reached_is_what_the_clearest_samples_give(n: int, m: int, alpha: float) -> None:
    clearest = mann_whitney([float(i) for i in range(n)], [100.0 + i for i in range(m)])
    assert can_reach(n, m, alpha) == (clearest <= alpha)


def test_nothing_is_reached_without_samples() -> None:
    assert not can_reach(0, 1_000, 0.9)


@given(NUMBERS)
def test_median_is_that_of_the_standard_library(samples: list[float]) -> None:
    assert median(samples) == pytest.approx(statistics.median(samples), abs=1e-6)


def test_mad_does_not_see_one_outlier() -> None:
    assert mad([10, 11, 12, 13, 1_000]) == 1


@pytest.mark.parametrize(("percent", "expected"), [(50, 2), (95, 20), (99, 100), (99.9, 1_000)])
def test_samples_that_a_percentile_takes(percent: float, expected: int) -> None:
    assert samples_for(percent) == expected


@given(NUMBERS)
def test_interval_lies_within_the_samples(samples: list[float]) -> None:
    low, high = bootstrap_interval(samples, resamples=50)
    assert min(samples) - 1e-6 <= low <= high <= max(samples) + 1e-6


@pytest.mark.parametrize("n", [9, 10])
def test_interval_is_that_of_a_plain_bootstrap(n: int) -> None:
    # Every resample's median has a known distribution: its ends are found by drawing them all the long way.
    samples = [float(value**2) for value in range(n)]
    draw = random.Random(1)  # noqa: S311 - statistics, no secret
    medians = sorted(statistics.median(draw.choices(samples, k=n)) for _ in range(20_000))
    low, high = bootstrap_interval(samples, confidence=0.8, seed=3, resamples=20_000)
    assert (low, high) == pytest.approx((percentile(medians, 10), percentile(medians, 90)), rel=0.1)


def test_interval_is_reproducible_and_narrows() -> None:
    few = [math.sin(i) for i in range(10)]
    many = [math.sin(i) for i in range(1_000)]
    assert bootstrap_interval(few, seed=1) == bootstrap_interval(few, seed=1)
    widths = [interval.high - interval.low for interval in map(bootstrap_interval, (few, many))]
    assert widths[1] < widths[0] / 3


def test_one_sample_is_its_own_interval() -> None:
    assert bootstrap_interval([2.5]) == (2.5, 2.5)


@pytest.mark.parametrize(
    ("shares", "expected"), [([1, 1, 1, 1], 1), ([1, 0, 0, 0], 0.25), ([2, 1], 0.9), ([0, 0], 1)]
)
def test_fairness(shares: list[float], expected: float) -> None:
    assert jain_fairness(shares) == pytest.approx(expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda: median([]),
        lambda: median([1.0, math.nan]),
        lambda: mann_whitney([], [1.0]),
        lambda: mann_whitney([1.0], [math.nan]),
        lambda: bootstrap_interval([]),
        lambda: bootstrap_interval([1.0], confidence=1),
        lambda: percentile([1.0], 101),
        lambda: jain_fairness([1.0, -1.0]),
    ],
    ids=["empty", "nan", "no side", "nan side", "no samples", "confidence", "percent", "negative"],
)
def test_what_cannot_be_summarised_is_refused(call: Any) -> None:
    with pytest.raises(InputError):
        call()
