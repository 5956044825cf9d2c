from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hicache_bench.errors import InputError
from hicache_bench.records import io
from hicache_bench.records.io import load_record, read_record
from hicache_bench.records.kinds import KINDS
from hicache_bench.records.migrations import MIGRATIONS, migrated
from hicache_bench.records.schema import SCHEMA_VERSION
from tests.records.golden import FOLDER, golden_path, golden_record


def test_there_is_a_step_from_each_older_version() -> None:
    assert set(range(1, SCHEMA_VERSION)) == set(MIGRATIONS)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_kept_in_the_current_version(kind: str) -> None:
    path = golden_path(kind)
    assert path.exists(), "write it: python -m tests.records.golden"
    assert json.loads(path.read_text()) == read_record(path)


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_records_of_every_version_load(path: Path) -> None:
    kind, _, version = path.stem.partition(".v")
    assert int(version) == json.loads(path.read_text())["schema_version"]
    record = load_record(path)
    assert isinstance(record, KINDS[kind].record)
    assert SCHEMA_VERSION == record.schema_version


def from_1(data: dict[str, Any]) -> dict[str, Any]:
    """In version 1 of this story a run had no queries."""
    return {**data, "queries": 0}


def from_2(data: dict[str, Any]) -> dict[str, Any]:
    """In version 2 the save policy had another name."""
    return {**{name: value for name, value in data.items() if name != "saved"}, "save_policy": data["saved"]}


STEPS = {1: from_1, 2: from_2}


def old(version: int) -> dict[str, Any]:
    """The kept record, as the versions of this story had it."""
    data = golden_record("run")
    data["schema_version"] = version
    if version < 3:
        data["saved"] = data.pop("save_policy")
    if version < 2:
        del data["queries"]
    return data


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_older_record_goes_through_every_step(version: int) -> None:
    expected = {**golden_record("run"), "schema_version": 3}
    assert expected == migrated(old(version), migrations=STEPS, current=3)


def test_an_older_record_is_read_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(old(1)))
    save_policy = golden_record("run")["save_policy"]
    with pytest.raises(InputError, match="fields missing: save_policy, queries"):
        read_record(path)
    monkeypatch.setattr(io, "migrated", lambda data: migrated(data, migrations=STEPS, current=3))
    record = read_record(path)
    assert (3, 0, save_policy) == (record["schema_version"], record["queries"], record["save_policy"])


@pytest.mark.parametrize("version", [0, 4, -1, "1", None, True, 1.0, [1]])
def test_another_version_is_refused_with_those_that_are_known(version: object) -> None:
    with pytest.raises(InputError, match="versions 1 to 3") as caught:
        migrated({"schema_version": version}, migrations=STEPS, current=3)
    assert ("update this one" in str(caught.value)) == (version == 4)


def test_a_single_version_is_named_alone() -> None:
    with pytest.raises(InputError, match="schema version 2; this release reads version 1; a newer"):
        migrated({"schema_version": 2}, migrations={}, current=1)
