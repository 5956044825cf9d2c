"""Figures drawn in the light theme, each once, and what can be read off them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from hicache_bench.report.plots.style import THEMES, Theme, styled

LIGHT, DARK = THEMES["light"], THEMES["dark"]


def drawn(draw: Callable[[Sequence[Any], Theme], Figure], *records: object, theme: Theme = LIGHT) -> Figure:
    """The figure, which is also laid out once: whatever only drawing finds fails here."""
    with styled(theme):
        figure = draw(records, theme)
        FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    return figure


def caption(figure: Figure) -> str:
    """Title and caption as one text."""
    return " ".join(text.get_text() for text in figure.texts)


def texts(axes: Axes) -> list[str]:
    """The texts in a panel."""
    return [text.get_text() for text in axes.texts]


def ticks(axes: Axes) -> tuple[list[str], list[str]]:
    """The labels of both axes."""
    return (
        [text.get_text() for text in axes.get_xticklabels()],
        [text.get_text() for text in axes.get_yticklabels()],
    )


def legend_texts(figure: Figure) -> list[str]:
    """Every entry of every legend."""
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def bar_lengths(axes: Axes) -> dict[str, list[float]]:
    """Lengths of the lying bars of each label, in the order of their rows."""
    return {
        str(group.get_label()): [patch.get_width() for patch in group.patches]
        for group in axes.containers
        if isinstance(group, BarContainer)
    }


def bar_heights(axes: Axes) -> dict[str, list[float]]:
    """Heights of the standing bars of each label, from left to right."""
    return {
        str(group.get_label()): [patch.get_height() for patch in group.patches]
        for group in axes.containers
        if isinstance(group, BarContainer)
    }


def points_of(drawn_line: Line2D) -> list[tuple[float, float]]:
    """What a line connects."""
    return [(float(x), float(y)) for x, y in np.asarray(drawn_line.get_xydata(), dtype=np.float64)]


def line(axes: Axes, label: str) -> list[tuple[float, float]]:
    """The points of the line of this label."""
    (found,) = (one for one in axes.lines if one.get_label() == label)
    return points_of(found)


def overflowing(figure: Figure) -> list[str]:
    """Texts that leave the figure."""
    width, height = figure.canvas.get_width_height()
    found = []
    for text in _shown_texts(figure):
        box = text.get_window_extent()
        if text.get_text() and (box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1):
            found.append(text.get_text())
    return found


def _shown_texts(figure: Figure) -> Iterator[Text]:
    yield from figure.texts
    for legend in figure.legends:
        yield from legend.get_texts()
    for axes in figure.axes:
        yield from (axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts, *axes.get_xticklabels())
        # Matplotlib keeps labels beyond the limits too, and does not show them.
        low, high = sorted(axes.get_ylim())
        yield from (label for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high)


def tags(figure: Figure) -> Iterator[str]:
    """Evidence tags of the caption."""
    yield from re.findall(r"\[(measured|counted|modeled|assumed)", caption(figure))
