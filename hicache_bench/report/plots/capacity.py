"""A replay over the capacity of the tier: what hits, and which pools fill it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from hicache_bench.records.replay import ReplayRecord, ReplayResult
from hicache_bench.records.schema import Evidence
from hicache_bench.report.plots.sheet import LEGEND_LINE, MARGIN, WIDTH, Sheet, legend_lines
from hicache_bench.report.plots.style import PALETTE, Ink, Theme, pool_inks
from hicache_bench.report.replay import capacity_text
from hicache_bench.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Scenario = tuple[str, str, str]
"""Save policy, eviction, policy."""
Series = Mapping[int | None, ReplayResult]
"""One scenario by capacity, the smallest first; None has no bound."""

_LEFT, _RATE_HEIGHT, _RESIDENT_HEIGHT, _HEAD, _FOOT = 0.75, 2.2, 1.3, 0.3, 0.5
_MARKERS, _DASHES = "osD^vPX*", ("-", "--", ":", "-.")
_POOL_COLUMNS = 3
_MAX_PANELS = 4


def draw_capacity(records: Sequence[ReplayRecord], theme: Theme) -> Figure:
    """Figure of one replay: hit rates above, shares of the resident bytes by pool below."""
    (record,) = records
    scenarios = by_scenario(record)
    lines = alike(scenarios, _rates)
    held = list(alike(scenarios, _residents).items())
    panels = held[:_MAX_PANELS]
    inks = pool_inks(pool.pool for pool in record.results[0].summary.pools)
    line_legend, pool_legend = len(lines) * LEGEND_LINE, LEGEND_LINE * legend_lines(len(inks), _POOL_COLUMNS)
    rates = _HEAD + _RATE_HEIGHT + _FOOT + line_legend + 0.1
    resident = _HEAD + _RESIDENT_HEIGHT
    more = len(held) - len(panels)
    sheet = Sheet.open(
        f"{record.preset['name']}: what a tier of each capacity hits and holds",
        body=rates + resident * len(panels) + _FOOT + pool_legend + 0.15,
        caption=[
            _setting_text(record),
            f"Hit: {record.hit_definition_text}. Resident: at the end of the trace.",
            *([f"{more} more panels are left out; the record has them."] if more else []),
        ],
        theme=theme,
    )
    width = WIDTH - _LEFT - 2 * MARGIN
    axes = sheet.axes(_LEFT, _HEAD, width, _RATE_HEIGHT)
    _draw_rates(axes, lines, scenarios)
    sheet.legend(_HEAD + _RATE_HEIGHT + _FOOT, *axes.get_legend_handles_labels(), columns=1)
    for number, (first, names) in enumerate(panels):
        axes = sheet.axes(_LEFT, rates + resident * number + _HEAD, width, _RESIDENT_HEIGHT)
        axes.set_title("resident, " + scenario_text(names), fontsize=9)
        _draw_residents(axes, scenarios[first], inks, theme)
        axes.tick_params(axis="x", labelbottom=number == len(panels) - 1)
    axes.set_xlabel("capacity of the tier")
    sheet.legend(
        rates + resident * len(panels) + _FOOT, *axes.get_legend_handles_labels(), columns=_POOL_COLUMNS
    )
    return sheet.figure


def _setting_text(record: ReplayRecord) -> str:
    trace = record.trace
    return (
        f"[{Evidence.COUNTED.value}] Trace {trace.name} ({trace.digest}): {record.measured_requests:,} of "
        f"{trace.requests:,} requests measured, blocks of {trace.block_tokens} tokens, pages of "
        f"{record.page_tokens}; profile {record.profile}."
    )


def by_scenario(record: ReplayRecord) -> dict[Scenario, Series]:
    """The results of each scenario, those of small capacities first."""
    rising = sorted(
        record.results, key=lambda result: inf if result.capacity_bytes is None else result.capacity_bytes
    )
    found: dict[Scenario, dict[int | None, ReplayResult]] = {
        (result.save_policy, result.eviction, result.policy): {} for result in record.results
    }
    for result in rising:
        found[result.save_policy, result.eviction, result.policy][result.capacity_bytes] = result
    return dict(found)


def alike(
    scenarios: Mapping[Scenario, Series], figures_of: Callable[[Series], Hashable]
) -> dict[Scenario, list[Scenario]]:
    """The first of each set of scenarios whose figures are equal, to all of them."""
    found: dict[Hashable, list[Scenario]] = {}
    for scenario, series in scenarios.items():
        found.setdefault(figures_of(series), []).append(scenario)
    return {names[0]: names for names in found.values()}


def scenario_text(scenarios: Sequence[Scenario]) -> str:
    """``dense, selective; lru; saved window=all``, for scenarios that differ in one of the three at most."""
    saves, evictions, policies = (dict.fromkeys(parts) for parts in zip(*scenarios, strict=True))
    return f"{', '.join(policies)}; {', '.join(evictions)}; saved {' or '.join(saves)}"


def _rates(series: Series) -> tuple[float, ...]:
    return tuple(100 * result.summary.tokens.hit_rate for result in series.values())


def _residents(series: Series) -> tuple[tuple[tuple[str, int], ...], ...]:
    return tuple(
        tuple((pool.pool, pool.resident_bytes) for pool in result.summary.pools) for result in series.values()
    )


def _draw_rates(
    axes: Axes, lines: Mapping[Scenario, Sequence[Scenario]], scenarios: Mapping[Scenario, Series]
) -> None:
    highest = 1.0
    for number, (first, names) in enumerate(lines.items()):
        rates = _rates(scenarios[first])
        highest = max(highest, *rates)
        axes.plot(
            range(len(rates)),
            rates,
            color=PALETTE[number % len(PALETTE)].colour,
            linestyle=_DASHES[number % len(_DASHES)],
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=5.5,
            linewidth=1.8,
            label=scenario_text(names),
        )
    for position, at_capacity in enumerate(zip(*(_rates(scenarios[first]) for first in lines), strict=True)):
        # Lines lie close, and more numbers than these two would lie on each other.
        _rate(axes, position, max(at_capacity), 7)
        if min(at_capacity) < max(at_capacity):
            _rate(axes, position, min(at_capacity), -14)
    _capacity_axis(axes, next(iter(scenarios.values())))
    axes.set_ylim(0, highest * 1.15)
    axes.set_ylabel("tokens hit (%)")
    axes.set_xlabel("capacity of the tier")
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _rate(axes: Axes, position: int, rate: float, points: int) -> None:
    axes.annotate(
        f"{rate:.1f}", (position, rate), (0, points), textcoords="offset points", ha="center", fontsize=8.5,
        annotation_clip=False,
    )  # fmt: skip


def _draw_residents(axes: Axes, series: Series, inks: Mapping[str, Ink], theme: Theme) -> None:
    """Shares, since a tier without bound holds many times what the others do; the bytes stand above."""
    by_pool = [dict(pools) for pools in _residents(series)]
    totals = [sum(pools.values()) for pools in by_pool]
    bottoms = [0.0] * len(series)
    for pool, ink in inks.items():
        shares = [
            100 * pools.get(pool, 0) / total if total else 0.0
            for pools, total in zip(by_pool, totals, strict=True)
        ]
        axes.bar(
            range(len(series)),
            shares,
            bottom=bottoms,
            width=0.55,
            label=pool,
            color=ink.colour,
            hatch=ink.hatch,
            edgecolor=theme.edge,
            linewidth=0.5,
        )
        bottoms = [bottom + share for bottom, share in zip(bottoms, shares, strict=True)]
    for position, total in enumerate(totals):
        axes.text(position, 103, format_size(total), ha="center", va="bottom", fontsize=8.5)
    _capacity_axis(axes, series)
    axes.set_ylim(0, 122)
    axes.set_yticks([0, 50, 100])
    axes.set_ylabel("share of bytes (%)")


def _capacity_axis(axes: Axes, series: Series) -> None:
    axes.set_xlim(-0.5, len(series) - 0.5)
    axes.set_xticks(
        range(len(series)),
        ["no bound" if capacity is None else capacity_text(capacity) for capacity in series],
    )
