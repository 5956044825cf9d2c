"""The tier of each eviction."""

from __future__ import annotations

from collections.abc import Sequence

from hicache_bench.trace.fifo import FifoTier
from hicache_bench.trace.lru import LruTier
from hicache_bench.trace.optimal import OptimalTier
from hicache_bench.trace.paths import PagePaths
from hicache_bench.trace.streams import Stream
from hicache_bench.trace.tier import Eviction, Tier

_TIERS: dict[Eviction, type[LruTier] | type[FifoTier] | type[OptimalTier]] = {
    Eviction.LRU: LruTier,
    Eviction.FIFO: FifoTier,
    Eviction.OPTIMAL: OptimalTier,
}


def open_tier(
    eviction: Eviction, paths: PagePaths, streams: Sequence[Stream], capacity_bytes: int | None
) -> Tier:
    """An empty tier; ``capacity_bytes`` None has no bound."""
    return _TIERS[eviction](paths, streams, capacity_bytes)
