"""Page maps: pages along x, one row for what is stored and one for each policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hicache_bench.pools.names import AttentionType
from hicache_bench.report.plots.sheet import LEGEND_LINE, MARGIN, POLICIES, WIDTH, Sheet
from hicache_bench.report.plots.style import Ink, Theme, pool_inks
from hicache_bench.units import format_tokens
from hicache_bench.workflows.concepts import Concept
from hicache_bench.workflows.page_map import ABSENT, READ, MapRow, PageMap, PoolMap

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEFT, _NOTES = 0.95, 2.45
_ROW = 0.2
_MAP_HEAD, _POOL_HEAD, _POOL_FOOT, _MAP_FOOT = 0.3, 0.25, 0.08, 0.48
_HEIGHT = 0.72  # of a cell, in rows


def draw_page_maps(concepts: Sequence[Concept], theme: Theme) -> Figure:
    """Figure of one concept page: each map with each of its pools."""
    (concept,) = concepts
    inks = pool_inks(pool.pool.name for found in concept.maps for pool in found.pools)
    body = sum(_map_height(found) for found in concept.maps)
    sheet = Sheet.open(
        concept.title,
        body=body + LEGEND_LINE + 0.1,
        caption=[
            f"[counted] {concept.preset}: the planner's own answer for each page. {concept.note}",
            POLICIES,
        ],
        theme=theme,
    )
    top = 0.0
    for found in concept.maps:
        _draw_map(sheet, top, found, inks)
        top += _map_height(found)
    _legend(sheet, top, concept)
    return sheet.figure


def _num_rows(pool: PoolMap) -> int:
    return 1 + len(pool.rows)


def _pool_height(pool: PoolMap) -> float:
    return _POOL_HEAD + _ROW * _num_rows(pool) + _POOL_FOOT


def _map_height(found: PageMap) -> float:
    return _MAP_HEAD + sum(map(_pool_height, found.pools)) + _MAP_FOOT


def _draw_map(sheet: Sheet, top: float, found: PageMap, inks: dict[str, Ink]) -> None:
    sheet.text(top + 0.16, _heading(found))
    top += _MAP_HEAD
    for pool in found.pools:
        axes = sheet.axes(_LEFT, top + _POOL_HEAD, WIDTH - _LEFT - _NOTES - MARGIN, _ROW * _num_rows(pool))
        _draw_pool(axes, pool, found, inks[pool.pool.name], sheet.theme)
        top += _pool_height(pool)
        if pool is found.pools[-1]:
            axes.set_xlabel(f"page ({found.page_tokens} tokens each)")
        else:
            axes.tick_params(axis="x", labelbottom=False)


def _heading(found: PageMap) -> str:
    shares = "them all" if found.shared_pages == found.num_pages else f"the first {found.shared_pages}"
    return (
        f"Saved: {found.num_pages} pages, {found.save_policy}. A prompt that shares {shares} resumes at page "
        f"{found.endpoint_pages}."
    )


def _draw_pool(axes: Axes, pool: PoolMap, found: PageMap, ink: Ink, theme: Theme) -> None:
    rows = _num_rows(pool)
    axes.set_title(_pool_title(pool), pad=3)
    axes.set_xlim(0, found.num_pages)
    axes.set_ylim(rows - 0.5, -0.5)
    step = 2 if found.num_pages <= 16 else 4
    axes.set_xticks(range(0, found.num_pages + 1, step))
    axes.tick_params(axis="both", length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    if not pool.rows:
        axes.set_yticks([0], ["stored"])
        axes.text(
            0, 0, "no buffer, no key, 0 bytes; it allows every endpoint", va="center", color=theme.muted
        )
        return
    axes.set_yticks(range(rows), ["stored", *(row.label for row in pool.rows)])
    _cells(axes, 0, pool.stored, pool, theme, theme.muted, "")
    for number, row in enumerate(pool.rows, 1):
        _cells(axes, number, [state == READ for state in row.states], pool, theme, ink.colour, ink.hatch)
        _cells(axes, number, [state not in (READ, ABSENT) for state in row.states], pool, theme, None, "")
        axes.annotate(
            _row_note(row),
            (1, number),
            (8, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            annotation_clip=False,
        )
    width = pool.pool.unit_pages
    dots = [(unit + 0.5) * width for unit, needed in enumerate(pool.needed) if needed]
    axes.plot(dots, [0] * len(dots), "o", color=theme.background, markersize=3.6, clip_on=False)
    axes.axvline(found.endpoint_pages, color=theme.text, linewidth=1.6, clip_on=False)


def _pool_title(pool: PoolMap) -> str:
    described = pool.pool
    window = ""
    if described.attention is AttentionType.SWA:
        window = f", window {described.window_tokens:,}"
    elif described.attention is AttentionType.CHUNKED:
        window = f", chunk {format_tokens(described.window_tokens or 0)}"
    return f"pool {described.name}: {described.attention}{window}"


def _row_note(row: MapRow) -> str:
    """``2 read, 14 out of window``."""
    states = [READ, *(state for state in dict.fromkeys(row.states) if state not in (READ, ABSENT))]
    return ", ".join(f"{row.count(state)} {state.replace('_', ' ')}" for state in states)


def _cells(
    axes: Axes, row: int, flags: Sequence[bool], pool: PoolMap, theme: Theme, colour: str | None, hatch: str
) -> None:
    """A cell for each unit that has its flag; without a ``colour`` only its outline."""
    width = pool.pool.unit_pages
    axes.broken_barh(
        [(unit * width + 0.06, width - 0.12) for unit, flag in enumerate(flags) if flag],
        (row - _HEIGHT / 2, _HEIGHT),
        facecolors=colour or "none",
        hatch=hatch,
        edgecolors=theme.edge if colour else theme.muted,
        linewidth=0.4 if colour else 0.8,
    )


def _legend(sheet: Sheet, top: float, concept: Concept) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    theme = sheet.theme
    physical = next(pool for pool in concept.maps[0].pools if pool.rows)
    ink = pool_inks([physical.pool.name])[physical.pool.name]
    stored = Patch(facecolor=theme.muted, edgecolor=theme.edge)
    dot = Line2D([], [], linestyle="", marker="o", markersize=3.6, color=theme.background)
    entries: Mapping[str, Artist | tuple[Artist, ...]] = {
        "stored": stored,
        "must exist for the endpoint": (stored, dot),
        "read": Patch(facecolor=ink.colour, hatch=ink.hatch, edgecolor=theme.edge),
        "stored, skipped": Patch(facecolor="none", edgecolor=theme.muted),
        "endpoint": Line2D([], [], color=theme.text, linewidth=1.6),
    }
    sheet.legend(top, list(entries.values()), list(entries), columns=5)
