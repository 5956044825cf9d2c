"""Simulated points as tables of at most 80 columns. Every table names the tag of its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hicache_bench.records.simulation import PolicyTime, SimulationRecord, Span
from hicache_bench.report.simulate_break_even import render_break_even
from hicache_bench.report.simulate_constants import render_constants
from hicache_bench.report.tables import plural
from hicache_bench.units import format_seconds, format_size, format_tokens

MAX_POINTS_SHOWN = 40
"""Points of a sweep that are printed; the others are in the table file."""


def render_simulation(records: Sequence[SimulationRecord]) -> RenderableType:
    """Everything that a simulation has to say: the first points in full, every constant once."""
    shown = records[:MAX_POINTS_SHOWN]
    parts: list[RenderableType] = []
    for _, group in groupby(shown, _setting):
        points = list(group)
        if parts:
            parts.append(Text(""))
        parts.append(_heading(points[0]))
        if points[0].break_even:
            parts.append(render_break_even(points))
        else:
            parts += [part for point in points for part in _point(point)]
    if len(records) > len(shown):
        parts.append(Text(f"\n{len(records) - len(shown):,} more points: see the table file"))
    parts += _legend(records[0])
    parts.append(render_constants(records))
    return Group(*parts)


def _setting(record: SimulationRecord) -> object:
    """What a heading says: all but the lengths."""
    return (
        record.link, record.system, record.concurrency, record.queue_seconds, record.host_capacity_tokens,
        record.local_prefix_tokens, record.deployment, record.preset["page_tokens"], record.compute,
    )  # fmt: skip


def _heading(record: SimulationRecord) -> Text:
    deployment = record.deployment
    groups = ", ".join(
        f"{name.upper()} {deployment[name]}" for name in ("tp", "pp", "cp", "dcp") if deployment[name] != 1
    )
    page_tokens = record.preset["page_tokens"]
    lines = [
        f"{record.preset['name']} on {record.system}: {plural(record.ranks, 'rank')}"
        + (f" ({groups})" if groups else "")
        + f"; L3 over {record.link}",
        f"profile {record.profile}, pages of {plural(page_tokens, 'token')}, saved {record.save_policy}",
        f"bytes of the {record.volumes} [{record.volumes_evidence}]",
        f"prefill: {record.compute}",
        _prefetch(record),
    ]
    extra = [
        record.concurrency > 1 and f"{record.concurrency} equal requests share the link",
        record.queue_seconds > 0 and f"queued for {format_seconds(record.queue_seconds)}",
        record.host_capacity_tokens is not None
        and f"host memory for {record.host_capacity_tokens or 0:,} tokens",
        record.local_prefix_tokens > 0
        and f"local prefix of {format_tokens(record.local_prefix_tokens)} tokens",
    ]
    if any(extra):
        lines.append("; ".join(text for text in extra if text))
    return Text("\n".join(lines))


def _prefetch(record: SimulationRecord) -> str:
    threshold = f"from {record.threshold_tokens:,} tokens on"
    if record.break_even:
        return f"prefetch {threshold}, waited for to its end: a break-even is without a timeout"
    if record.prefetch_policy == "timeout":
        return f"prefetch {threshold}, timeout {record.prefetch_timeout}\n({record.prefetch_profile})"
    return f"prefetch {threshold}, {record.prefetch_policy} ({record.prefetch_profile})"


def _point(record: SimulationRecord) -> Iterator[RenderableType]:
    tokens = f"{format_tokens(record.prefix_tokens)} + {format_tokens(record.suffix_tokens)} tokens"
    yield Text(f"\n{tokens}: milliseconds to the first token [modeled]", style="bold")
    for note in record.notes:
        yield Text(f"warning: {note}", style="yellow")
    yield _times(record)
    for policies in _grouped(record.policies):
        yield from (Text(line) for line in _remarks(policies))
    yield Text(_bands(record))


def _times(record: SimulationRecord) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    for column in (
        "policy", "bytes, all\nranks", "look-\nup", "L3→L2", "L2→L1", "compute", "full\noverlap",
        "no\noverlap", "vs re-\ncompute", "vs\ndense",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "policy" else "right", no_wrap=True)
    recompute = record.recompute.no_overlap
    computed = milliseconds(recompute - record.queue_seconds)
    dense = next((p for p in record.policies if p.policy == "dense"), None)
    table.add_row(
        "recompute", "-", "-", "-", "-", computed, milliseconds(recompute), milliseconds(recompute), "1.00x",
        ratio(dense.ttft.no_overlap / recompute if dense else None),
    )  # fmt: skip
    for policy in record.policies:
        table.add_row(
            policy.policy,
            format_size(policy.num_bytes),
            milliseconds(policy.lookup_seconds),
            milliseconds(policy.read_seconds),
            milliseconds(policy.h2d_seconds),
            milliseconds(policy.compute_seconds),
            milliseconds(policy.ttft.full_overlap),
            milliseconds(policy.ttft.no_overlap),
            ratio(policy.speed_up_over_recompute),
            ratio(policy.speed_up_over_dense),
        )
    return table


def milliseconds(seconds: float) -> str:
    """At least three digits: ``1,234``, ``12.3``, ``0.123``."""
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(value: float | None) -> str:
    """``12.3x``, or ``-``."""
    if value is None:
        return "-"
    return f"{value:,.0f}x" if value >= 100 else f"{value:.1f}x" if value >= 10 else f"{value:.2f}x"


def _grouped(policies: Sequence[PolicyTime]) -> list[list[PolicyTime]]:
    """Neighbouring policies of which the same is to be said."""
    return [list(group) for _, group in groupby(policies, _remark)]


def _remarks(policies: Sequence[PolicyTime]) -> Iterator[str]:
    remark = _remark(policies[0])
    if remark:
        yield f"{', '.join(policy.policy for policy in policies)}: {remark}"


def _remark(policy: PolicyTime) -> str:
    """Why less than the hit is used, if it is; else the band of the estimates."""
    parts = []
    if policy.is_cut:
        parts.append(
            f"cut: {policy.landed_calls} of {plural(policy.rank_calls, 'call')} of a rank and "
            f"{plural(policy.landed_pages, 'page')} landed,\n  complete after "
            f"{format_seconds(policy.finish_seconds)}; {_uncut(policy)}"
        )
    if policy.unused_tokens:
        reasons = ", ".join(
            f"{tokens:,} not used ({reason.replace('_', ' ')})"
            for reason, tokens in policy.unused_tokens.items()
        )
        parts.append(
            f"hit {policy.hit_tokens:,}, fulfilled {policy.fulfilled_tokens:,}, used "
            f"{policy.used_tokens:,} tokens; {reasons}"
        )
    if policy.wasted_bytes:
        parts.append(f"{format_size(policy.wasted_bytes)} landed in vain")
    return "\n  ".join(parts)


def _uncut(policy: PolicyTime) -> str:
    if policy.uncut_bytes_per_second is None:
        return "no bandwidth would be enough"
    return f"not cut from {policy.uncut_bytes_per_second / 1e9:.3g} GB/s on"


def _bands(record: SimulationRecord) -> str:
    """What the bands of the estimates make of each figure; policies that agree stand together."""
    spans: dict[str, list[str]] = {_band(record.recompute): ["recompute"]}
    for policy in record.policies:
        spans.setdefault(_band(policy.ttft), []).append(policy.policy)
    return "bands: " + "; ".join(f"{', '.join(names)} {band}" for band, names in spans.items())


def _band(span: Span) -> str:
    return f"{milliseconds(span.low)} to {milliseconds(span.high)}"


def _legend(record: SimulationRecord) -> Iterator[RenderableType]:
    yield Text("")
    if not record.break_even:
        yield Text(
            "Full overlap: L2→L1 hides behind computing but for its first layer. Ratios are\n"
            "of the no-overlap ends. Bands: from full overlap with every estimate at its\n"
            "quick end to no overlap with every one at its slow end."
        )
    yield Text(
        f"[modeled]: from bytes [{record.volumes_evidence}] and the constants below, each [assumed] if not\n"
        "said otherwise"
    )
