"""``measured:FILE``: a link from what ``bench`` wrote, or from a small table of one's own.

Allowed are a record of ``bench`` (JSON, a field ``link_points``), a JSON object with that field alone, a JSON
list of points, and CSV with the columns ``object_bytes,bytes_per_second`` and, if known, ``op_seconds``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    What existence queries cost is fitted to a record's lookups; where there are none, it is taken as 0.

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
        points, samples = _from_json(text, file)
    else:
        points, samples = _from_csv(text, file), None
    return _link(points, file=file, samples=samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Samples:
    """What a record of ``bench`` says beside its points: whose samples they were fitted to, its lookups."""

    source: str
    of_a_real_store: bool
    lookups: tuple[_Lookup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lookup:
    keys: int
    calls: int
    seconds: float


def _from_json(text: str, file: str) -> tuple[list[Mapping[str, Any]], _Samples | None]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}; {_FORM}") from error
    samples = None
    if isinstance(data, dict):
        if _FIELD not in data:
            raise ConfigError(f"{file} has no field {_FIELD!r}; {_FORM}")
        if data.get("kind") == "bench":
            store = data.get("store", "unknown")
            samples = _Samples(
                source=f"{file}: bench of {data.get('created_utc', 'an unknown time')}, store {store}",
                # Bandwidths of the embedded store are those of a copy in one process, which is no link.
                of_a_real_store=store == "mooncake",
                lookups=tuple(_lookups(data, file)),
            )
        data = data[_FIELD]
    if not isinstance(data, list) or not all(isinstance(point, dict) for point in data):
        raise ConfigError(f"{file}: the points are {describe(data)}; {_FORM}")
    return data, samples


def _lookups(record: Mapping[str, Any], file: str) -> Iterator[_Lookup]:
    """The lookups of a client that was alone, with the median of their store time."""
    try:
        for series in record.get("series", ()):
            keys, calls = int(series["objects"]), int(series["store_calls"])
            alone = series["operation"] == "lookup" and series["concurrent"] == 1
            if alone and keys > 0 and calls > 0 and series["store_seconds"]:
                yield _Lookup(
                    keys=keys,
                    calls=calls,
                    seconds=_number(median(series["store_seconds"]), f"{file}: store_seconds", zero=True),
                )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{file}: its series are not those of bench ({error!r}); {_FORM}") from error


def _lookup_cost(lookups: Sequence[_Lookup]) -> tuple[float, float]:
    """Seconds of an existence query and of a key in it: least squares over ``lookups``, none below 0."""
    keys_keys = sum(item.keys * item.keys for item in lookups)
    keys_calls = sum(item.keys * item.calls for item in lookups)
    calls_calls = sum(item.calls * item.calls for item in lookups)
    keys_seconds = sum(item.keys * item.seconds for item in lookups)
    calls_seconds = sum(item.calls * item.seconds for item in lookups)
    determinant = keys_keys * calls_calls - keys_calls * keys_calls
    if determinant:
        per_call = (keys_keys * calls_seconds - keys_calls * keys_seconds) / determinant
        per_key = (calls_calls * keys_seconds - keys_calls * calls_seconds) / determinant
        if per_call >= 0 and per_key >= 0:
            return per_call, per_key
        if per_key < 0:
            return calls_seconds / calls_calls, 0.0
    # Lookups too alike to tell the two apart, or no cost of a call: everything is put down to the keys.
    return 0.0, keys_seconds / keys_keys


def _from_csv(text: str, file: str) -> list[Mapping[str, Any]]:
    rows = csv.DictReader(text.splitlines())
    columns = [name.strip() for name in rows.fieldnames or ()]
    if not set(_REQUIRED) <= set(columns):
        raise ConfigError(f"{file} has the columns {', '.join(columns) or 'none'}; {_FORM}")
    return [
        {str(name).strip(): value for name, value in row.items() if value not in (None, "")} for row in rows
    ]


def _link(points: Sequence[Mapping[str, Any]], *, file: str, samples: _Samples | None) -> Link:
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
    fitted = samples is not None and samples.of_a_real_store
    source = f"fitted to the samples of {samples.source}" if samples else f"{file}, as given"

    def constant(name: str, value: float, unit: str, where: str = source) -> Constant:
        return Constant(name=name, value=value, unit=unit, source=where, is_fitted=fitted)

    def absent(name: str) -> Constant:
        return Constant(name=name, value=0.0, unit="s", source="not in the file: taken as 0")

    lookup_call, lookup_key = absent("existence query"), absent("existence query, a key")
    if samples and samples.lookups:
        per_call, per_key = _lookup_cost(samples.lookups)
        where = f"{source}: its lookups of one client"
        lookup_call = constant(lookup_call.name, per_call, "s", where)
        lookup_key = constant(lookup_key.name, per_key, "s", where)
    return Link(
        name=f"{MEASURED}{file}",
        summary="bandwidth by object size, " + ("fitted to samples of a real store" if fitted else "given"),
        line_rate=constant("line rate", max(map(max, rates.values())), "B/s", f"{source}: the highest there"),
        points=tuple(
            RatePoint(
                object_bytes=size,
                rate=constant(f"at objects of {format_size(size)}", median(rates[size]), "B/s"),
            )
            for size in sorted(rates)
        ),
        op=constant("store call", median(latencies), "s", f"{source}: the median there")
        if latencies
        else absent("store call"),
        lookup_call=lookup_call,
        lookup_key=lookup_key,
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
