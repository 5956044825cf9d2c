"""Bytes that each policy reads, stacked by pool: a row of panels for each prefix length of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hicache_bench.records.schema import LengthResult, RunRecord
from hicache_bench.report.plots.sheet import (
    LEGEND_LINE,
    MARGIN,
    POLICIES,
    POLICIES_BEHIND_A_LOCAL_PREFIX,
    WIDTH,
    Sheet,
    legend_lines,
)
from hicache_bench.report.plots.style import Ink, Theme, pool_inks, size_unit
from hicache_bench.units import format_size, format_tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEFT, _GAP, _PANEL_WIDTH = 0.95, 0.25, 4.15
_HEAD, _PANEL_HEIGHT, _FOOT = 0.27, 0.78, 0.48
_ROW = _HEAD + _PANEL_HEIGHT + _FOOT
_LEGEND_COLUMNS = 3
_NARROW_PERCENT = 9.0
"""A part of a bar that is narrower has no room for its number."""


def draw_pool_bytes(records: Sequence[RunRecord], theme: Theme) -> Figure:
    """Figure of one run: on the left the bytes, on the right each pool's share of them."""
    (record,) = records
    ranks = len(record.results[0].ranks)
    read_by = "" if ranks == 1 else f", all {ranks} ranks together"
    evidence = " and ".join(dict.fromkeys(f"[{result.evidence}]" for result in record.results))
    inks = pool_inks(pool.name for pool in record.pools if pool.decision != "skip")
    panels = _ROW * len(record.results)
    sheet = Sheet.open(
        f"{record.preset['name']}: bytes read to restore a prefix",
        body=panels + LEGEND_LINE * legend_lines(len(inks), _LEGEND_COLUMNS) + 0.15,
        caption=[
            f"{evidence} bytes that a restore reads{read_by}. {setting_text(record)}",
            POLICIES_BEHIND_A_LOCAL_PREFIX if record.local_prefix_tokens else POLICIES,
        ],
        theme=theme,
    )
    right_start = _LEFT + _PANEL_WIDTH + _GAP
    for number, result in enumerate(record.results):
        top = _ROW * number + _HEAD
        left = sheet.axes(_LEFT, top, _PANEL_WIDTH, _PANEL_HEIGHT)
        right = sheet.axes(right_start, top, WIDTH - right_start - 2 * MARGIN, _PANEL_HEIGHT)
        _length(left, right, result, inks, theme)
    handles, labels = sheet.figure.axes[0].get_legend_handles_labels()
    sheet.legend(panels + 0.05, handles, labels, columns=_LEGEND_COLUMNS)
    return sheet.figure


def setting_text(record: RunRecord) -> str:
    """What the bytes depend on beside the length; decode-context ranks share a page."""
    page_tokens = int(record.preset["page_tokens"]) * int(record.deployment["dcp"] or 1)
    local = record.local_prefix_tokens
    local_prefix = f", a local prefix of {format_tokens(local)} tokens" if local else ""
    return (
        f"Profile {record.profile}, {page_tokens} tokens a page, saved {record.save_policy}{local_prefix}, "
        f"digest {record.preset_digest[:8]}."
    )


def read_bytes(result: LengthResult) -> dict[str, dict[str, int]]:
    """Bytes by policy and pool, over all ranks."""
    found: dict[str, dict[str, int]] = {}
    for policy in (policy for rank in result.ranks for policy in rank.policies):
        by_pool = found.setdefault(policy.policy, {})
        for account in policy.pools:
            by_pool[account.pool] = by_pool.get(account.pool, 0) + account.read.num_bytes
    return found


def _length(left: Axes, right: Axes, result: LengthResult, inks: Mapping[str, Ink], theme: Theme) -> None:
    read = read_bytes(result)
    totals = {policy: sum(by_pool.values()) for policy, by_pool in read.items()}
    largest = max(totals.values()) or 1
    unit, name = size_unit(largest)
    _stack(left, read, inks, theme, dict.fromkeys(read, 1 / unit))
    percents = {policy: 100 / total if total else 0.0 for policy, total in totals.items()}
    for row, start, width in _stack(right, read, inks, theme, percents):
        if width >= _NARROW_PERCENT:
            _number(right, start + width / 2, row, f"{width:.0f}", theme)
    for row, total in enumerate(totals.values()):
        change = f"  ({total / totals['dense'] - 1:+.1%})" if total != totals["dense"] else ""
        left.text(total / unit + largest / unit * 0.015, row, format_size(total) + change, va="center")
    left.set_title(f"{format_tokens(result.tokens)} tokens [{result.evidence}]")
    left.set_yticks(range(len(read)), list(read))
    left.set_xlim(0, largest / unit * 1.42)
    left.set_xlabel(f"bytes read ({name})")
    right.set_yticks([])
    right.set_xlim(0, 100)
    right.set_xlabel("share of what the policy reads (%)")
    for axes in (left, right):
        axes.set_ylim(len(read) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)


def _stack(
    axes: Axes,
    read: Mapping[str, Mapping[str, int]],
    inks: Mapping[str, Ink],
    theme: Theme,
    scales: Mapping[str, float],
) -> list[tuple[int, float, float]]:
    """Draw a bar for each policy; of each part its row, where it starts and how wide it is."""
    parts = []
    starts = [0.0] * len(read)
    for pool, ink in inks.items():
        widths = [by_pool.get(pool, 0) * scales[policy] for policy, by_pool in read.items()]
        axes.barh(
            range(len(read)),
            widths,
            left=starts,
            height=0.68,
            label=pool,
            color=ink.colour,
            hatch=ink.hatch,
            edgecolor=theme.edge,
            linewidth=0.5,
        )
        parts += [(row, start, width) for row, (start, width) in enumerate(zip(starts, widths, strict=True))]
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    return parts


def _number(axes: Axes, x: float, y: float, text: str, theme: Theme) -> None:
    axes.text(
        x, y, text, ha="center", va="center", fontsize=8.5,
        bbox={"boxstyle": "round,pad=0.15", "facecolor": theme.background, "edgecolor": "none"},
    )  # fmt: skip
