"""Two ways to do one thing, timed in turn, so that a machine that drifts slows both."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report: a figure, its bar, and whether it keeps to it."""

    what: str
    figure: str
    bar: str
    kept: bool


def seconds_of(action: Callable[[], object]) -> float:
    """One timed call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def paired_ratio(baseline: Callable[[], object], subject: Callable[[], object], *, pairs: int) -> float:
    """Median over pairs of baseline seconds / subject seconds: 1 means that ``subject`` adds nothing.

    One warm-up of each; the order alternates; the garbage collector is off.
    """
    baseline()
    subject()
    ratios = []
    gc.collect()
    gc.disable()
    try:
        for pair in range(pairs):
            if pair % 2:
                subject_seconds = seconds_of(subject)
                baseline_seconds = seconds_of(baseline)
            else:
                baseline_seconds = seconds_of(baseline)
                subject_seconds = seconds_of(subject)
            ratios.append(baseline_seconds / subject_seconds)
    finally:
        gc.enable()
    return median(ratios)


def at_least(what: str, ratio: float, bar: float) -> Row:
    """A ratio that must not be lower than its bar."""
    return Row(what, f"{ratio:.3f}", f">= {bar:.2f}", ratio >= bar)


def at_most(what: str, value: float, bar: float, unit: str) -> Row:
    """A figure that must not be higher than its bar."""
    return Row(what, f"{value:.2f} {unit}", f"<= {bar:g} {unit}", value <= bar)


def median_seconds(action: Callable[[], object], *, samples: int) -> float:
    """Median of ``samples`` calls after one warm-up."""
    action()
    return median(seconds_of(action) for _ in range(samples))
