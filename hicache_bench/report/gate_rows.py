"""The findings of a gate as rows of text, the same in every format: grouped by place, alike ones together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hicache_bench.records.compare import FOLLOWS
from hicache_bench.records.gate import Pair
from hicache_bench.records.judge import Finding, Outcome
from hicache_bench.records.metrics import FAILED_CHECKS
from hicache_bench.units import format_seconds, format_tokens

_ONLY_RANK = "the only rank"
_UNITS = {"num_bytes": "bytes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric that changed, ready to print."""

    metric: str
    baseline: str
    new: str
    difference: str
    outcome: Outcome
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What changed in one place, and in ``others`` in the same way; ``reason`` is from the ledger there."""

    place: str
    others: tuple[str, ...]
    rows: tuple[Row, ...]
    reason: str

    @property
    def title(self) -> str:
        """Where it is: ``8k tokens, selective, swa``."""
        if not self.others:
            return self.place
        if len(self.others) <= 2:
            return f"{self.place}; also {'; '.join(self.others)}"
        return f"{self.place}, and {len(self.others)} places like it"


def groups_of(pair: Pair) -> list[Group]:
    """The findings of a comparison, pools first within a length."""
    places: dict[str, dict[Row, None]] = {}
    reasons: dict[str, str] = {}
    lengths = list(dict.fromkeys(finding.where[:1] for finding in pair.comparison.findings))
    for finding in sorted(
        pair.comparison.findings, key=lambda found: (lengths.index(found.where[:1]), -len(found.where))
    ):
        place = place_of(finding)
        places.setdefault(place, {})[_row(finding)] = None
        if finding.reason:
            reasons[place] = finding.reason
    alike: dict[tuple[tuple[Row, ...], str], list[str]] = {}
    for place, rows in places.items():
        alike.setdefault((tuple(rows), reasons.get(place, "")), []).append(place)
    return [
        Group(place=same[0], others=tuple(same[1:]), rows=rows, reason=reason)
        for (rows, reason), same in alike.items()
    ]


def place_of(finding: Finding) -> str:
    """``8k tokens, rank tp0, selective, swa``."""
    parts = [_entry(*entry) for entry in finding.where]
    return ", ".join(part for part in parts if part) or "the whole record"


def _entry(of: str, label: str) -> str:
    if of == "results" and label.isdecimal():
        return f"{format_tokens(int(label))} tokens"
    if of == "ranks":
        return "" if label == _ONLY_RANK else label if label.startswith("rank") else f"rank {label}"
    return label if of in ("policies", "pools") else f"{of} {label}"


def _row(finding: Finding) -> Row:
    name = finding.name
    seconds = bool(name) and name[-1].endswith("seconds")
    return Row(
        metric=metric_name(name),
        baseline="there" if not name else _shown(finding.baseline, seconds=seconds),
        new=_shown(finding.new, seconds=seconds),
        difference=_difference(finding, seconds=seconds),
        outcome=finding.outcome,
        why=finding.why,
    )


def metric_name(name: Sequence[str]) -> str:
    """``read bytes``, ``skipped out_of_window pages``, ``failed: <name of the check>``."""
    if not name:
        return "all of it"
    if name[0] == FAILED_CHECKS:
        return f"failed: {name[1]}"
    return " ".join(_UNITS.get(part, part) for part in name)


def _shown(value: int | float | str | bool | None, *, seconds: bool) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return (
            format_seconds(value) if seconds else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
        )
    return value


def _difference(finding: Finding, *, seconds: bool) -> str:
    before, after = finding.baseline, finding.new
    if isinstance(before, bool) or isinstance(after, bool):
        return "-"
    if not isinstance(before, (int, float)) or not isinstance(after, (int, float)):
        return "-"
    if (seconds or isinstance(after, float)) and finding.change is not None:
        return f"{finding.change:+.1%}"
    return f"{after - before:+,}"


def notes_of(pair: Pair) -> Iterator[str]:
    """What there is to say of a comparison besides its findings."""
    yield from pair.comparison.differences
    yield from (f"{_entry(*entry)}: new, without a baseline" for entry in pair.comparison.additions)
    yield from pair.comparison.notes


def explanations_of(group: Group) -> Iterator[str]:
    """What there is to add to the rows of a group, once for all that share it."""
    whys: dict[str, list[str]] = {}
    for row in group.rows:
        if row.why and row.why != FOLLOWS:
            whys.setdefault(row.why, []).append(row.metric)
    for why, metrics in whys.items():
        all_of_them = len(metrics) == len(group.rows) > 1
        yield f"{'all of these' if all_of_them else ', '.join(metrics)}: {why}"


def counts_of(pairs: Sequence[Pair]) -> str:
    """``28 pass, 1 improved, 2 regressed``."""
    found = [pair.comparison.outcome for pair in pairs]
    return ", ".join(f"{found.count(outcome)} {outcome.value}" for outcome in Outcome if outcome in found)
