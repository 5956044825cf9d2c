from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hicache_bench.engine.controller import HybridKVController
from hicache_bench.engine.transfer import (
    RETRY_DELAY_SECONDS,
    PoolWork,
    SelectiveTransferEngine,
    arrived_units,
)
from hicache_bench.errors import StoreContractError
from hicache_bench.planning.policy import SavePolicy, StateSave, TransferPolicy
from hicache_bench.planning.resolve import unit_ends
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.names import AttentionType, Layout
from hicache_bench.store.base import EXISTS, MISS, NO_SPACE, NOT_SENT, OK, Buffers, KeyResult
from hicache_bench.store.faults import TRANSFER_FAIL, FailCalls, FailKeys, Fault
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.wrappers import CallLog, CountingWrapper, Operation, StoreWrapper
from hicache_bench.units import MIB
from tests.engine.rig import INDEX, LATENT, RATIO, STATE, WINDOW, Rig, make_keys, small

SEAMS = (1, 127, 128, 129, 255, 256, 257)
WIDE = small("kv", AttentionType.FULL, *(Component(f"c{index}", 1, 4, 4) for index in range(10)))
"""Ten objects a page: 128 pages are 1,280 slices, more than one call may have."""
DEEP = small("kv", AttentionType.FULL, Component("k", 12, 4, 4, 2), Component("v", 12, 4, 6, 2))
"""Twelve layers: in layer_first a page is 24 buffers, and 128 pages are 3,072 slices."""


def calls(log: CallLog, operation: Operation) -> list[int]:
    return [call.num_keys for call in log.of(operation)]


@pytest.mark.parametrize("num_pages", SEAMS)
def test_every_byte_survives_the_seams_between_batches(num_pages: int) -> None:  # cases E14
    rig = Rig([LATENT, INDEX, STATE], num_pages)
    assert rig.save().complete
    report = rig.restore()
    assert num_pages * 4 == report.ledger.used_tokens
    assert {"kv": num_pages, "indexer": num_pages, "mamba": 1} == {
        k: len(v) for k, v in report.arrived.items()
    }
    assert {} == rig.wrong_arrivals(report.arrived)
    assert all(pool.guards_intact() for pool in rig.host_pools.values())


def test_a_batch_is_one_call_of_128_pages_over_all_pools() -> None:
    rig = Rig([LATENT, INDEX, STATE], 300)
    report = rig.save()
    # A page is one object of kv and of indexer, and two of mamba.
    assert [512, 512, 176] == calls(rig.log, Operation.PUT)
    assert (3, 3) == (report.transfer.calls, report.transfer.batches)
    restored = rig.restore()
    assert [256, 256, 90] == calls(rig.log, Operation.GET)  # the state of page 300 only
    assert (3, 3) == (restored.transfer.calls, restored.transfer.batches)


def test_a_pool_with_longer_units_travels_with_the_pages_that_end_them() -> None:
    rig = Rig([LATENT, RATIO], 130)
    rig.save()
    assert [128 + 64, 2 + 1] == calls(rig.log, Operation.PUT)
    report = rig.restore()
    assert [128 + 64, 2 + 1] == calls(rig.log, Operation.GET)
    assert {} == rig.wrong_arrivals(report.arrived)


def test_no_call_exceeds_the_slices_that_a_store_takes() -> None:
    rig = Rig([WIDE], 200)
    rig.save()
    assert [1024, 256, 720] == calls(rig.log, Operation.PUT)
    report = rig.restore()
    assert [1024, 256, 720] == calls(rig.log, Operation.GET)
    assert {} == rig.wrong_arrivals(report.arrived)
    assert (2, 3) == (report.transfer.batches, report.transfer.calls)


@pytest.mark.parametrize("pools", [[DEEP], [DEEP, INDEX]], ids=["alone", "with a flat pool"])
def test_scattered_pages_become_multi_buffer_requests(pools: list[KVPoolDescriptor]) -> None:
    rig = Rig(pools, 200, host_layout=Layout.LAYER_FIRST)
    assert rig.save().complete
    report = rig.restore()
    assert {} == rig.wrong_arrivals(report.arrived)
    for operation in (Operation.PUT, Operation.GET):
        made = rig.log.of(operation)
        assert 200 * 2 * 12 + (200 if INDEX in pools else 0) == sum(call.num_slices for call in made)
        assert max(call.num_slices for call in made) <= 1024
        assert sum(call.num_keys for call in made) == sum(call.num_ok for call in made)


def test_an_object_is_its_layers_in_order_however_they_were_scattered() -> None:
    writer = Rig([DEEP], 7, host_layout=Layout.LAYER_FIRST)
    writer.save()
    reader = Rig([DEEP], 7, host_layout=Layout.PAGE_FIRST_DIRECT, inner=writer.inner, seed=1)
    report = reader.restore()
    assert 28 == report.ledger.used_tokens
    assert {} == reader.wrong_arrivals(report.arrived)


@pytest.mark.parametrize(
    ("faults", "retries", "stored", "sent"),
    [
        ([FailCalls(Operation.PUT, frozenset({2}))], 1, 300, [128, 0, 128, 44]),
        ([FailCalls(Operation.PUT, frozenset({2}))], 0, 128, [128, 0]),
        ([FailCalls(Operation.PUT, frozenset({2, 3}))], 1, 128, [128, 0, 0]),
        ([FailCalls(Operation.PUT, frozenset({2, 3}))], 2, 300, [128, 0, 0, 128, 44]),
        ([FailCalls(Operation.PUT, frozenset({1, 2}))], 1, 0, [0, 0]),
    ],
    ids=["mended by a retry", "no retry", "for good", "mended by the second retry", "first batch"],
)
def test_a_batch_that_fails_for_good_ends_the_save(
    faults: list[Fault], retries: int, stored: int, sent: list[int]
) -> None:  # cases E58
    rig = Rig([LATENT], 300, faults, put_retries=retries)
    report = rig.save()
    assert sent == [call.num_ok for call in rig.log.of(Operation.PUT)]
    assert (stored, 300 - stored) == (report.stored_pages, report.failed_pages)
    assert (stored == 300) == report.complete
    results = report.transfer.results["kv"]
    assert [OK] * stored == results[:stored]
    assert stored == report.written["kv"].units
    assert (300 - stored) * LATENT.unit_bytes == report.failed["kv"].num_bytes
    if not report.complete:
        assert [TRANSFER_FAIL] * 128 == results[stored : stored + 128]
        assert [NOT_SENT] * (300 - stored - 128) == results[stored + 128 :]


def test_only_what_failed_is_sent_again_after_a_pause() -> None:
    probe = Rig([LATENT, INDEX], 10)
    lost = frozenset({probe.key("kv", 3), probe.key("indexer", 7)})
    rig = Rig([LATENT, INDEX], 10, [FailKeys(Operation.PUT, lost, NO_SPACE, num_calls=1)])
    report = rig.save()
    assert [20, 2] == calls(rig.log, Operation.PUT)
    assert [RETRY_DELAY_SECONDS] == rig.slept
    assert (2, True) == (report.transfer.retried, report.complete)
    restored = rig.restore()
    assert {} == rig.wrong_arrivals(restored.arrived)
    assert 40 == restored.ledger.used_tokens


def test_an_existing_object_is_no_failure_and_is_not_sent_again() -> None:
    rig = Rig([LATENT], 10)
    rig.save()
    again = rig.save()
    assert [10, 10] == calls(rig.log, Operation.PUT)
    assert [EXISTS] * 10 == again.transfer.results["kv"]
    assert (10, True, []) == (again.stored_pages, again.complete, rig.slept)
    assert (0, 10) == (again.written["kv"].units, again.existing["kv"].units)


def test_a_read_goes_on_after_misses_and_single_failures() -> None:
    probe = Rig([LATENT], 300)
    keys = [probe.key("kv", unit) for unit in range(300)]
    fail_most = FailKeys(Operation.GET, frozenset(keys[129:256]))
    rig = Rig([LATENT], 300, [fail_most])
    rig.save()
    report = rig.restore()
    assert [128, 1, 44] == [call.num_ok for call in rig.log.of(Operation.GET)]
    assert 129 * 4 == report.ledger.used_tokens
    miss_all = Rig([LATENT], 300, [FailCalls(Operation.GET, frozenset({2}), MISS)], inner=rig.inner)
    missed = miss_all.restore()
    assert [128, 0, 44] == [call.num_ok for call in miss_all.log.of(Operation.GET)]
    assert (128 * 4, 128) == (missed.ledger.used_tokens, missed.ledger.pools[0].missed.units)


def test_a_read_ends_at_a_batch_in_which_everything_fails() -> None:
    rig = Rig([LATENT], 300, [FailCalls(Operation.GET, frozenset({2}))])
    rig.save()
    report = rig.restore()
    assert [128, 0] == [call.num_ok for call in rig.log.of(Operation.GET)]
    assert (300 * 4, 128 * 4) == (report.ledger.hit_tokens, report.ledger.used_tokens)
    assert 172 == report.ledger.pools[0].failed.units
    assert {} == rig.wrong_arrivals(report.arrived)


def all_of(rig: Rig) -> PoolWork:
    """Every unit of the latent pool."""
    units = np.arange(rig.num_pages)
    return PoolWork(
        pool=LATENT,
        host_pool=rig.host_pools["kv"],
        units=units,
        ends=unit_ends(LATENT, rig.num_pages),
        slots=rig.prefix.slots["kv"],
        keys=[rig.key("kv", unit) for unit in units.tolist()],
    )


class ShortAnswers(StoreWrapper):
    """Drops the last result of every read."""

    def batch_get_into(self, keys: list[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:  # type: ignore[override]
        return super().batch_get_into(keys, addresses, sizes)[:-1]


def test_a_store_that_answers_too_few_results_is_found_out() -> None:  # cases E49
    rig = Rig([LATENT], 4)
    rig.save()
    engine = SelectiveTransferEngine(ShortAnswers(rig.inner))
    with pytest.raises(StoreContractError, match="3 results for 4 keys"):
        engine.read([all_of(rig)])


def test_nothing_to_move_makes_no_call() -> None:
    log = CallLog()
    engine = SelectiveTransferEngine(CountingWrapper(LocalKVStore(MIB), log))
    transfer = engine.read([])
    assert (0, 0, {}) == (transfer.calls, transfer.batches, transfer.results)
    assert [] == log.calls


def test_store_seconds_are_those_inside_the_calls() -> None:
    ticks = iter(range(100))
    rig = Rig([LATENT], 200)
    engine = SelectiveTransferEngine(rig.store, clock=lambda: float(next(ticks)))
    rig.fill()
    transfer = engine.write([all_of(rig)])
    assert (2.0, 2) == (transfer.store_seconds, transfer.calls)  # a tick before and one after each call


def test_hooks_fill_each_batch_and_take_from_it_what_arrived_whole() -> None:
    rig = Rig([LATENT, STATE], 6)
    filled: list[dict[str, list[int]]] = []
    taken: list[dict[str, list[int]]] = []
    ticks = iter(range(1000))
    rig.controller.close()
    engine = SelectiveTransferEngine(
        rig.store,
        batch_pages=4,
        before_put=lambda units: filled.append({name: part.tolist() for name, part in units.items()}),
        after_get=lambda units: taken.append({name: part.tolist() for name, part in units.items()}),
        clock=lambda: float(next(ticks)),
    )
    controller = HybridKVController(rig.registry, rig.host_pools, make_keys(), rig.store, engine=engine)
    rig.fill()
    saved = controller.save(rig.prefix, SavePolicy(states=StateSave.ALL))
    assert [{"kv": [0, 1, 2, 3], "mamba": [0, 1, 2, 3]}, {"kv": [4, 5], "mamba": [4, 5]}] == filled
    assert 2.0 == saved.transfer.hook_seconds
    plan = controller.plan(controller.lookup(rig.prefix), TransferPolicy.DENSE)
    for key in (rig.key("kv", 1), rig.key("mamba", 5, component=1)):
        rig.inner.remove(key, force=True)
    report = controller.restore(rig.prefix, plan)
    assert [{"kv": [0, 2, 3], "mamba": [0, 1, 2, 3]}, {"kv": [4, 5], "mamba": [4]}] == taken
    assert (2, 2, 2.0) == (len(filled), report.transfer.batches, report.transfer.hook_seconds)


def test_a_unit_has_arrived_when_all_its_components_have() -> None:
    assert [True, False, False] == arrived_units([OK, OK, OK, MISS, TRANSFER_FAIL, OK], 2).tolist()
    assert [True, True] == arrived_units([OK, OK], 1).tolist()
    assert [] == arrived_units([], 3).tolist()
    # An equal result that is not the shared constant never comes from a store; a put's EXISTS is no arrival.
    assert [False] == arrived_units([EXISTS], 1).tolist()


def test_pieces_and_whole_buffers_may_meet_in_one_pool_of_several_components() -> None:
    mixed = replace(WINDOW, components=(Component("k", 3, 4, 8, 2), Component("v", 3, 4, 4, 2)))
    rig = Rig([mixed, LATENT], 5, host_layout=Layout.LAYER_FIRST)
    rig.save()
    report = rig.restore()
    assert {} == rig.wrong_arrivals(report.arrived)


def test_a_put_is_tried_once_more_unless_told_otherwise() -> None:
    """300 pages whose second batch fails once are all stored (cases E58)."""
    rig = Rig([LATENT], 300, [FailCalls(Operation.PUT, frozenset({2}))])
    rig.controller.close()
    engine = SelectiveTransferEngine(rig.store, sleep=rig.slept.append)
    controller = HybridKVController(rig.registry, rig.host_pools, make_keys(), rig.store, engine=engine)
    report = controller.save(rig.prefix, SavePolicy())
    assert (300, 0) == (report.stored_pages, report.failed_pages)
