"""A number that was not observed here: its value, its unit, where it comes from, how far it may be off."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from math import isfinite

from hicache_bench.errors import ConfigError


class Edge(str, Enum):
    """Which end of every band a figure is computed with: the quick one, the value itself, the slow one."""

    QUICK = "quick"
    VALUE = "value"
    SLOW = "slow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A cited number. ``low`` and ``high`` are the band of an estimate; without them it is a point.

    ``is_fitted`` says that it was computed from samples that this tool took of a real store.

    Raises:
        ConfigError: NaN, infinite or negative numbers, a band that leaves the value out, no source.
    """

    name: str
    value: float
    unit: str
    source: str
    low: float | None = None
    high: float | None = None
    is_fitted: bool = False

    def __post_init__(self) -> None:
        for number in (self.value, self.low, self.high):
            if number is not None and not (isfinite(number) and number >= 0):
                raise ConfigError(f"{self.name} is {number}; allowed: finite numbers of at least 0")
        low, high = self.band
        if not low <= self.value <= high:
            raise ConfigError(
                f"{self.name} is {self.value:g}, outside of its own band {low:g} to {high:g}; widen the band"
            )
        if not self.source.strip():
            raise ConfigError(f"{self.name} has no source; say where it comes from")

    @property
    def band(self) -> tuple[float, float]:
        """Lowest and highest value that are as good."""
        return (
            self.value if self.low is None else self.low,
            self.value if self.high is None else self.high,
        )

    @property
    def is_estimate(self) -> bool:
        """Whether the number has a band."""
        low, high = self.band
        return low < high

    def at(self, edge: Edge, *, more_is_quick: bool) -> float:
        """The number at one end of its band; ``more_is_quick`` for a rate, not for a latency."""
        low, high = self.band
        if edge is Edge.VALUE:
            return self.value
        return high if (edge is Edge.QUICK) == more_is_quick else low

    def at_edge(self, edge: Edge, *, more_is_quick: bool) -> Constant:
        """The constant with its value moved to one end of its band."""
        return replace(self, value=self.at(edge, more_is_quick=more_is_quick))
