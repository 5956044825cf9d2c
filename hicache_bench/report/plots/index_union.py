"""Blocks that an index selects: how the union grows with the number of queries, over several runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hicache_bench.planning.plan import SkipReason
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.records.schema import Evidence, PoolAccount, RunRecord
from hicache_bench.report.plots.sheet import LEGEND_LINE, MARGIN, WIDTH, Sheet
from hicache_bench.report.plots.style import PALETTE, Theme
from hicache_bench.units import format_tokens
from hicache_bench.workflows.selection import SELECTION_LINK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEFT, _HEIGHT, _FOOT = 0.75, 3.0, 0.5
_UNION = (
    f"[{Evidence.MODELED.value}] The union over queries and layers of the blocks in which a selected row "
    "lies. Queries and index keys are seeded noise; real prompts select with more locality."
)
_HOLLOW = (
    "Hollow: all blocks were read, since all were selected, or since one batch of all is cheaper than "
    f"scattered reads on the link [{Evidence.ASSUMED.value}: {SELECTION_LINK.bytes_per_second / 1e9:g} GB/s, "
    f"{SELECTION_LINK.op_seconds * 1e3:g} ms a call]."
)
_MARKERS, _DASHES = "osD^vPX*", ("-", "--", ":", "-.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """What so many queries made a restore read of one selected pool; ``narrowed`` if some was left."""

    line: str
    queries: int
    percent: float
    narrowed: bool


def draw_index_union(records: Sequence[RunRecord], theme: Theme) -> Figure:
    """Figure of runs that differ in ``--queries``: a line for each model, length and selected pool."""
    unions = sorted(unions_of(records), key=lambda union: union.queries)
    lines = {union.line: [other for other in unions if other.line == union.line] for union in unions}
    sheet = Sheet.open(
        "Blocks read of a pool that an index selects from",
        body=_HEIGHT + _FOOT + LEGEND_LINE * len(lines) + 0.15,
        caption=[_UNION, _HOLLOW],
        theme=theme,
    )
    axes = sheet.axes(_LEFT, 0.1, WIDTH - _LEFT - 2 * MARGIN, _HEIGHT)
    for number, (name, found) in enumerate(sorted(lines.items())):
        _line(axes, name, found, number, theme)
    queries = sorted({union.queries for union in unions})
    axes.set_xscale("log", base=2)
    axes.set_xticks(queries, [f"{number:,}" for number in queries])
    axes.set_xticks([], minor=True)
    axes.set_ylim(0, 108)
    axes.set_xlabel("queries (tokens behind the prefix)")
    axes.set_ylabel("blocks read (%)")
    axes.grid()
    axes.set_axisbelow(True)
    sheet.legend(0.1 + _HEIGHT + _FOOT, *axes.get_legend_handles_labels(), columns=1)
    return sheet.figure


def unions_of(records: Sequence[RunRecord]) -> Iterator[Union]:
    """Every selected pool of every length on the first rank, whose index the other ranks hold too."""
    for record in records:
        selected = {pool.name for pool in record.pools if pool.selected_by}
        for result in record.results if record.queries else ():
            for policy in result.ranks[0].policies:
                for account in policy.pools:
                    if policy.policy == TransferPolicy.SELECTIVE.value and account.pool in selected:
                        yield _union(record, result.tokens, account)


def _union(record: RunRecord, tokens: int, account: PoolAccount) -> Union:
    left = account.skipped.get(SkipReason.NOT_SELECTED.value)
    blocks = account.read.pages + (left.pages if left else 0)
    return Union(
        line=(
            f"{record.preset['name']}, {account.pool}, {format_tokens(tokens)} tokens, pages of "
            f"{record.preset['page_tokens']}"
        ),
        queries=record.queries,
        percent=100 * account.read.pages / blocks if blocks else 100.0,
        narrowed=left is not None,
    )


def _line(axes: Axes, name: str, unions: Sequence[Union], number: int, theme: Theme) -> None:
    colour = PALETTE[number % len(PALETTE)].colour
    marker = _MARKERS[number % len(_MARKERS)]
    axes.plot(
        [union.queries for union in unions],
        [union.percent for union in unions],
        color=colour,
        linestyle=_DASHES[number % len(_DASHES)],
        marker=marker,
        markersize=6.5,
        linewidth=1.8,
        label=name,
    )
    whole = [union for union in unions if not union.narrowed]
    axes.plot(
        [union.queries for union in whole],
        [union.percent for union in whole],
        linestyle="",
        marker=marker,
        markersize=6.5,
        markerfacecolor=theme.background,
        markeredgecolor=colour,
        markeredgewidth=1.6,
    )
