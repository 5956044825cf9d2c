"""Options that take a list of values, comma-separated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from hicache_bench.errors import InputError

_Value = TypeVar("_Value")


def values_of(option: str, text: str, parse: Callable[[str], _Value]) -> tuple[_Value, ...]:
    """Every value of ``text``, each once, in order.

    Raises:
        InputError: an empty one, or what ``parse`` refuses.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InputError(f"{option} {text!r} has an empty value; give one, or several joined by a comma")
    return tuple(dict.fromkeys(map(parse, parts)))


def optional(
    option: str, text: str | None, parse: Callable[[str], _Value]
) -> tuple[_Value, ...] | tuple[None]:
    """:func:`values_of`, or None alone where the option was not given.

    Raises:
        InputError: as :func:`values_of`.
    """
    return (None,) if text is None else values_of(option, text, parse)


def whole(option: str) -> Callable[[str], int]:
    """A parser of whole numbers of at least 1, for messages that name ``option``."""

    def parse(text: str) -> int:
        if not text.isdecimal() or len(text) > 12 or int(text) < 1:
            raise InputError(f"{option} {text!r} is not a whole number of at least 1")
        return int(text)

    return parse


def number(option: str) -> Callable[[str], float]:
    """A parser of finite numbers above 0, such as ``37e9``."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise InputError(f"{option} {text!r} is not a finite number above 0, such as 37e9")
        return value

    return parse


def one_of(option: str, allowed: Mapping[str, _Value]) -> Callable[[str], _Value]:
    """A parser of names."""

    def parse(text: str) -> _Value:
        if text in allowed:
            return allowed[text]
        nearest = get_close_matches(text, allowed, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise InputError(f"{option} {text!r} is unknown; {hint}allowed: {', '.join(allowed)}")

    return parse
