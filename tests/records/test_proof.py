from __future__ import annotations

import json

from hicache_bench.records.proof import Proof, RoundtripRecord
from hicache_bench.records.schema import SCHEMA_VERSION, Check

GOOD, BAD = Check("same bytes", "none", "none", True), Check("same bytes", "none", "1: kv:3", False)


def proof(*checks: Check) -> Proof:
    return Proof(section="bytes", name="restored bytes", subject="kitchen-sink", checks=checks)


def test_a_proof_without_a_check_proves_nothing() -> None:
    assert proof(GOOD).passed
    assert not proof(GOOD, BAD).passed
    assert not proof().passed


def test_a_record_is_plain_data_and_knows_what_failed() -> None:
    record = RoundtripRecord(
        status="failed",
        created_utc="2026-11-29T00:00:00.000000Z",
        command=("hicache-bench", "roundtrip"),
        tool_version="0",
        libraries={"numpy": "2"},
        environment={"system": "Linux"},
        seed=7,
        store="local",
        store_settings={},
        presets={"kitchen-sink": "d1"},
        proofs=(proof(GOOD), proof(GOOD, BAD)),
    )
    assert (BAD,) == record.failed_checks
    plain = json.loads(json.dumps(record.to_dict(), allow_nan=False))
    assert (SCHEMA_VERSION, "roundtrip", "failed") == (
        plain["schema_version"],
        plain["kind"],
        plain["status"],
    )
    assert "1: kv:3" == plain["proofs"][1]["checks"][1]["actual"]
