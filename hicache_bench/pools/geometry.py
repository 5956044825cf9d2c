"""Bytes of one page of one pool, from the dimensions of its layers.

Every function returns the pool's :class:`Component` objects for **one** tensor-parallel rank. The formulas
are those of SGLang 0.5.23's host-pool classes; ``tests/golden`` holds what these classes print, and
``tests/pools/test_geometry.py`` compares each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from hicache_bench.errors import ConfigError

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1}
"""Bytes of one element. ``fp8`` is e4m3 without scales inside the cache."""

PACKED_FP8_MLA_ROW_BYTES = 656
"""One token of one MLA layer with scales inline: 512 fp8 + 512/128 fp32 scales + 64 bf16 rope dims.
Source: SGLang 0.5.23 ``MLATokenToKVPoolHost`` with ``kv_cache_dim`` 656 (golden file, DeepSeek-V3.2 fp8)."""

V4_ROW_BYTES = 584
"""One cached row of DeepSeek V4: 448 fp8 + 64 bf16 rope dims + 7 scales + 1 pad byte.
Source: SGLang 0.5.23 ``DeepSeekV4PagedHostPool``."""

V4_ROW_DIMS = (448, 64)
"""Dims without and with rope that such a row holds."""

V4_ROW_ALIGNMENT = 576
"""A layer's rows of one page are padded to a multiple of this. Source: as :data:`V4_ROW_BYTES`."""

V4_STATE_RING = 8
"""Ring slots of a compressor state without speculative decoding (16 with). Source: SGLang 0.5.23
``DeepSeekV4StateHostPool``."""


@dataclass(frozen=True, slots=True)
class Component:
    """One object of a page: ``num_layers`` x ``rows`` x ``row_bytes`` bytes on this rank.

    ``rows`` are tokens (or compressed slots) of one layer in one page; a state, and a page whose layers are
    padded as a whole, has one row. ``heads`` splits a row for the head-outer layout.
    """

    name: str
    num_layers: int
    rows: int
    row_bytes: int
    heads: int = 1

    @property
    def object_bytes(self) -> int:
        """Bytes of the stored object; 0 means that it is neither stored nor keyed."""
        return self.num_layers * self.rows * self.row_bytes


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element of ``dtype``.

    Raises:
        ConfigError: an unknown dtype.
    """
    if dtype not in DTYPE_BYTES:
        raise ConfigError(f"unknown dtype {dtype!r}; allowed: {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]


def heads_per_rank(kv_heads: int, tp_size: int) -> int:
    """KV heads that one rank holds: ``kv_heads/tp``, at least one (fewer heads than ranks are replicated).

    Raises:
        ConfigError: heads and ranks do not divide.
    """
    if kv_heads % tp_size and tp_size % kv_heads:
        raise ConfigError(
            f"{kv_heads} KV heads cannot be split over TP {tp_size}; one must be a multiple of the other"
        )
    return max(1, kv_heads // tp_size)


def kv_components(
    *,
    num_layers: int,
    kv_heads: int,
    head_dim: int,
    page_tokens: int,
    dtype: str,
    v_head_dim: int | None = None,
    external_scales: bool = False,
    tp_size: int = 1,
) -> tuple[Component, ...]:
    """``k`` and ``v`` of full, sliding or chunked attention: ``P·L·heads·head_dim·E`` bytes each.

    ``external_scales`` adds a ``scale`` component: one fp32 per token, layer and head for K and for V.
    """
    heads = heads_per_rank(kv_heads, tp_size)
    size = dtype_bytes(dtype)
    components = [
        Component("k", num_layers, page_tokens, heads * head_dim * size, heads),
        Component("v", num_layers, page_tokens, heads * (v_head_dim or head_dim) * size, heads),
    ]
    if external_scales:
        components.append(Component("scale", num_layers, page_tokens, heads * 4 * 2, heads))
    return tuple(components)


def mla_components(
    *, num_layers: int, kv_lora_rank: int, qk_rope_head_dim: int, page_tokens: int, dtype: str
) -> tuple[Component, ...]:
    """The MLA latent, one object: ``P·L·(kv_lora_rank+qk_rope_head_dim)·E``, or ``P·L·656`` packed.

    Raises:
        ConfigError: ``fp8_packed`` for dims other than 512 + 64, which is all that the format describes.
    """
    if dtype == "fp8_packed":
        if (kv_lora_rank, qk_rope_head_dim) != (512, 64):
            raise ConfigError(
                f"fp8_packed rows exist for MLA dims 512+64 only, not {kv_lora_rank}+{qk_rope_head_dim}; "
                "use bf16 or fp8"
            )
        row_bytes = PACKED_FP8_MLA_ROW_BYTES
    else:
        row_bytes = (kv_lora_rank + qk_rope_head_dim) * dtype_bytes(dtype)
    return (Component("k", num_layers, page_tokens, row_bytes),)


def index_row_bytes(index_head_dim: int, dtype: str) -> int:
    """Bytes of one index key with its fp32 scale per 128 dims: 132 (fp8) or 68 (fp4) for 128 dims.

    Raises:
        ConfigError: an unknown index dtype, or dims that are not whole scale groups.
    """
    if index_head_dim % 128:
        raise ConfigError(f"index_head_dim {index_head_dim} is not a multiple of 128, the scale group")
    if dtype not in ("fp8", "fp4"):
        raise ConfigError(f"unknown index dtype {dtype!r}; allowed: fp8, fp4")
    return index_head_dim // (1 if dtype == "fp8" else 2) + index_head_dim // 128 * 4


def index_components(
    *, num_layers: int, index_head_dim: int, page_tokens: int, dtype: str = "fp8"
) -> tuple[Component, ...]:
    """Index keys of sparse attention, one object; a layer's keys precede its scales within a page."""
    return (Component("page", num_layers, 1, page_tokens * index_row_bytes(index_head_dim, dtype)),)


def state_components(
    *,
    num_layers: int,
    temporal_shape: tuple[int, ...],
    conv_shapes: tuple[tuple[int, ...], ...],
    temporal_dtype: str,
    conv_dtype: str,
) -> tuple[Component, ...]:
    """``temporal`` and ``conv_i`` of one recurrent state; the shapes are those of this rank."""
    temporal = prod(temporal_shape) * dtype_bytes(temporal_dtype) if temporal_shape else 0
    convs = [prod(shape) * dtype_bytes(conv_dtype) if shape else 0 for shape in conv_shapes]
    return (
        Component("temporal", num_layers, 1, temporal),
        *(Component(f"conv_{i}", num_layers, 1, size) for i, size in enumerate(convs)),
    )


def compressed_components(*, num_layers: int, ratio: int, page_tokens: int) -> tuple[Component, ...]:
    """Rows of DeepSeek V4, one per ``ratio`` tokens (1 for its sliding window), padded per layer.

    Raises:
        ConfigError: a page that does not hold whole compression groups.
    """
    if page_tokens % ratio:
        raise ConfigError(
            f"a page of {page_tokens} tokens does not hold whole groups of {ratio}; "
            f"use a page size that is a multiple of {ratio}"
        )
    rows_bytes = page_tokens // ratio * V4_ROW_BYTES
    return (Component("page", num_layers, 1, ceil(rows_bytes / V4_ROW_ALIGNMENT) * V4_ROW_ALIGNMENT),)


def compressor_state_components(*, num_layers: int, dim: int, overlap: bool) -> tuple[Component, ...]:
    """fp32 ring of a compressor's running state: ``ring·2·(1+overlap)·dim·4`` bytes per layer and page."""
    return (Component("page", num_layers, 1, V4_STATE_RING * 2 * (1 + overlap) * dim * 4),)


def gdn_state_shapes(
    *, key_heads: int, value_heads: int, key_dim: int, value_dim: int, conv_kernel: int, tp_size: int = 1
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Temporal and conv shapes of a gated delta rule layer (Qwen3-Next) on one rank.

    Source: SGLang 0.5.23 ``configs/mamba_utils.py``, ``Mamba2StateShape``.
    """
    _check_divides(value_heads, tp_size)
    _check_divides(key_heads, tp_size)
    conv_dim = 2 * key_heads * key_dim + value_heads * value_dim
    return (value_heads // tp_size, key_dim, value_dim), ((conv_dim // tp_size, conv_kernel - 1),)


def kda_state_shapes(
    *, heads: int, head_dim: int, conv_kernel: int, tp_size: int = 1
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Temporal and conv shapes of a Kimi delta attention layer on one rank; q, k and v share one conv.

    Source: SGLang 0.5.23 ``configs/mamba_utils.py``, ``KimiLinearStateShape``.
    """
    _check_divides(heads, tp_size)
    return (heads // tp_size, head_dim, head_dim), ((conv_kernel - 1, 3 * heads * head_dim // tp_size),)


def _check_divides(heads: int, tp_size: int) -> None:
    if heads % tp_size:
        raise ConfigError(
            f"{heads} state heads cannot be split over TP {tp_size}; use a TP that divides them"
        )
