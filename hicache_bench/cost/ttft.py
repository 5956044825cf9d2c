"""Time to first token: waiting for the prefetch, host to GPU, computing the rest.

The prefetch from L3 to L2 comes before the request's own computation; L2 to L1 goes layer by layer, so that
a layer's load may hide behind the computation of the one before. How much hides depends on the engine, so
every figure has two ends: nothing hides, and all but the first layer does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hicache_bench.cost.compute import Compute
from hicache_bench.cost.prefetch import Prefetched, PrefetchOptions, Usable, prefetch, usable
from hicache_bench.cost.volumes import RankRead
from hicache_bench.links.link import Link
from hicache_bench.links.system import System


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A figure with nothing hidden, and with all but the first layer's load hidden."""

    full: float
    none: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where a request runs. All ranks of a node share its link, and so do ``concurrency`` equal requests."""

    link: Link
    system: System
    compute: Compute
    num_ranks: int
    num_layers: int
    prompt_tokens: int
    local_tokens: int
    prefetch: PrefetchOptions
    concurrency: int = 1

    @property
    def num_nodes(self) -> int:
        """Nodes that the ranks fill."""
        return -(-self.num_ranks // self.system.gpus)

    @property
    def sharers(self) -> int:
        """Equal transfers that use a node's link at once."""
        return -(-self.num_ranks // self.num_nodes) * self.concurrency

    def loaded(self, h2d_seconds: float, compute_seconds: float) -> Overlap:
        """Host to GPU and computing, one behind the other or layer by layer."""
        first = h2d_seconds / self.num_layers
        return Overlap(
            full=first + max(compute_seconds, h2d_seconds - first), none=h2d_seconds + compute_seconds
        )

    def h2d_seconds(self, ranks: Sequence[RankRead], rank_bytes: Sequence[int]) -> float:
        """Seconds from host memory to the GPUs, with these bytes for each of the ``ranks``."""
        total = sum(rank.copies * used for rank, used in zip(ranks, rank_bytes, strict=True))
        return self.system.h2d_seconds(max(rank_bytes), -(-total // self.num_nodes))

    @property
    def recompute_seconds(self) -> float:
        """Time to first token if nothing is read: the queue, and all but the local prefix computed."""
        return self.prefetch.queue_seconds + self.compute.seconds(self.prompt_tokens, self.local_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """Time to first token of one policy, and its parts, in seconds.

    ``read`` is L3 to L2 until the prefetch ended, ``h2d`` L2 to L1. ``uncut_bytes_per_second`` is the mean
    rate over a node's link with which the prefetch would not have been cut; None where it was not, or where
    no rate is enough.
    """

    fetched: Prefetched
    usable: Usable
    lookup_seconds: float
    read_seconds: float
    h2d_seconds: float
    compute_seconds: float
    total: Overlap
    uncut_bytes_per_second: float | None


def first_token(ranks: Sequence[RankRead], scene: Scene) -> FirstToken:
    """Model a request that reads what ``ranks`` plan to read."""
    options = scene.prefetch
    fetched = prefetch(ranks, scene.link, options, sharers=scene.sharers)
    found = usable(ranks, fetched.landed_calls, options.profile, is_complete=fetched.is_complete)
    h2d = scene.h2d_seconds(ranks, found.rank_bytes)
    compute = scene.compute.seconds(scene.prompt_tokens, found.used_tokens)
    admitted = max(options.queue_seconds, fetched.stop_seconds)
    behind = scene.loaded(h2d, compute)
    return FirstToken(
        fetched=fetched,
        usable=found,
        lookup_seconds=fetched.lookup_seconds,
        read_seconds=fetched.stop_seconds - fetched.lookup_seconds,
        h2d_seconds=h2d,
        compute_seconds=compute,
        total=Overlap(full=admitted + behind.full, none=admitted + behind.none),
        uncut_bytes_per_second=_uncut_rate(ranks, scene, fetched),
    )


def _uncut_rate(ranks: Sequence[RankRead], scene: Scene, fetched: Prefetched) -> float | None:
    """The mean rate that lands in time what must land, after the queries and calls themselves."""
    if fetched.is_complete:
        return None
    rates = []
    for rank in ranks:
        needed = len(rank.calls) if scene.prefetch.profile.cuts_side_pools else rank.kv_calls
        left = fetched.stop_seconds - fetched.lookup_seconds - needed * scene.link.op.value
        if left <= 0:
            return None
        rates.append(scene.sharers * sum(call.num_bytes for call in rank.calls[:needed]) / left)
    return max(rates)
