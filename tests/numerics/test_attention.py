"""Oracle: the layer's own keys and values, as its cache holds them, in one masked softmax in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.models.spec import ChunkedAttention, FullAttention, HeadedAttention, SlidingWindow
from hicache_bench.numerics.attention import QUERY_GROUP, HeadedReference
from hicache_bench.numerics.blocks import Weights, normalized, rotated
from hicache_bench.numerics.cache import PagedCache, Prompt
from hicache_bench.numerics.rows import KeyValueRows
from hicache_bench.pools.geometry import kv_components
from hicache_bench.pools.names import AttentionType
from tests.pool_builders import pool

WIDTH, HEADS, DIM, V_DIM = 16, 2, 8, 4


class Layer:
    """One reference over its own cache of 64 tokens."""

    def __init__(self, attention: HeadedAttention, page_tokens: int = 8, dtype: str = "fp32") -> None:
        components = kv_components(
            num_layers=1, kv_heads=HEADS, head_dim=DIM, v_head_dim=V_DIM, page_tokens=page_tokens, dtype=dtype
        )
        described = pool(
            "kv", AttentionType.FULL, page_tokens=page_tokens, components=components, dtype=dtype
        )
        self.part = HeadedReference(attention, described, 0, Weights(3, "layer"), WIDTH)
        self.cache = PagedCache.in_memory(described, -(-64 // page_tokens))
        self.prompt = Prompt({"kv": self.cache})
        self.dtype = dtype

    def forward(self, hidden: np.ndarray, start: int = 0) -> np.ndarray:
        return self.part.forward(hidden, hidden, start, self.prompt)

    def oracle(self, hidden: np.ndarray, oldest: Callable[[int], int]) -> np.ndarray:
        count = len(hidden)
        keys, values = KeyValueRows(self.dtype).read(self.cache, 0, np.arange(count))
        queries = normalized((hidden @ self.part._query).reshape(count, -1, DIM))
        queries = rotated(queries, np.arange(count)).astype(np.float64)
        keys = np.repeat(keys, QUERY_GROUP, axis=1)
        values = np.repeat(values, QUERY_GROUP, axis=1)
        scores = np.einsum("qhd,khd->hqk", queries, keys) / np.sqrt(DIM)
        for query in range(count):
            scores[:, query, query + 1 :] = -np.inf
            scores[:, query, : oldest(query)] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed: np.ndarray = np.einsum("hqk,khd->qhd", weights, values).reshape(count, -1) @ self.part._out
        return mixed


def tokens(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, count]).standard_normal((count, WIDTH)).astype(np.float32)


@given(window=st.integers(1, 70), page_tokens=st.integers(1, 20), count=st.integers(1, 60))
@settings(max_examples=40)
def test_a_window_is_full_attention_under_a_mask(window: int, page_tokens: int, count: int) -> None:
    layer = Layer(SlidingWindow(kv_heads=HEADS, head_dim=DIM, v_head_dim=V_DIM, window=window), page_tokens)
    hidden = tokens(count)
    found = layer.forward(hidden)
    np.testing.assert_allclose(
        found, layer.oracle(hidden, lambda query: max(0, query - window + 1)), atol=1e-5
    )


@given(chunk=st.integers(1, 70), page_tokens=st.integers(1, 20), count=st.integers(1, 60))
@settings(max_examples=40)
def test_a_chunk_starts_at_its_absolute_multiple(chunk: int, page_tokens: int, count: int) -> None:
    layer = Layer(ChunkedAttention(kv_heads=HEADS, head_dim=DIM, v_head_dim=V_DIM, chunk=chunk), page_tokens)
    hidden = tokens(count)
    found = layer.forward(hidden)
    np.testing.assert_allclose(found, layer.oracle(hidden, lambda query: query - query % chunk), atol=1e-5)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "fp8", "fp8_scaled"])
def test_full_attention_reads_what_its_cache_holds(dtype: str) -> None:
    layer = Layer(FullAttention(kv_heads=HEADS, head_dim=DIM, v_head_dim=V_DIM), dtype=dtype)
    hidden = tokens(40)
    found = layer.forward(hidden)
    np.testing.assert_allclose(found, layer.oracle(hidden, lambda _query: 0), atol=1e-5)


def test_a_narrow_dtype_moves_the_outputs_by_about_its_step() -> None:
    hidden = tokens(40)
    full = FullAttention(kv_heads=HEADS, head_dim=DIM, v_head_dim=V_DIM)
    exact = Layer(full).forward(hidden)
    for dtype, step in (("bf16", 2**-8), ("fp8_scaled", 2**-4)):
        error = np.abs(Layer(full, dtype=dtype).forward(hidden) - exact).max()
        assert step / 50 < error < 2 * step


def test_forwards_longer_than_a_block_of_queries_agree_with_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = SlidingWindow(kv_heads=HEADS, head_dim=DIM, v_head_dim=V_DIM, window=9)
    hidden = tokens(40)
    once = Layer(window).forward(hidden)
    monkeypatch.setattr("hicache_bench.numerics.blocks.QUERY_BLOCK", 7)
    np.testing.assert_allclose(once, Layer(window).forward(hidden), atol=1e-5)


def test_positions_count() -> None:
    """The same tokens continued from another place are other tokens."""
    full = FullAttention(kv_heads=HEADS, head_dim=DIM, v_head_dim=V_DIM)
    hidden = tokens(40)
    layer = Layer(full)
    layer.forward(hidden[:16])
    right = layer.forward(hidden[16:20], 16)
    wrong = layer.part.forward(hidden[16:20], hidden[16:20], 12, layer.prompt)
    assert np.abs(right - wrong).max() > 1e-3
