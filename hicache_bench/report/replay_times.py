"""Times to first token of a replay: percentiles of all measured requests, beside those of recomputing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from hicache_bench.records.replay import ReplayRecord, ReplayResult, Timing, TimingBasis
from hicache_bench.records.schema import Evidence
from hicache_bench.report.presets import plain_table
from hicache_bench.report.simulate import milliseconds
from hicache_bench.report.tables import plural
from hicache_bench.units import format_seconds

_COLUMNS = (
    ("p50\nfull", "p50", "full_overlap"),
    ("p50\nnone", "p50", "no_overlap"),
    ("p99\nfull", "p99", "full_overlap"),
    ("p99\nnone", "p99", "no_overlap"),
    ("mean\nlow", "mean", "low"),
    ("mean\nhigh", "mean", "high"),
)


def replay_times(
    record: ReplayRecord, keys: tuple[str, ...], cells: Callable[[ReplayResult], Sequence[str]]
) -> Iterator[RenderableType]:
    """The table, with what it rests on; nothing where no seconds were modelled.

    ``cells`` are those of a result in the columns ``keys``.
    """
    timing, basis = record.timing, record.timing_basis
    if timing is None or basis is None:
        return
    yield Text(f"milliseconds to the first token [{Evidence.MODELED.value}]: {_where(timing, basis)}")
    yield Text(f"prefill: {basis.compute}\n{_prefetch(timing, basis)}")
    table = plain_table(*keys, *(head for head, _, _ in _COLUMNS), "cut", left=keys)
    table.add_row("", "recompute", "", *_times(basis.recompute_seconds), "-")
    for result in record.results:
        ttft = result.summary.ttft
        if ttft is not None:
            table.add_row(*cells(result), *_times(ttft.seconds), f"{ttft.cut_requests:,}")
    yield table
    yield Text(
        "full, none: L2→L1 hides behind computing but for its first layer, or not at all.\n"
        "low, high: full overlap with every estimate at its quick end, none at its slow.\n"
        "cut: prefetches that were stopped early; hits and traffic are as if none were."
    )


def _times(seconds: Mapping[str, Mapping[str, float]]) -> list[str]:
    return [milliseconds(seconds[end][percentile]) for _, percentile, end in _COLUMNS]


def _where(timing: Timing, basis: TimingBasis) -> str:
    parts = [f"{plural(basis.ranks, 'rank')} on {timing.system}, L3 over {timing.link}"]
    if timing.concurrency > 1:
        parts.append(f"{timing.concurrency} equal requests share the link")
    if timing.queue_seconds > 0:
        parts.append(f"queued for {format_seconds(timing.queue_seconds)}")
    return "; ".join(parts)


def _prefetch(timing: Timing, basis: TimingBasis) -> str:
    if timing.prefetch_policy == "timeout":
        return f"prefetch timeout {basis.prefetch_timeout} ({timing.prefetch_profile})"
    return f"prefetch {timing.prefetch_policy} ({timing.prefetch_profile})"
