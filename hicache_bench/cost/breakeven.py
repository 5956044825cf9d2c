"""The bandwidth above which reading a prefix is quicker than computing it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hicache_bench.cost.flops import FlopsModel
from hicache_bench.cost.ttft import Overlap, Scene
from hicache_bench.cost.volumes import RankRead


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """Bytes per second of a node's link at which reuse and recomputing take the same time.

    Infinite where reuse is slower over any link, since lookup, calls and L2 to L1 alone take as long; 0 where
    nothing is read and nothing lost.
    """

    node_bytes: int
    rate: Overlap


def break_even(ranks: Sequence[RankRead], scene: Scene) -> BreakEven:
    """The break-even rate of what ``ranks`` read, with every byte at that rate and no timeout."""
    node_bytes = max(rank.num_bytes for rank in ranks) * scene.sharers
    used = ranks[0].plan.endpoint_pages * ranks[0].plan.pools[0].pool.page_tokens
    compute = scene.compute.seconds(scene.prompt_tokens, max(used, scene.local_tokens))
    h2d = scene.h2d_seconds(ranks, [rank.num_bytes for rank in ranks])
    behind = scene.loaded(h2d, compute)
    fixed = max(
        scene.link.lookup_seconds(rank.lookup_keys, rank.lookup_calls) + len(rank.calls) * scene.link.op.value
        for rank in ranks
    )
    saved = scene.compute.seconds(scene.prompt_tokens, scene.local_tokens)

    def rate(rest: float) -> float:
        """``rest``: what follows the prefetch."""
        if not node_bytes:
            return 0.0
        # The queue hides a part of the prefetch; what follows it hides nowhere.
        left = scene.prefetch.queue_seconds + saved - rest - fixed
        return node_bytes / left if rest < saved and left > 0 else float("inf")

    return BreakEven(node_bytes=node_bytes, rate=Overlap(full=rate(behind.full), none=rate(behind.none)))


def fast25_break_even(
    flops: FlopsModel, *, num_bytes: int, tokens: int, flops_per_second: float, local_tokens: int = 0
) -> float:
    """Bytes per second above which reuse pays, with nothing but bytes and FLOPs.

    Source: Mooncake, FAST'25, equation 2, ``B/G > 2ds/(gqa·(a·p·d + b·d²))``: for a dense model with FLOPs by
    equation 1 the same number, since ``num_bytes`` is ``p·l·(2d/gqa)·s``.
    """
    return num_bytes * flops_per_second / flops.flops(tokens, local_tokens)
