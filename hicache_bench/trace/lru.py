"""Least recently used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hicache_bench.trace.columns import Counts
from hicache_bench.trace.paths import Nodes, PagePaths
from hicache_bench.trace.streams import Stream
from hicache_bench.trace.tier import Flags, Tier, Where


@dataclass(slots=True)
class _Victim:
    """What the oldest owner still has, from its last page to its first, all summed up.

    ``counts`` are units of each stream, ``num_bytes`` bytes of all; the first ``taken`` pages are gone.
    """

    counts: tuple[Counts, ...]
    num_bytes: Counts
    taken: int = 0


class LruTier(Tier):
    """The owner of a unit is the last request that touched it.

    All that a request owns lies on its path, and its last page goes first. So what is evicted needs no
    record: it is what the requests before ``_oldest`` own, and what that one owns behind its first
    ``_remaining`` pages. Of pages that every request touches as a whole, the owners are known beforehand
    (:attr:`PagePaths.runs`), and what one still has is all behind the page at ``_taken``.
    """

    def __init__(self, paths: PagePaths, streams: Sequence[Stream], capacity_bytes: int | None) -> None:
        super().__init__(paths, streams, capacity_bytes)
        self._oldest = -1
        self._remaining = 0
        self._victim: _Victim | None = None
        self._whole = [stream.touches_all and stream.unit_pages == 1 for stream in streams]
        self._runs = paths.runs_of
        self._taken = [0] * len(paths)
        self._pages = paths.lengths.tolist()

    def held(self, request: int, stream: int, units: Nodes, where: Where) -> Flags:
        flags: Flags
        if self._whole[stream]:
            positions = np.arange(where.start, where.stop) if isinstance(where, slice) else where
            flags = positions < self._held_pages(request)
            return flags
        owners = self._owners[stream][units[where]]
        flags = owners > self._oldest
        if self._remaining and not flags.all():
            self._add_oldest(flags, owners, stream, where)
        return flags

    def leading(self, request: int, stream: int, units: Nodes, first: int, last: int) -> int:
        if not self._whole[stream]:
            return super().leading(request, stream, units, first, last)
        return min(max(first, self._held_pages(request)), last)

    def _held_pages(self, request: int) -> int:
        """Pages that are there of a request's path, of those that are touched as a whole: its first ones."""
        held = 0
        for owner, length in self._runs[request]:
            if owner <= self._oldest:
                return max(held, min(held + length, self._remaining)) if owner == self._oldest else held
            held += length
        return held

    def touch(self, request: int, stream: int, units: Nodes, where: Where) -> None:
        if self._whole[stream]:
            self._touch_whole(request, stream)
            return
        nodes = units[where]
        owners = self._owners[stream][nodes]
        flags: Flags = owners > self._oldest
        missing = len(flags) - int(np.count_nonzero(flags))
        if self._remaining and missing and self._add_oldest(flags, owners, stream, where):
            missing = len(flags) - int(np.count_nonzero(flags))
            self._victim = None  # it loses what is touched here
        self._owners[stream][nodes] = request
        self._count_written(stream, missing)

    def _touch_whole(self, request: int, stream: int) -> None:
        self._count_written(stream, self._pages[request] - self._held_pages(request))
        first = 0
        for owner, length in self._runs[request]:
            if owner == self._oldest and first < self._remaining:
                self._victim = None
            first += length
            self._taken[owner] = first

    def _add_oldest(self, flags: Flags, owners: npt.NDArray[np.int32], stream: int, where: Where) -> bool:
        """Raise the flags of what the oldest owner still has; whether it has any of these units."""
        its_own = owners == self._oldest
        if not its_own.any():
            return False
        left = self._remaining // self._streams[stream].unit_pages
        if isinstance(where, slice):
            its_own[max(0, left - where.start) :] = False
        else:
            its_own &= where < left
        flags |= its_own
        return bool(its_own.any())

    def settle(self, request: int) -> None:  # noqa: ARG002
        while self.capacity_bytes is not None and self.resident_bytes > self.capacity_bytes:
            if not self._remaining:
                self._oldest += 1
                self._remaining = self._pages[self._oldest]
                self._victim = None
                continue
            victim = self._victim
            if victim is None:
                victim = self._victim = self._look_at_oldest()
            self._evict(victim, self.resident_bytes - self.capacity_bytes)

    def _look_at_oldest(self) -> _Victim:
        path = self._paths.of(self._oldest)[: self._remaining]
        counts = []
        num_bytes: Counts = np.zeros(len(path), dtype=np.int64)
        for index, stream in enumerate(self._streams):
            if self._whole[index]:
                owned = len(path) - self._taken[self._oldest]
                found = np.minimum(np.arange(1, len(path) + 1), max(0, owned))
            else:
                found = np.cumsum(self._owned(index, path)[::-1])
            counts.append(found)
            num_bytes += found * stream.unit_bytes
        return _Victim(counts=tuple(counts), num_bytes=num_bytes)

    def _owned(self, stream: int, path: Nodes) -> Flags:
        """Which pages of the oldest owner's ``path`` end a unit of its own."""
        owned: Flags = self._owners[stream][path] == self._oldest
        skip = self._streams[stream].unit_pages
        if skip > 1:
            ends = np.zeros(len(path), dtype=np.bool_)
            ends[skip - 1 :: skip] = owned[skip - 1 :: skip]
            return ends
        return owned

    def _evict(self, victim: _Victim, excess: int) -> None:
        """Take whole pages of ``victim`` until ``excess`` bytes are gone, or all it has."""
        before = victim.taken
        wanted = excess + (int(victim.num_bytes[before - 1]) if before else 0)
        victim.taken = min(int(victim.num_bytes.searchsorted(wanted)) + 1, len(victim.num_bytes))
        self._remaining -= victim.taken - before
        for stream, counts in enumerate(victim.counts):
            gone = int(counts[victim.taken - 1]) - (int(counts[before - 1]) if before else 0)
            self._count_evicted(stream, gone)
