"""The small surface that an engine's storage backend delegates to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hicache_bench.engine.lookup import EndpointSearch, Exists
from hicache_bench.engine.metrics import MetricsSink
from hicache_bench.engine.prefix import Prefix, PrefixKeys
from hicache_bench.errors import ConfigError
from hicache_bench.planning.ledger import volume
from hicache_bench.planning.policy import TransferPolicy, trailing_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.keys import KeyBuilder
from hicache_bench.pools.names import HitPolicy
from hicache_bench.pools.registry import Decision, PoolDescriptorRegistry


class HybridHiCacheFacade:
    """Classify pools, tell their hit policy, find the endpoint of a prompt, count I/O.

    A backend keeps its own transfers and asks four questions here, so that it need not know what a logical
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
        return pool.hit_policy, trailing_units(pool) * pool.unit_pages if trailing else 0

    def search(
        self,
        hashes: Sequence[str],
        keys: KeyBuilder,
        exists: Exists,
        *,
        policy: TransferPolicy = TransferPolicy.HIT_POLICY,
        first_page: int = 0,
        parent: str | None = None,
    ) -> EndpointSearch:
        """The search for the longest endpoint of the pages with these ``hashes``, by few existence queries.

        Its ``longest(limit_pages)`` is this rank's answer; ranks that must agree take the least of theirs as
        the next limit, until none lowers it. Pages below ``first_page`` are local, and ``parent`` is the hash
        of the last of them.

        Raises:
            ConfigError: no physical pool was classified.
        """
        self.registry.check()
        pools = self.registry.registered
        page_tokens = pools[0].page_tokens
        prefix = Prefix(
            prompt_tokens=(first_page + len(hashes)) * page_tokens + 1,
            page_tokens=page_tokens,
            hashes=hashes,
            slots={},
            first_page=first_page,
            parent=parent,
        )
        return EndpointSearch(pools, PrefixKeys(keys), exists, prefix, policy)

    def record_io(self, pool_name: str, event: str, num_units: int) -> None:
        """Count units of a pool as ``read``, ``written``, ``missed``, ``failed`` or ``wasted``.

        A unit is what one key of each component stands for: a page, or ``unit_pages`` of them.

        Raises:
            ConfigError: a pool that was never classified, or another event.
        """
        if event not in ("read", "written", "missed", "failed", "wasted"):
            raise ConfigError(f"unknown I/O event {event!r}; allowed: read, written, missed, failed, wasted")
        self.metrics.record(event, volume(self._pool(pool_name), num_units), pool=pool_name)

    def _pool(self, name: str) -> KVPoolDescriptor:
        pools = self.registry.by_name
        if name not in pools:
            raise ConfigError(f"pool {name!r} was never classified; known: {', '.join(pools) or 'none'}")
        return pools[name]
