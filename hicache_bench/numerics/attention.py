"""Attention over cached K and V: full, sliding window, chunked; and full attention over selected blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from hicache_bench.models.spec import ChunkedAttention, FullAttention, HeadedAttention, SlidingWindow
from hicache_bench.numerics.blocks import Weights, attend, normalized, query_blocks, rotated
from hicache_bench.numerics.cache import IntArray, Prompt
from hicache_bench.numerics.dtypes import Floats
from hicache_bench.numerics.rows import KeyValueRows
from hicache_bench.numerics.sparse import Selection, TokenSelector
from hicache_bench.pools.descriptor import KVPoolDescriptor

QUERY_GROUP = 2
"""Query heads that share a KV head; it changes no cached byte."""


class HeadedReference:
    """K and V heads of their real dims and number. With a ``selector``, queries see only what it selects."""

    def __init__(
        self,
        attention: HeadedAttention,
        pool: KVPoolDescriptor,
        layer: int,
        weights: Weights,
        width: int,
        *,
        selector: TokenSelector | None = None,
    ) -> None:
        self._attention = attention
        self._pool = pool.name
        self._layer = layer
        self._rows = KeyValueRows(pool.dtype)
        self._selector = selector
        self._key_dim = attention.head_dim
        value_dim = attention.v_head_dim or attention.head_dim
        heads = attention.kv_heads
        self._query = weights.matrix("query", width, QUERY_GROUP * heads * self._key_dim)
        self._key = weights.matrix("key", width, heads * self._key_dim)
        self._value = weights.matrix("value", width, heads * value_dim)
        self._out = weights.matrix("out", QUERY_GROUP * heads * value_dim, width)

    def forward(self, hidden: Floats, inputs: Floats, start: int, prompt: Prompt) -> Floats:
        cache = prompt.caches[self._pool]
        count = len(hidden)
        positions = np.arange(start, start + count)
        queries = rotated(normalized((hidden @ self._query).reshape(count, -1, self._key_dim)), positions)
        keys = rotated(
            normalized((hidden @ self._key).reshape(count, self._attention.kv_heads, -1)), positions
        )
        values = (hidden @ self._value).reshape(count, self._attention.kv_heads, -1)
        self._rows.write(cache, self._layer, start, keys, values)
        selection = self._selector.select(inputs, start, prompt) if self._selector else None
        tokens = self._visible(start, count, selection)
        keys, values = self._rows.read(cache, self._layer, tokens)
        mixed = np.empty((count, QUERY_GROUP * keys.shape[1], values.shape[-1]), dtype=np.float32)
        for block in query_blocks(count):
            asking = positions[block, None]
            admitted = (tokens <= asking) & (tokens >= self._oldest(asking))
            if selection is not None:
                admitted &= selection.admitted[block][:, tokens]
            mixed[block] = attend(queries[block], keys, values, admitted)
        if selection is not None:
            mixed += selection.taint[:, None, None]
        out: Floats = mixed.reshape(count, -1) @ self._out
        return out

    def _visible(self, start: int, count: int, selection: Selection | None) -> IntArray:
        """The tokens that any query of this forward admits."""
        if selection is not None:
            return np.flatnonzero(selection.admitted.any(axis=0))
        return np.arange(int(self._oldest(np.array(start))), start + count)

    def _oldest(self, positions: IntArray) -> Any:
        """The oldest token that a query at each position admits."""
        match self._attention:
            case FullAttention():
                return np.zeros_like(positions)
            case SlidingWindow(window=window):
                # A window counts the query's own token.
                return np.maximum(positions - window + 1, 0)
            case ChunkedAttention(chunk=chunk):
                return positions // chunk * chunk
