"""Wrappers that log and delay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hicache_bench.errors import StoreContractError
from hicache_bench.links.bandwidth import BandwidthModel
from hicache_bench.store.base import MISS, OK, KVStoreBackend
from hicache_bench.store.counting import CountingStore
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.wrappers import (
    CallLog,
    CountingWrapper,
    LatencyStore,
    Operation,
    StoreCall,
    StoreWrapper,
)
from hicache_bench.units import MIB
from tests.store.contract import StoreContract

LINK = BandwidthModel(bytes_per_second=1e9, op_seconds=1.0, object_seconds=0.01)


class TestWrapperContract(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[KVStoreBackend]:
        with StoreWrapper(LocalKVStore(8 * MIB)) as store:
            yield store


class TestCountingWrapperContract(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[KVStoreBackend]:
        with CountingWrapper(LocalKVStore(8 * MIB)) as store:
            yield store


class TestLatencyContract(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[KVStoreBackend]:
        with LatencyStore(LocalKVStore(8 * MIB), LINK, sleep=lambda seconds: None) as store:
            yield store


def test_wrapper_answers_for_the_store_inside() -> None:
    inner = LocalKVStore(MIB)
    wrapper = StoreWrapper(inner)
    assert inner is wrapper.inner
    assert (inner.capabilities, inner.settings) == (wrapper.capabilities, wrapper.settings)
    wrapper.batch_exists(["key"])
    assert 1 == inner.stats.exist_keys


def test_log_tells_keys_slices_and_bytes() -> None:
    store = CountingWrapper(CountingStore())
    store.batch_put_from(["a", "b", "a"], [1, 1, 1], [10, 20, 10])
    store.batch_put_from(["c", "d"], [[1, 1, 1], [1]], [[1, 2, 3], [4]])
    store.batch_exists(["a", "gone"])
    store.batch_get_into(["c", "gone"], [1, 1], [6, 7])
    assert [
        StoreCall(operation=Operation.PUT, num_keys=3, num_ok=2, num_slices=3, num_bytes=40),
        StoreCall(operation=Operation.PUT, num_keys=2, num_ok=2, num_slices=4, num_bytes=10),
        StoreCall(operation=Operation.EXISTS, num_keys=2, num_ok=1),
        StoreCall(operation=Operation.GET, num_keys=2, num_ok=1, num_slices=2, num_bytes=13),
    ] == store.log.calls
    assert [2, 1] == [len(store.log.of(operation)) for operation in (Operation.PUT, Operation.GET)]
    store.log.clear()
    assert [] == store.log.calls


def test_one_log_orders_the_calls_of_two_stores() -> None:
    log = CallLog()
    first, second = CountingWrapper(CountingStore(), log), CountingWrapper(CountingStore(), log)
    first.batch_exists(["a"])
    second.batch_exists(["a", "b"])
    first.batch_exists(["a", "b", "c"])
    assert [1, 2, 3] == [call.num_keys for call in log.calls]


def test_a_refused_call_is_not_logged() -> None:
    store = CountingWrapper(CountingStore())
    with pytest.raises(StoreContractError):
        store.batch_put_from(["a"], [1, 1], [10, 10])
    assert [] == store.log.calls


def test_latency_is_paid_for_what_moved() -> None:
    slept: list[float] = []
    store = LatencyStore(CountingStore(), LINK, sleep=slept.append)
    store.batch_put_from(["a", "b", "a"], [1, 1, 1], [10**9, 2 * 10**9, 10**9])
    store.batch_exists(["a", "gone"])
    assert [OK, MISS] == store.batch_get_into(["a", "gone"], [[1, 1], [1]], [[10**9 - 5, 5], [7]])
    assert pytest.approx([1 + 2 * 0.01 + 3, 1, 1 + 0.01 + 1]) == slept
    assert pytest.approx(sum(slept)) == store.stats.modeled_seconds


def test_latency_adds_to_the_link_of_the_store_inside() -> None:
    inner = LocalKVStore(MIB, link=LINK)
    store = LatencyStore(inner, LINK, sleep=lambda seconds: None)
    store.batch_exists(["key"])
    assert [1.0, 2.0] == [inner.stats.modeled_seconds, store.stats.modeled_seconds]
