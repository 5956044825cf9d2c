"""What ``gate`` does, and ``run --gate``: files in, a report, baselines or a self-test out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hicache_bench.errors import InputError
from hicache_bench.records.baseline import read_baselines, update
from hicache_bench.records.gate import NO_BASELINE, Filed, GateReport, gate, read_side
from hicache_bench.records.io import Record
from hicache_bench.records.self_test import SelfTest, self_test
from hicache_bench.records.thresholds import Thresholds
from hicache_bench.workflows.meter import Meter

_NO_BASELINE_OF_A_RUN = "no baseline for it: run the same command with --update to make one"
_NEW_BASELINE = "it had no baseline before"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """What a gate was asked for: the baselines (a file or a directory) and how strict to be.

    ``accepts``: what was compared becomes the baseline, which then need not exist.
    """

    baseline: Path
    thresholds: Thresholds
    strict: bool = False
    accepts: bool = False


def gate_files(options: GateOptions, new: Path) -> GateReport:
    """Compare the record in a file with its baseline, or the records of a directory with all baselines.

    Raises:
        InputError: no baseline, no record, a file that is none, or one that is on both sides.
        VerificationError: what is to be accepted has failed checks.
    """
    baselines = baselines_of(options)
    news = read_side(new, keep_nan=not options.accepts)
    _check_apart(baselines, news)
    return _gated(options, baselines, news, complete=new.is_dir())


def baselines_of(options: GateOptions) -> list[Filed]:
    """The baselines as they are now. A command that makes records reads them before it makes any.

    Raises:
        InputError: there is none, or a file of it is none.
    """
    if options.accepts and not (options.baseline.exists() and _holds_records(options.baseline)):
        return []
    return read_baselines(options.baseline)


def check_outside(baseline: Path, out: Path) -> None:
    """Refuse to write records among the baselines, where the next gate would take them for baselines.

    ``out`` is a directory for records, or a ``.json`` file, as the commands take it.

    Raises:
        InputError: they would be.
    """
    places = {out.resolve()}
    if out.suffix == ".json" and not out.is_dir():
        places.add(out.resolve().parent)
    if baseline.resolve() in places:
        raise InputError(
            f"the record would be written to {str(out)!r}, among its own baselines, and the next gate would "
            "compare with it; give another --out (--update writes baselines)"
        )


def gate_records(
    options: GateOptions, baselines: Iterable[Filed], records: Iterable[Record], *, complete: bool
) -> GateReport:
    """Compare records that were just made with :func:`baselines_of` before they were.

    ``complete``: each baseline of their kind must have one of them.

    Raises:
        VerificationError: what is to be accepted has failed checks.
    """
    news = [Filed(json.loads(json.dumps(record.to_dict(), allow_nan=False))) for record in records]
    kinds = {new.data["kind"] for new in news}
    of_kinds = [found for found in baselines if found.data["kind"] in kinds]
    return _gated(options, of_kinds, news, complete=complete, no_baseline=_NO_BASELINE_OF_A_RUN)


def _check_apart(baselines: Iterable[Filed], news: Iterable[Filed]) -> None:
    known = {_file_id(found.path) for found in baselines if found.path is not None}
    for new in news:
        if new.path is not None and _file_id(new.path) in known:
            raise InputError(
                f"{str(new.path)!r} is baseline and new record at once, and nothing differs from itself; "
                "give another NEW"
            )


def _file_id(path: Path) -> tuple[int, int]:
    """The file itself, whatever links lead to it."""
    found = path.stat()
    return found.st_dev, found.st_ino


def _holds_records(path: Path) -> bool:
    return not path.is_dir() or any(path.glob("*.json"))


def _gated(
    options: GateOptions,
    baselines: list[Filed],
    news: list[Filed],
    *,
    complete: bool,
    no_baseline: str = NO_BASELINE,
) -> GateReport:
    report = gate(
        baselines,
        news,
        options.thresholds,
        strict=options.strict,
        complete=complete,
        no_baseline=_NEW_BASELINE if options.accepts else no_baseline,
    )
    if not options.accepts:
        return report
    written, unchanged = update(options.baseline, baselines, news)
    accepted = tuple(path.name for path in written)
    return replace(report, exit_code=0, accepted=accepted, unchanged=unchanged)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTested:
    """The self-tests of baselines, by file name."""

    tests: dict[str, SelfTest]

    @property
    def missed(self) -> int:
        """Perturbations that were not noticed."""
        return sum(len(test.missed) for test in self.tests.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def self_test_files(path: Path, thresholds: Thresholds, progress: Callable[[str], None]) -> SelfTested:
    """Perturb each baseline in every metric, and count what the gate notices.

    Raises:
        InputError: no baseline, or a file that is none.
    """
    tests = {}
    baselines = read_baselines(path)
    meter = Meter(progress, [1.0] * len(baselines))
    for baseline in baselines:
        name = baseline.name or path.name
        meter(f"perturbing {name}")
        tests[name] = self_test(baseline.data, thresholds)
        meter.finish()
    return SelfTested(tests=tests)
