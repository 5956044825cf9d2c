"""The store of sizes alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hicache_bench.store.base import EXISTS, INVALID_PARAMS, MISS, OK, KVStoreBackend
from hicache_bench.store.counting import CountingStore
from tests.store.contract import StoreContract


class TestContract(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[KVStoreBackend]:
        with CountingStore() as store:
            yield store


def test_addresses_are_never_followed() -> None:
    # Address 1 belongs to nobody: following it would end the process.
    store = CountingStore()
    assert [OK, OK] == store.batch_put_from(["a", "b"], [1, 1], [1 << 40, 5])
    assert [OK, INVALID_PARAMS, MISS] == store.batch_get_into(["a", "b", "c"], [1, 1, 1], [1 << 40, 6, 5])
    assert [1 << 40, (1 << 40) + 5] == [store.stats.get_bytes, store.stats.put_bytes]


def test_capabilities_say_that_nothing_moves() -> None:
    capabilities = CountingStore().capabilities
    assert ("count", False, False, False) == (
        capabilities.name,
        capabilities.moves_bytes,
        capabilities.needs_registration,
        capabilities.supports_leases,
    )


def test_a_prefix_of_a_million_tokens_is_counted_exactly() -> None:
    num_objects, num_bytes = 65_536, 64 * 656 * 61
    keys = [f"namespace/kv/{index:064x}" for index in range(num_objects)]
    addresses, sizes = [1] * num_objects, [num_bytes] * num_objects
    store = CountingStore(max_slices_per_call=num_objects)
    assert [OK] * num_objects == store.batch_put_from(keys, addresses, sizes)
    assert [EXISTS] * num_objects == store.batch_put_from(keys, addresses, sizes)
    assert [OK] * num_objects == store.batch_exists(keys)
    for _ in range(3):
        assert [OK] * num_objects == store.batch_get_into(keys, addresses, sizes)
    assert num_objects == len(store)
    assert num_objects * num_bytes == store.stats.put_bytes
    assert 3 * num_objects * num_bytes == store.stats.get_bytes
    assert num_objects == store.stats.put_noops
