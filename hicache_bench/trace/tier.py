"""A tier of bounded bytes that holds units of pools, and what it gives up when it is full.

A unit is known by its stream and by the page of the prefix tree at which it ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt

from hicache_bench.trace.paths import Nodes, PagePaths
from hicache_bench.trace.streams import Stream

Where = slice | Nodes
"""Positions among the units of a request: a slice with both ends, or a rising array."""

Flags = npt.NDArray[np.bool_]


class Eviction(str, Enum):
    """Which units go first when the tier is full.

    ``lru``: those of the request that touched its own least recently, its last page first. ``fifo``: those
    written first. ``optimal``: those of the page that is asked for furthest in the future (Belady's rule).
    """

    LRU = "lru"
    FIFO = "fifo"
    OPTIMAL = "optimal"

    def __str__(self) -> str:
        return self.value


class Tier(ABC):
    """What the tier holds. Within a request: look up, then touch, then settle.

    ``resident_bytes`` never exceeds ``capacity_bytes`` (None: no bound) after a request has settled;
    ``written`` and ``evicted`` count the units of each stream that came and that were given up so far.
    """

    def __init__(self, paths: PagePaths, streams: Sequence[Stream], capacity_bytes: int | None) -> None:
        self.capacity_bytes = capacity_bytes
        self.resident_bytes = 0
        self.written = [0] * len(streams)
        self.evicted = [0] * len(streams)
        self._paths = paths
        self._streams = streams
        # Who answers for each unit; what that number means is the eviction's own. Negative: nobody ever did.
        self._owners = [np.full(paths.num_pages, -1, dtype=np.int32) for _ in streams]

    @abstractmethod
    def held(self, request: int, stream: int, units: Nodes, where: Where) -> Flags:
        """Which of the ``units`` of ``request``, at ``where``, are there."""

    def leading(self, request: int, stream: int, units: Nodes, first: int, last: int) -> int:
        """The first unit from ``first`` on that is not there; ``last`` if all before it are."""
        held = self.held(request, stream, units, slice(first, last))
        return last if held.all() else first + int(np.argmin(held))

    @abstractmethod
    def touch(self, request: int, stream: int, units: Nodes, where: Where) -> None:
        """Read the ``units`` at ``where``, or save those that are not there."""

    @abstractmethod
    def settle(self, request: int) -> None:
        """End a request: evict until the tier fits its capacity."""

    def _count_written(self, stream: int, count: int) -> None:
        self.written[stream] += count
        self.resident_bytes += count * self._streams[stream].unit_bytes

    def _count_evicted(self, stream: int, count: int) -> None:
        self.evicted[stream] += count
        self.resident_bytes -= count * self._streams[stream].unit_bytes
