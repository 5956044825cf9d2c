"""What a replay comes to: rates, bytes, percentiles, over the requests that are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hicache_bench.trace.columns import Counts
from hicache_bench.trace.format import Trace
from hicache_bench.trace.paths import PagePaths
from hicache_bench.trace.replay import SHORTFALLS, Replay
from hicache_bench.trace.streams import Stream

UBIQUITOUS_SHARE = 0.9
"""A first block that this part of all requests begins with is named apart: it hits whatever a tier does."""

BANDWIDTH_SECONDS = 10.0
"""Length of the intervals over which bytes are added up; a trace may bucket its time stamps by seconds."""

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredReads:
    """What the measured requests read, for a model of the time that takes: one entry per request.

    ``used_pages`` is the endpoint that the model resumes from, of which ``local_pages`` were there without
    the tier; ``asked_pages`` those that lookup asks for. ``units`` are read of each of the ``streams``, a row
    for each.
    """

    streams: tuple[Stream, ...]
    prompt_tokens: Counts = field(repr=False)
    asked_pages: Counts = field(repr=False)
    used_pages: Counts = field(repr=False)
    local_pages: Counts = field(repr=False)
    units: Counts = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeledTimes:
    """Seconds to the first token of each request, by the name of what they assume.

    ``is_cut`` tells the requests whose read from the tier was ended before it was complete.
    """

    seconds: Mapping[str, npt.NDArray[np.float64]]
    is_cut: npt.NDArray[np.bool_] = field(repr=False)


TtftModel = Callable[[MeasuredReads], ModeledTimes]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens of the measured prompts, each in one place: prompt = local + queried, hit <= queried.

    ``hit`` are those that lookup promised beyond the local ones; every one of them ends as ``used``, or in
    ``unused`` under its reason.
    """

    prompt: int
    local: int
    queried: int
    hit: int
    used: int
    unused: Mapping[str, int]

    @property
    def hit_rate(self) -> float:
        """Hit over queried: what is local was not asked for, and is no miss."""
        return self.hit / self.queried if self.queried else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Measured requests: ``asked`` had a page that could hit, ``skipped`` had none and missed nothing."""

    total: int
    asked: int
    skipped: int
    hit: int

    @property
    def hit_rate(self) -> float:
        """Requests with a hit over those that asked."""
        return self.hit / self.asked if self.asked else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTraffic:
    """One pool, over the measured requests; ``resident`` is what the tier holds of it at the end."""

    pool: str
    read_units: int
    read_bytes: int
    written_units: int
    written_bytes: int
    evicted_units: int
    evicted_bytes: int
    resident_units: int
    resident_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Bytes per second that the tier must give and take in an interval, at percentiles of all intervals."""

    read: Mapping[str, float]
    written: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokenTimes:
    """Percentiles of the seconds to the first token, by the name of what they assume.

    Of ``cut_requests`` the read was ended before it was complete; the tier is replayed as if it had been.
    """

    seconds: Mapping[str, Mapping[str, float]]
    cut_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary:
    """All figures of one replay; ``beyond_first`` and ``requests_beyond_first`` leave out a ubiquitous block.

    ``warmth`` says what the tier was when measuring began: ``cold`` (nothing before), ``filling`` or
    ``full`` (it had evicted). ``ttft`` is None where no time is modelled.
    """

    tokens: TokenCounts
    requests: RequestCounts
    beyond_first: TokenCounts
    requests_beyond_first: RequestCounts
    pools: tuple[PoolTraffic, ...]
    bandwidth: Bandwidth
    ttft: FirstTokenTimes | None
    warmth: str


def first_measured(num_requests: int, last_percent: int) -> int:
    """The first of the last ``last_percent`` % of the requests, at least one."""
    return min(num_requests * (100 - last_percent) // 100, num_requests - 1)


def ubiquitous_pages(trace: Trace, paths: PagePaths) -> Counts:
    """Pages of the first block, of each request that begins with a block as most others do; else 0."""
    found = np.zeros(len(paths), dtype=np.int64)
    has_pages = np.flatnonzero(paths.prompt_pages > 0)
    first_pages = paths.pages[paths.starts[has_pages]]
    nodes, counts = np.unique(first_pages, return_counts=True)
    if counts.max(initial=0) >= UBIQUITOUS_SHARE * len(paths):
        starting_so = has_pages[first_pages == nodes[np.argmax(counts)]]
        per_block = trace.block_tokens // paths.page_tokens
        found[starting_so] = np.minimum(per_block, paths.prompt_pages[starting_so])
    return found


def summarize(
    trace: Trace,
    paths: PagePaths,
    replay: Replay,
    first: int,
    *,
    ubiquitous: Counts,
    ttft: TtftModel | None = None,
) -> ReplaySummary:
    """Figures over the requests from ``first`` on."""
    evicted_before = int(replay.evicted[:, :first].sum())
    nothing = np.zeros_like(ubiquitous)
    return ReplaySummary(
        tokens=_tokens(paths, replay, first, nothing),
        requests=_requests(paths, replay, first, nothing),
        beyond_first=_tokens(paths, replay, first, ubiquitous),
        requests_beyond_first=_requests(paths, replay, first, ubiquitous),
        pools=tuple(_pools(replay, first)),
        bandwidth=_bandwidth(trace, replay, first),
        ttft=None if ttft is None else _ttft(paths, replay, first, ttft),
        warmth="cold" if first == 0 else "full" if evicted_before else "filling",
    )


def _tokens(paths: PagePaths, replay: Replay, first: int, left_out: Counts) -> TokenCounts:
    """Token counts without the first ``left_out`` pages of each prompt."""
    outside = paths.tokens_at(left_out)

    def tokens(endpoints: Counts) -> Counts:
        found: Counts = np.maximum(paths.tokens_at(endpoints) - outside, 0)[first:]
        return found

    prompt = int((paths.input_tokens - outside)[first:].sum())
    local = tokens(replay.local)
    hit = tokens(np.maximum(replay.hit, replay.local)) - local
    used = tokens(np.maximum(replay.used, replay.local)) - local
    lost = hit - used
    codes = replay.shortfall[first:]
    unused = {reason.value: int(lost[codes == code].sum()) for code, reason in enumerate(SHORTFALLS, 1)}
    return TokenCounts(
        prompt=prompt,
        local=int(local.sum()),
        queried=prompt - int(local.sum()),
        hit=int(hit.sum()),
        used=int(used.sum()),
        unused={reason: count for reason, count in unused.items() if count},
    )


def _requests(paths: PagePaths, replay: Replay, first: int, left_out: Counts) -> RequestCounts:
    asked = paths.matchable[first:] > np.maximum(left_out, replay.local)[first:]
    hit = replay.hit[first:] > np.maximum(left_out, replay.local)[first:]
    return RequestCounts(
        total=len(asked),
        asked=int(asked.sum()),
        skipped=int((~asked).sum()),
        hit=int((asked & hit).sum()),
    )


def _pools(replay: Replay, first: int) -> list[PoolTraffic]:
    found = []
    for index, stream in enumerate(replay.streams):
        read = int(replay.read[index, first:].sum())
        written, evicted = replay.written[index], replay.evicted[index]
        resident = int(written.sum() - evicted.sum())
        late_written, late_evicted = int(written[first:].sum()), int(evicted[first:].sum())
        found += [
            PoolTraffic(
                pool=member.pool.name,
                read_units=read,
                read_bytes=read * member.read_bytes,
                written_units=late_written,
                written_bytes=late_written * member.stored_bytes,
                evicted_units=late_evicted,
                evicted_bytes=late_evicted * member.stored_bytes,
                resident_units=resident,
                resident_bytes=resident * member.stored_bytes,
            )
            for member in stream.members
        ]
    return found


def _bandwidth(trace: Trace, replay: Replay, first: int) -> Bandwidth:
    seconds = (trace.timestamps_ms[first:] - trace.timestamps_ms[first]) / 1e3
    interval = (seconds // BANDWIDTH_SECONDS).astype(np.int64)
    read, written = (np.zeros(int(interval[-1]) + 1, dtype=np.float64) for _ in range(2))
    for index, stream in enumerate(replay.streams):
        read_bytes = sum(member.read_bytes for member in stream.members)
        np.add.at(read, interval, replay.read[index, first:] * float(read_bytes))
        np.add.at(written, interval, replay.written[index, first:] * float(stream.unit_bytes))
    return Bandwidth(
        read=percentiles(read / BANDWIDTH_SECONDS), written=percentiles(written / BANDWIDTH_SECONDS)
    )


def _ttft(paths: PagePaths, replay: Replay, first: int, model: TtftModel) -> FirstTokenTimes:
    found = model(
        MeasuredReads(
            streams=replay.streams,
            prompt_tokens=paths.input_tokens[first:],
            asked_pages=paths.matchable[first:],
            used_pages=replay.used[first:],
            local_pages=replay.local[first:],
            units=replay.read[:, first:],
        )
    )
    return FirstTokenTimes(
        seconds={name: percentiles(values) for name, values in found.seconds.items()},
        cut_requests=int(found.is_cut.sum()),
    )


def percentiles(values: npt.NDArray[np.floating[Any]]) -> dict[str, float]:
    """``p50``, ``p90``, ``p99``, each one of the values (nearest rank), and their ``mean``."""
    ranks = np.percentile(values, PERCENTILES, method="inverted_cdf")
    named = {f"p{percent}": float(rank) for percent, rank in zip(PERCENTILES, ranks, strict=True)}
    return {**named, "mean": float(values.mean())}
