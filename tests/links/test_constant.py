from __future__ import annotations

import math

import pytest

from hicache_bench.errors import ConfigError
from hicache_bench.links.constant import Constant, Edge


def constant(
    value: float, low: float | None = None, high: float | None = None, source: str = "x"
) -> Constant:
    return Constant(name="rate", value=value, unit="B/s", source=source, low=low, high=high)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("field", ["value", "low", "high"])
def test_numbers_that_are_none_are_refused(field: str, bad: float) -> None:
    numbers = {"value": 2.0, "low": 1.0, "high": 3.0, field: bad}
    with pytest.raises(ConfigError, match=r"rate is .*allowed: finite numbers of at least 0"):
        constant(numbers["value"], numbers["low"], numbers["high"])


def test_a_band_holds_its_value() -> None:
    with pytest.raises(ConfigError, match="outside of its own band 3 to 4"):
        constant(2.0, 3.0, 4.0)
    with pytest.raises(ConfigError, match=r"outside of its own band 1 to 1\.5"):
        constant(2.0, 1.0, 1.5)


def test_a_number_without_a_source_is_refused() -> None:
    with pytest.raises(ConfigError, match="no source"):
        constant(2.0, source=" ")


def test_an_edge_is_quick_by_what_the_number_means() -> None:
    band = constant(2.0, 1.0, 4.0)
    assert (4.0, 2.0, 1.0) == tuple(band.at(edge, more_is_quick=True) for edge in Edge)
    assert (1.0, 2.0, 4.0) == tuple(band.at(edge, more_is_quick=False) for edge in Edge)
    moved = band.at_edge(Edge.SLOW, more_is_quick=True)
    assert (1.0, (1.0, 4.0)) == (moved.value, moved.band)


def test_a_number_without_a_band_stays_itself() -> None:
    point = constant(2.0)
    assert {2.0} == {point.at(edge, more_is_quick=True) for edge in Edge}
    assert (False, True, True) == (
        point.is_estimate,
        constant(2.0, low=1.0).is_estimate,
        constant(2.0, high=3.0).is_estimate,
    )
