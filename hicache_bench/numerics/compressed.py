"""DeepSeek V4: a window of latent rows, and rows pooled over groups of tokens, with or without an index.

Source: transformers 5.24 ``modeling_deepseek_v4`` for the pooling and the order of its two halves; SGLang
0.5.23 ``deepseek_v4_compress_state`` for the ring. One latent is key and value; its last dims carry rope.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hicache_bench.models.spec import CompressedAttention, LatentWindow
from hicache_bench.numerics.blocks import Weights, attend, normalized, query_blocks, rotated
from hicache_bench.numerics.cache import IntArray, Prompt, RowCache
from hicache_bench.numerics.dtypes import Floats, decode, encode
from hicache_bench.numerics.rows import LatentPageRows, Rows, index_rows
from hicache_bench.numerics.sparse import Doubles, IndexScores, Selection, top_rows
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import V4_STATE_RING

HEADS = 4
"""Query heads over the one latent head; their number changes no cached byte."""


@dataclass(frozen=True, slots=True)
class CompressedPools:
    """Where a compressed attention caches its rows, its index keys, and the rings of both compressors.

    ``layer`` counts the layers of this attention, which is the layer axis of each of them. A pool that the
    engine does not have (no index; no ring, where a page holds whole groups) is None.
    """

    layer: int
    rows: KVPoolDescriptor
    index: KVPoolDescriptor | None = None
    ring: KVPoolDescriptor | None = None
    index_ring: KVPoolDescriptor | None = None


class Compressor:
    """One row for every ``ratio`` tokens: a softmax over the group, dim by dim, of gated projections.

    With ``overlap`` a token has two projections: one for its own group's row, one for the next group's. The
    projections of the last tokens are the running state, a ring by position; where the pools keep none
    (``ring`` None) it lives on the device alone. Sums are float64: see ``sparse``.
    """

    def __init__(
        self,
        *,
        ratio: int,
        dim: int,
        rope_dim: int,
        rows: Rows,
        pool: KVPoolDescriptor,
        ring: KVPoolDescriptor | None,
        layer: int,
        weights: Weights,
        width: int,
        topical: bool = False,
    ) -> None:
        self._ratio = ratio
        self._dim = dim
        self._rope_dim = rope_dim
        self._rows = rows
        self._pool = pool.name
        self._layer = layer
        self._ring_pool = ring.name if ring else f"{pool.name}_state"
        self._overlap = ring is not None
        self._ring_size = V4_STATE_RING if ring else ratio
        columns = 2 * (1 + self._overlap) * dim
        self._project = (
            weights.topical_matrix("compress", width, columns)
            if topical
            else weights.matrix("compress", width, columns).astype(np.float64)
        )
        self._bias = weights.normal("group_position", ratio * (1 + self._overlap), dim).astype(np.float64)

    @property
    def own_projection(self) -> Doubles:
        """The matrix of a token's share in its own group's row."""
        # Values come before gates, and within them the share of the next group before that of the own.
        values = self._project[:, : self._project.shape[1] // 2]
        return values[:, -self._dim :]

    def append(self, values: Floats, start: int, prompt: Prompt) -> None:
        """Take in the tokens from ``start`` on, and write the rows of the groups that they complete."""
        stop = start + len(values)
        ring = np.zeros((self._ring_size, self._project.shape[1]), dtype=np.float32)
        if self._overlap or start % self._ratio:
            ring = prompt.state(self._ring_pool, self._layer, start, fresh=ring, load=self._load)
        new = values.astype(np.float64) @ self._project
        # Rounded as the ring holds it, so that a restored ring and a running one are the same.
        new = new.astype(np.float32)
        oldest = max(0, start - start % self._ratio - self._overlap * self._ratio)
        history = ring[np.arange(oldest, start) % self._ring_size]
        entries = np.concatenate([history, new])
        self._write_rows(entries, oldest, start, stop, prompt.caches[self._pool])
        self._keep_rings(entries, oldest, start, stop, ring, prompt)

    def read(self, prompt: Prompt, rows: IntArray) -> Floats:
        """The named rows, of shape ``(rows, dim)``."""
        return self._rows.read(prompt.caches[self._pool], self._layer, rows)

    def _write_rows(self, entries: Floats, oldest: int, start: int, stop: int, cache: RowCache) -> None:
        first, last = start // self._ratio, stop // self._ratio
        if first == last:
            return
        values, gates = np.split(entries.astype(np.float64), 2, axis=1)
        groups = np.arange(first, last)
        own = groups[:, None] * self._ratio + np.arange(self._ratio) - oldest
        pooled, scores = values[own], gates[own]
        if self._overlap:
            # The first half of a projection is for the next group, the second for the token's own.
            before = np.maximum(own - self._ratio, 0)
            missing = (groups == 0)[:, None, None]
            older = np.where(missing, -np.inf, _half(gates[before], 0))
            pooled = np.concatenate([_half(values[before], 0), _half(pooled, 1)], axis=1)
            scores = np.concatenate([older, _half(scores, 1)], axis=1)
        scores = scores + self._bias
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        rows = normalized((weights * pooled).sum(axis=1) / weights.sum(axis=1))
        plain = self._dim - self._rope_dim
        turned = rotated(rows[:, plain:], groups * self._ratio)
        self._rows.write(cache, self._layer, first, np.concatenate([rows[:, :plain], turned], axis=1))

    def _keep_rings(
        self, entries: Floats, oldest: int, start: int, stop: int, ring: Floats, prompt: Prompt
    ) -> None:
        """The ring after the last token; and, where a pool has rings, after each page that ends here."""
        prompt.keep(self._ring_pool, self._layer, stop, self._ring_at(stop, entries, oldest, ring))
        cache = prompt.caches.get(self._ring_pool)
        if cache is None:
            return
        for page in range(start // cache.page_tokens, stop // cache.page_tokens):
            if cache.holds(page):
                state = self._ring_at((page + 1) * cache.page_tokens, entries, oldest, ring)
                cache.write_page("page", self._layer, page, encode(state, "fp32").ravel())

    def _ring_at(self, stop: int, entries: Floats, oldest: int, ring: Floats) -> Floats:
        state = ring.copy()
        positions = np.arange(max(oldest, stop - self._ring_size), stop)
        state[positions % self._ring_size] = entries[positions - oldest]
        return state

    def _load(self, cache: RowCache, page: int) -> Floats:
        content = cache.read_pages("page", self._layer, np.array([page]))[0]
        return decode(content, "fp32").reshape(self._ring_size, -1)


class CompressedRows:
    """The compressed rows of one layer, and which of them each query reads."""

    def __init__(
        self, attention: CompressedAttention, pools: CompressedPools, weights: Weights, width: int
    ) -> None:
        self._ratio = attention.ratio
        self._top_k = attention.index_top_k
        rows_per_page = pools.rows.unit_tokens // attention.ratio
        self._compressor = Compressor(
            ratio=attention.ratio,
            dim=attention.latent_dim,
            rope_dim=attention.rope_dim,
            rows=LatentPageRows(rows_per_page),
            pool=pools.rows,
            ring=pools.ring,
            layer=pools.layer,
            weights=weights,
            width=width,
        )
        self._index: Compressor | None = None
        if pools.index is not None and attention.index_head_dim is not None:
            self._index = Compressor(
                ratio=attention.ratio,
                dim=attention.index_head_dim,
                rope_dim=0,
                rows=index_rows(pools.index, attention.index_head_dim, attention.ratio),
                pool=pools.index,
                ring=pools.index_ring,
                layer=pools.layer,
                weights=weights.within("index"),
                width=width,
                topical=True,
            )
            self._scores = IndexScores(self._index.own_projection, weights)

    def select(self, inputs: Floats, start: int, prompt: Prompt) -> Selection:
        """The rows that each query at ``start...`` reads; index keys of these tokens are appended."""
        ends = (np.arange(start, start + len(inputs)) + 1) // self._ratio
        num_rows = int(ends[-1])
        if self._index is None or self._top_k is None:
            return Selection(np.arange(num_rows) < ends[:, None], np.zeros(len(inputs), dtype=np.float32))
        self._index.append(inputs, start, prompt)
        keys = self._index.read(prompt, np.arange(num_rows))
        return top_rows(lambda block: self._scores(inputs[block], keys), ends, self._top_k)

    def append(self, hidden: Floats, start: int, prompt: Prompt) -> None:
        """Pool the tokens from ``start`` on into rows."""
        self._compressor.append(hidden, start, prompt)

    def read(self, prompt: Prompt, rows: IntArray) -> Floats:
        """The named rows."""
        return self._compressor.read(prompt, rows)


class LatentWindowReference:
    """Attention over the latents of a window and, where there are any, over compressed rows."""

    def __init__(
        self,
        attention: LatentWindow,
        pool: KVPoolDescriptor,
        layer: int,
        weights: Weights,
        width: int,
        *,
        compressed: CompressedRows | None = None,
    ) -> None:
        self._window = attention.window
        self._plain = attention.nope_dim
        self._pool = pool.name
        self._layer = layer
        self._rows = LatentPageRows(pool.unit_tokens)
        self._compressed = compressed
        dim = attention.nope_dim + attention.rope_dim
        self._query = weights.matrix("query", width, HEADS * dim)
        self._latent = weights.matrix("latent", width, dim)
        self._out = weights.matrix("out", HEADS * dim, width)

    def forward(self, hidden: Floats, inputs: Floats, start: int, prompt: Prompt) -> Floats:
        cache = prompt.caches[self._pool]
        count = len(hidden)
        positions = np.arange(start, start + count)
        queries = self._turned(normalized((hidden @ self._query).reshape(count, HEADS, -1)), positions)
        latents = self._turned(normalized(hidden @ self._latent), positions)
        self._rows.write(cache, self._layer, start, latents)
        tokens = np.arange(max(0, start - self._window + 1), start + count)
        rows = self._rows.read(cache, self._layer, tokens)
        admitted = (tokens <= positions[:, None]) & (tokens > positions[:, None] - self._window)
        taint = np.zeros(count, dtype=np.float32)
        if self._compressed is not None:
            selection = self._compressed.select(inputs, start, prompt)
            self._compressed.append(hidden, start, prompt)
            chosen = np.flatnonzero(selection.admitted.any(axis=0))
            rows = np.concatenate([rows, self._compressed.read(prompt, chosen)])
            admitted = np.concatenate([admitted, selection.admitted[:, chosen]], axis=1)
            taint = selection.taint
        keys = rows[:, None]
        mixed = [attend(queries[block], keys, keys, admitted[block]) for block in query_blocks(count)]
        # The latent is a value too, and brought its position along: the output turns back by the query's own.
        turned: Floats = self._turned(np.concatenate(mixed), positions, back=True)
        turned = turned + taint[:, None, None]
        out: Floats = turned.reshape(count, -1) @ self._out
        return out

    def _turned(self, values: Floats, positions: Any, *, back: bool = False) -> Floats:
        plain = values[..., : self._plain]
        return np.concatenate([plain, rotated(values[..., self._plain :], positions, back=back)], axis=-1)


def _half(values: Doubles, half: int) -> Doubles:
    dim = values.shape[-1] // 2
    return values[..., half * dim : (half + 1) * dim]
