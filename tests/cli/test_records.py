from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import jsonschema
import pytest

from hicache_bench.records.json_schema import WRITERS, schema_path
from hicache_bench.records.kinds import KINDS
from tests.cli.command import Command
from tests.records.changes import changed, other_preset, with_times
from tests.records.golden import FOLDER, golden_path, golden_record


@pytest.fixture
def halves(tmp_path: Path) -> list[Path]:
    """Two runs of three samples each."""
    paths = []
    for day in (1, 2):
        record = golden_record("run")
        with_times(record, day, samples=3)
        record["created_utc"] = f"2026-01-0{day}T00:00:00.000000Z"
        paths.append(tmp_path / f"{day}.json")
        paths[-1].write_text(json.dumps(record))
    return paths


@pytest.mark.parametrize("kind", KINDS)
def test_show(command: Command, kind: str) -> None:
    answer = command("records", "show", golden_path(kind))
    assert (0, "") == (answer.code, answer.err)
    assert max(map(len, answer.out.splitlines())) <= 80
    plain = json.loads(command("records", "show", golden_path(kind), "--json").out)
    assert golden_record(kind) == plain


def test_show_prints_what_the_run_printed(command: Command, tmp_path: Path) -> None:
    arguments = ("run", "--preset", "kitchen-sink", "--tokens", "1k", "--store", "count")
    printed = command(*arguments, "--out", tmp_path).out
    (path,) = tmp_path.iterdir()
    assert printed == command("records", "show", path).out


def test_list(command: Command) -> None:
    answer = command("records", "list", FOLDER)
    assert (0, "") == (answer.code, answer.err)
    assert ["file", "kind", "tokens", "status"] == answer.out.splitlines()[0].split()
    listed = json.loads(command("records", "list", FOLDER, "--json").out)
    assert {"run", "bench"} < {one["kind"] for one in listed}
    assert {None} == {one["fault"] for one in listed}


def test_list_goes_on_after_a_bad_file(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text(golden_path("run").read_text())
    answer = command("records", "list", tmp_path)
    assert 0 == answer.code
    assert "unreadable" in answer.out
    assert "it has no schema_version" in " ".join(answer.out.split())


def test_merge(command: Command, halves: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "both.json"
    answer = command("records", "merge", *halves, "--out", out)
    assert (0, "", f"record: {out}\n") == (answer.code, answer.out, answer.err)
    merged = json.loads(out.read_text())
    assert 6 == len(merged["results"][0]["ranks"][0]["policies"][0]["seconds"])
    assert merged == json.loads(command("records", "merge", *halves).out)
    before = out.read_bytes()
    command("records", "merge", *halves, "--out", out).assert_refused(
        2, "both.json exists already", "--force"
    )
    assert before == out.read_bytes()
    assert 0 == command("records", "merge", *halves, "--out", out, "--force").code
    command("records", "merge", *halves, "--out", tmp_path).assert_refused(2, "is no .json file")


def test_merge_refuses_what_differs(command: Command, halves: list[Path]) -> None:
    halves[1].write_text(json.dumps(changed(golden_record("run"), other_preset)))
    command("records", "merge", *halves).assert_refused(2, "preset_digest", "hicache-bench gate")


def test_export(command: Command) -> None:
    answer = command("records", "export", FOLDER)
    assert (0, f"left out: {len(KINDS) - 1} records that are no runs\n") == (answer.code, answer.err)
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert {"read", "out_of_window", "superseded_state"} == {row["reason"] for row in rows}
    assert len(rows) == len(json.loads(command("records", "export", golden_path("run"), "--json").out))
    command("records", "export", golden_path("bench")).assert_refused(2, "are of bench, which no table holds")


def test_points_of_a_sweep_are_exported_as_its_table(command: Command) -> None:
    for kind, column in (("replay", "token_hit_rate"), ("simulate", "ttft_no_overlap")):
        answer = command("records", "export", golden_path(kind))
        assert 0 == answer.code
        rows = list(csv.DictReader(answer.out.splitlines()))
        assert len(rows) > 3
        assert all(float(row[column]) > 0 for row in rows)
        assert len(rows) == len(json.loads(command("records", "export", golden_path(kind), "--json").out))
    mixed = command("records", "export", golden_path("replay"), golden_path("simulate"))
    mixed.assert_refused(2, "are of replay, simulate, which no table holds", "of replay alone")


@pytest.mark.parametrize("kind", WRITERS)
def test_schema(command: Command, kind: str) -> None:
    answer = command("records", "schema", kind)
    assert schema_path(kind).read_text() == answer.out
    jsonschema.Draft202012Validator.check_schema(json.loads(answer.out))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["show", "GONE"], ["cannot read record", "gone.json"]),
        (["show", "BAD"], ["bad.json' is not a JSON record"]),
        (["list", "EMPTY"], ["holds no record", "hicache-bench run"]),
        (["list", "GONE"], ["holds no record"]),
        (["merge", "GONE"], ["cannot read record"]),
        (["export", "EMPTY"], ["holds no record"]),
        (["schema", "ran"], ["'ran'", "did you mean 'run'"]),
        (["schema", "xyz"], ["'xyz'; allowed: bench"]),
    ],
    ids=" ".join,
)
def test_bad_input(command: Command, tmp_path: Path, arguments: list[str], parts: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.json").write_text("{")
    files = {"GONE": "gone.json", "EMPTY": "empty", "BAD": "bad.json"}
    given = [str(tmp_path / files[word]) if word in files else word for word in arguments]
    command("records", *given).assert_refused(2, *parts)
