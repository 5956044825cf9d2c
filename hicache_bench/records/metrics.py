"""The metrics of a record: every figure that may get better or worse, and every text that must stay.

They are found by walking the record, so that a field that is added is gated without a further line. What
decides nothing is named in :mod:`hicache_bench.records.kinds`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from hicache_bench.records.kinds import KINDS, VOLATILE, Kind

Samples = tuple[float, ...]
Value = int | float | str | bool | Samples | None

Where = tuple[tuple[str, str], ...]
"""The entries of lists on the way to a figure: ``(("results", "8192"), ("policies", "selective"))``."""


class Key(NamedTuple):
    """Where a metric is, and its name as the fields that lead to it from there."""

    where: Where
    name: tuple[str, ...]


class Sense(Enum):
    """Which way is worse. ``EXACT``: either, unless it follows from a figure that got better."""

    LOWER = "lower is better"
    HIGHER = "higher is better"
    EXACT = "exact"
    TIME = "samples of seconds, lower is better"


@dataclass(frozen=True, slots=True)
class Rule:
    """How a metric is judged, and the threshold group it belongs to; ``""`` allows no change at all."""

    sense: Sense
    group: str = ""


_LABELS = (
    "section",
    "subject",
    "operation",
    "tokens",
    "rank",
    "capacity_bytes",
    "eviction",
    "policy",
    "save_policy",
    "pool",
    "of",
    "name",
    "client",
)
"""Fields that tell the entries of a list apart."""

_AMOUNTS = {"num_bytes": "bytes", "objects": "objects", "pages": "objects"}
_EXPLAINING = ("skipped", "existing")
"""Amounts that only say why another one is as it is: neither more nor less of them is better."""

_COUNTS = frozenset(
    {
        "store_calls",
        "lookup_keys",
        "lookup_calls",
        "endpoint_keys",
        "endpoint_calls",
        "rank_calls",
        "landed_calls",
        "unit_objects",
        "shards",
        "copies",
    }
)
_HIGHER = frozenset({"hit_tokens", "fulfilled_tokens", "used_tokens", "landed_pages", "hit", "used"})
_RATES = ("hit_rate", "_per_s", "_per_second", "speed_up_over_recompute", "speed_up_over_dense")
_FLAGS = frozenset({"degraded", "is_cut"})
_MODELED = frozenset(
    {"ttft", "recompute", "break_even", "full_overlap", "no_overlap", "uncut_bytes_per_second"}
)
"""Seconds, or the bandwidth that is needed."""

FIGURES = "figures"
"""Of a proof. What it restored and compared is as it was, or it proves something else."""

_SECONDS = "seconds"
FAILED_CHECKS = "failed checks"


def metrics_of(data: Mapping[str, Any]) -> dict[Key, Value]:
    """Every metric of a record, as plain data."""
    kind = KINDS[data["kind"]]
    settings = {name for name in kind.settings if "." not in name}
    found: dict[Key, Value] = {}
    for name, value in data.items():
        if name not in VOLATILE and name not in kind.ignored and name not in settings:
            _walk(value, (), (name,), kind, found)
    return found


def _walk(value: Any, where: Where, name: tuple[str, ...], kind: Kind, found: dict[Key, Value]) -> None:
    if isinstance(value, dict):
        _walk_fields(value, where, name, kind.ignored, kind, found)
    elif not isinstance(value, (list, tuple)):
        found[Key(where, name)] = value if name != ("status",) else value == "ok"
    elif name[-1].endswith(_SECONDS):
        found[Key(where, name)] = tuple(value)
    elif name[-1] == "checks":
        found.update(_checks(value, where))
    elif value and isinstance(value[0], dict):
        for label, entry in _labelled(value):
            inside = (*where, (".".join(name), label))
            found[Key(inside, ())] = True  # an entry without any figure must not vanish unseen
            _walk_fields(entry, inside, (), kind.ignored_of(entry).union(_LABELS), kind, found)
    elif value or name[-1] not in _ENTRIES:
        found[Key(where, name)] = ", ".join(map(str, value))


def _walk_fields(
    fields: Mapping[str, Any],
    where: Where,
    name: tuple[str, ...],
    skipped: frozenset[str],
    kind: Kind,
    found: dict[Key, Value],
) -> None:
    for field, value in fields.items():
        if field in skipped or (" " in field and kind.ignores(field)):
            continue
        if type(value) in _PLAIN:  # most are, and a call for each would take half of the time
            found[Key(where, (*name, field))] = value
        else:
            _walk(value, where, (*name, field), kind, found)


_PLAIN = (int, str, float, bool, type(None))

_ENTRIES = frozenset({"results", "ranks", "policies", "pools", "saved", "sharing", "proofs"})
"""Lists of entries: an empty one has no metric of its own."""


def _labelled(entries: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    seen: Counter[str] = Counter()
    for entry in entries:
        label = ", ".join(_label(entry[field]) for field in _LABELS if field in entry)
        seen[label] += 1
        yield (label if seen[label] == 1 else f"{label} #{seen[label]}"), entry


def _label(value: object) -> str:
    return "all" if value is None else str(value)  # no one pool or policy: all of them together


def _checks(checks: Sequence[Mapping[str, Any]], where: Where) -> Iterator[tuple[Key, int]]:
    """How often the check of each name failed; how often it was made depends on ``--repeat``."""
    failed: Counter[str] = Counter()
    for check in checks:
        failed[check["name"]] += not check["passed"]
    for name, times in failed.items():
        yield Key(where, (FAILED_CHECKS, name)), times


@cache
def rule_of(name: tuple[str, ...]) -> Rule:
    """How a metric of this name is judged."""
    leaf = name[-1] if name else ""
    if name[:1] == (FIGURES,) or any(part in _EXPLAINING for part in name):
        return Rule(Sense.EXACT)
    if name[:1] == (FAILED_CHECKS,) or leaf in _FLAGS:
        return Rule(Sense.LOWER)
    if any(part.endswith(_SECONDS) for part in name) or not _MODELED.isdisjoint(name):
        return Rule(Sense.LOWER, "modeled")
    if not name or leaf in _HIGHER or name == ("status",):
        return Rule(Sense.HIGHER)
    if leaf in _AMOUNTS and name != ("pages",):  # of a length, they only say how long it is
        return Rule(Sense.LOWER, _AMOUNTS[leaf])
    if leaf.endswith("_bytes") or "object_bytes" in name:
        return Rule(Sense.LOWER, "bytes")
    if leaf in _COUNTS or leaf.endswith("_units"):
        return Rule(Sense.LOWER, "objects")
    if leaf.endswith(_RATES):
        return Rule(Sense.HIGHER, "rate")
    return Rule(Sense.EXACT)


def rule_for(name: tuple[str, ...], value: Value) -> Rule:
    """As :func:`rule_of`; a list of seconds are samples of time, a single one was modelled."""
    return Rule(Sense.TIME, "time") if isinstance(value, tuple) else rule_of(name)
