from __future__ import annotations

from dataclasses import dataclass

import pytest

from hicache_bench.errors import InputError
from hicache_bench.workflows.sweep import MAX_POINTS, combinations, num_combinations, progress_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    link: tuple[str, ...] = ("s3",)
    tokens: tuple[int, ...]


def test_every_combination_is_there_once_and_the_last_field_varies_fastest() -> None:
    axes = Axes(link=("s3", "efa"), tokens=(1, 2, 1))
    assert [("s3", 1), ("s3", 2), ("efa", 1), ("efa", 2)] == [
        (point["link"], point["tokens"]) for point in combinations(axes)
    ]
    assert 4 == num_combinations(axes)


def test_a_sweep_that_nobody_reads_is_refused() -> None:
    assert MAX_POINTS == num_combinations(Axes(tokens=tuple(range(MAX_POINTS))))
    with pytest.raises(InputError, match="make 10,201 points, and each is a file; allowed: at most 10,000"):
        num_combinations(Axes(link=tuple(map(str, range(101))), tokens=tuple(range(101))))


def test_progress_is_what_is_done_and_the_time_left_at_that_pace() -> None:
    assert "[--------------------] point 1 of 4" == progress_line(1, 4, 0.0)
    assert "[#####---------------] point 2 of 4, about 6.00 s left" == progress_line(2, 4, 2.0)
    assert "[###################-] point 1,000 of 1,000, about 10.0 ms left" == progress_line(
        1000, 1000, 9.99
    )
