"""FLOPs of a prefill, counted from a model's layers.

Source: Qin et al., "Mooncake", FAST'25, equation 1: ``l·(a·n²·d + b·n·d²)`` with ``a = 4`` and ``b = 22``
for ``n`` tokens, ``l`` layers and a width of ``d``. Each token attends to all before it there. Here a layer
counts what it attends to: a window, a chunk, compressed rows, what an index selects, or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hicache_bench.models.compute import ComputeDims
from hicache_bench.models.spec import (
    BlockIndex,
    ChunkedAttention,
    CompressedAttention,
    FullAttention,
    LatentWindow,
    MlaAttention,
    ModelSpec,
    SlidingWindow,
    SparseIndex,
)

ATTENTION_FLOPS = 4
"""``a`` of equation 1."""

LINEAR_FLOPS = 22
"""``b`` of equation 1: projections and feed-forward of a LLaMA3 layer, in units of ``d²`` a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpan:
    """What a token attends to in ``layers`` layers.

    One row for each ``ratio`` tokens before it, at most ``cap`` rows; with a ``chunk``, only those since its
    last multiple. ``cap`` None is no limit.
    """

    layers: int
    cap: int | None = None
    ratio: int = 1
    chunk: int | None = None

    def pairs(self, tokens: int) -> float:
        """Twice the pairs of token and row over ``tokens`` tokens and one layer: n² for full attention."""
        if self.chunk is not None:
            whole, rest = divmod(tokens, self.chunk)
            return float(whole * self.chunk**2 + rest**2)
        growing = tokens if self.cap is None else min(tokens, self.cap * self.ratio)
        capped = 0.0 if self.cap is None else 2.0 * self.cap * (tokens - growing)
        return growing**2 / self.ratio + capped


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopsModel:
    """Counts the FLOPs of a prefill; ``linear`` are those of one token outside of attention."""

    hidden_size: int
    linear: float
    spans: tuple[AttentionSpan, ...]

    def flops(self, tokens: int, prefix_tokens: int = 0) -> float:
        """FLOPs of the tokens from ``prefix_tokens`` to ``tokens``."""
        return self._from_zero(tokens) - self._from_zero(prefix_tokens)

    def _from_zero(self, tokens: int) -> float:
        attention = sum(span.layers * span.pairs(tokens) for span in self.spans)
        return ATTENTION_FLOPS * self.hidden_size * attention + self.linear * tokens


def flops_model(spec: ModelSpec, dims: ComputeDims) -> FlopsModel:
    """The count for a model. A multiplication with an active parameter is two FLOPs.

    The scores of an index are left out: how many heads it has is not in the model's description.
    """
    layers = len(spec.layers)
    linear = (
        LINEAR_FLOPS * layers * dims.hidden_size**2
        if dims.active_parameters is None
        else 2 * dims.active_parameters
    )
    alike = Counter(_spans(spec))  # a model has dozens of layers of two or three kinds
    spans = tuple(replace(span, layers=number) for span, number in alike.items())
    return FlopsModel(hidden_size=dims.hidden_size, linear=float(linear), spans=spans)


def _spans(spec: ModelSpec) -> Iterator[AttentionSpan]:
    for names in spec.layers:
        attentions = [spec.attentions[name] for name in names]
        selected = None
        for attention in attentions:
            if isinstance(attention, SparseIndex):
                selected = attention.top_k
            elif isinstance(attention, BlockIndex):
                selected = attention.top_k * attention.block_tokens
        for attention in attentions:
            if isinstance(attention, (FullAttention, MlaAttention)):
                yield AttentionSpan(layers=1, cap=selected)
            elif isinstance(attention, (SlidingWindow, LatentWindow)):
                yield AttentionSpan(layers=1, cap=attention.window)
            elif isinstance(attention, ChunkedAttention):
                yield AttentionSpan(layers=1, chunk=attention.chunk)
            elif isinstance(attention, CompressedAttention):
                yield AttentionSpan(layers=1, cap=attention.index_top_k, ratio=attention.ratio)
