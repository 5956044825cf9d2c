from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import Collection

from hicache_bench.report.plots.page_maps import draw_page_maps
from hicache_bench.report.plots.style import THEMES, Theme
from hicache_bench.workflows.concepts import CONCEPTS
from hicache_bench.workflows.page_map import READ
from tests.report.plots.drawn import caption, drawn, overflowing, points_of, tags, texts, ticks


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
@pytest.mark.parametrize("name", CONCEPTS)
def test_every_picture_fits_and_shows_every_pool(name: str, theme: Theme) -> None:
    concept = CONCEPTS[name]()
    figure = drawn(draw_page_maps, concept, theme=theme)
    pools = [pool for found in concept.maps for pool in found.pools]
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert [f"pool {pool.pool.name}: {pool.pool.attention}" for pool in pools] == [
        title.partition(",")[0] for title in titles
    ]
    assert overflowing(figure) == []
    assert "counted" in tags(figure)
    assert concept.preset in caption(figure)


def units_of(cells: Collection) -> list[int]:
    return [int(np.asarray(path.vertices)[:, 0].min()) for path in cells.get_paths()]


def middle_of(cells: Collection) -> float:
    return float(np.mean([np.asarray(path.vertices)[:4, 1].mean() for path in cells.get_paths()] or [-9]))


def test_filled_cells_are_pages_that_are_read() -> None:
    concept = CONCEPTS["swa"]()
    figure = drawn(draw_page_maps, concept)
    axes, pool = figure.axes[1], concept.maps[0].pools[1]
    assert ["stored", "dense", "hit_policy", "selective"] == ticks(axes)[1]
    for number, row in enumerate(pool.rows, 1):
        cells = [group for group in axes.collections if number == round(middle_of(group))]
        filled = [unit for group in cells if len(group.get_facecolor()) for unit in units_of(group)]
        assert sorted(unit for group in cells for unit in units_of(group)) == list(range(16))
        assert [unit for unit, state in enumerate(row.states) if state == READ] == filled
    assert ["16 read", "2 read, 14 out of window", "2 read, 14 out of window"] == texts(axes)


def test_dots_and_the_line_are_what_must_exist_and_the_endpoint() -> None:
    concept = CONCEPTS["recurrent"]()
    axes = drawn(draw_page_maps, concept).axes[3]
    dots, endpoint = axes.lines
    assert [(11.5, 0)] == points_of(dots)
    assert {12} == {x for x, _ in points_of(endpoint)}


def test_a_logical_pool_has_no_cells() -> None:
    axes = drawn(draw_page_maps, CONCEPTS["logical-anchor"]()).axes[0]
    assert [] == list(axes.collections)
    assert ["no buffer, no key, 0 bytes; it allows every endpoint"] == texts(axes)
