from __future__ import annotations

import math
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.records.judge import (
    MIN_SAMPLES,
    NOT_A_NUMBER,
    SIGNIFICANCE,
    Draft,
    Judge,
    Outcome,
)
from hicache_bench.records.metrics import Key, Samples, Value
from hicache_bench.records.thresholds import DEFAULT_THRESHOLDS, parse_thresholds
from hicache_bench.stats import mann_whitney

BYTES = ("read", "num_bytes")
RATE = ("hit_rate",)
REASON = ("skipped", "out_of_window", "pages")


def drafts(
    name: tuple[str, ...],
    before: Value,
    after: Value,
    *,
    allowed: str | None = None,
    same_machine: bool = True,
    same_store: bool = True,
) -> list[Draft]:
    thresholds = DEFAULT_THRESHOLDS if allowed is None else parse_thresholds(allowed)
    judge = Judge(thresholds, same_machine=same_machine, same_store=same_store)
    return list(judge.drafts(Key((), name), before, after))


def outcome(name: tuple[str, ...], before: Value, after: Value, allowed: str | None = None) -> Outcome | None:
    found = drafts(name, before, after, allowed=allowed)
    assert len(found) <= 1
    return found[0].finding.outcome if found else None


# What public gates got wrong, each a report of its own: an improvement to 0 that failed, a rise from 0 that
# passed, a falling rate that nobody noticed, a value that is not a number.
KNOWN_FAULTS = [
    (BYTES, 10, 0, Outcome.IMPROVED),
    (BYTES, 0, 10, Outcome.REGRESSED),
    (RATE, 0.9, 0.7, Outcome.REGRESSED),
    (RATE, 0.7, 0.9, Outcome.IMPROVED),
    (BYTES, 10, math.nan, Outcome.REGRESSED),
    (RATE, 0.9, math.inf, Outcome.REGRESSED),
    (("seconds",), (1.0, 2.0), (1.0, math.nan), Outcome.REGRESSED),
    (BYTES, 10, None, Outcome.REGRESSED),
]


@pytest.mark.parametrize(("name", "before", "after", "expected"), KNOWN_FAULTS)
def test_faults_that_other_gates_had(
    name: tuple[str, ...], before: Value, after: Value, expected: Outcome
) -> None:
    assert expected is outcome(name, before, after)
    assert expected is outcome(name, before, after, "bytes=5%,rate=5%,objects=5%")


@pytest.mark.parametrize(
    ("before", "after", "allowed", "expected"),
    [
        (100, 101, "bytes=0%", Outcome.REGRESSED),
        (100, 101, "bytes=1%", Outcome.PASS),
        (100, 102, "bytes=1%", Outcome.REGRESSED),
        (10, 11, "bytes=10%", Outcome.PASS),  # 11 / 10 - 1 is above 0.1 in floats
        (2**60, 2**60 + 1, "bytes=0%", Outcome.REGRESSED),  # a float could not tell them apart
        (100, 99, "bytes=0%", Outcome.IMPROVED),
        (100, 100, "bytes=0%", None),
        (0, 0, "bytes=0%", None),
    ],
)
def test_bytes_are_exact_beyond_the_threshold(
    before: int, after: int, allowed: str, expected: Outcome | None
) -> None:
    assert expected is outcome(BYTES, before, after, allowed)


def test_a_threshold_is_for_its_own_group() -> None:
    assert Outcome.REGRESSED is outcome(("read", "objects"), 100, 101, "bytes=50%")
    assert Outcome.PASS is outcome(("read", "objects"), 100, 101, "objects=50%")
    assert Outcome.REGRESSED is outcome(("used_tokens",), 100, 99, "bytes=50%,objects=50%,rate=50%")


@pytest.mark.parametrize(
    ("after", "expected"), [(0.81, Outcome.PASS), (0.80, Outcome.REGRESSED), (1.0, Outcome.IMPROVED)]
)
def test_a_rate_may_fall_by_its_threshold(after: float, expected: Outcome) -> None:
    assert expected is outcome(RATE, 0.9, after, "rate=10%")


def test_what_is_allowed_is_told() -> None:
    (draft,) = drafts(BYTES, 1000, 1005, allowed="bytes=0.5%")
    assert (Outcome.PASS, "within the 0.5% allowed") == (draft.finding.outcome, draft.finding.why)
    assert 0.005 == pytest.approx(draft.finding.change)


def test_rounding_of_modelled_figures_is_no_change() -> None:
    assert outcome(("read_seconds",), 0.1 + 0.2, 0.3) is None
    assert Outcome.REGRESSED is outcome(("read_seconds",), 0.3, 0.3000001)


def test_a_text_or_reason_is_open_until_its_place_is_known() -> None:
    for name, before, after in ((("namespace",), "a", "b"), (REASON, 3, 4), (REASON, 4, 3)):
        (draft,) = drafts(name, before, after)
        assert draft.follows
        assert Outcome.REGRESSED is draft.finding.outcome


def test_a_flag_that_rises() -> None:
    assert Outcome.REGRESSED is outcome(("degraded",), False, True)
    assert Outcome.IMPROVED is outcome(("degraded",), True, False)
    assert Outcome.REGRESSED is outcome(("status",), True, False)


FAST: Samples = (1.0, 1.01, 1.02, 1.03, 1.04, 1.05)


def scaled(samples: Samples, factor: float) -> Samples:
    return tuple(sample * factor for sample in samples)


def time_of(before: Samples, after: Samples, *, same_machine: bool = True) -> tuple[Outcome, str] | None:
    found = drafts(("seconds",), before, after, same_machine=same_machine)
    return (found[0].finding.outcome, found[0].finding.why) if found else None


def test_six_samples_a_side_can_be_significant_and_five_hardly() -> None:
    assert 2 / comb(12, 6) <= SIGNIFICANCE
    assert 2 / comb(12, 6) == pytest.approx(mann_whitney(FAST, scaled(FAST, 2)))
    assert 6 == MIN_SAMPLES


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (scaled(FAST, 1.2), Outcome.REGRESSED),
        (scaled(FAST, 1.09), None),  # significant, and within the 10 %
        (scaled(FAST, 0.8), Outcome.IMPROVED),
        (scaled(FAST, 0.95), None),
        (scaled(FAST[:5], 2), Outcome.INCONCLUSIVE),
        (scaled(FAST[:1], 2), Outcome.INCONCLUSIVE),
        (scaled(FAST[:5], 0.5), Outcome.INCONCLUSIVE),
        ((), Outcome.REGRESSED),
        # Beyond the threshold by its median, and no ranking to speak of.
        ((0.9, 0.95, 1.0, 1.4, 1.5, 1.6), Outcome.INCONCLUSIVE),
        # Better by its median, and no ranking to speak of.
        ((0.5, 0.5, 0.6, 1.2, 1.3, 1.4), None),
    ],
)
def test_time_needs_samples_a_ratio_and_a_ranking(after: Samples, expected: Outcome | None) -> None:
    found = time_of(FAST, after)
    assert expected is (found[0] if found else None)


def test_samples_that_the_baseline_lacks_are_no_regression() -> None:
    assert time_of((), FAST) is None


def test_time_of_another_machine_decides_nothing() -> None:
    assert (Outcome.INCONCLUSIVE, "measured on another kind of machine") == time_of(
        FAST, scaled(FAST, 9), same_machine=False
    )
    assert Outcome.REGRESSED is (time_of(FAST, (), same_machine=False) or (None,))[0]


def test_time_on_another_store_decides_nothing() -> None:
    (draft,) = drafts(("seconds",), FAST, scaled(FAST, 0.1), same_store=False)
    assert (Outcome.INCONCLUSIVE, "measured on another store") == (draft.finding.outcome, draft.finding.why)


def test_a_change_that_no_float_holds_is_none() -> None:
    (draft,) = drafts(RATE, 5e-324, 1e100)
    assert (Outcome.IMPROVED, None) == (draft.finding.outcome, draft.finding.change)


def test_a_time_of_zero_that_rises() -> None:
    assert Outcome.REGRESSED is (time_of((0.0,) * 6, FAST) or (None,))[0]


def test_samples_are_shown_by_their_median() -> None:
    (draft,) = drafts(("seconds",), FAST, scaled(FAST, 2))
    assert (1.025, 2.05) == (draft.finding.baseline, draft.finding.new)
    assert 1.0 == pytest.approx(draft.finding.change)


NAMES = [BYTES, RATE, REASON, ("used_tokens",), ("read_seconds",), ("degraded",), ("seconds",)]
NUMBERS = st.integers(0, 2**62) | st.floats(0, 1e12, allow_nan=False)


@given(name=st.sampled_from(NAMES), before=NUMBERS, percent=st.integers(0, 50))
def test_never_a_word_about_what_stayed(name: tuple[str, ...], before: float, percent: int) -> None:
    assert outcome(name, before, before, f"bytes={percent}%,modeled={percent}%") is None


@given(name=st.sampled_from([BYTES, RATE, ("used_tokens",)]), low=NUMBERS, high=NUMBERS)
def test_what_is_better_one_way_is_worse_the_other(name: tuple[str, ...], low: float, high: float) -> None:
    there, back = outcome(name, low, high), outcome(name, high, low)
    assert {there, back} in ({None}, {Outcome.IMPROVED, Outcome.REGRESSED})


@given(name=st.sampled_from(NAMES), before=NUMBERS | st.none() | st.text(max_size=3))
def test_a_number_that_is_none_is_never_let_through(name: tuple[str, ...], before: Value) -> None:
    (draft,) = drafts(name, before, math.nan, allowed="bytes=50%,time=50%,rate=50%,modeled=50%,objects=50%")
    assert (Outcome.REGRESSED, NOT_A_NUMBER) == (draft.finding.outcome, draft.finding.why)
    assert draft.finding.new is None
