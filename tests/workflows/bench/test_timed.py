"""Stop watches around keys and store calls change nothing else."""

from __future__ import annotations

import itertools

import numpy as np

from hicache_bench.config.load import load_model
from hicache_bench.models.engine_profile import pools_of
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.store.base import MISS, OK
from hicache_bench.store.local import LocalKVStore
from hicache_bench.workflows.bench.timed import StopWatch, TimedKeys, TimedStore


def ticking() -> StopWatch:
    """Each look at its clock takes a second."""
    ticks = itertools.count()
    return StopWatch(lambda: float(next(ticks)))


def test_a_watch_adds_up_and_starts_again() -> None:
    watch = ticking()
    assert [7, 8] == [watch.time(lambda: 7), watch.time(lambda: 8)]
    assert (2.0, 2) == (watch.seconds, watch.calls)
    watch.reset()
    assert (0.0, 0) == (watch.seconds, watch.calls)


def test_keys_are_those_of_the_builder_inside() -> None:
    inner, watch = NamespacedKeyBuilder("model", salt="tenant"), ticking()
    timed = TimedKeys(inner, watch)
    model = load_model("kitchen-sink")
    hashes = ["a", "b"]
    for calls, pool in enumerate(pools_of(model.spec, profile=model.profile), 1):
        assert inner.keys(pool, hashes) == timed.keys(pool, hashes)
        assert inner.templates(pool) == timed.templates(pool)
        assert calls == watch.calls
        for component, template in zip(pool.stored_components, inner.templates(pool), strict=True):
            assert (template.prefix, template.suffix) == timed._affixes(pool, component)
    assert inner.scheme == timed.scheme


def test_batched_calls_are_timed_and_others_are_not() -> None:
    watch, memory = ticking(), np.zeros(8, dtype=np.uint8)
    address = int(memory.ctypes.data)
    with LocalKVStore(1 << 20) as inner:
        inner.register_buffer(address, 8)
        store = TimedStore(inner, watch)
        assert [MISS] == store.batch_exists(["k"])
        assert [OK] == store.batch_put_from(["k"], [address], [8])
        assert [OK] == store.batch_get_into(["k"], [address], [8])
        assert (3.0, 3) == (watch.seconds, watch.calls)
        assert OK == store.remove("k", force=True)
        assert 3 == watch.calls
        assert inner.settings == store.settings
