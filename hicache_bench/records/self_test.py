"""Proof that the gate can fail: a record is perturbed in every place, and each time it must be noticed.

The walk here knows nothing of the one that finds the metrics: what that one misses, this one perturbs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

from hicache_bench.records.compare import Comparer
from hicache_bench.records.gate import exit_code_of
from hicache_bench.records.judge import MIN_SAMPLES, Outcome
from hicache_bench.records.kinds import KINDS, VOLATILE, Kind
from hicache_bench.records.thresholds import Thresholds

_WORSE = frozenset({Outcome.REGRESSED})
_NOTICED = frozenset({Outcome.REGRESSED, Outcome.IMPROVED})
_UNCLEAR = frozenset({Outcome.REGRESSED, Outcome.INCONCLUSIVE})
_OTHER = frozenset({Outcome.NOT_COMPARABLE})
_MARK = "perturbed"


class Perturbation(NamedTuple):
    """What was changed where, and what the gate must say to it."""

    place: str
    what: str
    must: frozenset[Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """What became of the perturbations of one record; ``missed`` are those that were not noticed."""

    perturbations: int
    missed: tuple[str, ...]


def self_test(data: Mapping[str, Any], thresholds: Thresholds) -> SelfTest:
    """Compare ``data`` with itself, which must pass, and with itself perturbed in every place."""
    record: dict[str, Any] = deepcopy(dict(data))
    comparer = Comparer(data, thresholds)
    missed: list[str] = []
    total = 0
    better: set[str] = set()
    if comparer.compare(record).outcome is not Outcome.PASS:
        missed.append("the record itself: does not pass")
    for place, what, must in _Perturber(KINDS[data["kind"]], max(thresholds.values())).all_of(record):
        total += 1
        outcome = comparer.compare(record).outcome
        caught = outcome in must and (outcome is Outcome.IMPROVED or exit_code_of([outcome], strict=True))
        if not caught:
            missed.append(f"{place}: {what}: {outcome.value}")
        elif outcome is Outcome.IMPROVED and what in (_MORE, _LESS):
            # A figure of which both more and less are better is judged by nothing.
            if place in better:
                missed.append(f"{place}: {_MORE} and {_LESS} are both called better")
            better.add(place)
    return SelfTest(perturbations=total, missed=tuple(missed))


_MORE, _LESS = "more", "less"
_GAINS = ("hit_tokens", "fulfilled_tokens", "used_tokens")


def _costs(place: str) -> bool:
    """Bytes of which more are worse, whatever the gate's own rules say."""
    return place.endswith("num_bytes") and ".skipped." not in place and ".existing." not in place


@dataclass(frozen=True, slots=True)
class _Perturber:
    """Changes a record in place, one change at a time, and takes it back."""

    kind: Kind
    allowed: float

    def all_of(self, record: dict[str, Any]) -> Iterator[Perturbation]:
        settings = {setting.partition(".")[0] for setting in self.kind.settings}
        for name in list(record):
            if name in settings:
                yield from self._settings(record, name)
            elif name not in VOLATILE and name not in self.kind.ignored:
                yield from self._field(record, name, name)

    def _settings(self, record: dict[str, Any], name: str) -> Iterator[Perturbation]:
        for setting in self.kind.settings:
            if setting == name and isinstance(record[name], dict):
                for inner in record[name]:
                    yield from _swapped(record[name], inner, _other(record[name][inner]), f"{name}.{inner}")
            elif setting == name:
                yield from _swapped(record, name, _other(record[name]), name)
            elif setting.startswith(f"{name}."):
                inner = setting.removeprefix(f"{name}.")
                yield from _swapped(record[name], inner, _other(record[name][inner]), setting)

    def _field(self, holder: Any, key: Any, place: str) -> Iterator[Perturbation]:
        """Everything that can happen to the value at ``holder[key]``."""
        value = holder[key]
        if isinstance(value, dict):
            yield from self._object(value, place, self.kind.ignored)
        elif isinstance(value, list):
            yield from self._list(holder, key, value, place)
        else:
            yield from self._leaf(holder, key, value, place)
        if isinstance(holder, dict) and not self._is_empty(value):
            del holder[key]
            yield Perturbation(place, "gone", _WORSE)
            holder[key] = value

    def _is_empty(self, value: Any) -> bool:
        """Whether it holds no metric."""
        return value == [] or (isinstance(value, dict) and all(map(self.kind.ignores, value)))

    def _object(self, value: dict[str, Any], place: str, ignored: frozenset[str]) -> Iterator[Perturbation]:
        for name in list(value):
            if name.split(" ")[-1] not in ignored:
                yield from self._field(value, name, f"{place}.{name}")
        amounts = [inner for inner in value.values() if isinstance(inner, dict) and any(inner.values())]
        if amounts and len(amounts) == len(value):
            value[_MARK] = deepcopy(amounts[0])
            yield Perturbation(place, "one more", _WORSE)
            del value[_MARK]

    def _leaf(self, holder: Any, key: Any, value: Any, place: str) -> Iterator[Perturbation]:
        if isinstance(value, bool):
            yield from _replaced(holder, key, not value, Perturbation(place, "flipped", _NOTICED))
        elif isinstance(value, (int, float)):
            step = max(1, math.ceil(abs(value) * self.allowed * 2))
            more = _WORSE if _costs(place) else _NOTICED
            yield from _replaced(holder, key, value + step, Perturbation(place, _MORE, more))
            if value > 0:
                less = _WORSE if place.endswith(_GAINS) else _NOTICED
                low = value - min(step, value)
                yield from _replaced(holder, key, low, Perturbation(place, _LESS, less))
            yield from _replaced(holder, key, math.nan, Perturbation(place, "not a number", _WORSE))
            yield from _replaced(holder, key, None, Perturbation(place, "nothing", _WORSE))
        else:
            yield from _replaced(holder, key, _other(value), Perturbation(place, "another text", _WORSE))

    def _list(self, holder: Any, key: Any, value: list[Any], place: str) -> Iterator[Perturbation]:
        if place.endswith("seconds"):
            yield from self._samples(holder, key, value, place)
        elif place.endswith("checks"):
            yield from _checks(value, place)
        elif value and isinstance(value[0], dict):
            yield from self._entries(value, place)
        else:
            yield from _replaced(holder, key, [*value, _MARK], Perturbation(place, "one more", _WORSE))
            if value:
                yield from _replaced(holder, key, value[1:], Perturbation(place, "one less", _WORSE))

    def _entries(self, entries: list[Any], place: str) -> Iterator[Perturbation]:
        for index, entry in enumerate(entries):
            yield from self._object(entry, f"{place}[{index}]", self.kind.ignored_of(entry))
            del entries[index]
            yield Perturbation(f"{place}[{index}]", "gone", _WORSE)
            entries.insert(index, entry)
        if place not in self.kind.additions:
            entries.append(entries[-1])
            yield Perturbation(place, "one more", _WORSE)
            entries.pop()

    def _samples(self, holder: Any, key: Any, value: list[float], place: str) -> Iterator[Perturbation]:
        if not value:
            return
        # Slower than the threshold, with no sample on the wrong side.
        step = max(value) - min(value) + max(value) * self.allowed * 2 + 1e-6
        slower = [sample + step for sample in value]
        must = _WORSE if len(value) >= MIN_SAMPLES else _UNCLEAR
        yield from _replaced(holder, key, slower, Perturbation(place, "slower", must))
        yield from _replaced(holder, key, [], Perturbation(place, "no sample", _WORSE))
        yield from _replaced(holder, key, [*value[1:], math.nan], Perturbation(place, "not a number", _WORSE))


def _checks(checks: list[Any], place: str) -> Iterator[Perturbation]:
    """Each check fails, each is made no more; one that was made several times goes as a whole."""
    everything = list(checks)
    for index, check in enumerate(everything):
        failed = {**check, "passed": not check["passed"]}
        checks[index] = failed
        yield Perturbation(f"{place}[{index}]", "the other verdict", _NOTICED)
        checks[index] = check
    for name in dict.fromkeys(check["name"] for check in everything):
        checks[:] = [check for check in everything if check["name"] != name]
        yield Perturbation(f"{place}[{name}]", "not made", _WORSE)
    checks[:] = [*everything, {"name": _MARK, "expected": "", "actual": "", "passed": False}]
    yield Perturbation(place, "one more, which fails", _WORSE)
    checks[:] = everything


def _swapped(holder: Any, key: Any, value: Any, place: str) -> Iterator[Perturbation]:
    yield from _replaced(holder, key, value, Perturbation(place, "another setting", _OTHER))


def _replaced(holder: Any, key: Any, value: Any, perturbation: Perturbation) -> Iterator[Perturbation]:
    before = holder[key]
    holder[key] = value
    yield perturbation
    holder[key] = before


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, (int, float)) else f"{value} {_MARK}"
