"""Every capacity of an LRU tier at once, where what is touched does not depend on what hits.

True where all pools need all their pages, or where ``dense`` reads them all: each request then touches each
page of its prompt, last to first, whatever it found. Else which window or state is read depends on the
endpoint that was legal, and so on the capacity: that is simulated, one capacity after the other
(``replay.Replayer``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hicache_bench.trace.columns import Counts
from hicache_bench.trace.paths import PagePaths


@dataclass(frozen=True, slots=True, kw_only=True)
class StackDistances:
    """How deep in the LRU stack each request finds its pages, in runs that lie side by side.

    Run ``i`` belongs to ``requests[i]``: ``lengths[i]`` pages, the first with ``above[i]`` pages on top of
    it. ``distinct`` is the height of the stack after each request.
    """

    num_requests: int
    requests: Counts = field(repr=False)
    lengths: Counts = field(repr=False)
    above: Counts = field(repr=False)
    distinct: Counts = field(repr=False)

    def held_pages(self, capacity_pages: int) -> Counts:
        """First pages of each request that a tier of ``capacity_pages`` holds when it arrives.

        The pages behind them are not there: a page never outlives the one before it, since who touches a page
        touches that one later.
        """
        held = np.clip(capacity_pages - self.above, 0, self.lengths)
        return np.bincount(self.requests, weights=held, minlength=self.num_requests).astype(np.int64)


def stack_distances(paths: PagePaths) -> StackDistances:
    """Mattson's stack, kept as one count per request instead of one entry per page.

    The pages that a request was the last to touch form one run of its path, so the stack is a list of
    requests, newest first, each with the pages it still owns; a Fenwick tree adds them up.
    Source: Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970.
    """
    requests, _, lengths = paths.runs
    new_pages = paths.lengths - np.bincount(requests, weights=lengths, minlength=len(paths)).astype(np.int64)
    distinct = np.cumsum(new_pages)
    owned = _Fenwick(len(paths))
    above: list[int] = []
    height = 0
    for request, (pages, runs) in enumerate(zip(paths.lengths.tolist(), paths.runs_of, strict=True)):
        # All pages of a request are looked up before one of them is touched.
        above += [height - owned.up_to(owner) for owner, _ in runs]
        for owner, length in runs:
            owned.add(owner, -length)
        owned.add(request, pages)
        height = int(distinct[request])
    return StackDistances(
        num_requests=len(paths),
        requests=requests,
        lengths=lengths,
        above=np.array(above, dtype=np.int64),
        distinct=distinct,
    )


class _Fenwick:
    """Counts at ``0..size - 1`` whose prefix sums take a logarithm of steps."""

    def __init__(self, size: int) -> None:
        self._sums = [0] * (size + 1)

    def add(self, index: int, count: int) -> None:
        index += 1
        sums = self._sums
        while index < len(sums):
            sums[index] += count
            index += index & -index

    def up_to(self, index: int) -> int:
        """Sum of the counts at ``0..index``."""
        index += 1
        total = 0
        while index:
            total += self._sums[index]
            index &= index - 1
        return total
