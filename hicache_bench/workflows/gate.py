"""What ``gate`` does, and ``run --gate``: files in, a report, baselines or a self-test out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hicache_bench.records.baseline import read_baselines, update
from hicache_bench.records.gate import Filed, GateReport, gate, read_side
from hicache_bench.records.io import Record
from hicache_bench.records.self_test import SelfTest, self_test
from hicache_bench.records.thresholds import Thresholds


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
        InputError: no baseline, no record, or a file that is none.
        VerificationError: what is to be accepted has failed checks.
    """
    baselines = _baselines(options)
    return _gated(options, baselines, read_side(new, keep_nan=not options.accepts), complete=new.is_dir())


def check_baseline(options: GateOptions) -> None:
    """Refuse a baseline that :func:`gate_records` could not use, before any work is done.

    Raises:
        InputError: there is none, or a file of it is none.
    """
    _baselines(options)


def gate_records(options: GateOptions, records: Iterable[Record], *, complete: bool) -> GateReport:
    """Compare records that were just made; ``complete``: each baseline of their kind must have one of them.

    Raises:
        InputError: no baseline, or a file that is none.
        VerificationError: what is to be accepted has failed checks.
    """
    news = [Filed(json.loads(json.dumps(record.to_dict(), allow_nan=False))) for record in records]
    kinds = {new.data["kind"] for new in news}
    baselines = [found for found in _baselines(options) if found.data["kind"] in kinds]
    return _gated(options, baselines, news, complete=complete)


def _baselines(options: GateOptions) -> list[Filed]:
    if options.accepts and not (options.baseline.exists() and _holds_records(options.baseline)):
        return []
    return read_baselines(options.baseline)


def _holds_records(path: Path) -> bool:
    return not path.is_dir() or any(path.glob("*.json"))


def _gated(options: GateOptions, baselines: list[Filed], news: list[Filed], *, complete: bool) -> GateReport:
    report = gate(baselines, news, options.thresholds, strict=options.strict, complete=complete)
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
    for baseline in read_baselines(path):
        name = baseline.name or path.name
        progress(f"perturbing {name}")
        tests[name] = self_test(baseline.data, thresholds)
    return SelfTested(tests=tests)
