"""Medians, intervals and tests of samples that are few, skewed and full of outliers, as timings are.

No mean and no standard deviation decides anything here: one interrupt in ten samples moves both.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from hicache_bench.errors import InputError

_EXACT_PRODUCT = 2_500
"""Largest ``len(a) * len(b)`` whose distribution of U is counted whole: 50 against 50, some 10 ms."""


class Interval(NamedTuple):
    """Both ends belong to it."""

    low: float
    high: float


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two middle ones.

    Raises:
        InputError: no sample, or one that is not a number.
    """
    return percentile(samples, 50)


def mad(samples: Sequence[float]) -> float:
    """Median absolute deviation from the median, not scaled to a standard deviation.

    Raises:
        InputError: no sample, or one that is not a number.
    """
    middle = median(samples)
    return median([abs(sample - middle) for sample in samples])


def percentile(samples: Sequence[float], percent: float) -> float:
    """Linear interpolation between the two samples at rank ``(n - 1) * percent / 100``.

    Type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996): what numpy and R do. Beyond
    ``100 * (1 - 1/n)`` it says little more than the largest sample: see :func:`samples_for`.

    Raises:
        InputError: no sample, one that is not a number, or a percentage outside 0 to 100.
    """
    if not 0 <= percent <= 100:
        raise InputError(f"a percentile is one of 0 to 100, not {percent:g}")
    ordered = _ordered(samples)
    rank = (len(ordered) - 1) * percent / 100
    below = math.floor(rank)
    lower, upper = ordered[below], ordered[math.ceil(rank)]
    return lower + (upper - lower) * (rank - below)


def samples_for(percent: float) -> int:
    """Fewest samples of which at least one is expected beyond that percentile: 1,000 for p99.9."""
    return math.ceil(round(100 / (100 - percent), 6))


def bootstrap_interval(
    samples: Sequence[float], *, confidence: float = 0.95, seed: int = 0, resamples: int = 2_000
) -> Interval:
    """Percentile bootstrap interval of the median (Efron, 1979); the same seed gives the same interval.

    One sample is its own interval: nothing is known of its spread.

    Raises:
        InputError: no sample, one that is not a number, or a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise InputError(f"a confidence lies between 0 and 1, not at {confidence:g}")
    ordered = _ordered(samples)
    draw = random.Random(seed)  # noqa: S311 - statistics, no secret
    medians = [_resampled_median(ordered, draw) for _ in range(resamples)]
    tail = 100 * (1 - confidence) / 2
    return Interval(percentile(medians, tail), percentile(medians, 100 - tail))


def _resampled_median(ordered: Sequence[float], draw: random.Random) -> float:
    """Median of as many samples drawn with replacement.

    Drawing them all is not needed: the k-th smallest of n uniform numbers is Beta(k, n + 1 - k), and the next
    one is the least of the n - k that lie above it.
    """
    n = len(ordered)
    k = (n + 1) // 2
    position = draw.betavariate(k, n + 1 - k)
    lower = ordered[min(n - 1, int(position * n))]
    if n % 2:
        return lower
    position += (1 - position) * (1 - draw.random() ** (1 / (n - k)))
    return (lower + ordered[min(n - 1, int(position * n))]) / 2


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p of the Mann-Whitney U test: how likely so uneven a ranking is if both are alike.

    Exact where no two samples are equal and ``len(a) * len(b)`` is at most 2,500; else the normal
    approximation, corrected for ties and continuity. Mann and Whitney (1947); ``scipy.stats.mannwhitneyu``
    gives the same numbers.

    Raises:
        InputError: a side without samples, or a sample that is not a number.
    """
    n, m = len(_ordered(a)), len(_ordered(b))
    ranks, ties = _ranks([*a, *b])
    u = sum(ranks[:n]) - n * (n + 1) / 2
    larger = max(u, n * m - u)
    if not ties and n * m <= _EXACT_PRODUCT:
        counts = _u_counts(n, m)
        return min(1.0, 2 * sum(counts[int(larger) :]) / sum(counts))
    total = n + m
    tied = sum(count**3 - count for count in ties)
    variance = n * m / 12 * (total + 1 - tied / (total * (total - 1)))
    if variance <= 0:  # all samples are equal
        return 1.0
    return min(1.0, math.erfc((larger - n * m / 2 - 0.5) / math.sqrt(2 * variance)))


def can_reach(n: int, m: int, alpha: float) -> bool:
    """Whether :func:`mann_whitney` of ``n`` against ``m`` samples can give ``alpha`` or less at all.

    Its least two-sided p is that of samples that do not overlap: 2 / C(n + m, n).
    """
    return n > 0 and m > 0 and 2 / math.comb(n + m, n) <= alpha


def jain_fairness(shares: Sequence[float]) -> float:
    """Jain's index ``(Σx)² / (n Σx²)``: 1 if all shares are equal, 1/n if one has everything.

    Jain, Chiu and Hawe, "A Quantitative Measure of Fairness" (DEC TR-301, 1984).

    Raises:
        InputError: no share, one that is not a number, or one below 0.
    """
    if _ordered(shares)[0] < 0:
        raise InputError("a share is not negative; fairness is of throughputs or times")
    squares = sum(share * share for share in shares)
    return 1.0 if squares == 0 else sum(shares) ** 2 / (len(shares) * squares)


def _ordered(samples: Sequence[float]) -> list[float]:
    if not samples:
        raise InputError("no samples: nothing was measured")
    if any(math.isnan(sample) for sample in samples):
        raise InputError("a sample is not a number; samples with NaN have no order")
    return sorted(samples)


def _ranks(samples: Sequence[float]) -> tuple[list[float], list[int]]:
    """Rank of each sample from 1 (equal ones share their mean rank), and the size of each group of equals."""
    counts = Counter(samples)
    values = sorted(counts)
    last_ranks = accumulate(counts[value] for value in values)
    mean_ranks = {
        value: last - (counts[value] - 1) / 2 for value, last in zip(values, last_ranks, strict=True)
    }
    return [mean_ranks[sample] for sample in samples], [count for count in counts.values() if count > 1]


def _u_counts(n: int, m: int) -> list[int]:
    """How many of the C(n + m, n) rankings have U = 0, 1, ... n*m: coefficients of the Gaussian binomial.

    It is the product over i = 1..n of (1 - q^(m + i)) / (1 - q^i).
    """
    size = n * m + 1
    counts = [1] + [0] * (size - 1)
    for i in range(1, n + 1):
        for u in range(size - 1, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, size):
            counts[u] += counts[u - i]
    return counts
