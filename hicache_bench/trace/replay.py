"""Requests against a tier: what each finds, reads, writes, and what that drives out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hicache_bench.planning.plan import SkipReason
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.planning.resolve import legal_endpoints
from hicache_bench.trace.columns import Counts
from hicache_bench.trace.paths import Nodes, OutputSave, PagePaths
from hicache_bench.trace.stack import StackDistances
from hicache_bench.trace.streams import Stream
from hicache_bench.trace.tier import Tier, Where

SHORTFALLS = (SkipReason.HOST_CAPACITY, SkipReason.BELOW_THRESHOLD)
"""Why a hit is not used, in the order of the codes 1, 2 in :class:`Replay`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What keeps a hit from being used, and what is there without the tier.

    The first ``local_tokens`` of a prompt that was seen before are in host or device memory: they are not
    read. A host takes ``host_capacity_tokens`` more (None: all). A hit that brings fewer than
    ``threshold_tokens`` is not read at all.
    """

    local_tokens: int = 0
    host_capacity_tokens: int | None = None
    threshold_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What became of each request, in pages and, per stream, in units.

    ``hit`` is the endpoint that lookup promised, ``used`` the one that the model resumed from, ``local`` what
    it had without the tier; where ``used`` is shorter, ``shortfall`` is 1 plus the index of the reason in
    :data:`SHORTFALLS`. ``read``, ``written`` and ``evicted`` are those of each request, one row per stream;
    ``resident_bytes`` is the tier's after it.
    """

    streams: tuple[Stream, ...]
    hit: Counts = field(repr=False)
    used: Counts = field(repr=False)
    local: Counts = field(repr=False)
    shortfall: Counts = field(repr=False)
    read: Counts = field(repr=False)
    written: Counts = field(repr=False)
    evicted: Counts = field(repr=False)
    resident_bytes: Counts = field(repr=False)


class Savings:
    """Which units of a stream a request saves: the save policy's answer, remembered for each length."""

    def __init__(self, streams: Sequence[Stream], save: SavePolicy) -> None:
        self._streams = streams
        self._save = save
        self._known: dict[tuple[int, int], Where] = {}

    def beyond(self, stream: int, num_units: int, used_units: int) -> Where:
        """Positions of the saved units among ``num_units`` that lie behind ``used_units``.

        Only those: a request cannot save a state or window page that it neither computed nor read.
        """
        key = stream, num_units
        saved = self._known.get(key)
        if saved is None:
            saved = self._known[key] = self._positions(stream, num_units)
        if isinstance(saved, slice):
            return slice(min(max(saved.start, used_units), num_units), num_units)
        return saved[np.searchsorted(saved, used_units) :]

    def _positions(self, stream: int, num_units: int) -> Where:
        kept = np.flatnonzero(self._save.saved_units(self._streams[stream].pool, num_units))
        if not len(kept):
            return slice(num_units, num_units)
        if kept[-1] - kept[0] + 1 == len(kept) and kept[-1] + 1 == num_units:
            return slice(int(kept[0]), num_units)
        return kept.astype(np.int32)


class Replayer:
    """Runs one policy and save policy through one tier."""

    def __init__(
        self,
        paths: PagePaths,
        streams: Sequence[Stream],
        policy: TransferPolicy,
        save: SavePolicy,
        *,
        outputs: OutputSave = OutputSave.NONE,
        limits: Limits | None = None,
    ) -> None:
        self._paths = paths
        self._streams = tuple(streams)
        self._policy = policy
        self._savings = Savings(self._streams, save)
        self._outputs = outputs
        limits = limits or Limits()
        self._limits = limits
        self._is_limited = limits.host_capacity_tokens is not None or limits.threshold_tokens > 0
        self._local = local_pages(paths, limits)
        # Pages that all have to be there shorten the endpoint before windows and states are looked at.
        whole = [stream.touches_all for stream in self._streams]
        self._leading = [
            index
            for index, stream in enumerate(self._streams)
            if stream.constrains and whole[index] and stream.unit_pages == 1
        ]
        self._checked = [
            index
            for index, stream in enumerate(self._streams)
            if stream.constrains and index not in self._leading
        ]

    def run(self, tier: Tier) -> Replay:
        """Replay every request; ``tier`` must be empty."""
        hits, useds, shortfalls, residents = ([0] * len(self._paths) for _ in range(4))
        reads: list[list[int]] = []
        writtens, evicteds = [[0] * len(self._streams)], [[0] * len(self._streams)]
        matchable = self._paths.matchable.tolist()
        prompt_pages = self._paths.prompt_pages.tolist()
        local = self._local.tolist()
        for request in range(len(self._paths)):
            path = self._paths.of(request)
            nodes = [path[stream.unit_pages - 1 :: stream.unit_pages] for stream in self._streams]
            end = hits[request] = self._endpoint(tier, request, nodes, matchable[request], local[request])
            if end and self._is_limited:
                end, shortfalls[request] = self._shortened(tier, request, nodes, end, local[request])
            reads.append(self._touch(tier, request, nodes, end, local[request], prompt_pages[request]))
            tier.settle(request)
            useds[request] = end
            writtens.append(tier.written.copy())
            evicteds.append(tier.evicted.copy())
            residents[request] = tier.resident_bytes
        used = np.array(useds, dtype=np.int64)
        return Replay(
            streams=self._streams,
            hit=np.array(hits, dtype=np.int64),
            used=used,
            local=np.minimum(self._local, used),
            shortfall=np.array(shortfalls, dtype=np.int64),
            read=np.array(reads, dtype=np.int64).T,
            written=_each(writtens),
            evicted=_each(evicteds),
            resident_bytes=np.array(residents, dtype=np.int64),
        )

    def _endpoint(self, tier: Tier, request: int, nodes: Sequence[Nodes], longest: int, local: int) -> int:
        """Largest endpoint, at most ``longest`` pages, that is legal in every stream."""
        for index in self._leading:
            longest = tier.leading(request, index, nodes[index], local, longest)
        if longest <= 0 or all(
            self._is_legal(tier, request, index, nodes[index], longest, local) for index in self._checked
        ):
            return longest
        legal = np.ones(longest + 1, dtype=np.bool_)
        for index in self._checked:
            stream = self._streams[index]
            present = tier.held(request, index, nodes[index], slice(0, longest // stream.unit_pages))
            present[: local // stream.unit_pages] = True
            legal &= legal_endpoints(stream.pool, present, self._policy, longest)
        return int(np.flatnonzero(legal)[-1])

    def _is_legal(self, tier: Tier, request: int, index: int, nodes: Nodes, end: int, local: int) -> bool:
        """Whether ``end`` itself is legal in a stream: most often it is, and no other need be looked at."""
        stream = self._streams[index]
        units, rest = divmod(end, stream.unit_pages)
        first = max(int(stream.first[units]), local // stream.unit_pages)
        return not rest and bool(tier.held(request, index, nodes, slice(first, units)).all())

    def _shortened(
        self, tier: Tier, request: int, nodes: Sequence[Nodes], hit: int, local: int
    ) -> tuple[int, int]:
        """The endpoint that is used of a hit, and the code of the reason if it is shorter."""
        limits, page_tokens = self._limits, self._paths.page_tokens
        end, code = hit, 0
        if limits.host_capacity_tokens is not None:
            room = local + limits.host_capacity_tokens // page_tokens
            if end > room:
                end, code = self._endpoint(tier, request, nodes, room, local), 1
        if 0 < (end - local) * page_tokens < limits.threshold_tokens:
            end, code = min(end, local), 2
        return end, code

    def _touch(
        self,
        tier: Tier,
        request: int,
        nodes: Sequence[Nodes],
        end: int,
        local: int,
        prompt_pages: int,
    ) -> list[int]:
        """Read what the policy asks for, save what the save policy keeps; returns units read per stream."""
        counts = []
        for index, stream in enumerate(self._streams):
            used, first = end // stream.unit_pages, local // stream.unit_pages
            if self._policy is not TransferPolicy.DENSE:
                first = max(first, int(stream.first[used]))
            first = min(first, used)
            num_units = len(nodes[index])
            if stream.touches_all:
                tier.touch(request, index, nodes[index], slice(0, num_units))
                counts.append(used - first)
                continue
            if self._outputs is OutputSave.ATTENTION and stream.is_state:
                num_units = min(num_units, prompt_pages // stream.unit_pages)
            saved = self._savings.beyond(index, num_units, used)
            if self._policy is TransferPolicy.DENSE or not stream.constrains:
                there = np.flatnonzero(tier.held(request, index, nodes[index], slice(first, used)))
                counts.append(len(there))
                tier.touch(request, index, nodes[index], (there + first).astype(np.int32))
            else:
                counts.append(used - first)
                if isinstance(saved, slice) and saved.start == used:
                    saved = slice(first, saved.stop)  # one run of units: one touch
                elif first < used:
                    tier.touch(request, index, nodes[index], slice(first, used))
            tier.touch(request, index, nodes[index], saved)
        return counts


def _each(totals: Sequence[Sequence[int]]) -> Counts:
    """What each request added, per stream, of totals that begin with those before the first."""
    sums = np.array(totals, dtype=np.int64)
    return (sums[1:] - sums[:-1]).T


def local_pages(paths: PagePaths, limits: Limits) -> Counts:
    """Pages of each prompt that host or device memory has: of those that were seen before, the first."""
    if not limits.local_tokens:
        return np.zeros(len(paths), dtype=np.int64)
    known = np.minimum(paths.seen_pages(), paths.matchable)
    return np.minimum(known, limits.local_tokens // paths.page_tokens)


def from_stack(
    paths: PagePaths, stream: Stream, distances: StackDistances, capacity_bytes: int | None, limits: Limits
) -> Replay:
    """The replay of one capacity where all pools need all their pages, without simulating it."""
    capacity_pages = int(paths.starts[-1])
    if capacity_bytes is not None:
        capacity_pages = min(capacity_pages, capacity_bytes // stream.unit_bytes)
    held = distances.held_pages(capacity_pages)
    local = local_pages(paths, limits)
    hit = np.minimum(np.maximum(held, local), paths.matchable)
    used, shortfall = hit, np.zeros_like(hit)
    if limits.host_capacity_tokens is not None:
        room = local + limits.host_capacity_tokens // paths.page_tokens
        shortfall = np.where(used > room, 1, shortfall)
        used = np.minimum(used, room)
    gained = (used - local) * paths.page_tokens
    below = (gained > 0) & (gained < limits.threshold_tokens)
    used, shortfall = np.where(below, local, used), np.where(below, 2, shortfall)
    written = paths.lengths - held
    resident = np.minimum(distances.distinct, capacity_pages)
    local = np.minimum(local, used)
    return Replay(
        streams=(stream,),
        hit=hit,
        used=used,
        local=local,
        shortfall=shortfall,
        read=(used - local)[np.newaxis],
        written=written[np.newaxis],
        evicted=(written - np.diff(resident, prepend=0))[np.newaxis],
        resident_bytes=resident * stream.unit_bytes,
    )


def can_use_stack(streams: Sequence[Stream]) -> bool:
    """Whether what is touched does not depend on what hits: one stream, touched as a whole."""
    return len(streams) == 1 and streams[0].touches_all and streams[0].unit_pages == 1
