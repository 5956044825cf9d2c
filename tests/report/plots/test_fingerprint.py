from __future__ import annotations

from collections.abc import Callable

import pytest
from matplotlib.figure import Figure

from hicache_bench.report.plots.fingerprint import fingerprint
from tests.report.plots.drawn import DARK


def figure() -> Figure:
    made = Figure(figsize=(4, 3))
    made.text(0.1, 0.9, "title")
    axes = made.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.plot([1, 2, 3], [3, 2, 1], label="line")
    axes.bar([1, 2], [1, 2], hatch="/")
    axes.fill_between([1, 2], [1, 1], [2, 2])
    axes.pcolormesh([[1.0, 2.0]])
    axes.text(1, 1, "text")
    axes.set_xticks([1, 2], ["one", "two"])
    made.legend(*axes.get_legend_handles_labels())
    return made


CHANGES: dict[str, Callable[[Figure], object]] = {
    "size": lambda made: made.set_size_inches(4, 3.1),
    "background": lambda made: made.set_facecolor(DARK.background),
    "title": lambda made: made.texts[0].set_text("other"),
    "text": lambda made: made.axes[0].texts[0].set_text("other"),
    "place of a text": lambda made: made.axes[0].texts[0].set_position((1, 1.01)),
    "colour of a text": lambda made: made.axes[0].texts[0].set_color("red"),
    "line": lambda made: made.axes[0].lines[0].set_ydata([3, 2, 1.001]),
    "colour of a line": lambda made: made.axes[0].lines[0].set_color("red"),
    "dash of a line": lambda made: made.axes[0].lines[0].set_linestyle(":"),
    "marker of a line": lambda made: made.axes[0].lines[0].set_marker("o"),
    "width of a line": lambda made: made.axes[0].lines[0].set_linewidth(3),
    "bar": lambda made: made.axes[0].patches[1].set_height(2.001),  # type: ignore[attr-defined]
    "colour of a bar": lambda made: made.axes[0].patches[1].set_facecolor("red"),
    "edge of a bar": lambda made: made.axes[0].patches[1].set_edgecolor("red"),
    "hatch of a bar": lambda made: made.axes[0].patches[1].set_hatch("x"),
    "band": lambda made: made.axes[0].collections[0].set_facecolor("red"),
    "value of a cell": lambda made: made.axes[0].collections[1].set_array([[1.0, 3.0]]),
    "no band": lambda made: made.axes[0].collections[0].remove(),
    "panel": lambda made: made.axes[0].set_position((0.1, 0.1, 0.8, 0.7)),
    "axis": lambda made: made.axes[0].set_xlabel("x (B)"),
    "heading": lambda made: made.axes[0].set_title("heading", loc="left"),
    "scale": lambda made: made.axes[0].set_yscale("log"),
    "limits": lambda made: made.axes[0].set_xlim(0, 5),
    "ticks": lambda made: made.axes[0].set_xticks([1, 2], ["one", "three"]),
    "legend": lambda made: made.legends[0].get_texts()[0].set_text("other"),
    "another panel": lambda made: made.add_axes((0, 0, 0.1, 0.1)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_what_is_shown_is_seen(change: Callable[[Figure], object]) -> None:
    changed = figure()
    change(changed)
    assert fingerprint(figure()) != fingerprint(changed)


def test_equal_figures_have_equal_fingerprints() -> None:
    assert fingerprint(figure()) == fingerprint(figure())


def test_the_last_bits_of_a_coordinate_do_not_matter() -> None:
    other = figure()
    other.axes[0].lines[0].set_ydata([3, 2, 1 + 1e-12])
    assert fingerprint(figure()) == fingerprint(other)
