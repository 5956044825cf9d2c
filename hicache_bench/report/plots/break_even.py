"""The break-even map: speed-up of reading over recomputing, by bandwidth of the link and prefix length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log2, log10
from typing import TYPE_CHECKING, Any

from hicache_bench.records.simulation import BreakEvenTime, SimulationRecord
from hicache_bench.report.plots.first_token import (
    CONSTANTS,
    by_prefix,
    evidence_text,
    policies_alike,
    setting_text,
)
from hicache_bench.report.plots.sheet import LEGEND_LINE, MARGIN, WIDTH, Sheet
from hicache_bench.report.plots.style import BLUE, VERMILLION, Theme
from hicache_bench.report.simulate_constants import constant_lines
from hicache_bench.units import format_tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEFT, _HEAD, _ROW, _FOOT = 0.65, 0.27, 0.27, 0.5
_STRONGEST = 4.0
"""Binary logarithm of the speed-up at which a colour is full: 16x."""
_DARK = 0.6
"""Part of the full strength above which the colour needs light numbers."""
_INK, _PAPER = (
    "#1a1a1a",
    "#f4f4f4",
)  # the cells are the same in both themes, and so is what is written on them
_NO_OVERLAP: Mapping[str, Any] = {
    "color": _INK, "linewidth": 2.0, "linestyle": "-", "marker": "o", "markersize": 4.5
}  # fmt: skip
_FULL_OVERLAP: Mapping[str, Any] = {"color": _INK, "linewidth": 2.0, "linestyle": ":"}


def draw_break_even(records: Sequence[SimulationRecord], theme: Theme) -> Figure:
    """Figure of a sweep over the prefix length with ``--break-even``: a map for each policy that differs."""
    points = by_prefix(records)
    first = points[0]
    together = policies_alike(
        [[tuple(entry.speed_up.items()) for entry in point.break_even] for point in points]
    )
    panel = _HEAD + _ROW * len(points) + _FOOT
    sheet = Sheet.open(
        f"{first.preset['name']}: when reading from L3 beats recomputing, {first.system}",
        body=panel * len(together) + LEGEND_LINE + 0.15,
        caption=[
            f"{evidence_text(first)}, nothing overlaps, no timeout, calls and lookups as over {first.link}.",
            setting_text(first),
            CONSTANTS,
            *constant_lines(records),
        ],
        theme=theme,
    )
    for number, (index, indexes) in enumerate(together.items()):
        top = panel * number + _HEAD
        axes = sheet.axes(_LEFT, top, WIDTH - _LEFT - 2 * MARGIN, _ROW * len(points))
        names = ", ".join(first.break_even[other].policy for other in indexes)
        axes.set_title(f"{names}: recomputing takes this many times as long")
        _map(axes, points, [point.break_even[index] for point in points])
    _legend(sheet, panel * len(together))
    return sheet.figure


def _map(axes: Axes, points: Sequence[SimulationRecord], entries: Sequence[BreakEvenTime]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("speed-up", [VERMILLION.colour, _PAPER, BLUE.colour])
    rates = [log10(float(rate)) for rate in entries[0].speed_up]
    middles = [(low + high) / 2 for low, high in pairwise(rates)]
    edges = [2 * rates[0] - middles[0], *middles, 2 * rates[-1] - middles[-1]]
    widths = [high - low for low, high in pairwise(edges)]
    for row, entry in enumerate(entries):
        strengths = [_strength(speed_up) for speed_up in entry.speed_up.values()]
        cells = [colours((strength + 1) / 2) for strength in strengths]
        axes.broken_barh(
            list(zip(edges, widths, strict=False)),
            (row - 0.5, 1.0),
            facecolors=cells,
            edgecolors=_PAPER,
            linewidth=0.8,
        )
        for rate, speed_up, strength, cell in zip(
            rates, entry.speed_up.values(), strengths, cells, strict=True
        ):
            axes.text(
                rate,
                row,
                _times(speed_up),
                ha="center",
                va="center",
                fontsize=8.5,
                color=_PAPER if strength > _DARK else _INK,
                zorder=5,
                bbox={"boxstyle": "square,pad=0.1", "facecolor": cell, "edgecolor": "none", "alpha": 0.7},
            )
    for rates_found, looks in (
        ([entry.no_overlap for entry in entries], _NO_OVERLAP),
        ([entry.full_overlap for entry in entries], _FULL_OVERLAP),
    ):
        line = [(log10(rate), row) for row, rate in enumerate(rates_found) if rate]
        if line:
            axes.plot(*zip(*line, strict=True), **looks)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(len(entries) - 0.5, -0.5)
    axes.set_xticks(rates, [f"{10**rate / 1e9:g}" for rate in rates])
    axes.set_yticks(range(len(points)), [format_tokens(point.prefix_tokens) for point in points])
    axes.tick_params(length=0)
    axes.set_xlabel("bandwidth of a node's link (GB/s, 10^9 bytes)")
    axes.set_ylabel("prefix (tokens)")


def _strength(speed_up: float) -> float:
    """-1 where recomputing is far quicker, 1 where reading is."""
    return min(max(log2(speed_up) / _STRONGEST, -1.0), 1.0)


def _times(speed_up: float) -> str:
    return f"{speed_up:.2f}" if speed_up < 10 else f"{speed_up:.0f}"


def _legend(sheet: Sheet, top: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    paper = Patch(facecolor=_PAPER)
    sheet.legend(
        top,
        [
            (paper, Line2D([], [], **_NO_OVERLAP)),
            (paper, Line2D([], [], **_FULL_OVERLAP)),
            Patch(facecolor=VERMILLION.colour),
            Patch(facecolor=BLUE.colour),
        ],
        ["break-even, no overlap", "with full overlap", "recomputing is quicker", "reading is quicker"],
        columns=4,
    )
