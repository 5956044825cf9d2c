"""Many records against their baselines: which belong together, what came of each, and of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hicache_bench.errors import InputError
from hicache_bench.records.compare import Comparison, compare, differing_settings, worst
from hicache_bench.records.io import read_record, record_files
from hicache_bench.records.judge import Outcome
from hicache_bench.records.kinds import evidence_of, settings_of
from hicache_bench.records.schema import SCHEMA_VERSION
from hicache_bench.records.thresholds import Thresholds

NO_BASELINE = "no baseline for it: hicache-bench gate BASELINE NEW --update makes one"

REGRESSED_EXIT, NOT_COMPARABLE_EXIT = 1, 5


@dataclass(frozen=True, slots=True, eq=False)
class Filed:
    """A record as plain data, and its file; None for one that was not written yet."""

    data: Mapping[str, Any]
    path: Path | None = None

    @property
    def name(self) -> str | None:
        """Name of the file."""
        return None if self.path is None else self.path.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One comparison with the names of its files; ``subject`` is the preset, or what else the records are of.

    ``evidence`` are the tags of the figures, the baseline's and then the new record's where they differ. A
    pair that lacks one side says in the notes of its comparison what that means.
    """

    kind: str
    subject: str
    evidence: str
    baseline: str | None
    new: str | None
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """Everything that a gate has to say. ``notes`` are about the files, not about any one of the pairs.

    ``accepted`` are the baselines that were written, by file name; ``unchanged`` so many were as they are.
    ``exit_code`` is then 0: what was accepted is no regression any more.
    """

    kind: str = "gate"
    schema_version: int = SCHEMA_VERSION
    outcome: Outcome
    strict: bool
    exit_code: int
    thresholds: Mapping[str, float]
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]
    accepted: tuple[str, ...] = ()
    unchanged: int = 0

    @property
    def is_update(self) -> bool:
        """Whether the new records are the baselines now."""
        return bool(self.accepted or self.unchanged)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in field order."""
        return asdict(self)


def read_side(path: Path, *, keep_nan: bool = False) -> list[Filed]:
    """The record in a file, or the records of a directory, by file name.

    Raises:
        InputError: there is none, or a ``.json`` file is no record.
    """
    if not path.is_dir():
        return [Filed(read_record(path, keep_nan=keep_nan), path)]
    files = record_files(path)
    if not files:
        raise InputError(
            f"directory {str(path)!r} holds no record; hicache-bench run --out {path.name} writes some"
        )
    return [Filed(read_record(file, keep_nan=keep_nan), file) for file in files]


def gate(
    baselines: Sequence[Filed],
    news: Sequence[Filed],
    thresholds: Thresholds,
    *,
    strict: bool = False,
    complete: bool = True,
    no_baseline: str = NO_BASELINE,
) -> GateReport:
    """Compare each new record with the baseline of its settings.

    Of several records with the same settings the newest counts. ``complete``: a baseline that no new record
    belongs to is a regression, as any metric that is missing; else it is left alone. ``no_baseline`` is said
    of a new record without one.
    """
    before, old = _newest(baselines)
    after, older = _newest(news)
    notes = [
        f"{number} older {what} of the same settings left out"
        for number, what in ((old, "baselines"), (older, "new records"))
        if number
    ]
    matched = match(before, after)
    pairs = [_pair(baseline, new, thresholds, no_baseline) for baseline, new in matched]
    unasked = [baseline for baseline in before if not any(baseline is found for found, _ in matched)]
    if complete:
        pairs += [_missing(baseline) for baseline in unasked]
    elif unasked:
        notes.append(f"{len(unasked)} other baselines not asked for")
    outcomes = [pair.comparison.outcome for pair in pairs]
    return GateReport(
        outcome=worst(outcomes),
        strict=strict,
        exit_code=exit_code_of(outcomes, strict=strict),
        thresholds=dict(thresholds),
        pairs=tuple(sorted(pairs, key=lambda pair: (pair.kind, pair.subject))),
        notes=tuple(notes),
    )


def exit_code_of(outcomes: Iterable[Outcome], *, strict: bool) -> int:
    """1 where something regressed (``strict``: or stayed inconclusive), else 5 where not all was compared."""
    found = set(outcomes)
    if not found or Outcome.REGRESSED in found or (strict and Outcome.INCONCLUSIVE in found):
        return REGRESSED_EXIT
    return NOT_COMPARABLE_EXIT if Outcome.NOT_COMPARABLE in found else 0


def subject_of(data: Mapping[str, Any]) -> str:
    """The preset of a record; ``4 presets``, or the kind itself, where it is of several or of none."""
    if "preset" in data:
        return str(data["preset"]["name"])
    presets = list(data.get("presets", ()))
    return presets[0] if len(presets) == 1 else f"{len(presets)} presets" if presets else str(data["kind"])


def match(baselines: Sequence[Filed], news: Sequence[Filed]) -> list[tuple[Filed | None, Filed]]:
    """Each new record with the baseline of its settings, else the nearest one of its subject, else none."""
    exact = {_identity(baseline.data): baseline for baseline in baselines}
    wanted = {_identity(new.data) for new in news}
    free = [baseline for baseline in baselines if _identity(baseline.data) not in wanted]
    found: list[tuple[Filed | None, Filed]] = []
    for new in news:
        baseline = exact.get(_identity(new.data)) or _nearest(free, new)
        if baseline is not None and baseline in free:
            free.remove(baseline)
        found.append((baseline, new))
    return found


def _identity(data: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple((name, repr(value)) for name, value in settings_of(data).items())


def _nearest(baselines: Sequence[Filed], new: Filed) -> Filed | None:
    """The baseline of the same subject that differs in the fewest settings."""
    alike = [
        baseline
        for baseline in baselines
        if (baseline.data["kind"], subject_of(baseline.data)) == (new.data["kind"], subject_of(new.data))
    ]
    return min(alike, key=lambda found: len(differing_settings(found.data, new.data)), default=None)


def _newest(records: Sequence[Filed]) -> tuple[list[Filed], int]:
    """One record for each settings, and how many were left out."""
    kept: dict[tuple[object, ...], Filed] = {}
    for record in sorted(records, key=lambda record: (record.data["created_utc"], record.name or "")):
        kept[_identity(record.data)] = record
    return list(kept.values()), len(records) - len(kept)


def _pair(baseline: Filed | None, new: Filed, thresholds: Thresholds, no_baseline: str) -> Pair:
    comparison = (
        Comparison(
            outcome=Outcome.NOT_COMPARABLE,
            metrics=0,
            notes=(no_baseline,),
        )
        if baseline is None
        else compare(baseline.data, new.data, thresholds)
    )
    return Pair(
        kind=new.data["kind"],
        subject=subject_of(new.data),
        evidence=" -> ".join(
            dict.fromkeys(evidence_of(side.data) for side in (baseline, new) if side is not None)
        ),
        baseline=None if baseline is None else baseline.name,
        new=new.name,
        comparison=comparison,
    )


def _missing(baseline: Filed) -> Pair:
    return Pair(
        kind=baseline.data["kind"],
        subject=subject_of(baseline.data),
        evidence=evidence_of(baseline.data),
        baseline=baseline.name,
        new=None,
        comparison=Comparison(
            outcome=Outcome.REGRESSED, metrics=0, notes=("no new record for this baseline",)
        ),
    )
