from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.workflows.meter import Meter, format_duration, progress_line


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def metered(weights: Sequence[float]) -> tuple[Meter, Clock, list[str]]:
    clock, said = Clock(), list[str]()
    return Meter(said.append, weights, clock=clock), clock, said


def test_a_line_has_a_bar_the_parts_and_the_time_left() -> None:
    assert "[----------] 0 of 4 done" == progress_line(0, 4, 0.0, None)
    assert "[##--------] 1 of 4 done, about 6 s left" == progress_line(1, 4, 0.25, 5.2)
    assert "[#########-] 999 of 1,000 done, about 2 min 05 s left" == progress_line(999, 1000, 0.999, 125.0)
    assert "[####------] 40% done, about 1 s left" == progress_line(0, 1, 0.4, 0.01)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (0.2, "1 s"), (59.5, "1 min 00 s"), (61, "1 min 01 s"), (3600, "1 h 00 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert text == format_duration(seconds)


def test_the_time_left_is_that_of_the_weight_that_is_left() -> None:
    """Three parts of four are done, and nearly all of the bytes are not."""
    meter, clock, said = metered([1, 1, 2, 16])
    meter("a")
    clock.now += 10
    meter("a, further")  # nothing is done yet: there is no pace
    meter.finish()
    meter("b")
    clock.now += 10
    meter.finish()
    clock.now += 20
    meter.finish()
    meter("d")
    assert [
        "[----------] 0 of 4 done: a",
        "[----------] 0 of 4 done: a, further",
        "[----------] 1 of 4 done, about 3 min 10 s left: b",
        "[##--------] 3 of 4 done, about 2 min 40 s left: d",
    ] == said


def test_the_time_left_runs_down_and_is_not_told_when_it_was_too_little() -> None:
    meter, clock, said = metered([1, 1])
    clock.now += 10
    meter.finish()
    for passed in (0, 4, 7):
        clock.now += passed
        meter("b")
    assert [
        "[#####-----] 1 of 2 done, about 10 s left: b",
        "[#####-----] 1 of 2 done, about 6 s left: b",
        "[#####-----] 1 of 2 done: b",
    ] == said


def test_a_part_is_told_within() -> None:
    meter, clock, said = metered([7.0])
    meter("first")  # one part, of which nothing is known
    clock.now += 3
    meter.within(0.25)
    meter("second")
    assert ["first", "[##--------] 25% done, about 9 s left: second"] == said


def test_parts_of_no_weight_are_no_division_by_nothing() -> None:
    meter, _, said = metered([0.0, 0.0])
    meter.finish()
    meter("second")
    assert ["[#####-----] 1 of 2 done: second"] == said


@given(st.lists(st.floats(0, 1e15), min_size=1, max_size=20), st.data())
def test_shares_grow_and_end_full(weights: list[float], data: st.DataObject) -> None:
    meter, clock, _ = metered(weights)
    cells = []
    for _part in weights:
        for share in sorted(data.draw(st.lists(st.floats(0, 1), max_size=3))):
            clock.now += 1
            meter.within(share)
            cells.append(meter.line().count("#"))
        meter.finish()
        cells.append(meter.line().count("#"))
    assert sorted(cells) == cells
    assert cells[-1] >= 9  # of 10: the weights are summed in floating point
