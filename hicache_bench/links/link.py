"""A storage path: how long a store call over it takes.

Bandwidths are those from host memory to host memory (or from a disk), which is the way of HiCache's L3: the
headline figures of GPU-direct transfers are up to six times higher, and no part of this.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import log

from hicache_bench.errors import ConfigError
from hicache_bench.links.constant import Constant, Edge

ObjectGroup = tuple[int, int]
"""Bytes of an object, and how many objects of that size."""

_ROUNDING = 1 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePoint:
    """Bandwidth of a node at one object size."""

    object_bytes: int
    rate: Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A path between a node's host memory and the store; all ranks of the node share it.

    ``line_rate`` is what the hardware can carry, in bytes per second. ``points`` give the bandwidth by object
    size, rising in size: between two it is interpolated over the logarithm of the size, below the first an
    object takes as long as one of the first size, above the last the bandwidth stays. ``op`` is paid once a
    store call, ``lookup_call`` once an existence query and ``lookup_key`` once a key in it, in seconds.

    Raises:
        ConfigError: no point, sizes that do not rise, a bandwidth of zero or above the line rate.
    """

    name: str
    summary: str
    line_rate: Constant
    points: tuple[RatePoint, ...]
    op: Constant
    lookup_call: Constant
    lookup_key: Constant
    _sizes: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.points:
            raise ConfigError(f"link {self.name!r} has no bandwidth; give at least one point")
        for before, after in pairwise(self.points):
            if after.object_bytes <= before.object_bytes:
                raise ConfigError(
                    f"link {self.name!r}: object sizes must rise, and {after.object_bytes:,} follows "
                    f"{before.object_bytes:,}"
                )
        for point in self.points:
            _, highest = point.rate.band
            lowest, _ = point.rate.band
            if point.object_bytes < 1 or not lowest > 0:
                raise ConfigError(
                    f"link {self.name!r}: object sizes and bandwidths must be above zero, not "
                    f"{point.object_bytes} bytes at {lowest:g} bytes per second"
                )
            if highest > self.line_rate.value * _ROUNDING:
                raise ConfigError(
                    f"link {self.name!r}: {highest:g} bytes per second at objects of {point.object_bytes:,} "
                    f"bytes is above its line rate of {self.line_rate.value:g}; bytes and bits, or all "
                    "transfers over the time of the last one, are often confused"
                )
        object.__setattr__(self, "_sizes", tuple(log(point.object_bytes) for point in self.points))

    def bytes_per_second(self, object_bytes: int) -> float:
        """Bandwidth of the node while it moves objects of this size."""
        first = self.points[0]
        if object_bytes <= first.object_bytes:
            return first.rate.value * object_bytes / first.object_bytes
        size = log(object_bytes)
        above = bisect_right(self._sizes, size)
        if above == len(self.points):
            return self.points[-1].rate.value
        low, high = self.points[above - 1], self.points[above]
        part = (size - self._sizes[above - 1]) / (self._sizes[above] - self._sizes[above - 1])
        return low.rate.value + part * (high.rate.value - low.rate.value)

    def move_seconds(self, groups: Iterable[ObjectGroup], *, sharers: int = 1) -> float:
        """Seconds that the bytes of ``groups`` need while ``sharers`` equal transfers use the link."""
        groups = list(groups)
        seconds = sharers * sum(
            count * object_bytes / self.bytes_per_second(object_bytes) for object_bytes, count in groups
        )
        moved = sharers * sum(object_bytes * count for object_bytes, count in groups)
        assert moved <= self.line_rate.value * seconds * _ROUNDING, "faster than the line rate"
        return seconds

    def lookup_seconds(self, num_keys: int, num_calls: int) -> float:
        """Seconds of asking for ``num_keys`` keys in ``num_calls`` queries."""
        return num_calls * self.lookup_call.value + num_keys * self.lookup_key.value

    def at_edge(self, edge: Edge) -> Link:
        """The link with every constant at one end of its band."""
        return replace(
            self,
            points=tuple(
                RatePoint(object_bytes=point.object_bytes, rate=point.rate.at_edge(edge, more_is_quick=True))
                for point in self.points
            ),
            op=self.op.at_edge(edge, more_is_quick=False),
            lookup_call=self.lookup_call.at_edge(edge, more_is_quick=False),
            lookup_key=self.lookup_key.at_edge(edge, more_is_quick=False),
        )

    def at_bandwidth(self, bytes_per_second: float) -> Link:
        """A link of this bandwidth at any object size, with the latencies of this one."""
        rate = Constant(
            name="bandwidth", value=bytes_per_second, unit="B/s", source="a point of a map of bandwidths"
        )
        # One byte, so that no object is below the first point.
        return replace(self, line_rate=rate, points=(RatePoint(object_bytes=1, rate=rate),))

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Every constant of the link, each once."""
        return (
            self.line_rate,
            *(point.rate for point in self.points),
            self.op,
            self.lookup_call,
            self.lookup_key,
        )
