from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import ConfigError
from hicache_bench.links.constant import Edge
from hicache_bench.links.link import Link, RatePoint
from tests.links.rig import link, number

CURVE = {1 << 16: 1e9, 1 << 18: 3e9, 1 << 20: 4e9}


@pytest.mark.parametrize(
    ("object_bytes", "rate"),
    [
        (1 << 16, 1e9),
        (1 << 17, 2e9),  # half way in the logarithm
        (1 << 18, 3e9),
        (1 << 19, 3.5e9),
        (1 << 20, 4e9),
        (1 << 30, 4e9),
        (1 << 15, 0.5e9),  # as long as an object of the first size
        (1, 1e9 / (1 << 16)),
    ],
)
def test_bandwidth_by_object_size(object_bytes: int, rate: float) -> None:
    assert rate == pytest.approx(link(CURVE).bytes_per_second(object_bytes))


def test_between_points_the_logarithm_counts() -> None:
    assert 2.0e9 == pytest.approx(link({100: 1e9, 400: 3e9}).bytes_per_second(200))
    assert 2.0e9 != pytest.approx(link({100: 1e9, 400: 3e9}).bytes_per_second(250))


def test_a_call_is_the_sum_of_its_objects() -> None:
    path = link(CURVE)
    assert (1 << 16) * 10 / 1e9 + (1 << 20) * 3 / 4e9 == pytest.approx(
        path.move_seconds([(1 << 16, 10), (1 << 20, 3)])
    )
    assert 4 * path.move_seconds([(1 << 16, 10)]) == pytest.approx(
        path.move_seconds([(1 << 16, 10)], sharers=4)
    )
    assert 0 == path.move_seconds([])


def test_queries_cost_by_call_and_by_key() -> None:
    path = link(lookup_call=1e-3, lookup_key=1e-6)
    assert 2e-3 + 5e-6 == pytest.approx(path.lookup_seconds(num_keys=5, num_calls=2))


rates = st.lists(st.floats(1e6, 1e12), min_size=1, max_size=6)
groups = st.lists(st.tuples(st.integers(1, 1 << 32), st.integers(1, 1000)), min_size=1, max_size=8)


@given(rates, groups, st.integers(1, 64))
def test_nothing_is_faster_than_the_line(
    found: list[float], moved: list[tuple[int, int]], sharers: int
) -> None:  # cases E65
    path = link({4096 << 2 * index: rate for index, rate in enumerate(found)})
    num_bytes = sum(object_bytes * count for object_bytes, count in moved)
    seconds = path.move_seconds(moved, sharers=sharers)
    assert num_bytes / seconds <= path.line_rate.value / sharers * (1 + 1e-6)


def test_a_rate_above_the_line_is_refused() -> None:  # cases E65
    with pytest.raises(ConfigError, match=r"4e\+11 bytes per second at objects of 1 bytes is above its line"):
        link({1: 400e9}, line_rate=50e9)


def test_a_band_above_the_line_is_refused() -> None:
    point = RatePoint(object_bytes=1, rate=number(1e9, "B/s", high=2e9))
    with pytest.raises(ConfigError, match="above its line rate"):
        Link(
            name="x",
            summary="x",
            line_rate=number(1e9),
            points=(point,),
            op=number(0),
            lookup_call=number(0),
            lookup_key=number(0),
        )


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ({4096: 1e9, 1024: 1e9}, "object sizes must rise, and 1,024 follows 4,096"),
        ({0: 1e9}, "above zero, not 0 bytes"),
        ({1: 0.0, 2: 1.0}, "above zero, not 1 bytes at 0 bytes per second"),
    ],
)
def test_points_that_are_no_curve_are_refused(points: dict[int, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        link(points)


def test_a_link_without_points_is_refused() -> None:
    with pytest.raises(ConfigError, match="no bandwidth"):
        Link(
            name="x", summary="x", line_rate=number(1), points=(), op=number(0),
            lookup_call=number(0), lookup_key=number(0),
        )  # fmt: skip


def test_edges_move_every_constant() -> None:
    path = Link(
        name="x",
        summary="x",
        line_rate=number(8e9),
        points=(RatePoint(object_bytes=1, rate=number(4e9, "B/s", 1e9, 8e9)),),
        op=number(2.0, "s", 1.0, 3.0),
        lookup_call=number(2.0, "s", 1.0, 3.0),
        lookup_key=number(2.0, "s", 1.0, 3.0),
    )
    found = {edge: path.at_edge(edge) for edge in Edge}
    assert (8e9, 4e9, 1e9) == tuple(found[edge].bytes_per_second(1) for edge in Edge)
    assert (1.0, 2.0, 3.0) == tuple(found[edge].op.value for edge in Edge)
    assert (2.0, 4.0, 6.0) == tuple(found[edge].lookup_seconds(1, 1) for edge in Edge)


def test_a_link_of_another_bandwidth_keeps_the_latencies() -> None:
    flat = link(CURVE, op=0.25, lookup_call=0.5).at_bandwidth(7e9)
    assert {7e9} == {flat.bytes_per_second(size) for size in (1, 4096, 1 << 30)}
    assert (0.25, 0.5) == (flat.op.value, flat.lookup_call.value)


def test_gigabits_are_not_gigabytes() -> None:  # cases E65
    path = link({1: 400e9 / 8})
    assert (50e9, 46.57) == (path.bytes_per_second(1), round(path.bytes_per_second(1) / 2**30, 2))
