"""Index keys and what queries select by them: tokens, blocks of tokens, or rows of a compressed pool.

Keys and queries of an index come from the tokens' inputs, not from the layers before, and scores are summed
in float64. What a prompt selects is then a function of its tokens and of the index alone: it can be computed
before any K or V is read (the two phases of a selective restore), and it is the same whether a prompt is
computed at once or continued from a restore. Otherwise a score that is nearly a tie would fall either way,
and a right restore could not be told from a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hicache_bench.models.spec import BlockIndex, SparseIndex
from hicache_bench.numerics.blocks import Mask, Weights, normalized, query_blocks
from hicache_bench.numerics.cache import Prompt
from hicache_bench.numerics.dtypes import Floats
from hicache_bench.numerics.rows import Rows, index_rows
from hicache_bench.pools.descriptor import KVPoolDescriptor

Doubles = npt.NDArray[np.float64]
INDEX_HEADS = 4
"""Query heads of an index; they share one key, so that their number changes no cached byte."""


@dataclass(frozen=True, slots=True)
class Selection:
    """``admitted[q, row]``: whether query ``q`` reads ``row``. ``taint`` is NaN for a query without scores.

    An index key that is NaN cannot be ranked; the query's output must then be NaN, since what it would have
    selected is unknown. Else ``taint`` is 0.
    """

    admitted: Mask
    taint: Floats


class TokenSelector(Protocol):
    """What chooses the rows of a pool that a layer's queries read: tokens, or compressed groups of them."""

    def select(self, inputs: Floats, start: int, prompt: Prompt) -> Selection:
        """The choice of each query at ``start...``; keys of these tokens are appended to the index."""


class IndexScores:
    """``sum over heads of w_h * relu(q_h . k)`` for each query and index key.

    ``key`` is the ``(width, head_dim)`` matrix of the index keys: queries are near it, and weights positive,
    so that a token asks for those of its own topic first. Source: DeepSeek-V3.2 technical report, eq. 1 (the
    lightning indexer).
    """

    def __init__(self, key: Doubles, weights: Weights) -> None:
        width, self._head_dim = key.shape
        near = weights.topical_matrix("index_query", width, INDEX_HEADS * self._head_dim)
        self._query = np.tile(key, INDEX_HEADS) + near / 2
        self._weight = weights.topical_matrix("index_weight", width, INDEX_HEADS)

    def __call__(self, inputs: Floats, keys: Floats) -> Doubles:
        doubles = inputs.astype(np.float64)
        queries = (doubles @ self._query).reshape(len(inputs), INDEX_HEADS, self._head_dim)
        weights = np.logaddexp(0, doubles @ self._weight)
        columns = np.ascontiguousarray(keys.astype(np.float64).T)
        scores: Doubles = np.zeros((len(inputs), len(keys)))
        for head in range(INDEX_HEADS):
            scores += weights[:, head, None] * np.maximum(queries[:, head] @ columns, 0)
        return scores


class SparseIndexReference:
    """An index over tokens: each query reads the ``top_k`` tokens of the highest scores, up to itself."""

    def __init__(
        self, attention: SparseIndex, pool: KVPoolDescriptor, layer: int, weights: Weights, width: int
    ) -> None:
        self._top_k = attention.top_k
        self._keys = _TokenKeys(attention, pool, layer, weights, width)

    def select(self, inputs: Floats, start: int, prompt: Prompt) -> Selection:
        self._keys.append(inputs, start, prompt)
        num_tokens = start + len(inputs)
        ends = np.arange(start, num_tokens) + 1
        return top_rows(self._keys.scores(inputs, num_tokens, prompt), ends, self._top_k)


class BlockIndexReference:
    """An index over blocks of tokens: a block's score is that of its best token; the query's own is read too.

    Source: transformers 5.24 ``MiniMaxM3VLIndexer`` with ``index_local_blocks`` 1; the scores of index heads
    are summed, so that all KV heads read the same blocks.
    """

    def __init__(
        self, attention: BlockIndex, pool: KVPoolDescriptor, layer: int, weights: Weights, width: int
    ) -> None:
        self._block = attention.block_tokens
        self._top_k = attention.top_k
        self._keys = _TokenKeys(attention, pool, layer, weights, width)

    def select(self, inputs: Floats, start: int, prompt: Prompt) -> Selection:
        self._keys.append(inputs, start, prompt)
        num_tokens = start + len(inputs)
        positions = np.arange(start, num_tokens)
        num_blocks = -(-num_tokens // self._block)
        token_scores = self._keys.scores(inputs, num_tokens, prompt)

        def scores(block: slice) -> Doubles:
            found = np.full((len(positions[block]), num_blocks * self._block), -np.inf)
            causal = np.arange(num_tokens) <= positions[block, None]
            found[:, :num_tokens] = np.where(causal, token_scores(block), -np.inf)
            best: Doubles = found.reshape(len(found), num_blocks, self._block).max(axis=-1)
            own = positions[block] // self._block
            # A NaN must not hide behind the query's own block, which is always read.
            rows = np.arange(len(own))
            best[rows, own] = np.where(np.isnan(best[rows, own]), np.nan, np.inf)
            return best

        blocks = top_rows(scores, positions // self._block + 1, self._top_k)
        admitted = np.repeat(blocks.admitted, self._block, axis=1)[:, :num_tokens]
        return Selection(admitted & (np.arange(num_tokens) <= positions[:, None]), blocks.taint)


class _TokenKeys:
    """One index key a token, in its pool."""

    def __init__(
        self,
        attention: SparseIndex | BlockIndex,
        pool: KVPoolDescriptor,
        layer: int,
        weights: Weights,
        width: int,
    ) -> None:
        self._pool = pool.name
        self._layer = layer
        self._rows: Rows = index_rows(pool, attention.index_head_dim)
        self._key = weights.topical_matrix("index_key", width, attention.index_head_dim)
        self._scores = IndexScores(self._key, weights)

    def append(self, inputs: Floats, start: int, prompt: Prompt) -> None:
        keys = normalized(inputs.astype(np.float64) @ self._key)
        self._rows.write(prompt.caches[self._pool], self._layer, start, keys)

    def scores(self, inputs: Floats, num_tokens: int, prompt: Prompt) -> Callable[[slice], Doubles]:
        keys = self._rows.read(prompt.caches[self._pool], self._layer, np.arange(num_tokens))
        return lambda block: self._scores(inputs[block], keys)


def top_rows(scores: Callable[[slice], Doubles], ends: npt.NDArray[Any], top_k: int) -> Selection:
    """The ``top_k`` rows of the highest scores before each query's end; of equal ones, the older.

    ``scores(block)`` gives the scores of a block of queries over all rows.
    """
    admitted, taint = [], []
    for block in query_blocks(len(ends)):
        found = scores(block)
        causal = np.arange(found.shape[1]) < ends[block, None]
        unknown = (np.isnan(found) & causal).any(axis=1)
        found = np.where(causal & ~np.isnan(found), found, -np.inf)
        if found.shape[1] > top_k:
            least = np.partition(found, -top_k, axis=1)[:, -top_k, None]
            above = found > least
            equal = found == least
            room = top_k - above.sum(axis=1, keepdims=True)
            causal &= above | (equal & (np.cumsum(equal, axis=1) <= room))
        admitted.append(causal)
        taint.append(np.where(unknown, np.float32(np.nan), np.float32(0)))
    return Selection(np.concatenate(admitted), np.concatenate(taint))
