"""A trace as text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from hicache_bench.records.schema import Evidence
from hicache_bench.report.presets import plain_table
from hicache_bench.report.replay import trace_text
from hicache_bench.report.tables import plural
from hicache_bench.trace.paths import HitDefinition
from hicache_bench.units import format_seconds, format_tokens
from hicache_bench.workflows.traces import TraceFigures


def render_trace(figures: TraceFigures) -> RenderableType:
    """Its lengths, and what a cache of blocks would hit."""
    return Group(*_sections(figures))


def _sections(figures: TraceFigures) -> Iterator[RenderableType]:
    trace = figures.trace
    yield Text(trace_text(trace))
    rate = trace.requests / figures.duration_seconds if figures.duration_seconds else 0.0
    yield Text(f"{format_seconds(figures.duration_seconds)} of its own clock, {rate:.2f} requests a second")
    table = plain_table("tokens", "p50", "p90", "p99", "mean", left=("tokens",))
    for name, lengths in (("prompt", figures.input_tokens), ("output", figures.output_tokens)):
        table.add_row(name, *(f"{lengths[key]:,.0f}" for key in ("p50", "p90", "p99", "mean")))
    yield table
    yield Text()
    measured = "every request"
    if figures.measured_percent < 100:
        measured = f"the last {figures.measured_percent} % of the requests"
    yield Text(f"hits of {measured} under LRU [{Evidence.COUNTED.value}]: {HitDefinition.TRACE.text}")
    hits = plain_table("blocks held", "blocks hit", "tokens hit", "hit tokens")
    for row in figures.hits:
        hits.add_row(
            "all" if row.capacity_blocks is None else f"{row.capacity_blocks:,}",
            f"{row.hit_blocks / figures.blocks:.2%}",
            f"{row.hit_tokens / figures.tokens:.2%}",
            f"{row.hit_tokens:,}",
        )
    yield hits
    yield Text(f"of {plural(figures.blocks, 'block')} and {plural(figures.tokens, 'token')}")
    if trace.ubiquitous_tokens:
        yield Text(
            f"nearly all prompts begin with one block of {format_tokens(trace.ubiquitous_tokens)} tokens"
        )
    if not trace.has_outputs:
        yield Text("no output_hash_ids: decode KV cannot be followed")
    if trace.skipped_lines:
        lines = plural(trace.skipped_lines, "line")
        yield Text(f"{lines} left out, the first: {trace.first_problem}")
