from __future__ import annotations

from dataclasses import dataclass

import pytest

from hicache_bench.errors import InputError
from hicache_bench.workflows.sweep import MAX_POINTS, combinations, num_combinations


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
