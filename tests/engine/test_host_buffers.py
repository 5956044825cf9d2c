from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hicache_bench.engine.controller import HybridKVController
from hicache_bench.engine.host import buffer_ranges
from hicache_bench.errors import ConfigError, LayoutError, StoreError
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.pools.registry import PoolDescriptorRegistry
from hicache_bench.store.base import INVALID_PARAMS, OK
from hicache_bench.store.counting import CountingStore
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.wrappers import StoreWrapper
from hicache_bench.units import MIB
from hicache_bench.workflows.prefix import build_registry
from tests.engine.rig import (
    ANCHOR,
    INDEX,
    KITCHEN_SINK,
    LATENT,
    SAVE_ALL,
    STATE,
    Rig,
    make_keys,
)


def test_a_physical_pool_without_a_host_pool_is_refused() -> None:
    rig = Rig([ANCHOR, LATENT, STATE], 2)
    pools = {"kv": rig.host_pools["kv"]}
    with pytest.raises(ConfigError, match="pools mamba have no host pool"):
        HybridKVController(build_registry([ANCHOR, LATENT, STATE]), pools, make_keys(), rig.store)
    with pytest.raises(ConfigError, match="every pool is logical"):
        HybridKVController(build_registry([ANCHOR]), {}, make_keys(), rig.store)


class Registrations(StoreWrapper):
    """Remembers which buffers are registered."""

    def __init__(self, inner: LocalKVStore) -> None:
        super().__init__(inner)
        self.now: dict[int, int] = {}

    def register_buffer(self, address: int, num_bytes: int) -> None:
        super().register_buffer(address, num_bytes)
        self.now[address] = num_bytes

    def unregister_buffer(self, address: int) -> None:
        super().unregister_buffer(address)
        del self.now[address]


def test_every_buffer_is_registered_until_the_controller_closes() -> None:
    rig = Rig(KITCHEN_SINK, 3)
    store = Registrations(LocalKVStore(MIB))
    controller = HybridKVController(rig.registry, rig.host_pools, make_keys(), store)
    expected = dict(span for pool in rig.host_pools.values() for span in buffer_ranges(pool))
    assert expected == store.now
    address, num_bytes = next(iter(expected.items()))
    assert [OK] == store.batch_put_from(["before"], [address], [num_bytes])
    controller.close()
    controller.close()
    assert {} == store.now
    assert [INVALID_PARAMS] == store.batch_put_from(["after"], [address], [num_bytes])
    assert [OK] == store.batch_exists(["before"])  # the store itself stays open


def test_a_host_pool_that_contradicts_its_descriptor_is_refused() -> None:
    pool = LATENT
    for layout, match in (("page_first_direct", "page_first"), ("layer_first", "scattered")):
        host = HostPool(pool, 2)
        host.layout = layout
        with pytest.raises(LayoutError, match=match):
            controller_of(pool, host)
    other = HostPool(replace(pool, components=(Component("k", 1, 1, 7),)), 2)
    with pytest.raises(LayoutError, match="bytes"):
        controller_of(pool, other)


def controller_of(pool: KVPoolDescriptor, host: HostPool) -> HybridKVController:
    registry = PoolDescriptorRegistry()
    registry.add(pool)
    return HybridKVController(registry, {pool.name: host}, NamespacedKeyBuilder("m"), CountingStore())


def test_a_failed_registration_leaves_nothing_registered() -> None:
    registry = PoolDescriptorRegistry()
    registry.add(LATENT)
    registry.add(INDEX)
    host = HostPool(LATENT, 2)
    twin = HostPool(INDEX, 2)
    twin.kv_buffer = host.kv_buffer  # overlaps: the second registration fails
    with LocalKVStore(1 << 20) as store:
        with pytest.raises(StoreError, match="overlaps"):
            HybridKVController(registry, {"kv": host, "indexer": twin}, NamespacedKeyBuilder("m"), store)
        address, num_bytes = buffer_ranges(host)[0]
        store.register_buffer(address, num_bytes)


class Lost(Registrations):
    """A store whose server is gone: puts fail, and so does letting go."""

    def batch_put_from(self, *_: Any) -> Any:
        raise StoreError("the master is gone")

    def unregister_buffer(self, address: int) -> None:
        super().unregister_buffer(address)
        raise StoreError(f"cannot unregister {address}")


def test_what_ended_a_save_is_heard_and_not_that_buffers_could_not_be_let_go() -> None:
    rig = Rig(KITCHEN_SINK, 3)
    store = Lost(LocalKVStore(MIB))
    rig.fill()
    with (
        pytest.raises(StoreError, match="the master is gone"),
        HybridKVController(rig.registry, rig.host_pools, make_keys(), store) as controller,
    ):
        controller.save(rig.prefix, SAVE_ALL)
    assert {} == store.now
    with (
        pytest.raises(StoreError, match="cannot unregister"),
        HybridKVController(rig.registry, rig.host_pools, make_keys(), store),
    ):
        assert store.now
    assert {} == store.now  # the first refusal does not end it


@pytest.mark.parametrize(
    "error", [StoreError("no room"), KeyboardInterrupt()], ids=lambda error: type(error).__name__
)
def test_a_registration_that_ends_half_way_leaves_none(error: BaseException) -> None:
    class Full(Registrations):
        def register_buffer(self, address: int, num_bytes: int) -> None:
            if len(self.now) == 3:
                raise error
            super().register_buffer(address, num_bytes)

    rig = Rig(KITCHEN_SINK, 3)
    store = Full(LocalKVStore(MIB))
    with pytest.raises(type(error)):
        HybridKVController(rig.registry, rig.host_pools, make_keys(), store)
    assert {} == store.now
