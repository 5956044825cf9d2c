"""A replay as text: how much hits, what that moves, which pool fills the tier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hicache_bench.records.replay import ReplayRecord, ReplayResult, Timing, TraceRecord
from hicache_bench.records.schema import Evidence
from hicache_bench.report.presets import plain_table
from hicache_bench.report.replay_times import replay_times
from hicache_bench.report.simulate_constants import render_constants
from hicache_bench.report.tables import plural
from hicache_bench.trace.metrics import BANDWIDTH_SECONDS
from hicache_bench.units import GIB, MIB, TIB, format_size, format_tokens

_KEYS = ("capacity", "policy", "save")
_ENDS = ("full_overlap", "no_overlap", "low", "high")
_TIMING = tuple(field.name for field in fields(Timing))

MAX_POINTS_SHOWN = 10
"""Points of a sweep that are printed, each a page; the others are in the table file."""


def render_replay(record: ReplayRecord) -> RenderableType:
    """Tables of hits, traffic and pools, each with the definitions it rests on."""
    return render_replays([record])


def render_replays(records: Sequence[ReplayRecord]) -> RenderableType:
    """The points of a sweep, one below the other, and every constant once."""
    parts: list[RenderableType] = []
    for record in records[:MAX_POINTS_SHOWN]:
        if parts:
            parts.append(Text())
        if record.points > 1:
            parts.append(Text(f"point {record.point} of {record.points}", style="bold"))
        parts += _sections(record)
    if len(records) > MAX_POINTS_SHOWN:
        parts.append(Text(f"\n{len(records) - MAX_POINTS_SHOWN:,} more points: see the table file"))
    cited = [record.timing_basis for record in records if record.timing_basis is not None]
    if cited:
        parts.append(render_constants(cited))
    return Group(*parts)


def _sections(record: ReplayRecord) -> Iterator[RenderableType]:
    saves = _save_names(record.results)
    yield Text(_heading(record))
    yield Text()
    yield Text(f"hits [{Evidence.COUNTED.value}]: {record.hit_definition_text}")
    yield _hits(record, saves)
    if record.trace.ubiquitous_tokens:
        size = format_tokens(record.trace.ubiquitous_tokens)
        yield Text(f"beyond 1st: without the block of {size} tokens that nearly all prompts begin with")
    yield Text()
    yield Text(
        f"traffic [{Evidence.COUNTED.value}]; GB/s that reads need [{Evidence.MODELED.value}], in intervals "
        f"of {BANDWIDTH_SECONDS:g} s"
    )
    yield _traffic(record.results, saves)
    if record.timing is not None:
        yield Text()
        yield from replay_times(record, _KEYS, lambda result: _cells(result, record.results, saves))
    yield Text()
    shown = _shown_pools(record.results)
    yield Text(
        f"pools under {shown[0].policy}, save {saves[shown[0].save_policy]} [{Evidence.COUNTED.value}]"
    )
    yield _pools(shown)
    yield Text()
    yield from (Text(f"save {name}: {save}") for save, name in saves.items())
    yield from (Text(f"note: {note}") for note in record.notes)


def capacity_text(num_bytes: int | None) -> str:
    """``64 GiB``, ``1 TiB``, a size that no unit divides with its digits, or ``inf``."""
    if num_bytes is None:
        return "inf"
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if num_bytes % unit == 0:
            return f"{num_bytes // unit} {name}"
    return format_size(num_bytes)


def trace_text(trace: TraceRecord) -> str:
    """A trace in one sentence."""
    return (
        f"{trace.name}: {plural(trace.requests, 'request')}, {trace.input_tokens:,} prompt tokens, "
        f"{trace.block_references:,} blocks of {trace.block_tokens} ({trace.distinct_blocks:,} distinct), "
        f"digest {trace.digest}"
    )


def tidy_rows(records: Sequence[ReplayRecord]) -> list[dict[str, int | float | str | None]]:
    """One flat row per point and result, the same columns in each; seconds and bytes."""
    return [_tidy_row(record, result) for record in records for result in record.results]


def _tidy_row(record: ReplayRecord, result: ReplayResult) -> dict[str, int | float | str | None]:
    summary, pools = result.summary, result.summary.pools
    timing, ttft = record.timing, summary.ttft
    deployment = {name: record.deployment[name] for name in ("tp", "pp", "cp", "dcp", "tp_lcm")}
    return {
        "point": record.point,
        "preset": str(record.preset["name"]),
        "preset_digest": record.preset_digest,
        "profile": record.profile,
        "page_tokens": record.page_tokens,
        **deployment,
        "trace": record.trace.name,
        "trace_digest": record.trace.digest,
        "hit_definition": record.hit_definition,
        "outputs": record.outputs,
        "measured_percent": record.measured_percent,
        **record.limits,
        "capacity_bytes": result.capacity_bytes,
        "eviction": result.eviction,
        "policy": result.policy,
        "save_policy": result.save_policy,
        "prompt_tokens": summary.tokens.prompt,
        "queried_tokens": summary.tokens.queried,
        "hit_tokens": summary.tokens.hit,
        "used_tokens": summary.tokens.used,
        "token_hit_rate": summary.tokens.hit_rate,
        "token_hit_rate_beyond_first": summary.beyond_first.hit_rate,
        "request_hit_rate": summary.requests.hit_rate,
        "request_hit_rate_beyond_first": summary.requests_beyond_first.hit_rate,
        "read_bytes": sum(pool.read_bytes for pool in pools),
        "written_bytes": sum(pool.written_bytes for pool in pools),
        "evicted_bytes": sum(pool.evicted_bytes for pool in pools),
        "resident_bytes": sum(pool.resident_bytes for pool in pools),
        "read_bytes_per_second_p50": summary.bandwidth.read["p50"],
        "read_bytes_per_second_p99": summary.bandwidth.read["p99"],
        **{name: None if timing is None else getattr(timing, name) for name in _TIMING},
        **{
            f"ttft_{end}_{percentile}": None if ttft is None else ttft.seconds[end][percentile]
            for end in _ENDS
            for percentile in ("p50", "p90", "p99", "mean")
        },
        "cut_requests": None if ttft is None else ttft.cut_requests,
    }


def _heading(record: ReplayRecord) -> str:
    measured = f"the last {plural(record.measured_requests, 'request')} ({record.measured_percent} %)"
    lines = [
        trace_text(record.trace),
        f"{record.preset['name']}, profile {record.profile}, pages of {record.page_tokens} tokens"
        + _spread(record),
        f"measured: {'every request' if record.measured_percent == 100 else measured}",
    ]
    found = ", ".join(f"{name} {value:,}" for name, value in record.limits.items() if value)
    return "\n".join([*lines, *([f"limits: {found}"] if found else [])])


def _spread(record: ReplayRecord) -> str:
    sizes = {name: record.deployment[name] for name in ("tp", "pp", "cp", "dcp")}
    return "".join(f", {name.upper()} {size}" for name, size in sizes.items() if size != 1)


def _save_names(results: Sequence[ReplayResult]) -> dict[str, str]:
    """A letter for each save policy: its text is too long for a column."""
    saves = dict.fromkeys(result.save_policy for result in results)
    return {save: chr(ord("A") + index) if index < 26 else str(index) for index, save in enumerate(saves)}


def _cells(result: ReplayResult, results: Sequence[ReplayResult], saves: dict[str, str]) -> list[str]:
    size = capacity_text(result.capacity_bytes)
    if len({other.eviction for other in results}) > 1:
        size = f"{size} {result.eviction}"
    return [size, result.policy, saves[result.save_policy]]


def _hits(record: ReplayRecord, saves: dict[str, str]) -> Table:
    first = record.trace.ubiquitous_tokens
    without = "tokens\nbeyond 1st", "requests\nbeyond 1st"
    columns = [*_KEYS, "tokens\nhit", "tokens\nused", "requests\nhit", *(without if first else ())]
    table = plain_table(*columns, left=_KEYS)
    for result in record.results:
        summary = result.summary
        tokens, requests = summary.tokens, summary.requests
        used = tokens.used / tokens.queried if tokens.queried else 0.0
        cells = [f"{tokens.hit_rate:.2%}", f"{used:.2%}", f"{requests.hit_rate:.2%}"]
        if first:
            cells += [f"{summary.beyond_first.hit_rate:.2%}", f"{summary.requests_beyond_first.hit_rate:.2%}"]
        table.add_row(*_cells(result, record.results, saves), *cells)
    return table


def _traffic(results: Sequence[ReplayResult], saves: dict[str, str]) -> Table:
    columns = (*_KEYS, "read", "written", "resident", "GB/s\np50", "GB/s\np99")
    table = plain_table(*columns, left=_KEYS)
    for result in results:
        pools, need = result.summary.pools, result.summary.bandwidth.read
        sizes = (
            sum(pool.read_bytes for pool in pools),
            sum(pool.written_bytes for pool in pools),
            sum(pool.resident_bytes for pool in pools),
        )
        table.add_row(
            *_cells(result, results, saves),
            *map(format_size, sizes),
            *(f"{need[name] / 1e9:.2f}" for name in ("p50", "p99")),
        )
    return table


def _shown_pools(results: Sequence[ReplayResult]) -> list[ReplayResult]:
    """Every capacity of the last policy and save policy; the record has the others."""
    last = results[-1]
    return [
        result
        for result in results
        if (result.policy, result.save_policy, result.eviction)
        == (last.policy, last.save_policy, last.eviction)
    ]


def _pools(results: Sequence[ReplayResult]) -> Table:
    table = plain_table(
        "capacity", "pool", "read", "written", "resident", "evicted\npages", left=("capacity", "pool")
    )
    for result in results:
        size = capacity_text(result.capacity_bytes)
        for pool in result.summary.pools:
            table.add_row(
                size,
                pool.pool,
                format_size(pool.read_bytes),
                format_size(pool.written_bytes),
                format_size(pool.resident_bytes),
                f"{pool.evicted_units:,}",
            )
            size = ""
    return table
