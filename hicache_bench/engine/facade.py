"""The small surface that an engine's storage backend delegates to."""

from __future__ import annotations

from typing import Any

from hicache_bench.engine.metrics import MetricsSink
from hicache_bench.errors import ConfigError
from hicache_bench.planning.ledger import volume
from hicache_bench.planning.policy import trailing_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import HitPolicy
from hicache_bench.pools.registry import Decision, PoolDescriptorRegistry


class HybridHiCacheFacade:
    """Classify pools, tell their hit policy, count their I/O.

    A backend keeps its own transfers and asks three questions here, so that it need not know what a logical
    anchor or a trailing pool is.
    """

    def __init__(self, metrics: MetricsSink | None = None) -> None:
        self.registry = PoolDescriptorRegistry()
        self.metrics = metrics or MetricsSink()

    def classify(self, pool: KVPoolDescriptor, host_pool: Any = None) -> Decision:
        """Register the pool, or skip it if it owns no buffer.

        Raises:
            LayoutError: its pages are scattered over layers.
            ConfigError: its name or keys collide with another's.
        """
        return self.registry.add(pool, host_pool)

    def hit_policy(self, pool_name: str) -> tuple[HitPolicy, int]:
        """The pool's hit policy and how many trailing pages it needs (0 where it needs all).

        Raises:
            ConfigError: a pool that was never classified.
        """
        pool = self._pool(pool_name)
        trailing = pool.hit_policy is HitPolicy.TRAILING_PAGES
        return pool.hit_policy, trailing_units(pool) if trailing else 0

    def record_io(self, pool_name: str, event: str, num_pages: int) -> None:
        """Count ``num_pages`` pages of a pool as ``read``, ``written``, ``missed``, ``failed`` or ``wasted``.

        Raises:
            ConfigError: a pool that was never classified, or another event.
        """
        if event not in ("read", "written", "missed", "failed", "wasted"):
            raise ConfigError(f"unknown I/O event {event!r}; allowed: read, written, missed, failed, wasted")
        self.metrics.record(event, volume(self._pool(pool_name), num_pages), pool=pool_name)

    def _pool(self, name: str) -> KVPoolDescriptor:
        pools = self.registry.by_name
        if name not in pools:
            raise ConfigError(f"pool {name!r} was never classified; known: {', '.join(pools) or 'none'}")
        return pools[name]
