from __future__ import annotations

from itertools import combinations

import matplotlib as mpl
import pytest

from hicache_bench.errors import InputError
from hicache_bench.pools.names import PoolName
from hicache_bench.report.plots.style import (
    PALETTE,
    POLICY_STROKES,
    THEMES,
    parse_theme,
    pool_inks,
    size_unit,
    styled,
)
from hicache_bench.units import GIB, MIB
from tests.report.plots.drawn import LIGHT
from tests.workflows.runs import PRESETS, cached_run

OKABE_ITO = {"#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#CC79A7", "#F0E442"}


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_that_of_the_standard() -> None:
    assert 21 == pytest.approx(contrast("#ffffff", "#000000"))
    assert 4.54 == pytest.approx(contrast("#767676", "#ffffff"), abs=0.01)


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_text_can_be_read(theme: object) -> None:
    chosen = parse_theme(theme.name)  # type: ignore[attr-defined]
    assert contrast(chosen.text, chosen.background) >= 7
    assert contrast(chosen.muted, chosen.background) >= 4.5


def test_colours_are_those_that_colour_blind_readers_tell_apart_and_no_hatch_comes_twice() -> None:
    assert {ink.colour for ink in PALETTE} - OKABE_ITO == {"#999999"}
    assert len(PALETTE) == len({ink.hatch for ink in PALETTE}) == len({ink.colour for ink in PALETTE})
    looks = [(stroke.dash, stroke.marker) for stroke in POLICY_STROKES.values()]
    assert all(one[0] != other[0] and one[1] != other[1] for one, other in combinations(looks, 2))


@pytest.mark.parametrize("preset", PRESETS)
def test_pools_of_a_preset_differ_and_keep_their_ink_in_any_company(preset: str) -> None:
    pools = [pool.name for pool in cached_run(preset, 8192).pools if pool.decision != "skip"]
    inks = pool_inks(pools)
    assert len(set(inks.values())) == len(inks)
    for pool, ink in inks.items():
        if pool in list(PoolName):
            assert pool_inks([pool])[pool] == ink


def test_more_pools_than_inks_begin_again() -> None:
    assert len(pool_inks(str(number) for number in range(20))) == 20


def test_a_pool_whose_ink_is_taken_gets_another() -> None:
    inks = pool_inks(["kv", "mla", "full"])
    assert len(set(inks.values())) == 3


def test_settings_of_the_user_do_not_matter_and_come_back() -> None:
    with mpl.rc_context({"font.size": 33.0, "axes.grid": True}):
        with styled(LIGHT):
            assert 9 == mpl.rcParams["font.size"]
            assert mpl.rcParams["axes.grid"] is False
        assert 33 == mpl.rcParams["font.size"]


def test_unknown_theme_names_those_that_are() -> None:
    with pytest.raises(InputError, match="'sepia' is unknown; allowed: light, dark"):
        parse_theme("sepia")


@pytest.mark.parametrize(("num_bytes", "unit"), [(0, "B"), (1023, "B"), (MIB, "MiB"), (GIB - 1, "MiB")])
def test_axis_unit(num_bytes: int, unit: str) -> None:
    assert unit == size_unit(num_bytes)[1]
