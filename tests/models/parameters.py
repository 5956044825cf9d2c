"""Counts the parameters that multiply one token, layer by layer, from a preset and its published dimensions.

Without embeddings and the output layer (a prefill applies that one to a single token), norms and biases.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hicache_bench.models.spec import (
    Attention,
    BlockIndex,
    ChunkedAttention,
    CompressedAttention,
    FullAttention,
    GatedDelta,
    KimiDelta,
    LatentWindow,
    Lightning,
    Mamba1,
    Mamba2,
    MlaAttention,
    ModelSpec,
    SlidingWindow,
    SparseIndex,
)

DIMS: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[1] / "golden" / "compute_dims.yaml").read_text()
)


def count(spec: ModelSpec, dims: dict[str, Any]) -> int:
    """Parameters of the linear maps that a token goes through."""
    attention = sum(
        of_attention(spec.attentions[name], name, dims) for layer in spec.layers for name in layer
    )
    streams = dims.get("residual_streams", 0)
    # DeepSeek V4 mixes its streams before attention and before the experts of each layer.
    mixing = 2 * len(spec.layers) * (2 + streams) * streams**2 * dims["hidden_size"]
    feed_forward = sum(of_feed_forward(layer, dims) for layer in dims["feed_forward"])
    return int(attention + mixing + feed_forward)


def of_feed_forward(layer: dict[str, int], dims: dict[str, Any]) -> int:
    width = layer["width"] * layer.get("per_token", 1) + layer.get("shared_width", 0)
    router = layer.get("experts", 0)
    return int(layer["layers"] * dims["hidden_size"] * (layer.get("matrices", 3) * width + router))


def of_attention(attention: Attention, name: str, dims: dict[str, Any]) -> int:
    d = dims["hidden_size"]
    if isinstance(attention, (FullAttention, SlidingWindow, ChunkedAttention)):
        heads, v_dim = dims["query_heads"][name], attention.v_head_dim or attention.head_dim
        gate = {"channel": heads * v_dim, "head": heads}.get(dims.get("output_gate", ""), 0)
        keys_and_values = attention.kv_heads * (attention.head_dim + v_dim)
        return int(d * (heads * attention.head_dim + keys_and_values + heads * v_dim + gate))
    if isinstance(attention, MlaAttention):
        return of_mla(attention, dims["query_heads"][name], dims)
    if isinstance(attention, SparseIndex):
        return of_index(attention.index_head_dim, dims) + int(d * attention.index_head_dim)
    if isinstance(attention, BlockIndex):
        return int(d * (dims["index_heads"] + 1) * attention.index_head_dim)
    if isinstance(attention, (LatentWindow, CompressedAttention)):
        return of_deepseek_v4(attention, name, dims)
    return of_recurrent(attention, dims)


def of_index(head_dim: int, dims: dict[str, Any]) -> int:
    """Queries of an index, from the compressed queries, and the weights of its heads; its keys are apart."""
    return int(dims["index_heads"] * (dims["q_lora_rank"] * head_dim + dims["hidden_size"]))


def of_mla(attention: MlaAttention, heads: int, dims: dict[str, Any]) -> int:
    d, rank, nope = dims["hidden_size"], dims.get("q_lora_rank"), dims["qk_nope_head_dim"]
    width = heads * (nope + attention.qk_rope_head_dim)
    queries = (d + width) * rank if rank else d * width
    down = d * (attention.kv_lora_rank + attention.qk_rope_head_dim)
    up = attention.kv_lora_rank * heads * (nope + dims["v_head_dim"])
    return int(queries + down + up + heads * dims["v_head_dim"] * d)


def of_deepseek_v4(attention: LatentWindow | CompressedAttention, name: str, dims: dict[str, Any]) -> int:
    d, width = dims["hidden_size"], attention.nope_dim + attention.rope_dim
    if isinstance(attention, LatentWindow):
        queries = dims["query_heads"][name] * width
        into = d * dims["q_lora_rank"] + dims["q_lora_rank"] * queries + d * width
        return int(into + dims["o_lora_rank"] * (queries + dims["o_groups"] * d))
    if attention.index_head_dim is None:
        return int(2 * d * width)
    # Rows overlap, so keys and gates are two wide; the index pools its keys in the same way.
    return int(4 * d * (width + attention.index_head_dim)) + of_index(attention.index_head_dim, dims)


def of_recurrent(attention: Attention, dims: dict[str, Any]) -> int:
    d = dims["hidden_size"]
    if isinstance(attention, Mamba1):
        rank, inner = dims["dt_rank"], attention.inner_dim
        return int(3 * d * inner + inner * (rank + 2 * attention.state_dim) + rank * inner)
    if isinstance(attention, Mamba2):
        inner = attention.heads * attention.head_dim
        return int(d * (3 * inner + 2 * attention.groups * attention.state_dim + attention.heads))
    if isinstance(attention, GatedDelta):
        keys, values = attention.key_heads * attention.key_dim, attention.value_heads * attention.value_dim
        return int(d * (2 * keys + 3 * values + 2 * attention.value_heads))
    if isinstance(attention, KimiDelta):
        # Its two gates go through one head's width.
        inner = attention.heads * attention.head_dim
        return int(4 * d * inner + d * attention.heads + 2 * attention.head_dim * (d + inner))
    assert isinstance(attention, Lightning)
    return int(5 * d * attention.heads * attention.head_dim)
