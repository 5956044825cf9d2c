from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hicache_bench.errors import InputError
from hicache_bench.records.gate import Filed, GateReport, exit_code_of, gate, read_side, subject_of
from hicache_bench.records.judge import Outcome
from hicache_bench.records.thresholds import DEFAULT_THRESHOLDS
from tests.records.changes import Data, changed, other_preset, reads_the_window, renamed
from tests.records.golden import FOLDER, golden_path, golden_record


def filed(*changes, file: str = "record.json") -> Filed:
    return Filed(changed(golden_record("run"), *changes), Path(file))


def tensor_parallel(size: int):
    def change(record: Data) -> None:
        record["deployment"]["tp"] = size

    return change


def at(time: str):
    def change(record: Data) -> None:
        record["created_utc"] = time

    return change


def gated(before: list[Filed], after: list[Filed], **options: Any) -> GateReport:
    return gate(before, after, DEFAULT_THRESHOLDS, **options)


def outcomes(report: GateReport) -> list[tuple[str, Outcome]]:
    return [(pair.subject, pair.comparison.outcome) for pair in report.pairs]


@pytest.mark.parametrize(
    ("found", "strict", "code"),
    [
        ("pass", False, 0),
        ("improved", False, 0),
        ("inconclusive", False, 0),
        ("inconclusive", True, 1),
        ("not comparable", False, 5),
        ("not comparable", True, 5),
        ("regressed", False, 1),
        ("pass, improved", True, 0),
        ("not comparable, regressed", False, 1),
        ("not comparable, inconclusive", False, 5),
        ("not comparable, inconclusive", True, 1),
        ("", False, 1),
    ],
)
def test_exit_codes(found: str, strict: bool, code: int) -> None:
    assert code == exit_code_of([Outcome(word) for word in found.split(", ") if word], strict=strict)


def test_each_record_meets_the_baseline_of_its_settings() -> None:
    before = [filed(renamed("b"), file="b.json"), filed(renamed("a"), file="a.json")]
    after = [filed(renamed("a"), file="1.json"), filed(renamed("b"), reads_the_window, file="2.json")]
    report = gated(before, after)
    assert [("a", Outcome.PASS), ("b", Outcome.REGRESSED)] == outcomes(report)
    assert [("a.json", "1.json"), ("b.json", "2.json")] == [
        (pair.baseline, pair.new) for pair in report.pairs
    ]
    assert (Outcome.REGRESSED, 1) == (report.outcome, report.exit_code)


def test_deployments_of_one_preset_are_told_apart() -> None:
    sizes = (1, 2, 8)
    before = [filed(tensor_parallel(size), file=f"{size}.json") for size in sizes]
    after = [filed(tensor_parallel(size), file=f"{size}.json") for size in reversed(sizes)]
    report = gated(before, after)
    assert [Outcome.PASS] * 3 == [pair.comparison.outcome for pair in report.pairs]
    assert all(pair.baseline == pair.new for pair in report.pairs)


def test_the_nearest_baseline_says_why_it_cannot_be_compared() -> None:
    before = [filed(tensor_parallel(8), other_preset, file="far.json"), filed(file="near.json")]
    report = gated(before, [filed(tensor_parallel(2))], complete=False)
    (pair,) = report.pairs
    assert ("near.json", Outcome.NOT_COMPARABLE) == (pair.baseline, pair.comparison.outcome)
    assert ("deployment.tp: baseline 1, new 2",) == pair.comparison.differences
    assert 5 == report.exit_code


def test_a_record_without_any_baseline() -> None:
    report = gated([filed()], [filed(renamed("other"))], complete=False)
    (pair,) = report.pairs
    assert (None, Outcome.NOT_COMPARABLE, 5) == (pair.baseline, pair.comparison.outcome, report.exit_code)
    assert "--update" in pair.comparison.notes[0]
    assert ("1 other baselines not asked for",) == report.notes


def test_a_baseline_without_a_record_is_a_regression_where_all_are_asked_for() -> None:
    before = [filed(), filed(renamed("gone"), file="gone.json")]
    report = gated(before, [filed()])
    assert [("gone", Outcome.REGRESSED), ("kitchen-sink", Outcome.PASS)] == outcomes(report)
    assert [None, "record.json"] == [pair.new for pair in report.pairs]
    alone = gated(before, [filed()], complete=False)
    assert (0, ("1 other baselines not asked for",)) == (alone.exit_code, alone.notes)


def test_nothing_at_all_is_a_regression() -> None:
    report = gated([], [])
    assert (Outcome.REGRESSED, 1, ()) == (report.outcome, report.exit_code, report.pairs)


def test_of_several_records_the_newest_counts() -> None:
    times = ["2026-01-02T00:00:00.000000Z", "2026-01-03T00:00:00.000000Z", "2026-01-01T00:00:00.000000Z"]
    news = [filed(at(time), file=f"{index}.json") for index, time in enumerate(times)]
    reads_the_window(news[2].data)  # type: ignore[arg-type]
    report = gated([filed()], news)
    assert ["1.json"] == [pair.new for pair in report.pairs]
    assert (0, ("2 older new records of the same settings left out",)) == (report.exit_code, report.notes)


def test_strict_is_in_the_report() -> None:
    def two_samples(record: Data) -> None:
        for policy in record["results"][0]["ranks"][0]["policies"]:
            policy["seconds"] = policy["seconds"][:2]

    assert 0 == gated([filed()], [filed(two_samples)]).exit_code
    report = gated([filed()], [filed(two_samples)], strict=True)
    assert (True, 1, Outcome.INCONCLUSIVE) == (report.strict, report.exit_code, report.outcome)


@pytest.mark.parametrize(
    ("kind", "subject"),
    [
        ("run", "kitchen-sink"),
        ("bench", "kitchen-sink"),
        ("roundtrip", "kitchen-sink"),
        ("simulate", "deepseek-v4-flash"),
    ],
)
def test_what_a_record_is_of(kind: str, subject: str) -> None:
    assert subject == subject_of(golden_record(kind))


def test_what_several_presets_are_called() -> None:
    assert "2 presets" == subject_of({"kind": "roundtrip", "presets": {"a": "", "b": ""}})
    assert "roundtrip" == subject_of({"kind": "roundtrip", "presets": {}})


def test_a_directory_is_read_by_name(tmp_path: Path) -> None:
    found = read_side(FOLDER)
    assert sorted(path.name for path in FOLDER.iterdir()) == [one.name for one in found]
    (alone,) = read_side(golden_path("run"))
    assert golden_record("run") == alone.data
    assert None is Filed({}).name


def test_a_directory_without_a_record(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match="holds no record; hicache-bench run --out"):
        read_side(tmp_path)


def test_one_bad_file_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(golden_record("run")))
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(InputError, match=r"b\.json' is not a record"):
        read_side(tmp_path)
