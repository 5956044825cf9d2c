"""Where the time of an operation goes: stop watches around key building and around store calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.keys import KeyBuilder, KeyTemplate
from hicache_bench.store.base import Buffers, KeyResult, KVStoreBackend
from hicache_bench.store.wrappers import StoreWrapper

_Result = TypeVar("_Result")


class StopWatch:
    """Adds up the seconds of the calls that it is given, and counts them."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.seconds = 0.0
        self.calls = 0

    def time(self, call: Callable[[], _Result]) -> _Result:
        """The result of ``call``."""
        started = self._clock()
        result = call()
        self.seconds += self._clock() - started
        self.calls += 1
        return result

    def reset(self) -> None:
        """Start again."""
        self.seconds, self.calls = 0.0, 0


class TimedStore(StoreWrapper):
    """Times the batched calls of a store."""

    def __init__(self, inner: KVStoreBackend, watch: StopWatch) -> None:
        super().__init__(inner)
        self._watch = watch

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        return self._watch.time(lambda: super(TimedStore, self).batch_exists(keys))

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        return self._watch.time(lambda: super(TimedStore, self).batch_put_from(keys, addresses, sizes))

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        return self._watch.time(lambda: super(TimedStore, self).batch_get_into(keys, addresses, sizes))


class TimedKeys(KeyBuilder):
    """Times the building of another builder's keys."""

    def __init__(self, inner: KeyBuilder, watch: StopWatch) -> None:
        super().__init__()
        self.scheme = inner.scheme
        self._inner = inner
        self._watch = watch

    def templates(self, pool: KVPoolDescriptor) -> tuple[KeyTemplate, ...]:
        return self._inner.templates(pool)

    def keys(self, pool: KVPoolDescriptor, hashes: Sequence[str]) -> list[str]:
        return self._watch.time(lambda: self._inner.keys(pool, hashes))

    def _affixes(self, pool: KVPoolDescriptor, component: Component) -> tuple[str, str]:
        template = next(found for found in self.templates(pool) if found.component == component)
        return template.prefix, template.suffix
