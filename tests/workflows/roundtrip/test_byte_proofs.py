from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hicache_bench.errors import MemoryBudgetError
from hicache_bench.planning import policy as rules
from hicache_bench.planning.policy import SavePolicy, StateSave, TransferPolicy
from hicache_bench.pools.names import AttentionType
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.wrappers import CountingWrapper, Operation
from hicache_bench.units import GIB, MIB
from hicache_bench.workflows.cluster import ClusterLayout, members_of
from hicache_bench.workflows.length import LengthJob
from hicache_bench.workflows.roundtrip.byte_proofs import (
    ByteJob,
    TalliedBytes,
    Tally,
    plan_bytes,
    seam_lengths,
)
from tests.workflows.roundtrip.rig import POLICIES, byte_proof, failed_kinds, variant_of

HYBRID = variant_of("kitchen-sink")


def test_lengths_lie_around_two_seams() -> None:
    assert (1, 127, 128, 129, 255, 256, 257) == seam_lengths(128)
    assert (1, 2, 3, 4, 5) == seam_lengths(2)


@pytest.mark.parametrize("preset", ["kitchen-sink", "deepseek-v4-flash", "gpt-oss-20b"])
@pytest.mark.parametrize("num_pages", [1, 3, 4, 5, 9])
def test_a_right_restore_passes(preset: str, num_pages: int) -> None:
    proof = byte_proof(variant_of(preset), num_pages)
    assert proof.passed, failed_kinds([proof])
    assert proof.figures["pages"] == num_pages
    assert proof.figures["batch_pages"] == 4
    assert int(proof.figures["bytes_compared"]) > 0
    assert float(proof.figures["gb_per_s"]) > 0


def test_every_rank_is_proved() -> None:
    proof = byte_proof(variant_of("kimi-linear-48b-a3b", tp=2), 5)
    assert proof.passed
    assert proof.figures["ranks"] == 2


@pytest.mark.parametrize("layout", ["page_first_direct", "page_head"])
def test_other_layouts(layout: str) -> None:
    assert byte_proof(variant_of("llama-3.1-8b", layout=layout), 3, batch_pages=2).passed


def test_batches_have_the_size_that_is_reported() -> None:
    logs: list[CountingWrapper] = []

    def wrap(store: KVStoreBackend) -> KVStoreBackend:
        logs.append(CountingWrapper(store))
        return logs[-1]

    byte_proof(HYBRID, 9, batch_pages=4, wrap=wrap, policies=(TransferPolicy.DENSE,))
    assert len(logs[0].log.of(Operation.PUT)) == len(logs[0].log.of(Operation.GET)) == 3


def test_batches_that_were_not_cut_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ByteJob.length_job

    def uncut(self: ByteJob, cluster: ClusterLayout, tally: Tally) -> LengthJob:
        job = original(self, cluster, tally)
        return replace(job, setting=job.setting._replace(batch_pages=128))

    monkeypatch.setattr(ByteJob, "length_job", uncut)
    assert {"store calls of a dense restore in batches of 4 pages"} == failed_kinds([byte_proof(HYBRID, 9)])


def test_a_window_one_page_short_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = rules._SELECTIVE[AttentionType.SWA]
    monkeypatch.setitem(
        rules._SELECTIVE, AttentionType.SWA, lambda pool, ends: np.minimum(right(pool, ends) + 1, ends)
    )
    assert {"pages restored and not asked for, or the reverse"} == failed_kinds([byte_proof(HYBRID, 12)])


def test_a_save_that_keeps_too_little_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        SavePolicy, "_saved_states", lambda _self, _pool, units: np.arange(units) == units - 1
    )
    found = failed_kinds([byte_proof(HYBRID, 9)])
    assert "pools of which other pages were saved than the policy keeps" in found


def test_a_restore_of_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ByteJob.length_job

    def restores_nothing(self: ByteJob, cluster: ClusterLayout, tally: Tally) -> LengthJob:
        return replace(original(self, cluster, tally), policies=())

    monkeypatch.setattr(ByteJob, "length_job", restores_nothing)
    assert {"pages restored of the longest prefix"} == failed_kinds([byte_proof(HYBRID, 3, policies=())])


def test_a_page_that_was_right_once_is_compared_again() -> None:
    plan = plan_bytes(members_of(HYBRID), lengths=[3], batch_pages=None, memory_bytes=GIB)
    ((layout,),) = (cluster.layouts for cluster in plan.clusters)
    host_pools = layout.host_pools(backed=True)
    tally = Tally()
    fixture = TalliedBytes(layout, 5, tally)
    fixture.fill(host_pools)
    arrived = {pool.name: layout.kept_units(pool) for pool in layout.pools}
    assert [] == fixture.mismatched(host_pools, arrived)
    assert [] == fixture.mismatched(host_pools, arrived)
    assert tally.compared_bytes == 2 * layout.stored_bytes
    for name, host_pool in host_pools.items():
        host_pool.view(0)[0, -1, -1, -1, -1] ^= 1
        (wrong,) = fixture.mismatched(host_pools, arrived)
        assert wrong.startswith(f"{name}:")
        assert [wrong] == TalliedBytes(layout, 5, Tally()).mismatched(host_pools, arrived)
        host_pool.view(0)[0, -1, -1, -1, -1] ^= 1


def test_batches_shrink_until_the_seam_fits() -> None:
    members = members_of(variant_of("llama-3.1-70b"))
    plan = plan_bytes(members, lengths=None, batch_pages=None, memory_bytes=GIB)
    assert 8 == plan.batch_pages
    assert [1, 7, 8, 9, 15, 16, 17] == [cluster.num_tokens // 64 for cluster in plan.clusters]
    assert plan.needed_bytes <= GIB
    twice = plan_bytes(members, lengths=None, batch_pages=16, memory_bytes=16 * GIB)
    assert GIB < twice.needed_bytes


def test_only_the_last_state_is_saved_where_more_do_not_fit() -> None:
    members = members_of(variant_of("minimax-text-01"))
    plan = plan_bytes(members, lengths=None, batch_pages=None, memory_bytes=GIB)
    assert StateSave.LAST is plan.save_policy.states
    assert (
        StateSave.EVERY
        is plan_bytes(members, lengths=None, batch_pages=None, memory_bytes=16 * GIB).save_policy.states
    )


@pytest.mark.parametrize(
    ("lengths", "batch_pages", "advice"), [([129, 1], None, "shorter --lengths"), (None, 64, "--batch-pages")]
)
def test_what_does_not_fit_is_refused(
    lengths: list[int] | None, batch_pages: int | None, advice: str
) -> None:
    members = members_of(variant_of("llama-3.1-70b"))
    with pytest.raises(MemoryBudgetError, match=r"129 pages need .* 256\.0 MiB may be taken") as refused:
        plan_bytes(members, lengths=lengths, batch_pages=batch_pages, memory_bytes=256 * MIB)
    assert advice in str(refused.value)


def test_all_policies_are_proved_in_turn() -> None:
    proof = byte_proof(HYBRID, 2)
    for policy in POLICIES:
        assert any(check.name.startswith(f"{policy} at 128 tokens") for check in proof.checks)
