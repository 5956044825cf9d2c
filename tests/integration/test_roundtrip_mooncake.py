"""``hicache-bench roundtrip`` on the real store, with a second process that reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hicache_bench.engine.prefix import PrefixKeys
from hicache_bench.store.base import MISS, OK
from hicache_bench.store.master import ManagedMaster
from hicache_bench.store.mooncake import MooncakeStoreBackend
from hicache_bench.units import GIB
from hicache_bench.workflows.cluster import members_of
from hicache_bench.workflows.prefix import prompt_prefix
from hicache_bench.workflows.roundtrip.byte_proofs import ByteJob, Tally, plan_bytes
from hicache_bench.workflows.roundtrip.reader import reader_proof
from tests.cli.command import run_apart
from tests.workflows.roundtrip.rig import POLICIES, failed_kinds, variant_of
from tests.workflows.runs import quiet

pytestmark = pytest.mark.mooncake
NUM_PAGES = 5


@pytest.fixture
def job(mooncake_store: MooncakeStoreBackend) -> Iterator[ByteJob]:
    """A job that has saved its prefix, and removes it."""
    variant = variant_of("kitchen-sink", salt="tenant")
    plan = plan_bytes(members_of(variant), lengths=[NUM_PAGES], batch_pages=2, memory_bytes=GIB)
    job = ByteJob(
        variant=variant, plan=plan, store=mooncake_store, policies=POLICIES, seed=11, progress=quiet
    )
    tally = Tally()
    length = job.length_job(plan.clusters[0], tally)
    assert job.prove(plan.clusters[0], length, tally).passed
    yield job
    assert 0 == length.remove()
    assert {MISS} == set(mooncake_store.batch_exists(keys_of(job)))


def keys_of(job: ByteJob) -> list[str]:
    """Keys of the last pool."""
    ((layout,),) = (cluster.layouts for cluster in job.plan.clusters)
    prefix = prompt_prefix(layout, token_seed=job.seed, chain_seed=job.variant.chain_seed)
    pool = layout.pools[-1]
    return PrefixKeys(job.variant.keys).of_units(pool, prefix, layout.kept_units(pool))


def test_another_process_restores_the_same_bytes(job: ByteJob, managed_master: ManagedMaster) -> None:
    proof = reader_proof(job, NUM_PAGES, master=managed_master.address)
    assert proof.passed, failed_kinds([proof])
    assert int(proof.figures["bytes_compared"]) > 1 << 20


def test_another_process_finds_an_object_that_was_replaced(
    job: ByteJob, managed_master: ManagedMaster, mooncake_store: MooncakeStoreBackend
) -> None:
    pool = job.plan.clusters[0].layouts[0].pools[-1]
    garbage = np.full(pool.stored_components[-1].object_bytes, 7, dtype=np.uint8)
    address = int(garbage.ctypes.data)
    mooncake_store.register_buffer(address, garbage.nbytes)
    try:
        key = keys_of(job)[-1]
        assert mooncake_store.remove(key, force=True) is OK
        assert [OK] == mooncake_store.batch_put_from([key], [address], [garbage.nbytes])
    finally:
        mooncake_store.unregister_buffer(address)
    proof = reader_proof(job, NUM_PAGES, master=managed_master.address)
    assert {"restored pages that differ from the saved ones"} == failed_kinds([proof])


def test_another_process_says_what_it_does_not_find(job: ByteJob, managed_master: ManagedMaster) -> None:
    (check,) = reader_proof(replace(job, seed=12), NUM_PAGES, master=managed_master.address).checks
    assert not check.passed
    assert "pages" in check.actual


def test_a_reader_without_a_master_says_so(job: ByteJob) -> None:
    (check,) = reader_proof(job, NUM_PAGES, master="127.0.0.1:1").checks
    assert (False, True) == (check.passed, "127.0.0.1:1" in check.actual)


def test_the_command(tmp_path: Path) -> None:
    options = "--preset kitchen-sink --store mooncake --lengths 1,5 --batch-pages 4 --json"
    answer = run_apart("roundtrip", *options.split(), "--out", tmp_path)
    assert 0 == answer.code, answer.err
    record = json.loads(answer.out)
    assert "127.0.0.1" not in answer.out
    assert "lease_ttl_ms" in record["store_settings"]
    (reader,) = (proof for proof in record["proofs"] if proof["section"] == "reader")
    assert "5 pages in a process of its own" == reader["name"]
    assert 10 < sum(proof["section"] == "isolation" for proof in record["proofs"]) + 1
