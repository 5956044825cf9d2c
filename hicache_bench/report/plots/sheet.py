"""The page that a figure is drawn on: title, panels, legend and caption at places given in inches.

Nothing is placed by the extent of a text, so that no release of a renderer moves a panel.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hicache_bench.report.plots.style import Theme

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 8.0
"""Inches: 800 px at 100 dpi."""
MARGIN = 0.12
POLICIES = (
    "dense reads all that is stored, hit_policy what SGLang reads, selective what the next token needs."
)
"""Of every caption under bytes of the three."""
POLICIES_BEHIND_A_LOCAL_PREFIX = POLICIES.replace("all that is stored", "all that is stored and not local")
LEGEND_LINE = 0.21
_TITLE = 0.40
_CAPTION_LINE = 0.155
_CAPTION_CHARACTERS = 130


@dataclass(frozen=True, slots=True)
class Sheet:
    """A figure with a title above and a caption below what is placed on it."""

    figure: Figure
    theme: Theme

    @classmethod
    def open(cls, title: str, *, body: float, caption: Iterable[str], theme: Theme) -> Sheet:
        """An empty sheet with ``body`` inches between title and caption."""
        from matplotlib.figure import Figure

        lines = [line for text in caption for line in textwrap.wrap(text, _CAPTION_CHARACTERS)]
        height = _TITLE + body + _CAPTION_LINE * len(lines) + MARGIN
        sheet = cls(Figure(figsize=(WIDTH, height)), theme)
        sheet.figure.text(
            MARGIN / WIDTH, 1 - 0.1 / height, title, va="top", fontsize=12, fontweight="bold"
        )  # fmt: skip
        for number, line in enumerate(lines, 1):
            bottom = (MARGIN * 0.7 + _CAPTION_LINE * (len(lines) - number)) / height
            sheet.figure.text(MARGIN / WIDTH, bottom, line, va="bottom", fontsize=8, color=theme.muted)
        return sheet

    def axes(self, left: float, top: float, width: float, height: float, **options: Any) -> Axes:
        """A panel; ``top`` is measured from the title downwards."""
        whole = self.figure.get_figheight()
        bottom = whole - _TITLE - top - height
        rectangle = (left / WIDTH, bottom / whole, width / WIDTH, height / whole)
        return self.figure.add_axes(rectangle, **options)

    def text(self, top: float, text: str) -> None:
        """A line of text at the left margin."""
        whole = self.figure.get_figheight()
        self.figure.text(MARGIN / WIDTH, 1 - (_TITLE + top) / whole, text, va="center", fontsize=9.5)

    def legend(
        self,
        top: float,
        handles: Sequence[Artist | tuple[Artist, ...]],
        labels: Sequence[str],
        *,
        columns: int,
        left: float = MARGIN,
    ) -> None:
        """A legend ``top`` inches below the title; handles in a tuple lie on each other."""
        whole = self.figure.get_figheight()
        self.figure.legend(
            cast("Sequence[Artist]", handles),
            labels,
            loc="upper left",
            bbox_to_anchor=(left / WIDTH, 1 - (_TITLE + top) / whole),
            borderaxespad=0,
            borderpad=0,
            ncols=columns,
            handlelength=2.4,
            handleheight=1.0,
            columnspacing=1.6,
        )


def legend_lines(number: int, columns: int) -> int:
    """Lines of a legend of ``number`` entries."""
    return -(-number // columns)
