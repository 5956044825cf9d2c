from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest

from hicache_bench.errors import InputError
from hicache_bench.records.decode import decode
from hicache_bench.records.json_schema import FOLDER, WRITERS, record_schema, schema_path, schema_text
from hicache_bench.records.kinds import KINDS
from hicache_bench.records.schema import SCHEMA_VERSION
from tests.records.changes import Data
from tests.records.golden import golden_record
from tests.report.outputs import many
from tests.workflows.runs import cached_run


def validator(kind: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(schema_text(kind)))


def plain(data: object) -> Any:
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("kind", WRITERS)
def test_the_committed_schema_is_the_generated_one(kind: str) -> None:
    committed = schema_path(kind).read_text(encoding="utf-8")
    assert schema_text(kind) == committed, (
        f"write it again: hicache-bench records schema {kind} > {schema_path(kind).name}; if a release has "
        "written this version of records, it is time for the next one, see docs/records.md"
    )


def test_each_version_has_its_schemas_and_there_are_no_others() -> None:
    assert {f"{kind}.v{SCHEMA_VERSION}" for kind in WRITERS} <= {path.stem for path in FOLDER.iterdir()}
    for path in FOLDER.iterdir():
        kind, _, version = path.stem.partition(".v")
        assert kind in WRITERS
        assert 1 <= int(version) <= SCHEMA_VERSION


@pytest.mark.parametrize("kind", WRITERS)
def test_it_is_a_schema(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_kept_record_is_valid(kind: str) -> None:
    validator(kind).validate(golden_record(kind))


def test_records_of_any_deployment_are_valid() -> None:
    for record in (
        cached_run("kitchen-sink", 1024, tp=2, pp=2, salt="s"),
        cached_run("deepseek-v3.2", 1024, 2048, num_queries=2),
    ):
        validator("run").validate(plain(record.to_dict()))


def test_the_report_of_a_gate_is_valid() -> None:
    validator("gate").validate(plain(many().to_dict()))


def spoil_version(record: Data) -> None:
    record["schema_version"] = SCHEMA_VERSION + 1


def spoil_kind(record: Data) -> None:
    record["kind"] = "walk"


def spoil_number(record: Data) -> None:
    record["results"][0]["stored"]["num_bytes"] = "many"


def add_field(record: Data) -> None:
    record["results"][0]["host"] = "h"


def drop_field(record: Data) -> None:
    del record["results"][0]["ranks"][0]["policies"][0]["read"]


@pytest.mark.parametrize("spoil", [spoil_version, spoil_kind, spoil_number, add_field, drop_field])
def test_the_schema_can_refuse(spoil: Any) -> None:
    record = golden_record("run")
    spoil(record)
    assert not validator("run").is_valid(record)


@pytest.mark.parametrize("spoil", [spoil_number, add_field, drop_field])
def test_the_reader_refuses_the_same(spoil: Any) -> None:
    record = golden_record("run")
    spoil(record)
    with pytest.raises(InputError, match="results"):
        decode(KINDS["run"].record, record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """A ``small`` one.

    On two lines.
    """

    pair: tuple[int, str]
    either: Mapping[str, int] | tuple[float, ...]
    one: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Impossible:
    """Nothing that JSON can hold."""

    when: complex


def test_each_type_has_its_words() -> None:
    schema = record_schema(Small, "small")
    assert "A `small` one. On two lines." == schema["description"]
    check = jsonschema.Draft202012Validator(
        {**schema, "properties": {**schema["properties"], "schema_version": {}, "kind": {}}}
    )
    good = {"pair": [1, "x"], "either": {"a": 1}, "one": None}
    assert check.is_valid(good)
    assert check.is_valid({**good, "either": [1.5], "one": 3})
    for change in ({"pair": [1]}, {"pair": [1, "x", 2]}, {"either": "x"}, {"one": 1.5}, {"more": 1}):
        assert not check.is_valid({**good, **change})
    with pytest.raises(TypeError, match="complex"):
        record_schema(Impossible, "impossible")
