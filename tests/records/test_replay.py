from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from hicache_bench.records.io import record_name, write_record
from hicache_bench.records.replay import ReplayRecord
from hicache_bench.records.schema import SCHEMA_VERSION
from tests.report.replays import small_record


def test_a_record_is_written_under_its_preset_and_digest(tmp_path: Path) -> None:
    record: ReplayRecord = replace(small_record(), created_utc="2026-11-29T00:00:00.000000Z")
    digest = record.preset_digest[:8]
    assert f"20261129T000000.000000Z-replay-deepseek-v3-{digest}.json" == record_name(record)
    plain = json.loads(write_record(record, tmp_path).read_text())
    assert (SCHEMA_VERSION, "replay") == (plain["schema_version"], plain["kind"])
    assert len(record.results) == len(plain["results"])
    assert plain["trace"]["digest"] == record.trace.digest
