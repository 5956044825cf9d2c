from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from hicache_bench.records.json_schema import schema_text
from hicache_bench.records.self_test import SelfTest
from tests.cli.command import Command, run_apart
from tests.records.changes import (
    Data,
    changed,
    counted,
    other_preset,
    reads_the_window,
    with_times,
)
from tests.records.golden import golden_path, golden_record

BASELINE = golden_path("run")


@pytest.fixture(autouse=True)
def no_job_on_github(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def few_samples(record: Data) -> None:
    with_times(record, 2, samples=3)


CHANGES = {
    "same": (),
    "worse": (reads_the_window,),
    "few": (few_samples,),
    "other": (other_preset,),
    "counted": (counted,),
}


@pytest.fixture
def new(tmp_path: Path) -> dict[str, Path]:
    paths = {}
    for name, changes in CHANGES.items():
        paths[name] = tmp_path / f"{name}.json"
        paths[name].write_text(json.dumps(changed(golden_record("run"), *changes)))
    return paths


@pytest.mark.parametrize(
    ("name", "options", "code", "said"),
    [
        ("same", [], 0, "gate: pass"),
        ("worse", [], 1, "gate: regressed"),
        ("worse", ["--max-regression", "bytes=2000%,objects=2000%"], 1, "gate: regressed"),  # the reasons
        ("few", [], 0, "gate: inconclusive"),
        ("few", ["--strict"], 1, "gate: inconclusive"),
        ("other", [], 5, "gate: not comparable"),
        ("counted", [], 1, "measured before, and not now"),
    ],
)
def test_exit_codes(
    command: Command, new: dict[str, Path], name: str, options: list[str], code: int, said: str
) -> None:
    answer = command("gate", BASELINE, new[name], *options)
    assert (code, "") == (answer.code, answer.err)
    assert said in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_an_improvement_passes(command: Command, new: dict[str, Path]) -> None:
    answer = command("gate", new["worse"], BASELINE)
    assert 0 == answer.code
    assert "gate: improved" in answer.out


@pytest.mark.parametrize("option", [("--format", "json"), ("--json",)], ids=" ".join)
def test_json_is_what_its_schema_says(
    command: Command, new: dict[str, Path], option: tuple[str, ...]
) -> None:
    answer = command("gate", BASELINE, new["worse"], *option)
    report = json.loads(answer.out)
    jsonschema.Draft202012Validator(json.loads(schema_text("gate"))).validate(report)
    assert (1, 1, "regressed") == (answer.code, report["exit_code"], report["outcome"])


@pytest.mark.parametrize(
    ("output_format", "start"),
    [
        ("markdown", "## hicache-bench gate: regressed\n"),
        ("junit", '<?xml version="1.0"'),
        ("github", "kitchen-sink, run"),
    ],
)
def test_formats(command: Command, new: dict[str, Path], output_format: str, start: str) -> None:
    answer = command("gate", BASELINE, new["worse"], "--format", output_format)
    assert (1, "") == (answer.code, answer.err)
    assert answer.out.startswith(start)
    assert ("\n::error title=" in answer.out) == (output_format == "github")


def test_a_job_on_github_gets_its_summary_and_annotations(
    command: Command, new: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    answer = command("gate", BASELINE, new["worse"], "--json")
    assert json.loads(answer.out)
    assert answer.err.startswith("::error title=kitchen-sink%3A regressed::")
    assert summary.read_text().startswith("before\n## hicache-bench gate: regressed\n")


def test_a_summary_that_cannot_be_written_does_not_cost_the_verdict(
    command: Command, new: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "gone" / "summary.md"))
    answer = command("gate", BASELINE, new["same"])
    assert 0 == answer.code
    assert "gate: pass" in answer.out
    assert "the step summary summary.md cannot be written: No such file" in answer.err


def test_update_accepts_and_says_what(command: Command, new: dict[str, Path], tmp_path: Path) -> None:
    baselines = tmp_path / "baselines"
    assert 0 == command("gate", baselines, BASELINE, "--update").code
    answer = command("gate", baselines, new["worse"], "--update")
    assert 0 == answer.code
    assert "accepted as baseline: kitchen-sink.json" in answer.out
    assert "out_of_window 120 -> 0 pages" in answer.out  # what was accepted
    assert 0 == command("gate", baselines, new["worse"]).code


def test_a_record_that_failed_is_not_accepted(command: Command, tmp_path: Path) -> None:
    def fail(record: Data) -> None:
        record["status"] = "failed"

    path = tmp_path / "failed.json"
    path.write_text(json.dumps(changed(golden_record("run"), fail)))
    command("gate", tmp_path / "base", path, "--update").assert_refused(4, "failed.json has failed checks")
    assert not (tmp_path / "base").exists()


def test_the_self_test(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = command("gate", golden_path("simulate"), "--self-test")
    assert (0, "") == (answer.code, answer.err)
    first, last = answer.out.splitlines()
    assert first.startswith("simulate.v1.json: ")
    assert last.startswith("self-test: ")
    (noticed, total) = (word for word in last.split() if word[0].isdigit())
    assert noticed == total
    tests = json.loads(command("gate", golden_path("simulate"), "--self-test", "--json").out)["tests"]
    assert [] == tests["simulate.v1.json"]["missed"]


def test_a_self_test_that_misses_something_fails(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hicache_bench.workflows.gate.self_test",
        lambda *_: SelfTest(perturbations=3, missed=("queries: another setting: pass",)),
    )
    answer = command("gate", BASELINE, "--self-test")
    assert 4 == answer.code
    assert "2 of 3 perturbations noticed\n  missed queries: another setting: pass" in answer.out
    assert answer.out.endswith("self-test: 2 of 3 noticed\n")
    assert "error: the gate missed 1 perturbations" in answer.err


BAD = {
    "not json": ("plain", "is not a JSON record"),
    "no record": ("{}", "is not a record"),
    "a list": ("[]", "is not a record"),
    "cut off": (BASELINE.read_text()[:5000], "is not a JSON record"),
    "a newer schema": (
        BASELINE.read_text().replace('"schema_version": 1', '"schema_version": 99'),
        "update this",
    ),
    "another kind": (BASELINE.read_text().replace('"kind": "run"', '"kind": "walk"'), "'walk' is unknown"),
    "another shape": (BASELINE.read_text().replace('"queries"', '"questions"'), "fields missing: queries"),
    "bytes": ("\xff\xfe", "is not a JSON record"),
}


@pytest.mark.parametrize("side", ["baseline", "new"])
@pytest.mark.parametrize(("text", "part"), BAD.values(), ids=BAD)
def test_what_is_no_record_is_bad_input(
    command: Command, tmp_path: Path, side: str, text: str, part: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text.encode("latin-1"))
    sides = (path, BASELINE) if side == "baseline" else (BASELINE, path)
    command("gate", *sides).assert_refused(2, "bad.json", part)


def test_a_number_that_is_none(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "nan.json"
    record = golden_record("run")
    record["results"][0]["ranks"][0]["lookup_calls"] = math.nan
    path.write_text(json.dumps(record))
    answer = command("gate", BASELINE, path)
    assert 1 == answer.code
    assert "not a number in the new record" in answer.out
    command("gate", path, BASELINE).assert_refused(2, "nan.json", "it holds NaN")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["GONE", "BASELINE"], ["no baseline at", "hicache-bench gate", "--update"]),
        (["BASELINE", "GONE"], ["cannot read record", "gone"]),
        (["EMPTY", "BASELINE"], ["holds no record", "hicache-bench run"]),
        (["BASELINE", "EMPTY"], ["holds no record", "hicache-bench run"]),
        (["BASELINE"], ["give NEW", "--self-test"]),
        ([], ["Missing argument 'baseline'"]),
        (["BASELINE", "BASELINE", "--self-test"], ["leave NEW and --update out"]),
        (["BASELINE", "--self-test", "--update"], ["leave NEW and --update out"]),
        (["BASELINE", "BASELINE", "--format", "html"], ["'html'", "text, markdown, junit, json, github"]),
        (["BASELINE", "BASELINE", "--max-regression", "bytes"], ["'bytes' is not a threshold", "time=10%"]),
        (["BASELINE", "BASELINE", "--max-regression", "size=1%"], ["'size' is unknown", "bytes, objects"]),
        (["BASELINE", "BASELINE", "--max-regression", "bytes=-1%"], ["not a threshold"]),
    ],
    ids=" ".join,
)
def test_bad_input(command: Command, tmp_path: Path, arguments: list[str], parts: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    files = {"GONE": tmp_path / "gone", "EMPTY": tmp_path / "empty", "BASELINE": BASELINE}
    command("gate", *(files.get(word, word) for word in arguments)).assert_refused(2, *parts)


def test_a_process_of_its_own_exits_with_the_verdict(new: dict[str, Path]) -> None:
    assert 1 == run_apart("gate", BASELINE, new["worse"]).code
    assert 5 == run_apart("gate", BASELINE, new["other"]).code


UNWANTED = ("numpy", "pandas", "matplotlib", "yaml", "hicache_bench.config", "hicache_bench.engine")


def test_a_gate_loads_nothing_that_only_other_commands_need() -> None:
    script = (
        "import sys; sys.argv = ['hicache-bench', 'gate', *sys.argv[1:]]\n"
        "from hicache_bench.cli.entry import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print(sorted({set(UNWANTED)} & set(sys.modules)))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script, str(BASELINE), str(BASELINE)],
        capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    assert "[]" == printed.splitlines()[-1]
