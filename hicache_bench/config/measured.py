"""``measured:FILE``: a link from what ``bench`` wrote, or from a small table of one's own.

Allowed are a record of ``bench`` (JSON, a field ``link_points``), a JSON object with that field alone, a JSON
list of points, and CSV with the columns ``object_bytes,bytes_per_second`` and, if known, ``op_seconds``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from statistics import median
from typing import Any

from hicache_bench.config.document import describe
from hicache_bench.config.read import read_input, shown_name
from hicache_bench.errors import ConfigError
from hicache_bench.links.constant import Constant
from hicache_bench.links.link import Link, RatePoint
from hicache_bench.units import format_size

MEASURED = "measured:"
MAX_FILE_BYTES = 64 << 20

_FIELD = "link_points"
_COLUMNS = ("object_bytes", "bytes_per_second", "op_seconds")
_REQUIRED = _COLUMNS[:2]
_FORM = (
    f"allowed: a record of bench, a JSON list of {{{', '.join(_COLUMNS)}}}, or CSV with these columns "
    "(op_seconds may be left out)"
)


def read_measured(name: str) -> Link:
    """The link that a file of measured points describes.

    Its line rate is the highest bandwidth in the file: nothing is modelled that is faster than what was seen.
    What existence queries cost is not in the file, and counts as nothing.

    Raises:
        ConfigError: no such file, or no table of points that are positive numbers.
    """
    if not name.strip():
        raise ConfigError(f"{MEASURED} names no file; give {MEASURED}FILE, or the name of a link")
    content = read_input(name, limit=MAX_FILE_BYTES, what="the path of a record of bench, or of a table")
    file = PurePath(shown_name(name)).name
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text; {_FORM}") from error
    if text.lstrip().startswith(("{", "[")):
        points, source, is_measured = _from_json(text, file)
    else:
        points, source, is_measured = _from_csv(text, file), f"{file}, as given", False
    return _link(points, file=file, source=source, is_measured=is_measured)


def _from_json(text: str, file: str) -> tuple[list[Mapping[str, Any]], str, bool]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}; {_FORM}") from error
    source, is_measured = f"{file}, as given", False
    if isinstance(data, dict):
        if _FIELD not in data:
            raise ConfigError(f"{file} has no field {_FIELD!r}; {_FORM}")
        if data.get("kind") == "bench":
            store = data.get("store", "unknown")
            source = f"{file}: bench of {data.get('created_utc', 'an unknown time')}, store {store}"
            # Bandwidths of the embedded store are those of a copy in one process, which is no link.
            is_measured = store == "mooncake"
        data = data[_FIELD]
    if not isinstance(data, list) or not all(isinstance(point, dict) for point in data):
        raise ConfigError(f"{file}: the points are {describe(data)}; {_FORM}")
    return data, source, is_measured


def _from_csv(text: str, file: str) -> list[Mapping[str, Any]]:
    rows = csv.DictReader(text.splitlines())
    columns = [name.strip() for name in rows.fieldnames or ()]
    if not set(_REQUIRED) <= set(columns):
        raise ConfigError(f"{file} has the columns {', '.join(columns) or 'none'}; {_FORM}")
    return [
        {str(name).strip(): value for name, value in row.items() if value not in (None, "")} for row in rows
    ]


def _link(points: Sequence[Mapping[str, Any]], *, file: str, source: str, is_measured: bool) -> Link:
    if not points:
        raise ConfigError(f"{file} has no point; {_FORM}")
    numbers = [
        {
            name: _number(point.get(name), f"{file}: point {index}: {name}", zero=name == "op_seconds")
            for name in _COLUMNS
            if name in _REQUIRED or point.get(name) is not None
        }
        for index, point in enumerate(points, 1)
    ]
    rates: dict[int, list[float]] = {}
    for point in numbers:
        rates.setdefault(int(point["object_bytes"]), []).append(point["bytes_per_second"])
    latencies = [point["op_seconds"] for point in numbers if "op_seconds" in point]

    def constant(name: str, value: float, unit: str, where: str = source) -> Constant:
        return Constant(name=name, value=value, unit=unit, source=where)

    return Link(
        name=f"{MEASURED}{file}",
        summary="bandwidth by object size, " + ("measured" if is_measured else "given"),
        line_rate=constant("line rate", max(map(max, rates.values())), "B/s", f"{source}: the highest there"),
        points=tuple(
            RatePoint(
                object_bytes=size,
                rate=constant(f"at objects of {format_size(size)}", median(rates[size]), "B/s"),
            )
            for size in sorted(rates)
        ),
        op=constant(
            "store call",
            median(latencies) if latencies else 0.0,
            "s",
            f"{source}: the median there" if latencies else "not in the file: counts as nothing",
        ),
        lookup_call=constant("existence query", 0.0, "s", "not in the file: counts as nothing"),
        lookup_key=constant("existence query, a key", 0.0, "s", "not in the file: counts as nothing"),
        is_measured=is_measured,
    )


def _number(given: Any, where: str, *, zero: bool) -> float:
    """A finite number above zero, or from zero where that is possible."""
    allowed = "numbers of at least 0" if zero else "numbers of at least 1"
    try:
        number = float(given) if not isinstance(given, bool) else float("nan")
    except (TypeError, ValueError):
        number = float("nan")
    if not (0 <= number < float("inf")) or (number < 1 and not zero):
        raise ConfigError(f"{where} is {describe(given)}; allowed: finite {allowed}")
    return number
