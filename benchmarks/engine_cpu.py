"""What the engine itself costs a restore: plan, keys from given page hashes, pointers, batches and ledger.

``python -m benchmarks.engine_cpu`` prints CPU time per object. The store answers at once and moves nothing,
so that nothing else is in the figure.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks.paired import Row, at_most
from benchmarks.table import print_rows
from hicache_bench.engine.controller import HybridKVController
from hicache_bench.engine.prefix import Prefix
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.pools.names import AttentionType
from hicache_bench.store.base import OK, Buffers, KeyResult
from hicache_bench.store.counting import CountingStore
from hicache_bench.workflows.prefix import build_registry

NUM_OBJECTS = 100_000
PAGE_TOKENS = 64


class InstantStore(CountingStore):
    """Everything exists and arrives, at once."""

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        return [OK] * len(keys)

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:  # noqa: ARG002
        return [OK] * len(keys)


def microseconds_per_object(pools: Sequence[KVPoolDescriptor], num_pages: int, samples: int = 15) -> float:
    """Median CPU time of a restore of ``num_pages`` pages, whose keys nobody has built yet, per object."""
    registry = build_registry(pools)
    host_pools = {pool.name: HostPool(pool, num_pages, backed=False) for pool in pools}
    controller = HybridKVController(registry, host_pools, NamespacedKeyBuilder("benchmark"), InstantStore())
    prefix = Prefix(
        prompt_tokens=num_pages * PAGE_TOKENS + 1,
        page_tokens=PAGE_TOKENS,
        hashes=[f"{page:064x}" for page in range(num_pages)],
        slots={pool.name: np.random.default_rng(0).permutation(num_pages) for pool in pools},
    )
    lookup = controller.lookup(prefix)
    taken = []
    for _ in range(samples + 1):
        fresh = replace(prefix)  # has built no keys
        gc.collect()
        gc.disable()
        started = time.process_time()
        report = controller.restore(fresh, controller.plan(lookup, TransferPolicy.SELECTIVE))
        taken.append(time.process_time() - started)
        gc.enable()
        assert report.ledger.read.objects == NUM_OBJECTS
    return 1e6 * median(taken[1:]) / NUM_OBJECTS


def _pool(name: str, attention: AttentionType, *components: str) -> KVPoolDescriptor:
    return KVPoolDescriptor(
        name=name,
        attention=attention,
        page_tokens=PAGE_TOKENS,
        components=tuple(Component(component, 1, 1, 4096) for component in components),
    )


def rows() -> Iterator[Row]:
    """Restores of 100,000 objects of different shapes."""
    latent, index = _pool("kv", AttentionType.MLA, "k"), _pool("indexer", AttentionType.SPARSE_INDEX, "page")
    for what, pools in (
        ("one object a page", [latent]),
        ("two pools of one object a page", [latent, index]),
        ("k and v of a page", [_pool("kv", AttentionType.FULL, "k", "v")]),
    ):
        pages = NUM_OBJECTS // sum(len(pool.components) for pool in pools)
        figure = microseconds_per_object(pools, pages)
        yield at_most(f"engine CPU per object, restore of 100,000 objects, {what}", figure, 0.8, "µs")


if __name__ == "__main__":
    print_rows(rows())
