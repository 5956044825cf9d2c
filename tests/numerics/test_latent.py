from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.models.spec import MlaAttention
from hicache_bench.numerics.blocks import normalized, rotated
from hicache_bench.numerics.cache import Prompt
from hicache_bench.numerics.latent import HEAD_DIM, HEADS
from hicache_bench.numerics.rows import PlainRows
from tests.numerics.rig import MODELS, Rig, model_spec


@pytest.mark.parametrize("name", ["mla", "sparse", "shared index"])
@given(seed=st.integers(0, 1000), num_tokens=st.integers(1, 70))
@settings(max_examples=10)
def test_absorbed_and_expanded_projections_agree(name: str, seed: int, num_tokens: int) -> None:
    absorbed = Rig(MODELS[name], num_tokens, seed=seed).whole()
    expanded = Rig(MODELS[name], num_tokens, seed=seed, absorbed=False).whole()
    np.testing.assert_allclose(absorbed, expanded, atol=5e-3)


@pytest.mark.parametrize("absorbed", [True, False])
def test_mla_is_a_masked_softmax_over_expanded_heads(absorbed: bool) -> None:
    """Oracle: head by head, in float64, from the rows that the cache holds."""
    rig = Rig(model_spec(("mla",), kv_dtype="fp32"), 30, absorbed=absorbed)
    part = rig.part()
    caches = rig.caches()
    hidden = normalized(rig.inputs)
    found = part.forward(hidden, rig.inputs, 0, Prompt(caches))
    rows = PlainRows("fp32").read(caches["kv"], 0, np.arange(30)).astype(np.float64)
    queries = normalized((hidden @ part._query).reshape(30, HEADS, -1))
    mixed = []
    for head in range(HEADS):
        keys = np.concatenate([rows[:, :128] @ part._up_key[:, head], rows[:, 128:]], axis=1)
        asking = np.concatenate(
            [queries[:, head, :HEAD_DIM], rotated(queries[:, head, HEAD_DIM:], np.arange(30))], axis=1
        )
        scores = asking @ keys.T / np.sqrt(HEAD_DIM + 16)
        scores[np.triu_indices(30, 1)] = -np.inf
        weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        mixed.append(weights @ (rows[:, :128] @ part._up_value[:, head]))
    np.testing.assert_allclose(found, np.concatenate(mixed, axis=1) @ part._out, atol=1e-4)


def test_packed_rows_move_the_outputs_by_about_the_step_of_fp8() -> None:
    wide = {"mla": MlaAttention(kv_lora_rank=512, qk_rope_head_dim=64)}
    exact, packed = (
        Rig(model_spec(("mla",), kv_dtype=dtype, attentions=wide), 40).whole()
        for dtype in ("fp32", "fp8_packed")
    )
    assert 1e-3 < np.abs(exact - packed).max() < 2**-3


def test_both_ways_cache_the_same_bytes() -> None:
    caches = [Rig(MODELS["mla"], 40, absorbed=absorbed).prefix(5)["kv"] for absorbed in (True, False)]
    first, second = (cache.read_rows("k", 0, np.arange(40)) for cache in caches)
    np.testing.assert_array_equal(first, second)
