"""Every combination of the values that options list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from hicache_bench.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_POINTS = 10_000
"""More is a slip: each is a file."""


def combinations(axes: DataclassInstance) -> Iterator[dict[str, Any]]:
    """One value of each field of ``axes``, which are tuples; the last field varies fastest.

    A value that is listed twice is taken once.
    """
    names = [axis.name for axis in fields(axes)]
    for values in product(*(dict.fromkeys(getattr(axes, name)) for name in names)):
        yield dict(zip(names, values, strict=True))


def num_combinations(axes: DataclassInstance) -> int:
    """How many :func:`combinations` there are.

    Raises:
        InputError: more than :data:`MAX_POINTS`.
    """
    number = prod(len(dict.fromkeys(getattr(axes, axis.name))) for axis in fields(axes))
    if number > MAX_POINTS:
        raise InputError(
            f"these lists make {number:,} points, and each is a file; allowed: at most {MAX_POINTS:,}"
        )
    return number
