"""A store that breaks by rule."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hicache_bench.errors import StoreClosedError
from hicache_bench.store.base import MISS, NO_SPACE, OK, KeyResult, KVStoreBackend, error
from hicache_bench.store.counting import CountingStore
from hicache_bench.store.faults import (
    TRANSFER_FAIL,
    CorruptGet,
    EvictBeforeGet,
    FailCalls,
    FailKeys,
    FailRandomly,
    Fault,
    FaultyStore,
    ShortGet,
    WrongLength,
    exists_lies,
)
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.wrappers import Operation
from hicache_bench.units import MIB
from tests.store.contract import StoreContract
from tests.store.contract_host import GUARD_BYTE, Host, host_memory

NUM_BYTES = 1000


class TestContractWithoutFaults(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[KVStoreBackend]:
        with FaultyStore(LocalKVStore(8 * MIB), []) as store:
            yield store


@pytest.fixture
def host() -> Host:
    memory = host_memory()
    memory.target.fill(GUARD_BYTE)
    return memory


def broken(host: Host, *faults: Fault, seed: int = 0) -> FaultyStore:
    """A store with objects ``a``, ``b`` and ``c``, put before the rules hold, inside these rules."""
    inner = LocalKVStore(MIB)
    inner.register_buffer(host.source_at(), host.source.nbytes)
    inner.register_buffer(host.target_at(), host.target.nbytes)
    sources = [host.source_at(index * NUM_BYTES) for index in range(3)]
    assert [OK] * 3 == inner.batch_put_from(["a", "b", "c"], sources, [NUM_BYTES] * 3)
    return FaultyStore(inner, faults, seed=seed)


def read(store: KVStoreBackend, host: Host, *keys: str) -> list[KeyResult]:
    """Read objects end to end into the target."""
    targets = [host.target_at(index * NUM_BYTES) for index in range(len(keys))]
    return store.batch_get_into(keys, targets, [NUM_BYTES] * len(keys))


def test_given_calls_fail_and_others_do_not(host: Host) -> None:
    store = broken(host, FailCalls(Operation.GET, frozenset({2}), error(-901)))
    assert [OK, OK] == read(store, host, "a", "b")
    host.target.fill(GUARD_BYTE)
    assert [error(-901), error(-901)] == read(store, host, "a", "b")
    assert (host.target == GUARD_BYTE).all()
    assert [OK, OK] == store.batch_exists(["a", "b"])
    assert [OK, MISS] == read(store, host, "a", "gone")
    assert 4 == store.stats.get_keys


def test_given_put_call_fails_and_stores_nothing(host: Host) -> None:
    store = broken(host, FailCalls(Operation.PUT, frozenset({1}), NO_SPACE))
    source = [host.source_at()]
    assert [NO_SPACE] == store.batch_put_from(["new"], source, [NUM_BYTES])
    assert [MISS] == store.batch_exists(["new"])
    assert [OK] == store.batch_put_from(["new"], source, [NUM_BYTES])


def test_given_keys_fail_among_others(host: Host) -> None:
    store = broken(host, FailKeys(Operation.GET, frozenset({"b"})))
    assert [OK, TRANSFER_FAIL, OK] == read(store, host, "a", "b", "c")
    assert host.source_bytes(0, NUM_BYTES) == host.target_bytes(0, NUM_BYTES)
    assert bytes([GUARD_BYTE]) * NUM_BYTES == host.target_bytes(NUM_BYTES, NUM_BYTES)
    assert host.source_bytes(2 * NUM_BYTES, NUM_BYTES) == host.target_bytes(2 * NUM_BYTES, NUM_BYTES)


def test_keys_can_fail_a_while_and_then_heal(host: Host) -> None:
    store = broken(host, FailKeys(Operation.GET, frozenset({"b"}), num_calls=2))
    assert [[TRANSFER_FAIL], [TRANSFER_FAIL], [OK]] == [read(store, host, "b") for _ in range(3)]


def test_first_rule_with_an_answer_wins(host: Host) -> None:
    rules = [FailKeys(Operation.GET, frozenset({"a"}), MISS), FailKeys(Operation.GET, frozenset({"a", "b"}))]
    assert [MISS, TRANSFER_FAIL, OK] == read(broken(host, *rules), host, "a", "b", "c")


def test_lookup_lies(host: Host) -> None:
    store = broken(host, exists_lies("gone"))
    assert [OK, OK, MISS] == store.batch_exists(["a", "gone", "also gone"])
    assert [MISS] == read(store, host, "gone")


def test_put_loses_its_bytes(host: Host) -> None:
    store = broken(host, FailKeys(Operation.PUT, frozenset({"lost"}), OK))
    sources = [host.source_at(), host.source_at()]
    assert [OK, OK] == store.batch_put_from(["lost", "kept"], sources, [NUM_BYTES, NUM_BYTES])
    assert [MISS, OK] == store.batch_exists(["lost", "kept"])


def test_keys_vanish_between_lookup_and_read(host: Host) -> None:
    store = broken(host, EvictBeforeGet(frozenset({"b", "never there"}), call=2))
    assert [OK, OK] == read(store, host, "a", "b")
    assert [OK, OK] == store.batch_exists(["a", "b"])
    assert [OK, MISS] == read(store, host, "a", "b")


@pytest.mark.parametrize("seed", range(5))
def test_one_bit_is_wrong(host: Host, seed: int) -> None:
    store = broken(host, CorruptGet(frozenset({"b"})), seed=seed)
    assert [OK, OK] == read(store, host, "a", "b")
    assert host.source_bytes(0, NUM_BYTES) == host.target_bytes(0, NUM_BYTES)
    expected = int.from_bytes(host.source_bytes(NUM_BYTES, NUM_BYTES), "big")
    actual = int.from_bytes(host.target_bytes(NUM_BYTES, NUM_BYTES), "big")
    assert 1 == (expected ^ actual).bit_count()


def test_corruption_reaches_scattered_buffers(host: Host) -> None:
    store = broken(host, ShortGet(frozenset({"a"}), num_missing_bytes=700))
    targets = [[host.target_at(0), host.target_at(5000)]]
    assert [OK] == store.batch_get_into(["a"], targets, [[400, 600]])
    # 300 bytes arrived: all of them in the first buffer, none in the second.
    assert host.source_bytes(0, 300) == host.target_bytes(0, 300)
    for offset, target, num_bytes in ((300, 300, 100), (400, 5000, 600)):
        pairs = zip(host.source_bytes(offset, num_bytes), host.target_bytes(target, num_bytes), strict=True)
        assert all(right != stale for right, stale in pairs)
    assert bytes([GUARD_BYTE]) == host.target_bytes(400, 1)


def test_the_tail_never_came(host: Host) -> None:
    store = broken(host, ShortGet(frozenset({"a"}), num_missing_bytes=3))
    assert [OK] == read(store, host, "a")
    assert host.source_bytes(0, NUM_BYTES - 3) == host.target_bytes(0, NUM_BYTES - 3)
    tail = NUM_BYTES - 3
    pairs = zip(host.source_bytes(tail, 3), host.target_bytes(tail, 3), strict=True)
    assert all(right != stale for right, stale in pairs)
    assert bytes([GUARD_BYTE]) == host.target_bytes(NUM_BYTES, 1)


def test_spoiling_follows_no_address_that_failed(host: Host) -> None:
    store = broken(host, CorruptGet(frozenset({"a"})))
    (result,) = store.batch_get_into(["a"], [16], [NUM_BYTES])
    assert OK is not result


def test_spoiling_follows_no_address_of_a_store_that_counts() -> None:
    inner = CountingStore()
    inner.batch_put_from(["a"], [1], [NUM_BYTES])
    store = FaultyStore(inner, [CorruptGet(frozenset({"a"}))])
    assert [OK] == store.batch_get_into(["a"], [1], [NUM_BYTES])


def test_random_faults_repeat_with_their_seed() -> None:
    keys = [f"key-{index}" for index in range(1000)]

    def results(seed: int) -> list[KeyResult]:
        store = FaultyStore(CountingStore(), [FailRandomly(Operation.PUT, 0.25)], seed=seed)
        return store.batch_put_from(keys, [1] * 1000, [1] * 1000)

    assert results(7) == results(7)
    assert results(7) != results(8)
    assert 150 < results(7).count(TRANSFER_FAIL) < 350


def test_a_closed_store_raises_even_where_a_rule_answers(host: Host) -> None:
    store = broken(host, FailCalls(Operation.GET, frozenset({1})))
    store.close()
    with pytest.raises(StoreClosedError):
        read(store, host, "a")


@pytest.mark.parametrize("num_extra", [-1, 2, -5])
@pytest.mark.parametrize("operation", list(Operation))
def test_list_of_the_wrong_length(host: Host, operation: Operation, num_extra: int) -> None:
    store = broken(host, WrongLength(operation, frozenset({1}), num_extra))
    calls = {
        Operation.EXISTS: lambda: store.batch_exists(["a", "b"]),
        Operation.PUT: lambda: store.batch_put_from(["a", "b"], [host.source_at()] * 2, [NUM_BYTES] * 2),
        Operation.GET: lambda: read(store, host, "a", "b"),
    }
    assert [max(0, 2 + num_extra), 2] == [len(calls[operation]()) for _ in range(2)]


def test_rules_can_be_changed_and_start_again(host: Host) -> None:
    store = broken(host)
    assert [OK] == read(store, host, "a")
    store.arm([FailCalls(Operation.GET, frozenset({1}))])
    assert [[TRANSFER_FAIL], [OK]] == [read(store, host, "a") for _ in range(2)]
    store.arm([])
    assert [OK] == read(store, host, "a")
