from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hicache_bench.engine.controller import HybridKVController
from hicache_bench.engine.metrics import STORE_PREFIX, MetricsSink
from hicache_bench.engine.metrics_store import MeteredStore
from hicache_bench.errors import StoreClosedError
from hicache_bench.store.base import EXISTS, INVALID_PARAMS, MISS, NO_SPACE, OK, Buffers, KeyResult, error
from hicache_bench.store.counting import CountingStore
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.wrappers import StoreWrapper
from hicache_bench.units import MIB
from tests.engine.rig import LATENT, SAVE_ALL, WINDOW, Rig
from tests.engine.scraped import families, value


def counted(metrics: MetricsSink, operation: str, backend: str = "local") -> dict[str, float | None]:
    names = ("keys", "hits", "misses", "failures", *(("bytes",) if operation != "exists" else ()))
    return {
        name: value(metrics, f"{operation}_{name}", prefix=STORE_PREFIX, backend=backend) for name in names
    }


def test_every_key_is_a_hit_a_miss_or_a_failure() -> None:
    metrics = MetricsSink()
    memory = np.zeros(4096, dtype=np.uint8)
    address = int(memory.ctypes.data)
    with MeteredStore(LocalKVStore(MIB), metrics) as store:
        store.register_buffer(address, memory.nbytes)
        assert [OK, OK, INVALID_PARAMS] == store.batch_put_from(
            ["a", "b", ""], [address] * 3, [100, 200, 300]
        )
        assert [EXISTS, OK] == store.batch_put_from(
            ["a", "c"], [[address, address + 50]] * 2, [[50, 50], [300, 5]]
        )
        assert [OK, MISS] == store.batch_exists(["a", "z"])
        assert [OK, MISS, INVALID_PARAMS, OK] == store.batch_get_into(
            ["a", "z", "b", "c"], [address] * 4, [100, 100, 7, 305]
        )
        assert {"keys": 5, "hits": 1, "misses": 3, "failures": 1, "bytes": 605} == counted(metrics, "put")
        assert {"keys": 2, "hits": 1, "misses": 1, "failures": 0} == counted(metrics, "exists")
        # Bytes of what was read, and of nothing else: cases E85.
        assert {"keys": 4, "hits": 2, "misses": 1, "failures": 1, "bytes": 405} == counted(metrics, "get")
        stats = store.stats
    assert (605, 405) == (stats.put_bytes, stats.get_bytes)


class FixedAnswers(StoreWrapper):
    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        return [NO_SPACE, error(-800), OK]

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        return [error(-900), MISS, OK]


def test_an_error_is_no_miss() -> None:
    metrics = MetricsSink()
    store = MeteredStore(FixedAnswers(CountingStore()), metrics)
    store.batch_put_from(["a", "b", "c"], [1, 1, 1], [10, 20, 40])
    store.batch_exists(["a", "b", "c"])
    assert {"keys": 3, "hits": 0, "misses": 1, "failures": 2, "bytes": 40} == counted(metrics, "put", "count")
    assert {"keys": 3, "hits": 1, "misses": 1, "failures": 1} == counted(metrics, "exists", "count")


def test_calls_are_timed_by_operation() -> None:
    metrics = MetricsSink()
    ticks = iter([0.0, 0.5, 10.0, 12.0])
    store = MeteredStore(CountingStore(), metrics, clock=lambda: next(ticks))
    store.batch_put_from(["a"], [1], [10])
    store.batch_exists(["a"])
    sums = {
        sample.labels["operation"]: sample.value
        for sample in families(metrics)[f"{STORE_PREFIX}_call_seconds"].samples
        if sample.name.endswith("_sum")
    }
    assert {"put": 0.5, "exists": 2.0} == sums


def test_a_call_that_raises_is_not_counted() -> None:
    metrics = MetricsSink()
    store = MeteredStore(CountingStore(), metrics)
    store.close()
    with pytest.raises(StoreClosedError):
        store.batch_exists(["a"])
    assert metrics.is_empty


def test_the_store_saw_the_bytes_of_the_ledger() -> None:  # cases E85
    metrics = MetricsSink()
    rig = Rig([LATENT, WINDOW], 8)
    rig.controller.close()
    store = MeteredStore(rig.store, metrics)
    rig.controller = HybridKVController(rig.registry, rig.host_pools, rig.keys, store)
    rig.save()
    rig.restore()
    read = families(metrics)["mooncake_hicache_read_bytes"].samples
    written = families(metrics)["mooncake_hicache_written_bytes"].samples
    assert sum(sample.value for sample in read) == counted(metrics, "get")["bytes"]
    assert sum(sample.value for sample in written) == counted(metrics, "put")["bytes"]


def test_a_controller_counts_where_its_store_does() -> None:
    outer, inner, own = MetricsSink(), MetricsSink(), MetricsSink()
    store = StoreWrapper(MeteredStore(StoreWrapper(MeteredStore(CountingStore(), inner)), outer))
    assert outer is store.metrics
    assert StoreWrapper(CountingStore()).metrics is None
    rig = Rig([LATENT], 4)
    rig.controller.close()
    metered_store = MeteredStore(rig.store, outer)
    for given, expected in ((None, outer), (own, own)):
        controller = HybridKVController(rig.registry, rig.host_pools, rig.keys, metered_store, metrics=given)
        controller.save(rig.prefix, SAVE_ALL)
        controller.close()
        assert value(expected, "written_pages", pool="kv") is not None
    assert 0 == value(own, "written_pages", pool="kv")
