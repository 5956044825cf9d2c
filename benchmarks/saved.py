"""A saved prefix, ready to be restored again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np

from hicache_bench.engine.controller import HybridKVController
from hicache_bench.engine.prefix import Prefix
from hicache_bench.engine.reports import Lookup
from hicache_bench.engine.transfer import BATCH_PAGES
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.pools.names import AttentionType
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.client import open_mooncake
from hicache_bench.store.master import ManagedMaster
from hicache_bench.workflows.prefix import FixtureBytes, build_registry, lay_out, prompt_prefix
from hicache_bench.workflows.stores import arena_bytes

PAGE_TOKENS = 64
_NAMESPACE = "benchmark"

OpenStore = Callable[[int], AbstractContextManager[Any]]


class Saved(NamedTuple):
    """A saved prefix, and a controller over fresh host pools that may restore it."""

    controller: HybridKVController
    prefix: Prefix
    lookup: Lookup
    source: dict[str, HostPool]
    target: dict[str, HostPool]
    store: Any

    def restore(self, policy: TransferPolicy) -> None:
        """Plan and restore the whole prefix."""
        plan = self.controller.plan(self.lookup, policy)
        report = self.controller.restore(self.prefix, plan)
        assert report.ledger.used_tokens == self.prefix.num_pages * self.prefix.page_tokens

    def bare_request(self) -> tuple[list[str], list[int], list[int], list[slice]]:
        """Keys, addresses and sizes of every object, and the spans of the batches that the engine sends.

        Each pool has one unit a page.
        """
        keys: list[str] = []
        addresses: list[int] = []
        sizes: list[int] = []
        spans = []
        builder = NamespacedKeyBuilder(_NAMESPACE)
        for start in range(0, self.prefix.num_pages, BATCH_PAGES):
            num_before = len(keys)
            hashes = self.prefix.hashes[start : start + BATCH_PAGES]
            for pool in self.controller.pools:
                page_size = self.target[pool.name].page_size
                indices = np.arange(start * page_size, (start + len(hashes)) * page_size)
                pool_addresses, pool_sizes = self.target[pool.name].get_page_buffer_meta(indices)
                keys += builder.keys(pool, hashes)
                addresses += pool_addresses
                sizes += pool_sizes
            spans.append(slice(num_before, len(keys)))
        return keys, addresses, sizes, spans


@contextmanager
def saved_prefix(
    pools: tuple[KVPoolDescriptor, ...], num_tokens: int, open_store: OpenStore
) -> Iterator[Saved]:
    """Save a prefix of ``pools`` and look it up."""
    registry = build_registry(pools)
    layout = lay_out(registry, num_tokens, SavePolicy())
    prefix = prompt_prefix(layout, token_seed=0)
    keys = NamespacedKeyBuilder(_NAMESPACE)
    source, target = layout.host_pools(backed=True), layout.host_pools(backed=True)
    FixtureBytes(layout, seed=0).fill(source)
    for host_pool in target.values():
        host_pool.poison()  # commit the memory before it is timed
    with open_store(arena_bytes(layout.stored_bytes)) as store:
        saver = HybridKVController(registry, source, keys, store)
        assert saver.save(prefix, SavePolicy()).complete
        saver.close()
        controller = HybridKVController(registry, target, keys, store)
        lookup = controller.lookup(prefix)
        yield Saved(controller, prefix, lookup, source, target, store)
        controller.close()


@contextmanager
def private_mooncake(capacity: int) -> Iterator[KVStoreBackend]:
    """A master and its only client."""
    with ManagedMaster() as master, open_mooncake(master.address, segment_bytes=capacity) as store:
        yield store


def plain_pool(object_bytes: int) -> KVPoolDescriptor:
    """One object of that size for each page."""
    return KVPoolDescriptor(
        name="kv",
        attention=AttentionType.MLA,
        page_tokens=PAGE_TOKENS,
        components=(Component("k", 1, 1, object_bytes),),
    )
