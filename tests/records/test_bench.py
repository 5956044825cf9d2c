"""Records of a bench."""

from __future__ import annotations

import json
from pathlib import Path

from hicache_bench.records.io import read_record, write_record
from hicache_bench.records.schema import Check
from tests.workflows.bench.series import made_record, made_series


def test_a_record_is_written_and_read(tmp_path: Path) -> None:
    record = made_record([made_series(operation="copy", policy=None), made_series()])
    path = write_record(record, tmp_path)
    assert "20260102T030405.678901Z-bench-mooncake-kitchen-sink-01234567.json" == path.name
    assert json.loads(json.dumps(record.to_dict())) == read_record(path)


def test_failed_checks_are_those_that_did_not_pass() -> None:
    checks = (Check("a", "1", "1", passed=True), Check("b", "1", "2", passed=False))
    assert checks[1:] == made_record([made_series()], checks=checks).failed_checks


def test_a_link_reads_its_points_from_the_record() -> None:
    series = [
        made_series(pool="kv", num_bytes=1000, objects=10, store_seconds=[0.002]),
        made_series(operation="call", pool="kv", num_bytes=100, objects=1, store_seconds=[0.001]),
    ]
    (point,) = made_record(series).to_dict()["link_points"]
    assert {"object_bytes", "bytes_per_second", "op_seconds"} == set(point)
