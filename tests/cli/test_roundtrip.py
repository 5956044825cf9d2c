from __future__ import annotations

import json
from pathlib import Path

import pytest

from hicache_bench.records.io import read_record
from hicache_bench.workflows.roundtrip.byte_proofs import TalliedBytes
from tests.cli.command import Command
from tests.report.test_junit import parsed

SMALL = ("roundtrip", "--preset", "kitchen-sink", "--lengths", "1,5", "--batch-pages", "4")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results"


def only_record(out: Path) -> Path:
    (path,) = out.iterdir()
    return path


def test_a_proof_of_one_preset(command: Command, out: Path, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    answer = command(*SMALL, "--out", out, "--junit", junit)
    assert 0 == answer.code
    assert max(map(len, answer.out.splitlines())) <= 80
    for part in ("5 pages", "extended prefix", "controls came out as they must", "batches of 4 pages"):
        assert part in answer.out
    path = only_record(out)
    assert "-roundtrip-kitchen-sink-" in path.name
    assert f"record: {path}\n" == answer.err
    record = read_record(path)
    assert ("roundtrip", "ok") == (record["kind"], record["status"])
    assert str(tmp_path) not in path.read_text()
    root = parsed(junit.read_text())
    assert str(len(record["proofs"])) == root.get("tests")


def test_json_on_stdout_is_the_record_on_disk(command: Command, out: Path) -> None:
    answer = command(*SMALL, "--json", "--out", out, "--seed", 9, "--policy", "selective", "--memory", "1GiB")
    assert 0 == answer.code
    record = json.loads(answer.out)
    assert record == read_record(only_record(out))
    assert 9 == record["seed"]


def test_a_failed_check_is_exit_code_4_and_keeps_the_report(
    command: Command, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TalliedBytes, "disturbed", lambda *_: ["mla:0"])
    answer = command(*SMALL, "--out", out, "--junit", tmp_path / "junit.xml")
    assert 4 == answer.code
    assert "proofs failed" in answer.err
    assert "skipped pages without their poison" in " ".join(answer.out.split())
    assert "did NOT" in answer.out
    assert "failed" == read_record(only_record(out))["status"]
    assert "0" != parsed((tmp_path / "junit.xml").read_text()).get("failures")


def test_a_failed_check_outweighs_a_file_that_cannot_be_written(
    command: Command, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no file that is always full")
    answer = command(*SMALL, "--out", out, "--junit", full)
    assert 2 == answer.code
    assert "all passed" in answer.out
    assert "cannot write --junit '/dev/full'" in answer.err
    monkeypatch.setattr(TalliedBytes, "disturbed", lambda *_: ["mla:0"])
    answer = command(*SMALL, "--out", out, "--junit", full)
    assert 4 == answer.code
    assert "No space left" in answer.err
    assert "proofs failed" in answer.err


def test_several_presets_each_once(command: Command, out: Path) -> None:
    answer = command(
        "roundtrip",
        "--preset",
        "llama-3.1-8b, kitchen-sink,kitchen-sink",
        "--lengths",
        1,
        "--json",
        "--out",
        out,
    )
    record = json.loads(answer.out)
    assert ["llama-3.1-8b", "kitchen-sink"] == list(record["presets"])
    assert "-roundtrip-2-presets.json" in only_record(out).name


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--preset", "kitchen-zink"], ["kitchen-zink", "did you mean"]),
        (["--preset", "kitchen-sink,"], ["no preset is named ''"]),
        (["--lengths", "1,two"], ["--lengths 'two'", "1,127,128"]),
        (["--lengths", "0"], ["--lengths '0'"]),
        (["--lengths", "9" * 5000], ["--lengths '99", "1,127,128"]),
        (["--policy", "dense,lazy"], ["'lazy'", "dense, hit_policy, selective"]),
        (["--store", "count"], ["moves no bytes"]),
        (["--store", "redis"], ["'redis'"]),
        (["--memory", "lots"], ["'lots'"]),
        (["--memory", "4"], ["'4' is 4 bytes of memory"]),
        (["--layout", "layer_first"], ["layer_first", "page_first"]),
        (["--kv-dtype", "fp9"], ["--kv-dtype", "fp9"]),
        (["--soak", "soon"], ["'soon'", "60s"]),
        (["--checksum", "md5"], ["'md5'", "xxh3"]),
        (["--faults", "cosmic-ray"], ["'cosmic-ray'"]),
        (["--junit", "no/such/place.xml"], ["--junit", "existing directory"]),
    ],
    ids=" ".join,
)
def test_bad_input(command: Command, out: Path, arguments: list[str], parts: list[str]) -> None:
    given = arguments if "--preset" in arguments else ["--preset", "kitchen-sink", *arguments]
    command("roundtrip", *given, "--out", out).assert_refused(2, *parts)
    assert not out.exists()


def test_options_of_a_model_without_one(command: Command, out: Path) -> None:
    arguments = ("roundtrip", "--faults", "flipped-bit", "--out", out)
    command(*arguments, "--tp", 2, "--salt", "a").assert_refused(2, "--tp, --salt without --preset")
    command(*arguments, "--lengths", 3).assert_refused(2, "--lengths without --preset")
    assert not out.exists()


def test_nothing_to_prove(command: Command, out: Path) -> None:
    command("roundtrip", "--out", out).assert_refused(2, "nothing to prove", "--preset all")


def test_faults_and_a_soak_from_the_command_line(command: Command, out: Path) -> None:
    answer = command(
        "roundtrip",
        "--faults",
        "all",
        "--injections",
        10,
        "--soak",
        "2s",
        "--checksum",
        "xxh3",
        "--out",
        out,
    )
    assert 0 == answer.code, answer.err
    assert "-roundtrip-faults.json" in only_record(out).name
    assert "soak" in answer.out
