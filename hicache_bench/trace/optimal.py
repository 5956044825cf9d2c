"""Belady's rule: what is asked for furthest in the future goes first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from hicache_bench.trace.columns import Counts
from hicache_bench.trace.paths import Nodes, PagePaths
from hicache_bench.trace.streams import Stream
from hicache_bench.trace.tier import Flags, Tier, Where


class OptimalTier(Tier):
    """The owner of a unit is the next request that has its page; the furthest gives up its last page first.

    Where no request has it again, the owner is the number of requests plus the last one that had it: these
    are in front of all others. A unit that is written and would be the next to go leaves at once. With
    windows and states the rule is a guess, since a request may have a page and yet read nothing of it.
    """

    def __init__(self, paths: PagePaths, streams: Sequence[Stream], capacity_bytes: int | None) -> None:
        super().__init__(paths, streams, capacity_bytes)
        self._following = paths.following
        self._line: list[int] = []  # a heap of negated owners
        self._in_line: set[int] = set()

    def held(self, request: int, stream: int, units: Nodes, where: Where) -> Flags:  # noqa: ARG002
        flags: Flags = self._owners[stream][units[where]] >= 0
        return flags

    def touch(self, request: int, stream: int, units: Nodes, where: Where) -> None:
        nodes = units[where]
        owners = self._owners[stream]
        missing = int(np.count_nonzero(owners[nodes] < 0))
        owners[nodes] = request  # until it settles
        self._count_written(stream, missing)

    def settle(self, request: int) -> None:
        requests = len(self._paths)
        first, last = self._paths.starts[request : request + 2]
        path = self._paths.pages[first:last]
        following = self._following[first:last]
        following = np.where(following == requests, np.int32(requests + request), following)
        for stream, owners in zip(self._streams, self._owners, strict=True):
            skip = stream.unit_pages
            nodes = path[skip - 1 :: skip]
            there = owners[nodes] >= 0
            owners[nodes[there]] = following[skip - 1 :: skip][there]
        for owner in set(following.tolist()) - self._in_line:
            self._in_line.add(owner)
            heapq.heappush(self._line, -owner)
        while self.capacity_bytes is not None and self.resident_bytes > self.capacity_bytes:
            owner = -self._line[0]
            if self._evict(owner, self.resident_bytes - self.capacity_bytes):
                heapq.heappop(self._line)
                self._in_line.remove(owner)

    def _evict(self, owner: int, excess: int) -> bool:
        """Give up at least ``excess`` bytes of ``owner``, or all it has; whether it was all."""
        path = self._paths.of(owner % len(self._paths))
        freed: Counts = np.zeros(len(path), dtype=np.int64)
        owned = []  # positions on the path, of each stream
        for stream, owners in zip(self._streams, self._owners, strict=True):
            skip = stream.unit_pages
            positions = np.flatnonzero(owners[path[skip - 1 :: skip]] == owner) * skip + (skip - 1)
            freed[positions] += stream.unit_bytes
            owned.append(positions)
        below = np.cumsum(freed[::-1])
        pages = min(int(np.searchsorted(below, excess)) + 1, len(path))
        for index, positions in enumerate(owned):
            gone = positions[np.searchsorted(positions, len(path) - pages) :]
            self._owners[index][path[gone]] = -1
            self._count_evicted(index, len(gone))
        return pages == len(path)
