from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from hicache_bench.errors import InputError
from hicache_bench.records.gate import GateReport
from hicache_bench.records.io import write_record
from hicache_bench.records.judge import Outcome
from hicache_bench.records.schema import RunRecord
from hicache_bench.records.thresholds import DEFAULT_THRESHOLDS
from hicache_bench.workflows.gate import (
    GateOptions,
    baselines_of,
    check_outside,
    gate_files,
    gate_records,
    self_test_files,
)
from tests.records.changes import changed, reads_the_window
from tests.records.golden import golden_path, golden_record
from tests.workflows.runs import cached_run, quiet


def gated(asked: GateOptions, record: RunRecord) -> GateReport:
    """One record that was just made, against all baselines of its kind."""
    return gate_records(asked, baselines_of(asked), [record], complete=True)


def options(baseline: Path, **more: bool) -> GateOptions:
    return GateOptions(baseline=baseline, thresholds=DEFAULT_THRESHOLDS, **more)


@pytest.fixture
def same(tmp_path: Path) -> Path:
    path = tmp_path / "same" / "same.json"
    path.parent.mkdir()
    path.write_text(golden_path("run").read_text())
    return path


@pytest.fixture
def worse(tmp_path: Path) -> Path:
    path = tmp_path / "worse.json"
    path.write_text(json.dumps(changed(golden_record("run"), reads_the_window)))
    return path


def test_a_file_against_a_file(same: Path, worse: Path) -> None:
    assert 0 == gate_files(options(golden_path("run")), same).exit_code
    assert 1 == gate_files(options(golden_path("run")), worse).exit_code


def test_a_file_is_compared_with_its_baseline_alone_a_directory_with_all(same: Path, worse: Path) -> None:
    folder = golden_path("run").parent
    alone = gate_files(options(folder), same)
    assert (1, 0) == (len(alone.pairs), alone.exit_code)
    whole = gate_files(options(folder), worse.parent)
    assert {Outcome.REGRESSED} == {pair.comparison.outcome for pair in whole.pairs}
    assert 4 <= len(whole.pairs)


def test_what_is_accepted_is_the_baseline_from_then_on(worse: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "base.json"
    baseline.write_text(golden_path("run").read_text())
    report = gate_files(options(baseline, accepts=True), worse)
    assert (Outcome.REGRESSED, 0, ("base.json",), 0) == (
        report.outcome, report.exit_code, report.accepted, report.unchanged,
    )  # fmt: skip
    assert 0 == gate_files(options(baseline), worse).exit_code
    assert ((), 1) == (
        (again := gate_files(options(baseline, accepts=True), worse)).accepted,
        again.unchanged,
    )


def test_a_baseline_can_be_made_where_none_is(tmp_path: Path) -> None:
    folder = tmp_path / "baselines"
    with pytest.raises(InputError, match="no baseline at"):
        baselines_of(options(folder))
    baselines_of(options(folder, accepts=True))
    record = cached_run("kitchen-sink", 1024)
    report = gated(options(folder, accepts=True), record)
    assert (("kitchen-sink.json",), 0) == (report.accepted, report.exit_code)
    baselines_of(options(folder))
    assert 0 == gated(options(folder), record).exit_code
    (tmp_path / "empty").mkdir()
    baselines_of(options(tmp_path / "empty", accepts=True))


def test_baselines_of_other_kinds_are_not_asked_of_a_run(tmp_path: Path) -> None:
    record = cached_run("kitchen-sink", 1024)
    gated(options(tmp_path, accepts=True), record)
    (tmp_path / "simulate.json").write_text(golden_path("simulate").read_text())
    report = gated(options(tmp_path), record)
    assert (0, 1) == (report.exit_code, len(report.pairs))


def test_a_bad_baseline_is_found_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    for accepts in (False, True):
        with pytest.raises(InputError, match=r"bad\.json' is not a record"):
            baselines_of(options(tmp_path, accepts=accepts))


def test_a_number_that_is_none_regresses_and_is_never_accepted(tmp_path: Path) -> None:
    path = tmp_path / "nan.json"
    record = golden_record("run")
    record["results"][0]["ranks"][0]["lookup_keys"] = math.nan
    path.write_text(json.dumps(record))
    assert 1 == gate_files(options(golden_path("run")), path).exit_code
    with pytest.raises(InputError, match="it holds NaN"):
        gate_files(options(tmp_path / "base.json", accepts=True), path)
    with pytest.raises(InputError, match="it holds NaN"):
        gate_files(options(path), golden_path("run"))


def test_the_self_test_of_a_file(tmp_path: Path) -> None:
    said: list[str] = []
    tested = self_test_files(golden_path("simulate"), DEFAULT_THRESHOLDS, said.append)
    assert (0, ["perturbing simulate.v1.json"]) == (tested.missed, said)
    assert tested.to_dict()["tests"]["simulate.v1.json"]["perturbations"] > 500
    with pytest.raises(InputError, match="no baseline at"):
        self_test_files(tmp_path / "gone", DEFAULT_THRESHOLDS, quiet)


def test_the_self_test_of_a_directory_says_how_far_it_is(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(golden_path("simulate").read_text())
    said: list[str] = []
    tested = self_test_files(tmp_path, DEFAULT_THRESHOLDS, said.append)
    assert ["a.json", "b.json"] == list(tested.tests)
    assert ["0 of 2 done", "1 of 2 done"] == [line.partition("] ")[2][:11] for line in said]


def test_nothing_is_compared_with_itself(same: Path, tmp_path: Path) -> None:
    """It would pass, whatever is in it."""
    link, hard = tmp_path / "link.json", tmp_path / "hard.json"
    link.symlink_to(same)
    hard.hardlink_to(same)
    for baseline, new in [(same, same), (same, link), (hard, same), (same.parent, same), (same, same.parent)]:
        with pytest.raises(InputError, match="is baseline and new record at once"):
            gate_files(options(baseline), new)


def test_baselines_are_those_from_before_the_work(tmp_path: Path) -> None:
    """A record that is written among them must not become its own baseline."""
    record = cached_run("kitchen-sink", 1024)
    asked = options(tmp_path)
    gated(options(tmp_path, accepts=True), record)
    spoiled = json.loads((tmp_path / "kitchen-sink.json").read_text())
    spoiled["results"][0]["ranks"][0]["lookup_keys"] -= 1
    (tmp_path / "kitchen-sink.json").write_text(json.dumps(spoiled))
    before = baselines_of(asked)
    write_record(record, tmp_path)
    assert 1 == gate_records(asked, before, [record], complete=True).exit_code


@pytest.mark.parametrize("out", ["base", "base/new.json", "base.json", "other/../base", "link"])
def test_records_are_not_written_among_the_baselines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    """The newest record of the same settings counts: the next gate would compare with it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "base")
    baseline = Path("base.json" if out == "base.json" else "base")
    with pytest.raises(InputError, match="among its own baselines"):
        check_outside(baseline, Path(out))
    for elsewhere in ("runs", "runs/new.json", "base/deeper", "new.json"):
        check_outside(baseline, Path(elsewhere))
