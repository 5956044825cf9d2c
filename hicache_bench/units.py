"""Sizes, durations and token counts, read and printed in one place.

``GiB`` and ``GB`` differ (2**30 and 10**9 bytes). A token count uses the field's own ``k`` = 1,024 and
``M`` = 1,048,576.
"""

from __future__ import annotations

import re
from fractions import Fraction

from hicache_bench.errors import UnitError

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

_SIZE_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
}  # fmt: skip
_TOKEN_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}
_TIME_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
# So many digits say any number that is allowed; Python refuses to read thousands of them.
_NUMBER = re.compile(r"\s*([0-9]{1,99}(?:\.[0-9]{1,99})?(?:[eE][+-]?[0-9]{1,2})?)\s*([A-Za-z]*)\s*")


def _parse(text: str, units: dict[str, int], what: str, allowed: str) -> int:
    match = _NUMBER.fullmatch(text)
    unit = units.get(match.group(2).lower()) if match else None
    if match is None or unit is None:
        raise UnitError(f"{text!r} is not a {what}; allowed: {allowed}")
    # Exact: a float would round byte counts above 2**53.
    number = Fraction(match.group(1)) * unit
    if number >= 2**63 or number.denominator != 1:
        raise UnitError(f"{text!r} is not a whole {what} below 2**63; allowed: {allowed}")
    return int(number)


def parse_size(text: str) -> int:
    """Bytes of ``64GiB``, ``64GB``, ``64e9`` or ``4096``.

    Raises:
        UnitError: not a size, or not a whole number of bytes.
    """
    return _parse(text, _SIZE_UNITS, "number of bytes", "64GiB, 64GB, 64e9, 4096 (GiB = 2**30, GB = 10**9)")


def parse_memory(text: str) -> int:
    """As :func:`parse_size`, for an amount of memory: ``4`` is nobody's.

    Raises:
        UnitError: not a size, or a number without a unit below 1 MiB.
    """
    size = parse_size(text)
    if size < MIB and text.strip().isdigit():
        raise UnitError(f"{text!r} is {size:,} bytes of memory; give it a unit: {text.strip()}GiB, 512MiB")
    return size


def parse_tokens(text: str) -> int:
    """Tokens of ``8k`` (8,192), ``1M`` (1,048,576) or ``8192``.

    Raises:
        UnitError: not a token count.
    """
    return _parse(text, _TOKEN_UNITS, "number of tokens", "8192, 8k, 1M (k = 1,024, M = 1,048,576)")


def parse_seconds(text: str) -> float:
    """Seconds of ``90``, ``60s``, ``1.5m`` or ``2h``.

    Raises:
        UnitError: not a duration.
    """
    match = _NUMBER.fullmatch(text)
    unit = _TIME_UNITS.get(match.group(2).lower()) if match else None
    if match is None or unit is None:
        raise UnitError(f"{text!r} is not a duration; allowed: 90, 60s, 1.5m, 2h")
    return float(match.group(1)) * unit


def format_size(num_bytes: int) -> str:
    """Human size in binary units, four significant digits: ``38.24 MiB``."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(num_bytes) >= unit:
            value = num_bytes / unit
            digits = 2 if value < 100 else 1 if value < 1000 else 0
            return f"{value:.{digits}f} {name}"
    return f"{num_bytes} B"


def format_tokens(num_tokens: int) -> str:
    """``8k``, ``1M``, or the plain number where no unit divides it."""
    for unit, name in ((1 << 20, "M"), (1 << 10, "k")):
        if num_tokens and num_tokens % unit == 0:
            return f"{num_tokens // unit}{name}"
    return f"{num_tokens:,}"


def format_seconds(seconds: float) -> str:
    """``12.3 ms``, ``1.25 s``, ``85 µs``."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e6:.0f} µs"
