"""How every figure looks: two themes, one palette, one caption; and what makes its bytes reproducible.

The palette is that of Okabe and Ito (Color Universal Design, 2008), which readers with any common colour
vision tell apart; in print, hatches do. The font is the one that comes with Matplotlib; an SVG file holds
text as text, and names Verdana, which is as wide, for readers without that font.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hicache_bench.errors import InputError
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.pools.names import PoolName
from hicache_bench.units import GIB, KIB, MIB, TIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """Colours of what is no data. ``edge`` is drawn around bars, and their hatches."""

    name: str
    background: str
    text: str
    muted: str
    grid: str
    edge: str


THEMES: Mapping[str, Theme] = {
    theme.name: theme
    for theme in (
        Theme(
            name="light",
            background="#ffffff",
            text="#1a1a1a",
            muted="#5c5c5c",
            grid="#dcdcdc",
            edge="#303030",
        ),
        Theme(
            name="dark",
            background="#0d1117",
            text="#e6edf3",
            muted="#a3acb6",
            grid="#2f3742",
            edge="#0d1117",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Ink:
    """A colour and the hatch that stands for it in print."""

    colour: str
    hatch: str


BLUE, ORANGE, GREEN = Ink("#0072B2", ""), Ink("#E69F00", "///"), Ink("#009E73", "|||")
SKY, VERMILLION = Ink("#56B4E9", "\\\\\\"), Ink("#D55E00", "xx")
PURPLE, YELLOW, GREY = Ink("#CC79A7", "++"), Ink("#F0E442", "---"), Ink("#999999", "//--")
PALETTE = (BLUE, ORANGE, GREEN, SKY, VERMILLION, PURPLE, YELLOW, GREY)

_POOL_INKS: Mapping[str, Ink] = {
    PoolName.KV.value: BLUE,
    PoolName.MLA.value: BLUE,
    PoolName.FULL.value: BLUE,
    PoolName.SWA.value: ORANGE,
    PoolName.CHUNKED.value: YELLOW,
    PoolName.MAMBA.value: GREEN,
    PoolName.INDEXER.value: PURPLE,
    PoolName.V4_C4.value: SKY,
    PoolName.V4_C4_INDEXER.value: PURPLE,
    PoolName.V4_C128.value: GREEN,
    PoolName.V4_C4_STATE.value: VERMILLION,
    PoolName.V4_C4_INDEXER_STATE.value: YELLOW,
    PoolName.DRAFT.value: GREY,
}


@dataclass(frozen=True, slots=True)
class Stroke:
    """How the line of a policy looks."""

    colour: str
    dash: str
    marker: str


POLICY_STROKES: Mapping[str, Stroke] = {
    TransferPolicy.DENSE.value: Stroke(VERMILLION.colour, ":", "s"),
    TransferPolicy.HIT_POLICY.value: Stroke(GREEN.colour, "--", "o"),
    TransferPolicy.SELECTIVE.value: Stroke(BLUE.colour, "-", "D"),
}


def parse_theme(name: str) -> Theme:
    """The theme of this name.

    Raises:
        InputError: there is none.
    """
    if name not in THEMES:
        raise InputError(f"--theme {name!r} is unknown; allowed: {', '.join(THEMES)}")
    return THEMES[name]


def pool_inks(pools: Iterable[str]) -> dict[str, Ink]:
    """An ink for each pool: its own wherever it appears, another one if an earlier pool has that already."""
    inks: dict[str, Ink] = {}
    for pool in dict.fromkeys(pools):
        free = [ink for ink in PALETTE if ink not in inks.values()]
        own = _POOL_INKS.get(pool)
        inks[pool] = own if own in free else (free or PALETTE)[0] if own is None or free else own
    return inks


@contextmanager
def styled(theme: Theme) -> Iterator[None]:
    """``theme`` on Matplotlib's own defaults, whatever a matplotlibrc says, until the block ends."""
    import matplotlib.style

    settings = {
        "axes.edgecolor": theme.muted,
        "axes.facecolor": theme.background,
        "axes.grid": False,
        "axes.labelcolor": theme.text,
        "axes.labelsize": 9.5,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": theme.text,
        "axes.titlelocation": "left",
        "axes.titlesize": 10,
        "figure.dpi": 100,
        "figure.facecolor": theme.background,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Geneva"],
        "font.size": 9,
        "grid.color": theme.grid,
        "grid.linewidth": 0.8,
        "hatch.linewidth": 0.6,
        "legend.fontsize": 9,
        "legend.frameon": False,
        "legend.labelcolor": theme.text,
        "savefig.dpi": 200,
        "savefig.facecolor": theme.background,
        "svg.fonttype": "none",
        "svg.hashsalt": "hicache-bench",
        "text.color": theme.text,
        "text.parse_math": False,  # a "$" in a name is a "$"
        "xtick.color": theme.muted,
        "xtick.labelcolor": theme.text,
        "ytick.color": theme.muted,
        "ytick.labelcolor": theme.text,
    }
    with matplotlib.style.context(["default", settings]):
        yield


def size_unit(num_bytes: float) -> tuple[int, str]:
    """The binary unit in which an axis up to ``num_bytes`` is labelled, and its name."""
    units = ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
    return next(((unit, name) for unit, name in units if num_bytes >= unit), (1, "B"))


def token_axis(axes: Axes, tokens: Iterable[int]) -> None:
    """A logarithmic x axis with a tick at each of ``tokens``, as people write them: 8k, 1M."""
    from hicache_bench.units import format_tokens

    ticks = sorted(set(tokens))
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [format_tokens(tick) for tick in ticks], minor=False)
    axes.set_xticks([], minor=True)
