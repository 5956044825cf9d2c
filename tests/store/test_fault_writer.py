"""Writers that die, and writers that meet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hicache_bench.store.base import OK, KVStoreBackend
from hicache_bench.store.fault_writer import DyingWriter, InterruptedWriter, WriterKilledError
from hicache_bench.store.local import LocalKVStore
from hicache_bench.units import MIB
from tests.store.contract import StoreContract
from tests.store.contract_host import Host, host_memory

KEYS = [f"key-{index}" for index in range(6)]


class TestContractOfAWriterThatLives(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[KVStoreBackend]:
        with DyingWriter(LocalKVStore(8 * MIB), 1 << 20) as store:
            yield store


class TestContractOfAWriterThatIsNotInterrupted(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[KVStoreBackend]:
        with InterruptedWriter(LocalKVStore(8 * MIB), 1 << 20, lambda: None) as store:
            yield store


def known(store: KVStoreBackend) -> Host:
    host = host_memory()
    store.register_buffer(host.source_at(), host.source.nbytes)
    return host


def put(store: KVStoreBackend, host: Host, *keys: str) -> None:
    store.batch_put_from(keys, [host.source_at()] * len(keys), [10] * len(keys))


@pytest.mark.parametrize("num_objects", range(6))
def test_writer_dies_in_mid_call(num_objects: int) -> None:
    inner = LocalKVStore(MIB)
    writer = DyingWriter(inner, num_objects)
    host = known(writer)
    whole_calls = num_objects // 2
    for start in range(0, 2 * whole_calls, 2):
        put(writer, host, *KEYS[start : start + 2])
    with pytest.raises(WriterKilledError, match=r"killed after \d of 2 objects"):
        put(writer, host, *KEYS[2 * whole_calls : 2 * whole_calls + 2])
    assert num_objects == inner.batch_exists(KEYS).count(OK)
    assert [OK] * num_objects == inner.batch_exists(KEYS[:num_objects])


def test_action_happens_once_before_its_call() -> None:
    inner = LocalKVStore(MIB)
    seen: list[int] = []
    writer = InterruptedWriter(inner, 2, lambda: seen.append(len(inner)))
    host = known(writer)
    for key in KEYS:
        put(writer, host, key)
    assert [1] == seen
