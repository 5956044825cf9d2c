"""Multi-head latent attention (MLA) over one cached row a token, dense or over the tokens of an index."""

from __future__ import annotations

import numpy as np

from hicache_bench.models.spec import MlaAttention
from hicache_bench.numerics.blocks import Mask, Weights, attend, normalized, query_blocks, rotated
from hicache_bench.numerics.cache import Prompt
from hicache_bench.numerics.dtypes import Floats
from hicache_bench.numerics.rows import latent_rows
from hicache_bench.numerics.sparse import TokenSelector
from hicache_bench.pools.descriptor import KVPoolDescriptor

HEADS = 4
HEAD_DIM = 64
"""Dims of a head without rope, for keys and values. Heads share the latent: neither changes a cached byte."""


class MlaReference:
    """Latents of their real dims. ``absorbed`` attends over the latents themselves, as engines decode.

    Otherwise K and V of each head are expanded from the latents first, as engines prefill. Source:
    DeepSeek-V2 technical report, §2.1.2.
    """

    def __init__(
        self,
        attention: MlaAttention,
        pool: KVPoolDescriptor,
        layer: int,
        weights: Weights,
        width: int,
        *,
        selector: TokenSelector | None = None,
        absorbed: bool = True,
    ) -> None:
        self._pool = pool.name
        self._layer = layer
        self._rank = rank = attention.kv_lora_rank
        self._rope = rope = attention.qk_rope_head_dim
        self._rows = latent_rows(pool, rank)
        self._selector = selector
        self._absorbed = absorbed
        self._query = weights.matrix("query", width, HEADS * (HEAD_DIM + rope))
        self._down = weights.matrix("latent", width, rank + rope)
        self._up_key = weights.matrix("up_key", rank, HEADS * HEAD_DIM).reshape(rank, HEADS, HEAD_DIM)
        self._up_value = weights.matrix("up_value", rank, HEADS * HEAD_DIM).reshape(rank, HEADS, HEAD_DIM)
        self._out = weights.matrix("out", HEADS * HEAD_DIM, width)

    def forward(self, hidden: Floats, inputs: Floats, start: int, prompt: Prompt) -> Floats:
        cache = prompt.caches[self._pool]
        count = len(hidden)
        positions = np.arange(start, start + count)
        queries: Floats = normalized((hidden @ self._query).reshape(count, HEADS, -1))
        queries[..., HEAD_DIM:] = rotated(queries[..., HEAD_DIM:], positions)
        latent: Floats = hidden @ self._down
        latent[:, : self._rank] = normalized(latent[:, : self._rank])
        latent[:, self._rank :] = rotated(latent[:, self._rank :], positions)
        self._rows.write(cache, self._layer, start, latent)
        tokens = np.arange(start + count)
        admitted = tokens <= positions[:, None]
        taint = np.zeros(count, dtype=np.float32)
        if self._selector is not None:
            selection = self._selector.select(inputs, start, prompt)
            tokens = np.flatnonzero(selection.admitted.any(axis=0))
            admitted, taint = selection.admitted[:, tokens], selection.taint
        rows = self._rows.read(cache, self._layer, tokens)
        attention = self._attend_absorbed if self._absorbed else self._attend_expanded
        mixed: Floats = attention(queries, rows, admitted) + taint[:, None, None]
        out: Floats = mixed.reshape(count, -1) @ self._out
        return out

    def _attend_absorbed(self, queries: Floats, rows: Floats, admitted: Mask) -> Floats:
        # Per head, (tokens, dims) @ (dims, rank).
        by_head = queries[..., :HEAD_DIM].transpose(1, 0, 2) @ self._up_key.transpose(1, 2, 0)
        absorbed = np.concatenate([by_head.transpose(1, 0, 2), queries[..., HEAD_DIM:]], axis=-1)
        # The scale is that of the head, not of the latent that took its place.
        absorbed *= np.float32(np.sqrt(absorbed.shape[-1] / (HEAD_DIM + self._rope)))
        latents = _attend_blocks(absorbed, rows[:, None], rows[:, None, : self._rank], admitted)
        mixed: Floats = (latents.transpose(1, 0, 2) @ self._up_value.transpose(1, 0, 2)).transpose(1, 0, 2)
        return mixed

    def _attend_expanded(self, queries: Floats, rows: Floats, admitted: Mask) -> Floats:
        latents = rows[:, : self._rank]
        keys = (latents @ self._up_key.reshape(self._rank, -1)).reshape(len(rows), HEADS, HEAD_DIM)
        values = (latents @ self._up_value.reshape(self._rank, -1)).reshape(len(rows), HEADS, HEAD_DIM)
        shared = np.broadcast_to(rows[:, None, self._rank :], (len(rows), HEADS, self._rope))
        return _attend_blocks(queries, np.concatenate([keys, shared], axis=-1), values, admitted)


def _attend_blocks(queries: Floats, keys: Floats, values: Floats, admitted: Mask) -> Floats:
    mixed = [attend(queries[block], keys, values, admitted[block]) for block in query_blocks(len(queries))]
    return np.concatenate(mixed)
