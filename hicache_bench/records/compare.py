"""One record against its baseline: what changed, and whether that is better or worse."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from hicache_bench.records.judge import NOT_A_NUMBER, Draft, Finding, Judge, Outcome, finding_of
from hicache_bench.records.kinds import KINDS, settings_of
from hicache_bench.records.metrics import FAILED_CHECKS, Key, Value, Where, metrics_of
from hicache_bench.records.thresholds import Thresholds

_SAME_MACHINE = ("system", "machine", "processors")
FOLLOWS = "follows from what improved"
_WORST_LAST = list(Outcome)
_ABSENT = object()
_MISSING = "missing in the new record"
_FAILURE = "a record with failed checks never passes, whatever its baseline says"
_SETTINGS = "other settings, so nothing was compared; --update accepts the new record as a baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One record against one baseline.

    ``differences`` are settings that keep them from being compared; ``additions`` entries that only the new
    record has, such as another length, which are not compared.
    """

    outcome: Outcome
    metrics: int
    findings: tuple[Finding, ...] = ()
    differences: tuple[str, ...] = ()
    additions: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of several together; where nothing was compared at all: regressed."""
    return max(outcomes, key=_WORST_LAST.index, default=Outcome.REGRESSED)


def compare(baseline: Mapping[str, Any], new: Mapping[str, Any], thresholds: Thresholds) -> Comparison:
    """Compare two records, as plain data of the current schema version."""
    return Comparer(baseline, thresholds).compare(new)


class Comparer:
    """One baseline, walked once, against any number of records."""

    def __init__(self, baseline: Mapping[str, Any], thresholds: Thresholds) -> None:
        self._baseline = baseline
        self._thresholds = thresholds
        self._before = metrics_of(baseline)
        self._num_metrics = sum(bool(key.name) for key in self._before)

    def compare(self, new: Mapping[str, Any]) -> Comparison:
        """What became of every metric of the baseline."""
        baseline, before = self._baseline, self._before
        differences = tuple(setting_differences(baseline, new))
        if differences:
            endless = tuple(_endless(new))
            return Comparison(
                outcome=Outcome.REGRESSED if endless else Outcome.NOT_COMPARABLE,
                metrics=0,
                findings=tuple(draft.finding for draft in endless),
                differences=differences,
                notes=(_SETTINGS,),
            )
        if not self._num_metrics:
            return Comparison(outcome=worst(()), metrics=0, notes=("the baseline has no metric",))
        after = metrics_of(new)
        judge = Judge(
            self._thresholds,
            same_machine=_same_machine(baseline, new),
            same_store=_same_store(baseline, new),
        )
        drafts: list[Draft] = []
        for key, value in before.items():
            other = after.get(key, _ABSENT)
            if other is _ABSENT and _is_reason(key.name) and Key(key.where, ()) in after:
                drafts += judge.drafts(key, value, _nothing_like(value))  # a reason that no longer occurs
            elif other is _ABSENT:
                if not _told_already(key, after):
                    drafts.append(Draft(finding_of(key, value, None, Outcome.REGRESSED, _MISSING)))
            elif (other != value or type(other) is not type(value)) and not _is_failure(key, other):
                drafts += judge.drafts(key, value, cast(Value, other))
        added, additions = (
            ([], ())
            if after.keys() == before.keys()
            else _added(before, after, KINDS[baseline["kind"]].additions)
        )
        for key in added:
            if not _is_failure(key, after[key]):
                drafts += judge.drafts(key, _nothing_like(after[key]), after[key])
        drafts += (
            Draft(finding_of(key, before.get(key), value, Outcome.REGRESSED, _FAILURE))
            for key, value in after.items()
            if _is_failure(key, value)
        )
        if not any(draft.finding.outcome is Outcome.REGRESSED for draft in drafts):
            drafts += _endless(new)  # in what is no metric
        findings = _with_reasons(_resolved(drafts))
        return Comparison(
            outcome=worst([Outcome.PASS, *(finding.outcome for finding in findings)]),
            metrics=self._num_metrics,
            findings=findings,
            additions=additions,
        )


def setting_differences(baseline: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The settings in which two records differ, each with both values."""
    before, after = settings_of(baseline), settings_of(new)
    return [
        f"{name}: baseline {_setting(before.get(name))}, new {_setting(after.get(name))}"
        for name in differing_settings(baseline, new)
    ]


def differing_settings(baseline: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Their names."""
    before, after = settings_of(baseline), settings_of(new)
    return [name for name in before | after if before.get(name) != after.get(name)]


def _setting(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) < 64 else text[:12]  # the head of a digest says enough


def _same_machine(baseline: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return all(baseline["environment"].get(name) == new["environment"].get(name) for name in _SAME_MACHINE)


def _same_store(baseline: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether what both have measured was measured on one kind of store, over one transport."""
    before, after = _stores(baseline), _stores(new)
    return all(before[length] == after[length] for length in before.keys() & after.keys())


def _stores(data: Mapping[str, Any]) -> dict[object, tuple[object, object]]:
    """Store and transport of each length that was moved, or of the one that there is."""
    holders = data.get("results", ()) if data["kind"] == "run" else [data]
    return {
        holder.get("tokens"): (holder["store"], holder["store_settings"].get("protocol"))
        for holder in holders
        if "store_settings" in holder and holder["store"] != "count"
    }


def _is_failure(key: Key, value: object) -> bool:
    """Whether a metric of the new record says that a check failed."""
    return (key.name[:1] == (FAILED_CHECKS,) and value != 0) or (key.name == ("status",) and value is False)


def _told_already(key: Key, after: Mapping[Key, Value]) -> bool:
    """Whether an entry around a missing metric is missing too, which is told once for all that is in it."""
    depths = range(1, len(key.where) + 1)
    gone = next((depth for depth in depths if Key(key.where[:depth], ()) not in after), None)
    return gone is not None and (gone < len(key.where) or bool(key.name))


def _nothing_like(value: Value) -> Value:
    """What stands for a metric that was not there."""
    return None if value is None else type(value)()


def _added(
    before: Mapping[Key, Value], after: Mapping[Key, Value], additions: frozenset[str]
) -> tuple[list[Key], tuple[tuple[str, str], ...]]:
    """Metrics that count as risen from nothing, and entries that are new and not compared."""
    known = {key.where[0] for key in before if key.where}
    added: list[Key] = []
    fresh: dict[tuple[str, str], None] = {}
    for key in after:
        if key in before or not key.name:
            continue
        first = key.where[0] if key.where else None
        if first is None or first in known or first[0] not in additions:
            added.append(key)
            continue
        fresh[first] = None
        if key.name[0] == FAILED_CHECKS:
            added.append(key)
    return added, tuple(fresh)


def _endless(new: Mapping[str, Any]) -> Iterator[Draft]:
    """A finding for each place at which a record holds a number that is none."""
    for path in _not_numbers(new, ()):
        yield Draft(finding_of(Key((), path), None, None, Outcome.REGRESSED, NOT_A_NUMBER))


def _not_numbers(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Where a record holds a number that is none."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _not_numbers(inner, (*path, name))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _not_numbers(inner, (*path, str(index)))
    elif isinstance(value, float) and not math.isfinite(value):
        yield path


def _resolved(drafts: Sequence[Draft]) -> list[Finding]:
    """What follows is as good as the figures beside it: better if some are, and none is worse."""
    beside: dict[Where, set[Outcome]] = defaultdict(set)
    for finding, follows in drafts:
        if not follows:
            beside[finding.where].add(finding.outcome)
    return [
        replace(finding, outcome=Outcome.IMPROVED, why=FOLLOWS)
        if follows
        and Outcome.IMPROVED in beside[finding.where]
        and Outcome.REGRESSED not in beside[finding.where]
        else finding
        for finding, follows in drafts
    ]


def _with_reasons(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Each with what moved in the ledger of its place."""
    reasons: dict[Where, dict[str, Finding]] = defaultdict(dict)
    for finding in findings:
        if _is_reason(finding.name):
            reasons[finding.where].setdefault(finding.name[1], finding)
    return tuple(
        finding
        if _is_reason(finding.name) or finding.where not in reasons
        else replace(finding, reason="; ".join(map(_reason, reasons[finding.where].values())))
        for finding in findings
    )


def _is_reason(name: tuple[str, ...]) -> bool:
    """Whether a metric says how much of something had which reason."""
    return len(name) > 1 and name[0] in ("skipped", "unused_tokens")


def _reason(moved: Finding) -> str:
    """``out_of_window 31 -> 0 pages``, by the first unit that changed."""
    unit = "tokens" if moved.name[0] == "unused_tokens" else moved.name[-1].removeprefix("num_")
    return f"{moved.name[1]} {moved.baseline or 0:,} -> {moved.new or 0:,} {unit}"
