"""Time to first token over the prefix length: reading under each policy against recomputing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hicache_bench.records.schema import Evidence
from hicache_bench.records.simulation import PolicyTime, SimulationRecord
from hicache_bench.report.plots.sheet import LEGEND_LINE, MARGIN, WIDTH, Sheet, legend_lines
from hicache_bench.report.plots.style import POLICY_STROKES, Theme, token_axis
from hicache_bench.report.simulate_constants import constant_lines
from hicache_bench.units import format_tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEFT, _HEIGHT, _FOOT = 0.75, 3.3, 0.5
_COLUMNS = 2
CONSTANTS = f"Constants with their bands and sources, [{Evidence.ASSUMED.value}] if not said otherwise:"
_BANDS = (
    "Line: nothing overlaps. Dark band: down to full overlap of loading and computing. Light band: every "
    "constant at the quick, and at the slow, end of its band."
)


def draw_first_token(records: Sequence[SimulationRecord], theme: Theme) -> Figure:
    """Figure of a sweep over the prefix length, everything else equal."""
    points = by_prefix(records)
    first = points[0]
    together = policies_alike([[(time.ttft, time.is_cut) for time in point.policies] for point in points])
    cut = any(time.is_cut for point in points for time in point.policies)
    lines = legend_lines(len(together) + 2 + cut, _COLUMNS)
    sheet = Sheet.open(
        f"{first.preset['name']}: time to first token over {first.link}, {first.system}",
        body=_HEIGHT + _FOOT + LEGEND_LINE * lines + 0.15,
        caption=[
            f"{evidence_text(first)}. {_prefetch_text(first)}",
            setting_text(first),
            _BANDS,
            CONSTANTS,
            *constant_lines(records),
        ],
        theme=theme,
    )
    axes = sheet.axes(_LEFT, 0.1, WIDTH - _LEFT - 2 * MARGIN, _HEIGHT)
    _recompute(axes, points, theme)
    for index, policies in together.items():
        _policy(axes, points, [point.policies[index] for point in points], policies)
    _timeout(axes, points, theme)
    axes.set_yscale("log")
    token_axis(axes, (point.prefix_tokens for point in points))
    axes.set_xlabel(f"saved prefix (tokens); the prompt is {format_tokens(first.suffix_tokens)} longer")
    axes.set_ylabel("time to first token (s)")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.grid(which="major")
    axes.set_axisbelow(True)
    sheet.legend(0.1 + _HEIGHT + _FOOT, *axes.get_legend_handles_labels(), columns=_COLUMNS)
    return sheet.figure


def by_prefix(records: Sequence[SimulationRecord]) -> list[SimulationRecord]:
    """One record for each prefix length, the last one given, shortest first."""
    found = {record.prefix_tokens: record for record in records}
    return [found[tokens] for tokens in sorted(found)]


def policies_alike(figures: Sequence[Sequence[object]]) -> dict[int, list[int]]:
    """Policies, by index, of which all ``figures`` (one list for each point) are equal."""
    found: dict[tuple[object, ...], list[int]] = {}
    for index in range(len(figures[0])):
        found.setdefault(tuple(point[index] for point in figures), []).append(index)
    return {indexes[0]: indexes for indexes in found.values()}


def evidence_text(record: SimulationRecord) -> str:
    """The tag of the figures, and that of the bytes below them."""
    return f"[{Evidence.MODELED.value}] on bytes [{record.volumes_evidence}]"


def _prefetch_text(record: SimulationRecord) -> str:
    return f"Prefetch {record.prefetch_policy}, {record.prefetch_profile}: {record.prefetch_timeout}."


def setting_text(record: SimulationRecord) -> str:
    """What the points of a sweep have in common."""
    return (
        f"{record.ranks} ranks, concurrency {record.concurrency}, saved {record.save_policy}. "
        f"Compute: {record.compute}."
    )


def _recompute(axes: Axes, points: Sequence[SimulationRecord], theme: Theme) -> None:
    tokens = [point.prefix_tokens for point in points]
    spans = [point.recompute for point in points]
    axes.fill_between(
        tokens,
        [span.low for span in spans],
        [span.high for span in spans],
        color=theme.muted,
        alpha=0.15,
        linewidth=0,
    )
    axes.plot(
        tokens, [span.no_overlap for span in spans], color=theme.text, linestyle="-.", linewidth=1.4,
        label="recompute everything",
    )  # fmt: skip


def _policy(
    axes: Axes, points: Sequence[SimulationRecord], times: Sequence[PolicyTime], indexes: Sequence[int]
) -> None:
    names = [points[0].policies[index].policy for index in indexes]
    stroke = POLICY_STROKES[names[-1]]
    tokens = [point.prefix_tokens for point in points]
    spans = [time.ttft for time in times]
    bands = (("low", "high", 0.16), ("full_overlap", "no_overlap", 0.35))
    for low, high, alpha in bands:
        axes.fill_between(
            tokens,
            [getattr(span, low) for span in spans],
            [getattr(span, high) for span in spans],
            color=stroke.colour,
            alpha=alpha,
            linewidth=0,
        )
    axes.plot(
        tokens,
        [span.no_overlap for span in spans],
        color=stroke.colour,
        linestyle=stroke.dash,
        marker=stroke.marker,
        markersize=4.5,
        linewidth=1.8,
        label=", ".join(names),
    )


def _timeout(axes: Axes, points: Sequence[SimulationRecord], theme: Theme) -> None:
    """A cross on every point that the timeout cut, and the timeout itself if it cut any."""
    cuts = list(_cuts(points))
    if not cuts:
        return
    limits = [(point.prefix_tokens, point.policies[0].timeout_seconds) for point in points]
    limits = [(tokens, seconds) for tokens, seconds in limits if seconds is not None]
    if limits:
        axes.plot(*zip(*limits, strict=True), color=theme.muted, linewidth=1, label="timeout of the prefetch")
    axes.plot(
        *zip(*cuts, strict=True),
        linestyle="",
        marker="x",
        color=theme.text,
        markersize=9,
        markeredgewidth=1.8,
        label="cut: not all had landed",
        zorder=5,
    )


def _cuts(points: Sequence[SimulationRecord]) -> Iterator[tuple[int, float]]:
    for point in points:
        for time in point.policies:
            if time.is_cut:
                yield point.prefix_tokens, time.ttft.no_overlap
