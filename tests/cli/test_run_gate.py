"""``run`` of several presets, of one file, and with a gate."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hicache_bench.records.io import read_record
from hicache_bench.records.schema import Check, LengthResult, RunRecord
from hicache_bench.workflows.length import LengthJob
from tests.cli.command import Answer, Command
from tests.workflows.runs import PRESETS

TWO = ("--preset", "kitchen-sink,llama-3.1-8b")


@pytest.fixture
def counted(command: Command, tmp_path: Path) -> Callable[..., Answer]:
    """A small counted run; its records go to ``runs``."""

    def run(*arguments: object) -> Answer:
        out = () if "--out" in arguments else ("--out", tmp_path / "runs")
        return command("run", "--store", "count", "--tokens", "1k", *arguments, *out)

    return run


@pytest.fixture
def baselines(counted: Callable[..., Answer], tmp_path: Path) -> Path:
    folder = tmp_path / "baselines"
    answer = counted(*TWO, "--gate", folder, "--update")
    assert 0 == answer.code
    assert "kitchen-sink, run [counted]: new baseline\n  it had no baseline before\n" in answer.out
    assert "\ngate: new baseline; 2 baselines written, 0 as they were\n" in answer.out
    return folder


def test_several_presets_each_have_a_record_and_a_row(counted: Callable[..., Answer], tmp_path: Path) -> None:
    answer = counted(*TWO)
    assert (0, f"2 records in {tmp_path / 'runs'}\n") == (answer.code, answer.err)
    assert max(map(len, answer.out.splitlines())) <= 80
    names = {read_record(path)["preset"]["name"] for path in (tmp_path / "runs").iterdir()}
    assert {"kitchen-sink", "llama-3.1-8b"} == names
    assert [1024, 1024] == [
        record["results"][0]["tokens"] for record in json.loads(counted(*TWO, "--json").out)
    ]


def test_a_preset_that_is_named_twice_is_run_once(counted: Callable[..., Answer]) -> None:
    answer = counted("--preset", "deepseek,deepseek-v4-flash")
    assert answer.err.startswith("record: ")


def test_all_presets_pass_their_own_gate(counted: Callable[..., Answer], tmp_path: Path) -> None:
    folder = tmp_path / "baselines"
    assert 0 == counted("--preset", "all", "--gate", folder, "--update").code
    assert sorted(PRESETS) == sorted(path.stem for path in folder.iterdir())
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    answer = counted("--preset", "all", "--gate", folder)
    assert 0 == answer.code
    assert f"gate: pass ({len(PRESETS)} pass)" in answer.out
    again = counted("--preset", "all", "--gate", folder, "--update")
    assert f"0 baselines written, {len(PRESETS)} as they were" in again.out
    assert first == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_one_preset_is_gated_alone_all_against_all(counted: Callable[..., Answer], baselines: Path) -> None:
    answer = counted("--preset", "kitchen-sink", "--gate", baselines)
    assert 0 == answer.code
    assert "note: 1 other baselines not asked for" in answer.out
    (baselines / "gone.json").write_text(
        (baselines / "kitchen-sink.json").read_text().replace('"kitchen-sink"', '"gone"')
    )
    answer = counted("--preset", "all", "--gate", baselines)
    assert 1 == answer.code
    assert "gone, run [counted]: regressed\n  no new record for this baseline" in answer.out


def test_without_a_baseline_the_same_command_makes_one(
    counted: Callable[..., Answer], baselines: Path
) -> None:
    (baselines / "kitchen-sink.json").unlink()
    answer = counted(*TWO, "--gate", baselines)
    assert 5 == answer.code
    assert "no baseline for it: run the same command with --update to make one" in answer.out
    updated = counted(*TWO, "--gate", baselines, "--update")
    assert "kitchen-sink, run [counted]: new baseline" in updated.out
    assert "gate: not comparable (1 pass, 1 not comparable); 1 baseline written" in updated.out


def spoil(baselines: Path, old: str, new: str) -> None:
    path = baselines / "kitchen-sink.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_regression_exits_with_1_and_what_cannot_be_compared_with_5(
    counted: Callable[..., Answer], baselines: Path
) -> None:
    digest = read_record(baselines / "kitchen-sink.json")["preset_digest"]
    spoil(baselines, digest, "0" * 64)
    answer = counted(*TWO, "--gate", baselines)
    assert 5 == answer.code
    assert "preset_digest: baseline 000000000000" in answer.out
    spoil(baselines, "0" * 64, digest)
    spoil(baselines, '"endpoint_keys": ', '"endpoint_keys": -')
    answer = counted(*TWO, "--gate", baselines)
    assert 1 == answer.code
    assert "gate: regressed (1 pass, 1 regressed); exit code 1" in answer.out


def test_moved_bytes_are_gated_by_counted_ones(command: Command, baselines: Path, tmp_path: Path) -> None:
    answer = command(
        "run", "--preset", "kitchen-sink", "--tokens", "1k", "--repeat", 1, "--gate", baselines,
        "--out", tmp_path / "moved",
    )  # fmt: skip
    assert 0 == answer.code
    assert "kitchen-sink, run [counted -> measured]: pass" in answer.out


def test_json_keeps_stdout_for_the_record(counted: Callable[..., Answer], baselines: Path) -> None:
    answer = counted("--preset", "kitchen-sink", "--gate", baselines, "--json")
    assert "run" == json.loads(answer.out)["kind"]
    assert "gate: pass (1 pass); exit code 0" in answer.err


def test_verification_beats_the_gate(
    counted: Callable[..., Answer], baselines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = LengthJob.run

    def with_a_failure(job: LengthJob) -> LengthResult:
        result = original(job)
        return replace(result, checks=(*result.checks, Check("bytes", "1", "2", passed=False)))

    monkeypatch.setattr(LengthJob, "run", with_a_failure)
    answer = counted("--preset", "kitchen-sink", "--gate", baselines)
    assert 4 == answer.code
    assert "gate: regressed" in answer.out
    assert "error: 1 checks failed" in answer.err
    refused = counted("--preset", "kitchen-sink", "--gate", baselines, "--update")
    assert 4 == refused.code
    assert "has failed checks; it is no baseline" in refused.err


def test_out_may_be_one_file_that_only_force_replaces(counted: Callable[..., Answer], tmp_path: Path) -> None:
    out = tmp_path / "one.json"
    assert 0 == counted("--preset", "kitchen-sink", "--out", out).code
    before = out.read_bytes()
    answer = counted("--preset", "kitchen-sink", "--out", out)
    answer.assert_refused(2, "one.json exists already", "--force")
    assert before == out.read_bytes()
    assert 0 == counted("--preset", "kitchen-sink", "--out", out, "--force").code
    assert before != out.read_bytes()
    counted(*TWO, "--out", tmp_path / "two.json").assert_refused(2, "two.json is one file", "2 records")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--gate", "GONE"], ["no baseline at", "--update"]),
        (["--gate", "BAD"], ["is not a JSON record"]),
        (["--gate", "EMPTY"], ["holds no record"]),
        (["--gate", "GONE", "--max-regression", "bytes"], ["not a threshold"]),
        (["--max-regression", "bytes=1%"], ["--max-regression", "give --gate BASELINE"]),
        (["--strict"], ["--strict", "give --gate BASELINE"]),
        (["--update"], ["--update", "give --gate BASELINE"]),
        (["--preset", "kitchen-sink,kichen"], ["'kichen'", "did you mean 'kitchen-sink'"]),
        (["--preset", ""], ["''"]),
        (["--preset", "all", "--queries", "1"], ["--queries", "no index"]),
    ],
    ids=" ".join,
)
def test_bad_input_is_found_before_any_work(
    counted: Callable[..., Answer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    parts: list[str],
) -> None:
    def work(*_: object) -> RunRecord:
        raise AssertionError

    monkeypatch.setattr("hicache_bench.workflows.run.run", work)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.json").write_text("{")
    files = {"GONE": tmp_path / "gone", "EMPTY": tmp_path / "empty", "BAD": tmp_path / "bad.json"}
    preset = () if "--preset" in arguments else ("--preset", "kitchen-sink")
    answer = counted(*preset, *(files.get(word, word) for word in arguments))
    answer.assert_refused(2, *parts)
    assert not (tmp_path / "runs").exists()


def test_a_record_among_its_own_baselines_is_refused_before_any_work(
    counted: Callable[..., Answer], baselines: Path
) -> None:
    before = sorted(baselines.iterdir())
    for out in (baselines, baselines / "new.json"):
        answer = counted("--preset", "kitchen-sink", "--gate", baselines, "--out", out)
        answer.assert_refused(2, "among its own baselines", "give another --out")
    one = baselines / "kitchen-sink.json"
    answer = counted("--preset", "kitchen-sink", "--gate", one, "--out", one, "--force")
    answer.assert_refused(2, "among its own baselines")
    assert before == sorted(baselines.iterdir())
