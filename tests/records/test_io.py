from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hicache_bench.errors import InputError, OutputError
from hicache_bench.records.io import (
    check_writable,
    load_record,
    read_record,
    record_files,
    record_name,
    write_record,
)
from hicache_bench.records.proof import RoundtripRecord
from hicache_bench.records.schema import SCHEMA_VERSION, RunRecord
from tests.workflows.runs import cached_run


@pytest.fixture
def record() -> RunRecord:
    return cached_run("kitchen-sink", 1024)


def refuse(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_name_says_when_and_what(record: RunRecord) -> None:
    dated = replace(record, created_utc="2026-11-29T01:02:03.000456Z")
    assert f"20261129T010203.000456Z-kitchen-sink-{record.preset_digest[:8]}.json" == record_name(dated)


@pytest.mark.parametrize(
    ("presets", "name"),
    [
        ({"kitchen-sink": "0123456789abcdef"}, "roundtrip-kitchen-sink-01234567"),
        ({"a": "0" * 16, "b": "1" * 16}, "roundtrip-2-presets"),
        ({}, "roundtrip-faults"),
    ],
)
def test_a_roundtrip_says_that_it_is_one(presets: dict[str, str], name: str, tmp_path: Path) -> None:
    record = RoundtripRecord(
        status="ok",
        created_utc="2026-11-29T01:02:03.000456Z",
        command=(),
        tool_version="0",
        libraries={},
        environment={},
        seed=0,
        store="local",
        store_settings={},
        presets=presets,
        proofs=(),
    )
    assert f"20261129T010203.000456Z-{name}.json" == record_name(record)
    assert "roundtrip" == read_record(write_record(record, tmp_path))["kind"]


def test_names_sort_by_time(record: RunRecord) -> None:
    times = ["2026-09-30T23:59:59.999999Z", "2026-10-01T00:00:00.000000Z", "2026-10-01T00:00:00.000001Z"]
    names = [record_name(replace(record, created_utc=time)) for time in times]
    assert names == sorted(set(names))


def test_a_record_is_written_whole_and_read_back(record: RunRecord, tmp_path: Path) -> None:
    path = write_record(record, tmp_path / "results" / "runs")
    assert [path] == list(path.parent.iterdir())
    assert record_name(record) == path.name
    assert json.loads(json.dumps(record.to_dict())) == read_record(path)
    assert path.read_text().endswith("}\n")
    assert 0o644 == stat.S_IMODE(path.stat().st_mode)


def test_a_record_is_never_overwritten(record: RunRecord, tmp_path: Path) -> None:
    path = write_record(record, tmp_path)
    before = path.read_bytes()
    with pytest.raises(OutputError, match=rf"{path.name} exists already; give another --out$"):
        write_record(replace(record, status="failed"), tmp_path)
    assert before == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace", "pathlib.Path.chmod"])
def test_a_failure_leaves_nothing(
    record: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(step, refuse)
    with pytest.raises(OutputError, match=r"No space left on device.*give a writable directory"):
        write_record(record, tmp_path / "results" / "runs")
    assert [] == list(tmp_path.iterdir())


def test_an_interrupt_leaves_nothing(
    record: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_record(record, tmp_path)
    assert [] == list(tmp_path.iterdir())


def test_a_number_that_is_none_never_reaches_the_disk(record: RunRecord, tmp_path: Path) -> None:
    (result,) = record.results
    (rank,) = result.ranks
    endless = replace(rank, save_seconds=float("nan"))
    broken = replace(record, results=(replace(result, ranks=(endless,)),))
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_record(broken, tmp_path)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("write", [check_writable, write_record])
def test_a_directory_below_a_file_is_refused(
    record: RunRecord, tmp_path: Path, write: Callable[..., object]
) -> None:
    (tmp_path / "file").touch()
    directory = tmp_path / "file" / "runs"
    arguments = (record, directory) if write is write_record else (directory,)
    with pytest.raises(OutputError, match=r"cannot write .*file/runs'.*--out"):
        write(*arguments)
    assert ["file"] == [path.name for path in tmp_path.iterdir()]


def test_checking_a_directory_leaves_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "results" / "runs")
    check_writable(tmp_path)
    assert [] == list(tmp_path.iterdir())


def test_a_directory_that_refuses_is_found_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)  # root may write anywhere
    with pytest.raises(OutputError, match="No space left"):
        check_writable(tmp_path / "runs")


def test_only_force_replaces_a_file(record: RunRecord, tmp_path: Path) -> None:
    path = write_record(record, tmp_path / "new" / "one.json")
    assert ("one.json", "ok") == (path.name, read_record(path)["status"])
    changed = replace(record, status="failed")
    for force, advice in ((None, "--out$"), (False, "--out, or --force to replace it$")):
        refused = rf"one\.json exists already; give another {advice}"
        with pytest.raises(OutputError, match=refused):
            write_record(changed, path, force=force)
        with pytest.raises(OutputError, match=refused):
            check_writable(path, force=force)
    assert "ok" == read_record(path)["status"]
    check_writable(path, force=True)
    assert path == write_record(changed, path, force=True)
    assert "failed" == read_record(path)["status"]
    assert [path] == list(path.parent.iterdir())


def test_a_directory_may_be_called_like_a_file(record: RunRecord, tmp_path: Path) -> None:
    folder = tmp_path / "runs.json"
    folder.mkdir()
    check_writable(folder)
    assert folder == write_record(record, folder).parent


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1, str(SCHEMA_VERSION), None, [1], True])
def test_another_schema_version_is_refused(tmp_path: Path, version: object) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"schema_version": version}))
    with pytest.raises(InputError, match=rf"record\.json.*this release reads version {SCHEMA_VERSION}"):
        read_record(path)


@pytest.mark.parametrize(("kind", "hint"), [("runs", "did you mean 'run'"), (None, ""), ([], "")])
def test_an_unknown_kind_is_refused(tmp_path: Path, kind: object, hint: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"schema_version": SCHEMA_VERSION, "kind": kind}))
    with pytest.raises(InputError, match=rf"record\.json.*is unknown; known: bench.*{hint}"):
        read_record(path)


def test_a_record_of_another_shape_is_refused(record: RunRecord, tmp_path: Path) -> None:
    path = write_record(record, tmp_path)
    data = json.loads(path.read_text())
    data["results"][0]["stored"]["objects"] = "some"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"results\[0\]\.stored\.objects: expected a whole number"):
        read_record(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_a_record_that_is_cut_off_is_refused(record: RunRecord, tmp_path: Path, share: float) -> None:
    path = write_record(record, tmp_path)
    text = path.read_text()
    path.write_text(text[: int(len(text) * share)])
    with pytest.raises(InputError, match="is not a JSON record"):
        read_record(path)


def test_a_cut_is_named_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    text = json.dumps({"schema_version": 1, "a": [True, False, None, -1.5e-7, 1e20], "b": {"c": "a text"}})
    for end in range(1, len(text)):
        path.write_text(text[:end])
        with pytest.raises(InputError, match="it may be cut off"):
            read_record(path)
    path.write_text(text.replace("true", "True"))
    with pytest.raises(InputError, match=r"Expecting value: .*\)$"):
        read_record(path)


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_file_is_called_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"record\.json' is not a JSON record: it is empty"):
        read_record(path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_refused_unless_it_is_to_be_judged(
    record: RunRecord, tmp_path: Path, number: str
) -> None:
    path = write_record(record, tmp_path)
    path.write_text(path.read_text().replace('"queries": 0', f'"queries": {number}'))
    with pytest.raises(InputError, match=rf"it holds {number}, which is no number"):
        read_record(path)
    assert not math.isfinite(read_record(path, keep_nan=True)["queries"])


def test_depth_beyond_all_bounds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text("[" * 100_000)
    with pytest.raises(InputError, match="is not a JSON record"):
        read_record(path)


def test_a_record_is_loaded_as_what_wrote_it(record: RunRecord, tmp_path: Path) -> None:
    loaded = load_record(write_record(record, tmp_path))
    assert isinstance(loaded, RunRecord)
    assert json.dumps(record.to_dict()) == json.dumps(loaded.to_dict())
    assert record.results == loaded.results


@pytest.mark.parametrize("text", ["", "{", "[1", "plain", '{"schema_version": 1', "\x00"])
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"record\.json' is not a JSON record"):
        read_record(path)


@pytest.mark.parametrize("text", ["[]", "1", "null", '"text"', "{}"])
def test_json_that_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(InputError, match="is not a record: it has no schema_version; hicache-bench run"):
        read_record(path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(InputError, match="is not a JSON record"):
        read_record(path)


def test_a_file_that_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*gone\.json': No such file.*; .* records list"):
        read_record(tmp_path / "gone.json")
    (tmp_path / "kitchen-sink.json").touch()
    with pytest.raises(InputError, match=r"did you mean 'kitchen-sink\.json'"):
        read_record(tmp_path / "kitchensink.json")
    with pytest.raises(InputError, match=r"cannot read record .*; name a file in it"):
        read_record(tmp_path)


def test_a_link_to_nowhere_is_not_what_was_meant(tmp_path: Path) -> None:
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"cannot read .*gone\.json': No such file.*; .* records list"):
        read_record(tmp_path / "gone.json")


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_may_never_end_is_not_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "endless.json"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"endless\.json' is a pipe or a device"):
        read_record(path)


def test_half_of_a_surrogate_pair_is_no_text_and_a_whole_one_is(record: RunRecord, tmp_path: Path) -> None:
    path = write_record(record, tmp_path)
    data = json.loads(path.read_text())
    data["namespace"] = "\U0001f600"
    path.write_text(json.dumps(data))
    read_record(path)
    data["namespace"] = "\ud83d"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match="half of a surrogate pair"):
        read_record(path)


def test_a_pipe_is_no_record_and_is_not_waited_for(record: RunRecord, tmp_path: Path) -> None:
    path = write_record(record, tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    assert [path, tmp_path / "gone.json"] == record_files(tmp_path)
