"""A length that does not fit goes through a ring of host pages, in part, or is counted; and stays proven."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hicache_bench.config.load import load_model
from hicache_bench.engine.transfer import BATCH_PAGES
from hicache_bench.errors import StoreError
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.records.schema import RunRecord
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.faults import CorruptGet, FaultyStore
from hicache_bench.store.wrappers import StoreWrapper
from hicache_bench.units import GIB, MIB
from hicache_bench.workflows import run as workflow
from hicache_bench.workflows.cluster import members_of
from hicache_bench.workflows.rank import _RingWatch
from hicache_bench.workflows.run import RunOptions, run
from hicache_bench.workflows.stores import arena_bytes, open_store
from hicache_bench.workflows.variant import VariantOptions, apply_options
from hicache_bench.workflows.ways import Way, combined, ways
from tests.workflows.runs import cached_run, only_length, policy_of, quiet, read_bytes, run_now

K, M = 1024, 1 << 20
TOKENS = 16 * K  # 256 pages of the synthetic model: 257, 201 and 144 MiB in the three ways
RING, PART = 230 * MIB, 180 * MIB
Wrap = Callable[[KVStoreBackend], KVStoreBackend]


def ways_of(preset: str, num_tokens: int, **options: Any) -> list[Way]:
    members = members_of(apply_options(load_model(preset), VariantOptions()))
    return list(ways(members, num_tokens, SavePolicy(), store_bytes=arena_bytes, **options))


def test_a_million_tokens_take_under_6_gib_where_dense_alone_is_counted() -> None:
    whole, ring, part = ways_of("deepseek-v4-flash", M)
    assert whole.memory_bytes > 78 * GIB
    assert 44 * GIB < ring.memory_bytes < 45 * GIB
    assert part.memory_bytes < 5 * GIB
    assert 4_096_819_968 == part.cluster.stored_bytes
    assert (TransferPolicy.HIT_POLICY, TransferPolicy.SELECTIVE) == part.policies
    told = "4.90 GiB of memory: 4.77 GiB in the store, 129.7 MiB in a ring of 128 host pages"
    assert told == part.describe()
    for way in (ring, part):
        assert max(way.cluster.layouts[0].num_slots.values()) == BATCH_PAGES


def test_slots_are_taken_in_turn_and_never_twice_in_a_batch() -> None:
    _, ring, _ = ways_of("kitchen-sink", TOKENS)
    (layout,) = ring.cluster.layouts
    for pool in layout.pools:
        slots = layout.slots[pool.name][layout.kept_units(pool)]
        assert layout.num_slots[pool.name] == min(len(slots), BATCH_PAGES)
        for start in range(len(slots)):
            batch = slots[start : start + BATCH_PAGES]
            assert len(batch) == len(np.unique(batch))


def test_an_index_that_is_scored_stays_whole() -> None:
    assert [True] == [way.moves_all for way in ways_of("deepseek-v3.2", TOKENS, whole_only=True)]


def test_a_ring_moves_and_verifies_every_policy() -> None:
    record = run_now("kitchen-sink", TOKENS, store="local", memory_bytes=RING, repeat=2)
    result = only_length(record)
    assert ("measured", "ok", ()) == (result.evidence, record.status, record.failed_checks)
    assert result.evidence_reason is not None
    assert "in a ring of 128 host pages" in result.evidence_reason
    assert result.memory_bytes <= RING
    counted = cached_run("kitchen-sink", TOKENS)
    assert read_bytes(counted) == read_bytes(record)
    assert only_length(counted).stored == result.stored
    for name in ("dense", "hit_policy", "selective"):
        assert policy_of(counted, name).pools == policy_of(record, name).pools
        assert ("measured", 2) == (policy_of(record, name).evidence, len(policy_of(record, name).seconds))


def test_memory_is_stated_before_anything_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def refuse(*_arguments: Any, **_options: Any) -> Iterator[Any]:
        raise StoreError("no store")

    monkeypatch.setattr(workflow, "open_store", refuse)
    options = RunOptions(
        variant=apply_options(load_model("kitchen-sink"), VariantOptions()),
        token_lengths=(TOKENS,),
        memory_bytes=PART,
    )
    with pytest.raises(StoreError):
        run(options, quiet, told.append)
    part = ways_of("kitchen-sink", TOKENS)[2]
    assert [f"16k tokens: {part.describe()}"] == told


def test_what_two_policies_read_is_moved_and_the_dense_row_counted() -> None:
    record = run_now("kitchen-sink", TOKENS, store="local", memory_bytes=PART)
    result = only_length(record)
    assert ("counted", "local", "ok", ()) == (
        result.evidence, result.store, record.status, record.failed_checks
    )  # fmt: skip
    assert result.memory_bytes <= PART
    counted = cached_run("kitchen-sink", TOKENS)
    assert only_length(counted).policies == result.policies
    assert [("dense", "counted", 0), ("hit_policy", "measured", 1), ("selective", "measured", 1)] == [
        (policy.policy, policy.evidence, len(policy.seconds)) for policy in result.ranks[0].policies
    ]
    moved = {check.name.partition(": ")[2] for check in result.checks}
    assert "pools of which more or less was moved than counted" in moved
    assert "restored pages that differ from the saved ones" in moved


def test_a_restore_that_reads_something_else_than_was_counted_is_found() -> None:
    counted = only_length(cached_run("kitchen-sink", TOKENS))
    moved = only_length(cached_run("kitchen-sink", TOKENS, save_policy="state=last"))
    (rank,) = moved.ranks
    partial = replace(moved, ranks=(replace(rank, policies=rank.policies[:1]),))
    failed = [check for check in combined(counted, partial).checks if not check.passed]
    assert ["1: mamba"] == [check.actual for check in failed]


@pytest.fixture
def through_ring(monkeypatch: pytest.MonkeyPatch) -> Callable[[Wrap], RunRecord]:
    """Run the synthetic model through a ring, on a local store inside of something else."""

    def run_wrapped(wrap: Wrap) -> RunRecord:
        @contextmanager
        def cheating(*arguments: Any, **options: Any) -> Iterator[Any]:
            with open_store(*arguments, **options) as opened:
                yield replace(opened, backend=wrap(opened.backend))

        monkeypatch.setattr(workflow, "open_store", cheating)
        return run_now("kitchen-sink", TOKENS, store="local", memory_bytes=RING)

    return run_wrapped


def failures(record: RunRecord) -> set[str]:
    return {check.name.partition(": ")[2] for check in record.failed_checks}


class CorruptsASecondBatch(CorruptGet):
    """One bit of a page of the index, whose slot the first batch had before."""

    def spoils(self, call: int, key: str) -> bool:
        return call == 2 and "/indexer/" in key


def test_a_wrong_bit_in_a_slot_that_serves_again_is_found(through_ring: Callable[[Wrap], RunRecord]) -> None:
    record = through_ring(lambda store: FaultyStore(store, [CorruptsASecondBatch(frozenset())]))
    assert {"restored pages that differ from the saved ones"} == failures(record)
    (check,) = record.failed_checks
    assert "dense at" in check.name
    assert "indexer:" in check.actual


def test_a_batch_that_nobody_checked_is_found(
    through_ring: Callable[[Wrap], RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_RingWatch, "__call__", lambda self, arrived: None)
    record = through_ring(StoreWrapper)
    assert "restored pages that differ from the saved ones" in failures(record)
    assert any("unchecked" in check.actual for check in record.failed_checks)


def test_slots_that_keep_the_bytes_of_an_earlier_batch_are_found(
    through_ring: Callable[[Wrap], RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = HostPool.poison
    calls = iter(range(1 << 20))
    monkeypatch.setattr(HostPool, "poison", lambda self: poison(self) if next(calls) < 8 else None)
    assert "skipped pages without their poison" in failures(through_ring(StoreWrapper))
