"""The embedded store: the contract, then leases and modelled time on a clock that tests move."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from hicache_bench.errors import ConfigError, MemoryBudgetError
from hicache_bench.links.bandwidth import BandwidthModel
from hicache_bench.store.base import INVALID_PARAMS, LEASED, MISS, NO_SPACE, OK, KVStoreBackend
from hicache_bench.store.local import LocalKVStore
from hicache_bench.units import KIB, MIB
from tests.store.contract import StoreContract
from tests.store.contract_host import GUARD_BYTE, Host, host_memory
from tests.store.local_store import TTL_SECONDS, Clock, names, open_store, put, put_each


class TestContract(StoreContract):
    """Stored bytes are looked up in the arena itself."""

    @pytest.fixture
    def store(self) -> Iterator[KVStoreBackend]:
        with LocalKVStore(8 * MIB) as store:
            yield store

    def peek(self, store: KVStoreBackend, host: Host, key: str, num_bytes: int) -> bytes:
        assert isinstance(store, LocalKVStore)
        stored = store._objects.find(key)
        assert stored is not None
        assert num_bytes == stored.num_bytes
        return bytes(store._objects._memory[stored.offset : stored.offset + num_bytes])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def host() -> Host:
    memory = host_memory()
    memory.target.fill(GUARD_BYTE)
    return memory


# Leases


@pytest.mark.parametrize("how", ["exists", "get"])
def test_lease_ends_after_its_ttl(host: Host, clock: Clock, how: str) -> None:
    store = open_store(host, clock, 64)
    put(store, host, "key")
    if how == "exists":
        store.batch_exists(["key"])
    else:
        store.batch_get_into(["key"], [host.target_at()], [KIB])
    clock.seconds += TTL_SECONDS - 0.001
    assert LEASED == store.remove("key")
    assert 0 == store.remove_all()
    clock.seconds += 0.001
    assert OK == store.remove("key")


def test_put_takes_no_lease(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 64)
    put(store, host, "key")
    assert OK == store.remove("key")


def test_put_of_an_existing_key_ends_no_lease(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 64)
    put(store, host, "key")
    store.batch_exists(["key"])
    assert ["exists"] == put(store, host, "key")
    assert LEASED == store.remove("key")


def test_put_of_an_existing_key_and_a_read_of_a_wrong_size_take_a_lease(host: Host, clock: Clock) -> None:
    """As Mooncake has it, which is asked first which keys exist, and for the object before its size."""
    store = open_store(host, clock, 64)
    put_each(store, host, ["a", "b"])
    assert ["exists"] == put(store, host, "a", num_bytes=7)
    assert [INVALID_PARAMS] == store.batch_get_into(["b"], [host.target_at()], [7])
    assert [LEASED, LEASED] == [store.remove(key) for key in "ab"]
    clock.seconds += TTL_SECONDS
    assert [OK, OK] == [store.remove(key) for key in "ab"]
    assert ["ok", "exists"] == put(store, host, "c", "c")
    assert OK == store.remove("c")  # nobody asked for it before


def test_a_key_that_is_given_twice_is_told_twice_that_there_is_no_room(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 1)
    results = store.batch_put_from(["a", "a", "b"], [host.source_at()] * 3, [2 * KIB, 1, 1])
    assert [NO_SPACE, NO_SPACE, OK] == results


def test_lookup_renews_the_lease(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 64)
    put(store, host, "key")
    store.batch_exists(["key"])
    clock.seconds += TTL_SECONDS - 1
    store.batch_exists(["key"])
    clock.seconds += TTL_SECONDS - 1
    assert LEASED == store.remove("key")


def test_no_leases_with_a_ttl_of_zero(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 64, lease_ttl_seconds=0)
    put(store, host, "key")
    store.batch_exists(["key"])
    assert not store.capabilities.supports_leases
    assert OK == store.remove("key")


# Modelled time


def test_link_adds_seconds_for_what_moved_and_sleeps_for_nothing(host: Host, clock: Clock) -> None:
    link = BandwidthModel(bytes_per_second=1000.0, op_seconds=1.0, object_seconds=0.25)
    store = LocalKVStore(64 * KIB, clock=clock, link=link)
    store.register_buffer(host.source_at(), host.source.nbytes)
    put(store, host, "a", "b", "a", num_bytes=500)
    assert pytest.approx(1 + 2 * 0.25 + 1.0) == store.stats.modeled_seconds
    store.batch_exists(["a", "b"])
    assert pytest.approx(3.5) == store.stats.modeled_seconds
    assert [OK, MISS] == store.batch_get_into(["a", "c"], [host.source_at()] * 2, [500, 500])
    assert pytest.approx(3.5 + 1 + 0.25 + 0.5) == store.stats.modeled_seconds


def test_no_link_models_nothing(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 64)
    put(store, host, "a")
    assert 0.0 == store.stats.modeled_seconds


# Ranges, arguments, threads


def test_one_call_reaches_several_ranges(host: Host, clock: Clock) -> None:
    store = LocalKVStore(64 * KIB, clock=clock)
    for offset in range(0, 8 * KIB, 2 * KIB):
        store.register_buffer(host.source_at(offset), KIB)
        store.register_buffer(host.target_at(offset), KIB)
    offsets = [6 * KIB, 0, 4 * KIB, 2 * KIB, KIB]
    sources = [host.source_at(at) for at in offsets]
    expected = [OK] * 4 + [INVALID_PARAMS]
    assert expected == store.batch_put_from(names(5), sources, [KIB] * 5)
    targets = [host.target_at(at) for at in offsets]
    assert expected == store.batch_get_into(names(5), targets, [KIB] * 5)
    for at in offsets[:4]:
        assert host.source_bytes(at, KIB) == host.target_bytes(at, KIB)
        assert bytes([GUARD_BYTE]) * KIB == host.target_bytes(at + KIB, KIB)


@pytest.mark.parametrize(
    ("capacity", "settings"),
    [
        (0, {}),
        (-1, {}),
        (KIB, {"lease_ttl_seconds": -1}),
        (KIB, {"lease_ttl_seconds": float("nan")}),
        (KIB, {"eviction_watermark": 0}),
        (KIB, {"eviction_watermark": 1.1}),
        (KIB, {"eviction_ratio": 0}),
        (KIB, {"eviction_ratio": 2}),
    ],
)
def test_impossible_settings_are_refused(capacity: int, settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        LocalKVStore(capacity, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("capacity", [1 << 20 << 40, 1 << 80])
def test_capacity_that_no_machine_has_is_refused(capacity: int) -> None:
    with pytest.raises(MemoryBudgetError, match="smaller capacity"):
        LocalKVStore(capacity)


def test_settings_tell_what_is_in_force() -> None:
    expected = {
        "capacity_bytes": MIB,
        "lease_ttl_seconds": 10.0,
        "eviction_watermark": 0.9,
        "eviction_ratio": 0.05,
    }
    assert expected == LocalKVStore(MIB).settings


@pytest.mark.parametrize("operation", ["exists", "put", "get", "remove_all"])
def test_calls_of_several_threads_run_one_after_another(host: Host, operation: str) -> None:
    other_finished = threading.Event()
    overlaps: list[bool] = []

    def clock() -> float:
        # Read in the middle of a call; the first time, this leaves the other thread time to break in.
        if not overlaps:
            overlaps.append(False)
            other.start()
            overlaps[0] = other_finished.wait(0.1)
        return 0.0

    store = LocalKVStore(64 * KIB, clock=clock)
    store.register_buffer(host.source_at(), host.source.nbytes)
    calls: dict[str, Callable[[], object]] = {
        "exists": lambda: store.batch_exists(["key"]),
        "put": lambda: store.batch_put_from(["key"], [host.source_at()], [KIB]),
        "get": lambda: store.batch_get_into(["key"], [host.source_at()], [KIB]),
        "remove_all": store.remove_all,
    }

    def call_meanwhile() -> None:
        store.remove("key", force=True)
        other_finished.set()

    other = threading.Thread(target=call_meanwhile)
    calls[operation]()
    other.join()
    assert [False] == overlaps
