"""How much worse a figure may get before a gate calls it a regression."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from types import MappingProxyType

from hicache_bench.errors import InputError

Thresholds = Mapping[str, float]
"""Allowed growth by group of figures, as a fraction: 0.1 for 10 %."""

DEFAULT_THRESHOLDS: Thresholds = MappingProxyType(
    {"bytes": 0.0, "objects": 0.0, "time": 0.1, "modeled": 0.0, "rate": 0.0}
)
"""``bytes``, ``objects`` (pages, keys and calls too) and ``modeled`` figures may grow by so much, a ``rate``
(higher is better) may fall by so much, and the median of ``time`` samples may grow by so much."""

_MAX_PERCENT = 1e6
_ALLOWED = "NAME=PERCENT%, comma-separated, such as bytes=0%,time=10%"
_PERCENT = re.compile(r"[0-9]+(?:\.[0-9]+)?%")


def parse_thresholds(text: str) -> Thresholds:
    """``bytes=0%,time=10%``; a group that is not named keeps its default.

    Raises:
        InputError: not of that form, an unknown or repeated group, a rate that may fall by 100 %, or a growth
            beyond all bounds.
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, amount = (piece.strip() for piece in part.partition("="))
        if not (name and equals) or not _PERCENT.fullmatch(amount):
            raise InputError(f"--max-regression {part.strip()!r} is not a threshold; allowed: {_ALLOWED}")
        if name not in DEFAULT_THRESHOLDS:
            near = difflib.get_close_matches(name, DEFAULT_THRESHOLDS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(
                f"--max-regression {name!r} is unknown; allowed: {', '.join(DEFAULT_THRESHOLDS)}{hint}"
            )
        if name in found:
            raise InputError(f"--max-regression names {name!r} twice; give it once")
        percent = float(amount.removesuffix("%"))
        if percent > _MAX_PERCENT:
            raise InputError(f"--max-regression {name} allows anything; give at most {_MAX_PERCENT:,.0f}%")
        found[name] = percent / 100
    if found.get("rate", 0.0) >= 1:
        raise InputError("--max-regression rate=100% allows a rate to fall to nothing; give less than 100%")
    return MappingProxyType({**DEFAULT_THRESHOLDS, **found})
