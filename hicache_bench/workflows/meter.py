"""How far some work is, and how long the rest will take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

Progress = Callable[[str], None]
"""Told the name of each step when it begins."""

Share = Callable[[float], None]
"""Told, from time to time, the share of some work that is done, of 1."""

_BAR_CELLS = 10
_LEAST_SHARE = 1e-3
"""Less is no base for an estimate."""


def progress_line(done: int, total: int, share: float, left_seconds: float | None) -> str:
    """A bar of the ``share`` that is done, the parts that are, and the time left where it is known.

    Work of one part, such as a single preset at several lengths, has a percentage in their place.
    """
    filled = int(_BAR_CELLS * share)
    parts = f"{done:,} of {total:,} done" if total > 1 else f"{int(share * 100)}% done"
    left = "" if left_seconds is None else f", about {format_duration(left_seconds)} left"
    return f"[{'#' * filled}{'-' * (_BAR_CELLS - filled)}] {parts}{left}"


def format_duration(seconds: float) -> str:
    """``8 s``, ``3 min 20 s``, ``2 h 05 min``: as precise as a guess, or a glance, can be."""
    whole = math.ceil(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, seconds_left = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {seconds_left:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


class Meter:
    """Puts how far the work is before each step that it is told.

    The time left is what the rest takes at the pace of what is done: nothing is said before a part is, and
    nothing more once the rest has taken longer than that.

    ``weights`` say how much each part is beside the others, such as its bytes.
    """

    def __init__(
        self, progress: Progress, weights: Iterable[float], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._progress = progress
        # A part of no weight still has to be done.
        self._weights = [max(weight, 1e-9) for weight in weights]
        self._clock = clock
        self._total = math.fsum(self._weights)
        self._finished = 0
        self._within = 0.0
        self._started = self._told = clock()

    def __call__(self, step: str) -> None:
        """Show a step that begins."""
        if len(self._weights) == 1 and not self._within:
            self._progress(step)  # nothing is known of how long its one part takes
        else:
            self._progress(f"{self.line()}: {step}")

    def within(self, share: float) -> None:
        """Of the part that is being worked on, ``share`` of 1 is done."""
        self._within, self._told = share, self._clock()

    def finish(self) -> None:
        """The part that was worked on is done."""
        self._finished += 1
        self.within(0.0)

    def line(self) -> str:
        """How far the work is now."""
        done = math.fsum(self._weights[: self._finished])
        if self._within:
            done += self._within * self._weights[self._finished]
        share = min(1.0, done / self._total)
        return progress_line(self._finished, len(self._weights), share, self._left_seconds(share))

    def _left_seconds(self, share: float) -> float | None:
        if share < _LEAST_SHARE:
            return None
        at_this_pace = (self._told - self._started) / share * (1 - share)
        left = at_this_pace - (self._clock() - self._told)
        return left if left > 0 else None
