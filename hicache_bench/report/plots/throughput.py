"""Measured throughput over the size of an object: every sample, the median, and the machine's own limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hicache_bench.records.bench import BenchRecord, Series
from hicache_bench.records.schema import Evidence
from hicache_bench.report.plots.sheet import LEGEND_LINE, MARGIN, WIDTH, Sheet, legend_lines
from hicache_bench.report.plots.style import Theme, pool_inks
from hicache_bench.stats import median
from hicache_bench.units import format_size, format_tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEFT, _HEIGHT, _FOOT = 0.75, 3.3, 0.5
_COLUMNS = 3
_MARKERS = {"restore": "o", "call": "^"}
_SHIFT = {"restore": 1.0, "call": 1.12}
"""Both operations have the same sizes of objects; a little apart, both can be seen."""
_MARKS = (
    "Small: one sample. Large: the median, with its 95 % bootstrap interval. Circle: all units of the pool. "
    "Triangle: one unit alone, so that the cost of a call shows. Copy: numpy, the same buffers, this run."
)
_BESIDE = 0.95
"""Samples stand left of their median, which would cover them."""


def draw_throughput(records: Sequence[BenchRecord], theme: Theme) -> Figure:
    """Figure of one bench: the restore of each pool alone, and of one unit of it."""
    (record,) = records
    shown = pool_series(record)
    pools = dict.fromkeys(series.pool for series in shown)
    sheet = Sheet.open(
        f"{record.preset['name']}: throughput by object size, store {record.store}",
        body=_HEIGHT + _FOOT + LEGEND_LINE * legend_lines(len(pools) + 3, _COLUMNS) + 0.15,
        caption=[_setting_text(record), _MARKS],
        theme=theme,
    )
    axes = sheet.axes(_LEFT, 0.1, WIDTH - _LEFT - 2 * MARGIN, _HEIGHT)
    inks = pool_inks(pool for pool in pools if pool is not None)
    for series in shown:
        assert series.pool is not None
        _samples(axes, series, inks[series.pool].colour, theme)
    limit = next((series for series in record.series if series.operation == "copy"), None)
    if limit is not None:
        rate = median(_rates(limit))
        axes.axhline(
            rate, color=theme.text, linestyle="-.", linewidth=1.4, label=f"numpy copy, {rate:.2f} GB/s"
        )
    _scales(axes, [object_bytes(series) for series in shown])
    _legend(sheet, axes)
    return sheet.figure


def _setting_text(record: BenchRecord) -> str:
    return (
        f"[{Evidence.MEASURED.value}] {record.state} store, {format_tokens(record.tokens)} tokens, "
        f"{record.batch_pages} pages a batch, {record.environment.get('processors', '?')} processors."
    )


def pool_series(record: BenchRecord) -> list[Series]:
    """The samples of one client for single pools: objects of one size each."""
    return [
        series
        for series in record.series
        if series.pool is not None
        and series.concurrent == 1
        and series.operation in _MARKERS
        and series.objects
    ]


def object_bytes(series: Series) -> float:
    """Mean bytes of an object."""
    return series.num_bytes / series.objects


def _rates(series: Series) -> list[float]:
    return [series.num_bytes / seconds / 1e9 for seconds in series.seconds]


def _samples(axes: Axes, series: Series, colour: str, theme: Theme) -> None:
    rates = _rates(series)
    marker = _MARKERS[series.operation]
    size = object_bytes(series) * _SHIFT[series.operation]
    axes.plot(
        [size * _BESIDE] * len(rates),
        rates,
        linestyle="",
        marker=marker,
        markersize=3.5,
        color=colour,
        alpha=0.7,
    )
    middle = series.num_bytes / series.summary.median / 1e9
    low, high = (series.num_bytes / end / 1e9 for end in (series.summary.high, series.summary.low))
    axes.plot([size, size], [low, high], color=theme.text, linewidth=1.2)
    axes.plot(
        [size],
        [middle],
        linestyle="",
        marker=marker,
        markersize=8.5,
        color=colour,
        markeredgecolor=theme.text,
        label=series.pool if series.operation == "restore" else None,
    )


def _scales(axes: Axes, sizes: Sequence[float]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    low, high = min(sizes), max(sizes)
    ticks = [4**power for power in range(3, 18) if low / 2 <= 4**power <= high * 2]
    axes.set_xticks(ticks, [format_size(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.set_xlabel("bytes of an object")
    axes.set_ylabel("throughput (GB/s, 10^9 bytes)")
    axes.grid(which="major")
    axes.set_axisbelow(True)


def _legend(sheet: Sheet, axes: Axes) -> None:
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    kinds = (("restore of the pool", "o"), ("one unit alone", "^"))
    for label, marker in kinds:
        handles.append(Line2D([], [], linestyle="", marker=marker, markersize=8, color=sheet.theme.muted))
        labels.append(label)
    sheet.legend(0.1 + _HEIGHT + _FOOT, handles, labels, columns=_COLUMNS)
