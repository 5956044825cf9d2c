"""A prefix longer than its host pools goes through the real store, batch by batch."""

from __future__ import annotations

import pytest

from hicache_bench.units import MIB
from tests.workflows.runs import only_length, run_now

pytestmark = pytest.mark.mooncake


@pytest.mark.parametrize(("memory_mib", "evidence"), [(230, "measured"), (180, "counted")])
def test_a_ring_is_filled_moved_and_verified(memory_mib: int, evidence: str) -> None:
    record = run_now("kitchen-sink", 16_384, store="mooncake", memory_bytes=memory_mib * MIB)
    result = only_length(record)
    assert ("ok", (), "mooncake", evidence) == (
        record.status, record.failed_checks, result.store, result.evidence
    )  # fmt: skip
    measured = [policy.policy for policy in result.ranks[0].policies if policy.evidence == "measured"]
    assert ["dense", "hit_policy", "selective"][-len(measured) :] == measured
    assert len(measured) == (3 if evidence == "measured" else 2)
    assert "in a ring of 128 host pages" in (result.evidence_reason or "")
