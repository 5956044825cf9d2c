"""What a figure shows, as one digest that does not depend on the version of Matplotlib.

Two releases of Matplotlib place a tick label or round a curve differently, so that bytes of figures cannot be
compared across them. What was asked of it can: every line, bar, cell and text with its data and its looks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_DIGITS = 6
"""Significant digits of a coordinate; the last bits of a product differ between processors."""


def fingerprint(figure: Figure) -> str:
    """The first 16 hex digits of the sha256 of what ``figure`` shows."""
    text = json.dumps(describe(figure), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def describe(figure: Figure) -> list[Any]:
    """Plain data: size, then every artist that was asked for, in order; no spines or frames."""
    described: list[Any] = [_numbers(figure.get_size_inches()), _numbers(figure.get_facecolor())]
    described += _artists((*figure.texts, *figure.legends))
    for axes in figure.axes:
        described.append(
            {
                "title": axes.get_title(loc="left"),
                "labels": [axes.get_xlabel(), axes.get_ylabel()],
                "scales": [axes.get_xscale(), axes.get_yscale()],
                "limits": _numbers([*axes.get_xlim(), *axes.get_ylim()]),
                "place": _numbers(axes.get_position().bounds),
                "ticks": [_tick_texts(axis) for axis in (axes.xaxis, axes.yaxis)],
            }
        )
        described += _artists((*axes.lines, *axes.patches, *axes.collections, *axes.texts))
    return described


def _tick_texts(axis: Axis) -> list[str]:
    """Those that were given; Matplotlib finds the others, and each release may find others."""
    from matplotlib.ticker import FixedLocator

    given = isinstance(axis.get_major_locator(), FixedLocator)
    return [label.get_text() for label in axis.get_ticklabels()] if given else []


def _artists(artists: Iterable[Artist]) -> Iterator[Any]:
    from matplotlib.collections import Collection
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.text import Text

    for artist in artists:
        if isinstance(artist, Text):
            yield [
                "text",
                artist.get_text(),
                artist.get_fontsize(),
                str(artist.get_color()),
                *_numbers(artist.get_position()),
            ]
        elif isinstance(artist, Line2D):
            looks = [str(artist.get_color()), str(artist.get_linestyle()), str(artist.get_marker())]
            yield ["line", *looks, artist.get_linewidth(), _numbers(artist.get_xydata())]
        elif isinstance(artist, Patch):
            corners = artist.get_patch_transform().transform(artist.get_path().vertices)
            colours = [_numbers(artist.get_facecolor()), _numbers(artist.get_edgecolor())]
            yield ["patch", *colours, str(artist.get_hatch()), _numbers(corners)]
        elif isinstance(artist, Collection):
            values = artist.get_array()
            yield [
                "collection",
                str(artist.get_hatch()),
                _numbers(artist.get_facecolor()),
                _numbers(artist.get_edgecolor()),
                _numbers(artist.get_offsets()),
                [] if values is None else _numbers(values),
                [_numbers(path.vertices) for path in artist.get_paths()],
            ]
        elif isinstance(artist, Legend):
            yield ["legend", [text.get_text() for text in artist.get_texts()]]


def _numbers(values: Any) -> list[str]:
    flat = np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan).ravel()
    return [f"{value:.{_DIGITS}g}" for value in flat]
