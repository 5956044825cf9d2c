"""A digest beside every object: the contract, and what must not count as read."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from xxhash import xxh3_64_intdigest

from hicache_bench.errors import ConfigError, StoreContractError
from hicache_bench.store.base import EXISTS, INVALID_PARAMS, MISS, OK, KVStoreBackend
from hicache_bench.store.checksum import CONTENT_MISMATCH, DIGEST_BYTES, ChecksumStore
from hicache_bench.store.counting import CountingStore
from hicache_bench.store.fault_objects import ObjectEditor, flip_bit
from hicache_bench.store.faults import CorruptGet, FailKeys, FaultyStore, ShortGet, WrongLength
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.wrappers import CallLog, CountingWrapper, Operation
from hicache_bench.units import MIB
from tests.store.contract import StoreContract
from tests.store.contract_host import GUARD_BYTE, Host, host_memory

NUM_BYTES = 1000


class TestContract(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[KVStoreBackend]:
        with ChecksumStore(LocalKVStore(8 * MIB), xxh3_64_intdigest) as store:
            yield store


class TestContractOfAnotherDigest(StoreContract):
    """CRC-32 leaves the upper half of the word empty."""

    @pytest.fixture
    def store(self) -> Iterator[KVStoreBackend]:
        with ChecksumStore(LocalKVStore(8 * MIB), zlib.crc32) as store:
            yield store


@pytest.fixture
def host() -> Host:
    memory = host_memory()
    memory.target.fill(GUARD_BYTE)
    return memory


def checked(host: Host, inner: KVStoreBackend) -> ChecksumStore:
    """A store with digests over ``inner``, which knows the host and holds ``a``, ``b`` and ``c``."""
    store = ChecksumStore(inner, xxh3_64_intdigest)
    store.register_buffer(host.source_at(), host.source.nbytes)
    store.register_buffer(host.target_at(), host.target.nbytes)
    sources = [host.source_at(index * NUM_BYTES) for index in range(3)]
    assert [OK] * 3 == store.batch_put_from(["a", "b", "c"], sources, [NUM_BYTES] * 3)
    return store


def read(store: KVStoreBackend, host: Host, *keys: str) -> list[str]:
    targets = [host.target_at(index * NUM_BYTES) for index in range(len(keys))]
    return [str(result) for result in store.batch_get_into(keys, targets, [NUM_BYTES] * len(keys))]


MISMATCH = str(CONTENT_MISMATCH)


@pytest.mark.parametrize(
    "fault",
    [
        CorruptGet(frozenset({"b"})),
        ShortGet(frozenset({"b"}), 1),
        ShortGet(frozenset({"b"}), DIGEST_BYTES + 1),
        FailKeys(Operation.GET, frozenset({"b"}), OK),
    ],
    ids=["one bit", "digest short", "payload short", "nothing came"],
)
def test_what_came_wrong_is_not_read(host: Host, fault: CorruptGet | ShortGet | FailKeys) -> None:
    faulty = FaultyStore(LocalKVStore(8 * MIB), [fault])
    store = checked(host, faulty)
    assert ["ok", MISMATCH, "ok"] == read(store, host, "a", "b", "c")
    assert 1 == store.stats.get_failures
    assert 2 * NUM_BYTES == store.stats.get_bytes
    # The store inside answers OK: without the digest all three would count.
    faulty.arm([])
    assert ["ok", "ok", "ok"] == read(store, host, "a", "b", "c")


def test_a_payload_that_stayed_from_an_earlier_read_does_not_pass(host: Host) -> None:
    faulty = FaultyStore(LocalKVStore(8 * MIB), [])
    store = checked(host, faulty)
    assert ["ok"] == read(store, host, "a")
    faulty.arm([FailKeys(Operation.GET, frozenset({"a"}), OK)])
    assert [MISMATCH] == read(store, host, "a")


@pytest.mark.parametrize("bit", [0, 8 * NUM_BYTES - 1, 8 * NUM_BYTES, 8 * (NUM_BYTES + DIGEST_BYTES) - 1])
def test_a_bit_that_flipped_in_the_store_is_found(host: Host, bit: int) -> None:
    inner = LocalKVStore(8 * MIB)
    store = checked(host, inner)
    editor = ObjectEditor(inner, 2 * NUM_BYTES)
    editor.replace("b", flip_bit(editor.read("b", NUM_BYTES + DIGEST_BYTES), bit))
    assert ["ok", MISMATCH, "ok"] == read(store, host, "a", "b", "c")


def test_an_object_under_another_key_is_found(host: Host) -> None:
    inner = LocalKVStore(8 * MIB)
    store = checked(host, inner)
    editor = ObjectEditor(inner, 2 * NUM_BYTES)
    editor.replace("b", editor.read("a", NUM_BYTES + DIGEST_BYTES))
    assert ["ok", MISMATCH] == read(store, host, "a", "b")


def test_an_object_without_a_digest_is_refused(host: Host) -> None:
    inner = LocalKVStore(8 * MIB)
    store = checked(host, inner)
    assert [OK] == inner.batch_put_from(["plain"], [host.source_at()], [NUM_BYTES])
    assert [str(INVALID_PARAMS)] == read(store, host, "plain")


def test_existing_object_keeps_its_own_digest(host: Host) -> None:
    store = checked(host, LocalKVStore(8 * MIB))
    assert [EXISTS] == store.batch_put_from(["a"], [host.source_at(5000)], [NUM_BYTES])
    assert ["ok"] == read(store, host, "a")
    assert host.source_bytes(0, NUM_BYTES) == host.target_bytes(0, NUM_BYTES)


def test_calls_stay_within_the_slices_of_the_store_inside(host: Host) -> None:
    log = CallLog()
    inner = CountingWrapper(LocalKVStore(8 * MIB), log)
    store = checked(host, inner)
    log.clear()
    limit = inner.capabilities.max_slices_per_call
    assert limit - 1 == store.capabilities.max_slices_per_call
    keys = [f"key {index}" for index in range(limit - 1)]
    sizes = [10] * len(keys)
    assert [OK] * len(keys) == store.batch_put_from(
        keys, [host.source_at(i) for i in range(len(keys))], sizes
    )
    assert [OK] * len(keys) == store.batch_get_into(
        keys, [host.target_at(10 * i) for i in range(len(keys))], sizes
    )
    assert all(call.num_slices <= limit for call in log.calls)
    assert [2, 2] == [len(log.of(operation)) for operation in (Operation.PUT, Operation.GET)]
    assert host.source_bytes(limit - 2, 10) == host.target_bytes(10 * (limit - 2), 10)
    log.clear()
    pieces = list(range(host.source_at(), host.source_at() + limit - 1))
    assert [OK] == store.batch_put_from(["widest"], [pieces], [[1] * (limit - 1)])
    assert [limit] == [call.num_slices for call in log.of(Operation.PUT)]


def test_mixed_widths_are_split_and_read_back(host: Host) -> None:
    store = checked(host, LocalKVStore(8 * MIB))
    widths = [1 + index % 7 for index in range(400)]
    starts = np.cumsum([0, *widths]).tolist()
    keys = [f"wide {index}" for index in range(400)]
    sizes = [[3] * width for width in widths]

    def at(base: int) -> list[list[int]]:
        return [
            [base + 3 * (start + piece) for piece in range(width)]
            for start, width in zip(starts, widths, strict=False)
        ]

    assert [OK] * 400 == store.batch_put_from(keys, at(host.source_at()), sizes)
    assert [OK] * 400 == store.batch_get_into(keys, at(host.target_at()), sizes)
    assert host.source_bytes(0, 3 * starts[-1]) == host.target_bytes(0, 3 * starts[-1])


def test_cost_is_told_apart_from_the_payload(host: Host) -> None:
    inner = LocalKVStore(8 * MIB)
    store = checked(host, inner)
    read(store, host, "a", "gone")
    assert (3 * NUM_BYTES, NUM_BYTES) == (store.stats.put_bytes, store.stats.get_bytes)
    assert 3 * (NUM_BYTES + DIGEST_BYTES) == inner.stats.put_bytes
    assert 4 * DIGEST_BYTES == store.overhead_bytes
    assert 0 < store.digest_seconds < 10
    assert 1 == store.stats.get_misses
    assert DIGEST_BYTES == store.settings["digest_bytes"]


def test_evicted_bytes_are_those_of_payloads(host: Host) -> None:
    clock = [0.0]
    inner = LocalKVStore(4 * (NUM_BYTES + DIGEST_BYTES), clock=lambda: clock[0])
    store = checked(host, inner)
    clock[0] = 60.0
    for index in range(4):
        store.batch_put_from([f"more {index}"], [host.source_at()], [NUM_BYTES])
    assert store.stats.evicted_keys > 0
    assert NUM_BYTES * store.stats.evicted_keys == store.stats.evicted_bytes


@pytest.mark.parametrize("num_extra", [-1, 1])
@pytest.mark.parametrize("operation", [Operation.PUT, Operation.GET])
def test_list_of_the_wrong_length_raises(host: Host, operation: Operation, num_extra: int) -> None:
    faulty = FaultyStore(LocalKVStore(8 * MIB), [])
    store = checked(host, faulty)
    faulty.arm([WrongLength(operation, frozenset({1}), num_extra)])
    call = store.batch_put_from if operation is Operation.PUT else store.batch_get_into
    with pytest.raises(StoreContractError, match=r"results for 2 keys"):
        call(["a", "b"], [host.target_at(), host.target_at(NUM_BYTES)], [NUM_BYTES] * 2)


def test_detached_store_goes_on(host: Host) -> None:
    inner = LocalKVStore(8 * MIB)
    store = checked(host, inner)
    store.detach()
    assert [OK, MISS] == inner.batch_exists(["a", "gone"])
    # The buffer of the digests is free again: two wrappers one after the other leave nothing behind.
    ChecksumStore(inner, xxh3_64_intdigest).detach()


def test_a_store_that_counts_is_refused() -> None:
    with pytest.raises(ConfigError, match="only counts"):
        ChecksumStore(CountingStore(), xxh3_64_intdigest)
