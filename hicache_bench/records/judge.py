"""Whether one metric got better or worse."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from hicache_bench.records.metrics import Key, Rule, Samples, Sense, Value, rule_for
from hicache_bench.records.thresholds import Thresholds
from hicache_bench.stats import mann_whitney, median

MIN_SAMPLES = 6
"""On either side, before time can decide: of 5 against 5 samples hardly any ranking is rare enough."""

SIGNIFICANCE = 0.01
"""Largest two-sided p of the Mann-Whitney test. 6 against 6 samples can reach 2 / C(12, 6) = 0.002."""

NOT_A_NUMBER = "not a number in the new record"

_ROUNDING = 1e-9
"""Relative difference of two modelled figures that another order of additions explains."""


class Outcome(str, Enum):
    """What came of a comparison, of one metric or of many; the worst is the last."""

    PASS = "pass"  # noqa: S105 - no password
    IMPROVED = "improved"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not comparable"
    REGRESSED = "regressed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One metric that changed, or that could not be judged.

    ``where`` are the entries of lists that it is in, ``name`` the fields that lead to it from there.
    ``reason`` is what moved in the ledger of the same pool, ``why`` what else there is to say. Samples stand
    as their median. ``change`` is the relative difference; None from zero, and for texts.
    """

    where: tuple[tuple[str, str], ...]
    name: tuple[str, ...]
    baseline: int | float | str | bool | None
    new: int | float | str | bool | None
    change: float | None
    outcome: Outcome
    reason: str = ""
    why: str = ""


class Draft(NamedTuple):
    """A finding; one that ``follows`` is better or worse as the figures are that stand in the same place."""

    finding: Finding
    follows: bool = False


def finding_of(key: Key, before: Value, after: Value, outcome: Outcome, why: str = "") -> Finding:
    """A finding without a reason yet."""
    baseline, new = _shown(before), _shown(after)
    change = None
    if _is_number(baseline) and _is_number(new) and baseline:
        change = float(new or 0) / float(baseline) - 1
        if not math.isfinite(change):  # from next to nothing
            change = None
    return Finding(
        where=key.where,
        name=key.name,
        baseline=baseline,
        new=new,
        change=change,
        outcome=outcome,
        why=why,
    )


def _shown(value: Value) -> int | float | str | bool | None:
    if isinstance(value, tuple):
        return median(value) if value and not _is_none(value) else None
    return None if _is_none(value) else value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_none(value: Value) -> bool:
    """Whether it is, or holds, a number that is none."""
    if isinstance(value, tuple):
        return not all(map(math.isfinite, value))
    return isinstance(value, float) and not math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges metrics by ``thresholds``; time only of the ``same_machine`` and the ``same_store``."""

    thresholds: Thresholds
    same_machine: bool
    same_store: bool = True

    def drafts(self, key: Key, before: Value, after: Value) -> Iterator[Draft]:
        """What became of a metric; nothing where it is as it was."""
        if _is_none(after):
            yield Draft(finding_of(key, before, after, Outcome.REGRESSED, NOT_A_NUMBER))
            return
        if before == after and type(before) is type(after):
            return
        rule = rule_for(key.name, before if before is not None else after)
        if isinstance(before, tuple) and isinstance(after, tuple):
            yield from map(Draft, self._time(key, before, after))
        elif isinstance(before, (int, float)) and isinstance(after, (int, float)):
            yield from self._number(key, before, after, rule)
        elif isinstance(before, (int, float, tuple)):
            yield Draft(finding_of(key, before, after, Outcome.REGRESSED, "no figure in the new record"))
        else:
            yield Draft(finding_of(key, before, after, Outcome.REGRESSED), follows=True)

    def _number(self, key: Key, before: float, after: float, rule: Rule) -> Iterator[Draft]:
        # Whole numbers are compared exactly.
        if float in (type(before), type(after)) and math.isclose(before, after, rel_tol=_ROUNDING):
            return
        if rule.sense is Sense.EXACT:
            yield Draft(finding_of(key, before, after, Outcome.REGRESSED), follows=True)
            return
        worse_by = after - before if rule.sense is Sense.LOWER else before - after
        allowed = self.thresholds.get(rule.group, 0.0)
        if worse_by < 0:
            yield Draft(finding_of(key, before, after, Outcome.IMPROVED))
        elif before and worse_by <= allowed * abs(before) * (1 + _ROUNDING):
            yield Draft(
                finding_of(key, before, after, Outcome.PASS, f"within the {allowed * 100:.4g}% allowed")
            )
        else:
            why = "" if before or isinstance(before, bool) else "from nothing"
            yield Draft(finding_of(key, before, after, Outcome.REGRESSED, why))

    def _time(self, key: Key, before: Samples, after: Samples) -> Iterator[Finding]:
        if not before:
            return  # the baseline measured nothing, and more than it says can be no regression
        if not after:
            yield finding_of(key, before, after, Outcome.REGRESSED, "measured before, and not now")
            return
        fewest = min(len(before), len(after))
        if not self.same_machine:
            yield finding_of(key, before, after, Outcome.INCONCLUSIVE, "measured on another kind of machine")
        elif not self.same_store:
            yield finding_of(key, before, after, Outcome.INCONCLUSIVE, "measured on another store")
        elif fewest < MIN_SAMPLES:
            why = f"{len(before)} and {len(after)} samples; time needs {MIN_SAMPLES} a side (--repeat)"
            yield finding_of(key, before, after, Outcome.INCONCLUSIVE, why)
        else:
            yield from self._ranked(key, before, after)

    def _ranked(self, key: Key, before: Samples, after: Samples) -> Iterator[Finding]:
        """Regressed only if the medians are far apart *and* the ranking is no accident."""
        old, new = median(before), median(after)
        limit = 1 + self.thresholds["time"]
        p = mann_whitney(before, after)
        why = f"p = {p:.2g} of Mann-Whitney, {len(before)} and {len(after)} samples"
        if new > old * limit:
            certain = p <= SIGNIFICANCE
            yield finding_of(key, before, after, Outcome.REGRESSED if certain else Outcome.INCONCLUSIVE, why)
        elif new * limit < old and p <= SIGNIFICANCE:
            yield finding_of(key, before, after, Outcome.IMPROVED, why)
