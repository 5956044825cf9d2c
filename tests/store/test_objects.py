"""Room in the embedded store: which objects give way to others, and that the rest keep their bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.store.base import EXISTS, MISS, NO_SPACE, OK
from hicache_bench.store.local import LocalKVStore
from hicache_bench.units import KIB
from tests.store.contract_host import Host, host_memory
from tests.store.local_store import TTL_SECONDS, Clock, names, open_store, present, put, put_each


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def host() -> Host:
    return host_memory()


def test_object_larger_than_the_store_harms_no_other(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 64)
    put(store, host, "old")
    addresses = [host.source_at()] * 3
    results = store.batch_put_from(["a", "huge", "b"], addresses, [KIB, 64 * KIB + 1, KIB])
    assert [OK, NO_SPACE, OK] == results
    assert ["old", "a", "b"] == present(store, ["old", "a", "huge", "b"])
    assert (0, 1) == (store.stats.evicted_keys, store.stats.put_failures)


def test_whole_capacity_can_be_used(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 64, eviction_watermark=1.0)
    assert ["ok"] * 64 == put(store, host, *names(64))
    assert 64 * KIB == store.used_bytes


def test_nothing_is_evicted_up_to_the_watermark(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 100)
    put_each(store, host, names(90))
    assert 0 == store.stats.evicted_keys


def test_watermark_evicts_a_share_of_the_oldest(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 100)
    put_each(store, host, names(91))
    # 91 KiB stored, 1 % above the watermark: (5 % + 1 %) of 91 KiB are 5.46 KiB, so 6 objects.
    assert names(91)[6:] == present(store, names(91))
    assert (6, 6 * KIB) == (store.stats.evicted_keys, store.stats.evicted_bytes)


def test_read_objects_outlive_older_and_unread_ones(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 100)
    put_each(store, host, names(90))
    store.batch_get_into(["k0"], [host.target_at()], [KIB])
    store.batch_exists(["k2"])
    clock.seconds += TTL_SECONDS
    put(store, host, "last")
    evicted = [key for key in names(90) if key not in present(store, names(90))]
    assert ["k1", "k3", "k4", "k5", "k6", "k7"] == evicted


def test_put_of_an_existing_key_makes_it_young(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 100)
    put_each(store, host, names(90))
    put(store, host, "k0")
    put(store, host, "last")
    assert ["k0"] == present(store, names(7))


def test_leased_objects_are_spared(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 100)
    put_each(store, host, names(90))
    store.batch_exists(names(3))
    put(store, host, "last")
    assert ["k0", "k1", "k2"] == present(store, names(9))


def test_full_store_evicts_for_a_put(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 10, eviction_watermark=1.0)
    put_each(store, host, names(10))
    assert ["ok"] == put(store, host, "big", num_bytes=3 * KIB)
    assert names(10)[3:] == present(store, names(10))


def test_full_store_evicts_no_less_than_its_share(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 100, eviction_watermark=1.0)
    put_each(store, host, [*names(100), "last"])
    assert names(100)[5:] == present(store, names(100))


def test_no_space_where_all_is_leased(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 10, eviction_watermark=1.0)
    put_each(store, host, names(10))
    store.batch_exists(names(10))
    assert ["no_space", "exists"] == put(store, host, "new", "k0")
    assert (1, 1, 0) == (store.stats.put_failures, store.stats.put_noops, store.stats.evicted_keys)
    clock.seconds += TTL_SECONDS
    assert ["ok"] == put(store, host, "new")


def test_nothing_is_evicted_for_a_put_that_cannot_fit_anyway(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 10, eviction_watermark=1.0)
    put_each(store, host, names(10))
    store.batch_exists(names(5))
    assert ["no_space"] == put(store, host, "big", num_bytes=6 * KIB)
    assert names(10) == present(store, names(10))


def test_a_call_never_evicts_what_it_put_itself(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 10)
    results = put(store, host, *names(12))
    assert ["ok"] * 10 + ["no_space"] * 2 == results
    assert names(10) == present(store, names(12))


def test_a_call_never_evicts_what_it_found(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 10, eviction_watermark=1.0)
    put_each(store, host, names(10))
    assert ["exists", "ok"] == put(store, host, "k0", "new")
    assert ["k0", "k2"] == present(store, ["k0", "k1", "k2"])


def test_scattered_holes_are_joined_by_more_eviction(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 10, eviction_watermark=1.0)
    put_each(store, host, names(10))
    for key in names(10)[1::2]:
        store.remove(key)
    # 5 KiB are free, never two of them side by side: the two oldest must go as well.
    assert ["ok"] == put(store, host, "big", num_bytes=4 * KIB)
    assert ["k4", "k6", "k8"] == present(store, names(10))


def test_evicted_bytes_are_overwritten_only_by_others(host: Host, clock: Clock) -> None:
    store = open_store(host, clock, 10)
    for index in range(200):
        source = host.source_at(index * KIB)
        assert [OK] == store.batch_put_from([f"k{index}"], [source], [KIB])
        assert [OK] == store.batch_get_into([f"k{index}"], [host.target_at()], [KIB])
        assert host.source_bytes(index * KIB, KIB) == host.target_bytes(0, KIB)
        clock.seconds += TTL_SECONDS
    survivors = present(store, names(200))
    assert survivors == names(200)[-len(survivors) :]
    for key in survivors:
        assert [OK] == store.batch_get_into([key], [host.target_at()], [KIB])
        assert host.source_bytes(int(key[1:]) * KIB, KIB) == host.target_bytes(0, KIB)


@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from(["put", "get", "exists", "remove", "wait"]),
            st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3 * KIB)), min_size=1, max_size=6),
        ),
        max_size=40,
    )
)
def test_store_never_lies(calls: list[tuple[str, list[tuple[int, int]]]]) -> None:
    """Whatever it evicts, a small store answers from the last put that it accepted, or with a miss."""
    clock, host = Clock(), host_memory()
    store = open_store(host, clock, 8)
    model: dict[str, tuple[int, int]] = {}
    for operation, objects in calls:
        keys = [f"k{number}" for number, _ in objects]
        if operation == "wait":
            clock.seconds += TTL_SECONDS / 2
        elif operation == "remove":
            for key in keys:
                if store.remove(key) is OK:
                    del model[key]
        elif operation == "exists":
            answers = zip(keys, store.batch_exists(keys), strict=True)
            assert all(result is MISS or key in model for key, result in answers)
        elif operation == "put":
            model.update(put_somewhere(store, host, objects))
        else:
            check_reads(store, host, keys, model)
        held = present(store, names(10))
        assert sum(model[key][1] for key in held) == store.used_bytes <= 8 * KIB


def put_somewhere(
    store: LocalKVStore, host: Host, objects: list[tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """Put objects of these numbers and sizes; source offset and size of those that were stored."""
    keys = [f"k{number}" for number, _ in objects]
    places = [(number * 4 * KIB + num_bytes, num_bytes) for number, num_bytes in objects]
    addresses = [host.source_at(offset) for offset, _ in places]
    results = store.batch_put_from(keys, addresses, [num_bytes for _, num_bytes in places])
    assert {OK, EXISTS, NO_SPACE}.issuperset(results)
    return {key: place for key, place, result in zip(keys, places, results, strict=True) if result is OK}


def check_reads(store: LocalKVStore, host: Host, keys: list[str], model: dict[str, tuple[int, int]]) -> None:
    """Each key is a miss or holds the bytes of its last put."""
    for key in keys:
        offset, num_bytes = model.get(key, (0, 1))
        (result,) = store.batch_get_into([key], [host.target_at()], [num_bytes])
        assert result is MISS or (result is OK and key in model)
        if result is OK:
            assert host.source_bytes(offset, num_bytes) == host.target_bytes(0, num_bytes)
