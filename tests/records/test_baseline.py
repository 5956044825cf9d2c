from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hicache_bench.errors import InputError, OutputError, VerificationError
from hicache_bench.records.baseline import as_baseline, read_baselines, update
from hicache_bench.records.gate import Filed, read_side
from hicache_bench.records.io import read_record
from tests.records.changes import Data, changed, counted, other_preset, renamed
from tests.records.golden import golden_path, golden_record
from tests.workflows.runs import cached_run, run_now


def filed(*changes) -> Filed:
    return Filed(changed(golden_record("run"), *changes))


def tensor_parallel(record: Data) -> None:
    record["deployment"]["tp"] = 8


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_a_baseline_without_times_has_no_moment() -> None:
    first, second = cached_run("kitchen-sink", 1024).to_dict(), run_now("kitchen-sink", 1024).to_dict()
    assert first["created_utc"] != second["created_utc"]
    assert as_baseline(first) == as_baseline(second)
    kept = as_baseline(first)
    assert ("1970-01-01T00:00:00.000000Z", [], "", {}, {}) == (
        kept["created_utc"],
        kept["command"],
        kept["tool_version"],
        kept["libraries"],
        kept["environment"],
    )
    assert first["results"] == kept["results"]


def test_a_baseline_with_times_keeps_where_they_were_measured() -> None:
    assert golden_record("run") == as_baseline(golden_record("run"))


def test_a_new_baseline_has_the_name_of_its_preset(tmp_path: Path) -> None:
    folder = tmp_path / "baselines"
    written, unchanged = update(folder, [], [filed(counted), filed(counted, renamed("other"))])
    assert (["kitchen-sink.json", "other.json"], 0) == (names(written), unchanged)
    assert as_baseline(filed(counted).data) == read_record(folder / "kitchen-sink.json")
    assert ([], 2) == update(folder, read_side(folder), [filed(counted), filed(counted, renamed("other"))])


def test_a_full_disk_is_told_of_the_baseline_and_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    words = r"cannot write kitchen-sink\.json to .*base': No space left on device; .* give a BASELINE"
    with pytest.raises(OutputError, match=words) as caught:
        update(tmp_path / "base", [], [filed(counted)])
    assert "--out" not in str(caught.value)
    assert [] == list(tmp_path.iterdir())


def test_other_settings_get_a_name_of_their_own(tmp_path: Path) -> None:
    update(tmp_path, [], [filed(counted)])
    written, _ = update(tmp_path, read_side(tmp_path), [filed(counted, tensor_parallel)])
    (name,) = names(written)
    assert name.startswith("kitchen-sink-")
    assert len("kitchen-sink-01234567.json") == len(name)
    assert 1 == read_record(tmp_path / "kitchen-sink.json")["deployment"]["tp"]
    assert ([], 1) == update(tmp_path, read_side(tmp_path), [filed(counted, tensor_parallel)])


def test_another_geometry_replaces_the_baseline_of_its_preset(tmp_path: Path) -> None:
    update(tmp_path, [], [filed(counted), filed(counted, tensor_parallel)])
    written, unchanged = update(tmp_path, read_side(tmp_path), [filed(counted, other_preset)])
    assert (["kitchen-sink.json"], 0) == (names(written), unchanged)
    assert 2 == len(list(tmp_path.iterdir()))
    assert read_record(tmp_path / "kitchen-sink.json")["preset_digest"].startswith("0123")


def test_kinds_other_than_runs_say_so_in_their_names(tmp_path: Path) -> None:
    news = [Filed(golden_record(kind)) for kind in ("bench", "roundtrip", "run", "simulate")]
    written, _ = update(tmp_path, [], news)
    assert [
        "bench-kitchen-sink.json",
        "roundtrip-kitchen-sink.json",
        "kitchen-sink.json",
        "simulate-deepseek-v4-flash.json",
    ] == names(written)


def test_one_file_takes_one_record(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    assert [path] == update(path, [], [filed()])[0]
    assert [path] == update(path, read_side(path), [filed(tensor_parallel)])[0]
    assert 8 == read_record(path)["deployment"]["tp"]
    with pytest.raises(InputError, match=r"2 records cannot .* one file 'base\.json'; give a directory"):
        update(path, [], [filed(), filed(renamed("other"))])


def test_a_record_that_failed_is_no_baseline(tmp_path: Path) -> None:
    def fail(record: Data) -> None:
        record["status"] = "failed"

    with pytest.raises(VerificationError, match="kitchen-sink has failed checks"):
        update(tmp_path, [], [filed(fail)])
    assert [] == list(tmp_path.iterdir())


def test_a_baseline_that_is_not_there_tells_how_to_make_one(tmp_path: Path) -> None:
    path = tmp_path / "gone"
    with pytest.raises(InputError, match=r"no baseline at .*gone'.*hicache-bench gate .*gone NEW --update"):
        read_baselines(path)
    assert 1 == len(read_baselines(golden_path("run")))
