"""The break-even of reading against recomputing, and the map of speed-ups over bandwidth and prefix."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hicache_bench.records.simulation import BreakEvenTime, SimulationRecord
from hicache_bench.units import format_size, format_tokens


def render_break_even(points: Sequence[SimulationRecord]) -> Group:
    """A row per prefix and policy, then one map per policy; policies of equal bytes share theirs."""
    parts: list[RenderableType] = [
        Text("\nGB/s of a node's link above which reading beats recomputing [modeled]", style="bold"),
        _table(points),
        Text(
            "At peak: FAST'25 eq. 2 on these bytes, at peak FLOPS and with nothing but bytes.\n"
            "Never: lookup, calls and L2→L1 alone take as long as recomputing."
        ),
    ]
    mapped: dict[tuple[object, ...], list[str]] = {}
    for index, entry in enumerate(points[0].break_even):
        cells = tuple(tuple(point.break_even[index].speed_up.values()) for point in points)
        mapped.setdefault(cells, []).append(entry.policy)
    for names in mapped.values():
        index = [entry.policy for entry in points[0].break_even].index(names[0])
        parts += [
            Text(f"\n{', '.join(names)}: speed-up over recomputing by GB/s of the link [modeled]"),
            _map(points, index),
        ]
    return Group(*parts)


def _table(points: Sequence[SimulationRecord]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for column in (
        "prefix",
        "suffix",
        "policy",
        "bytes over\na node's link",
        "full\noverlap",
        "no\noverlap",
        "at\npeak",
    ):
        table.add_column(column, justify="left" if column == "policy" else "right", no_wrap=True)
    for point in points:
        for entry in point.break_even:
            table.add_row(
                format_tokens(point.prefix_tokens),
                format_tokens(point.suffix_tokens),
                entry.policy,
                format_size(entry.node_bytes),
                *_rates(entry),
            )
    return table


def _rates(entry: BreakEvenTime) -> tuple[str, str, str]:
    return (
        "never" if entry.full_overlap is None else gigabytes(entry.full_overlap),
        "never" if entry.no_overlap is None else gigabytes(entry.no_overlap),
        "-" if entry.at_peak is None else gigabytes(entry.at_peak),
    )


def gigabytes(bytes_per_second: float) -> str:
    """``5.86``, ``18.6``, ``123``: three digits."""
    value = bytes_per_second / 1e9
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _map(points: Sequence[SimulationRecord], index: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("prefix", justify="right", no_wrap=True)
    for rate in points[0].break_even[index].speed_up:
        table.add_column(f"{float(rate) / 1e9:g}", justify="right", no_wrap=True)
    for point in points:
        cells = [_cell(value) for value in point.break_even[index].speed_up.values()]
        table.add_row(format_tokens(point.prefix_tokens), *cells)
    return table


def _cell(speed_up: float) -> str:
    text = f"{speed_up:.2f}" if speed_up < 10 else f"{speed_up:.1f}"
    return text + "x"
