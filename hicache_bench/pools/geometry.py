"""Bytes of one page of one pool, from the dimensions of its layers.

Every function returns the pool's :class:`Component` objects for **one** tensor-parallel rank. The formulas
are those of SGLang 0.5.23's host-pool classes; ``tests/golden`` holds what these classes print, and
``tests/pools/test_geometry.py`` compares each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from hicache_bench.errors import ConfigError

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1}
"""Bytes of one element. ``fp8`` is e4m3 without scales inside the cache."""

STATE_DTYPE_BYTES = {**DTYPE_BYTES, "int32": 4, "int64": 8}
"""Bytes of one element of a tensor that only a recurrent state owns (counters, histories)."""

SCALED_FP8 = "fp8_scaled"
"""K and V as fp8 whose scales, one fp32 per token, layer and head, lie in a tensor of their own."""

PACKED_FP8 = "fp8_packed"
"""MLA rows as fp8 with their scales inline."""

BLOCK_INDEX_DTYPE = "bf16"
"""Index keys of MiniMax-M3, whatever the KV dtype is. Source: SGLang 0.5.23
``get_minimax_sparse_index_dtype``, but for a few fp8 kernels."""

KV_DTYPES = (*DTYPE_BYTES, SCALED_FP8, PACKED_FP8)
INDEX_DTYPES = ("fp8", "fp4")

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
"""Ring slots of a compressor state of ratio 4, the only one that is stored. Source: SGLang 0.5.23
``mem_cache/deepseek_v4_memory_pool.py``, ``get_compress_state_ring_size``."""

V4_SPECULATIVE_RING = 16
"""The same with speculative decoding: tokens that are drafted and refused must not overwrite the state."""


@dataclass(frozen=True, slots=True)
class Component:
    """One object of a page: ``num_layers`` x ``rows`` x ``row_bytes`` bytes on this rank.

    ``rows`` are tokens (or compressed slots) of one layer in one page; a state, and a page whose layers are
    padded as a whole, has one row. ``heads`` splits a row for the head-outer layout. ``chunk`` is ``(i, n)``
    where the heads of all ranks are cut into ``n`` objects, of which this is number ``i``, so that other TP
    sizes find them; then a pool has several components of one name.
    """

    name: str
    num_layers: int
    rows: int
    row_bytes: int
    heads: int = 1
    chunk: tuple[int, int] | None = None

    @property
    def object_bytes(self) -> int:
        """Bytes of the stored object; 0 means that it is neither stored nor keyed."""
        return self.num_layers * self.rows * self.row_bytes


def dashed(dtype: str) -> str:
    """A dtype as the command line writes it: ``fp8-packed``."""
    return dtype.replace("_", "-")


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
    tp_size: int = 1,
) -> tuple[Component, ...]:
    """``k`` and ``v`` of full, sliding or chunked attention: ``P·L·heads·head_dim·E`` bytes each.

    ``fp8_scaled`` adds a ``scale`` component: one fp32 per token, layer and head for K and for V.

    Raises:
        ConfigError: ``fp8_packed``, which is a format of MLA rows; an unknown dtype; heads and ranks that do
            not divide.
    """
    if dtype == PACKED_FP8:
        raise _wrong_format(PACKED_FP8, "MLA rows", "K and V", SCALED_FP8)
    heads = heads_per_rank(kv_heads, tp_size)
    size = 1 if dtype == SCALED_FP8 else dtype_bytes(dtype)
    components = [
        Component("k", num_layers, page_tokens, heads * head_dim * size, heads),
        Component("v", num_layers, page_tokens, heads * (v_head_dim or head_dim) * size, heads),
    ]
    if dtype == SCALED_FP8:
        components.append(Component("scale", num_layers, page_tokens, heads * 4 * 2, heads))
    return tuple(components)


def split_heads(
    components: tuple[Component, ...], *, tp_rank: int, tp_size: int, tp_lcm: int
) -> tuple[Component, ...]:
    """Cut a rank's components into ``tp_lcm/tp_size`` objects of whole heads, ``k`` and ``v`` chunk by chunk.

    Ranks of any TP size that divides ``tp_lcm`` then share objects. Source: SGLang 0.5.23
    ``MHATokenToKVPoolHost.get_split_heads_page_buffer_meta`` (golden file, ``key_misc``).

    Raises:
        ConfigError: heads or ranks that do not divide.
    """
    if tp_lcm % tp_size:
        raise ConfigError(f"--tp-lcm {tp_lcm} is not a multiple of TP {tp_size}; use a common multiple")
    chunks = tp_lcm // tp_size
    for component in components:
        if component.heads % chunks:
            most = tp_size * component.heads
            allowed = [most // size for size in range(component.heads, 0, -1) if component.heads % size == 0]
            raise ConfigError(
                f"--tp-lcm {tp_lcm} would cut the {component.heads} KV heads of a rank into {chunks} "
                f"objects; allowed here: {', '.join(map(str, allowed))}"
            )
    return tuple(
        replace(
            component,
            row_bytes=component.row_bytes // chunks,
            heads=component.heads // chunks,
            chunk=(tp_rank * chunks + index, tp_lcm),
        )
        for index in range(chunks)
        for component in components
    )


def _wrong_format(dtype: str, of: str, held: str, instead: str) -> ConfigError:
    allowed = ", ".join(map(dashed, (*DTYPE_BYTES, instead)))
    return ConfigError(f"{dashed(dtype)} is a format of {of}, and a pool here holds {held}; use {allowed}")


def mla_components(
    *, num_layers: int, kv_lora_rank: int, qk_rope_head_dim: int, page_tokens: int, dtype: str
) -> tuple[Component, ...]:
    """The MLA latent, one object: ``P·L·(kv_lora_rank+qk_rope_head_dim)·E``, or ``P·L·656`` packed.

    Raises:
        ConfigError: ``fp8_packed`` for dims other than 512 + 64, which is all that the format describes;
            ``fp8_scaled``, which is a format of K and V; an unknown dtype.
    """
    if dtype == SCALED_FP8:
        raise _wrong_format(SCALED_FP8, "K and V", "MLA rows", PACKED_FP8)
    if dtype == PACKED_FP8:
        if (kv_lora_rank, qk_rope_head_dim) != (512, 64):
            raise ConfigError(
                f"{dashed(PACKED_FP8)} rows exist for MLA dims 512+64 only, not "
                f"{kv_lora_rank}+{qk_rope_head_dim}; use bf16 or fp8"
            )
        row_bytes = PACKED_FP8_MLA_ROW_BYTES
    else:
        row_bytes = (kv_lora_rank + qk_rope_head_dim) * dtype_bytes(dtype)
    return (Component("k", num_layers, page_tokens, row_bytes),)


def index_row_bytes(index_head_dim: int, dtype: str) -> int:
    """Bytes of one index key with 4 bytes of scales per 128 dims: 132 (fp8) or 68 (fp4) for 128 dims.

    The scales are one fp32 for fp8 keys, four e8m0 (one per 32 dims) for fp4 ones.

    Raises:
        ConfigError: an unknown index dtype, or dims that are not whole scale groups.
    """
    if index_head_dim % 128:
        raise ConfigError(f"index_head_dim {index_head_dim} is not a multiple of 128, the scale group")
    if dtype not in INDEX_DTYPES:
        raise ConfigError(f"unknown index dtype {dtype!r}; allowed: {', '.join(INDEX_DTYPES)}")
    return index_head_dim // (1 if dtype == "fp8" else 2) + index_head_dim // 128 * 4


def index_components(
    *, num_layers: int, index_head_dim: int, page_tokens: int, dtype: str = "fp8"
) -> tuple[Component, ...]:
    """Index keys of sparse attention, one object; a layer's keys precede its scales within a page."""
    return (Component("page", num_layers, 1, page_tokens * index_row_bytes(index_head_dim, dtype)),)


def block_index_components(
    *, num_layers: int, index_head_dim: int, page_tokens: int
) -> tuple[Component, ...]:
    """Index keys of block-sparse attention (MiniMax-M3), one object: ``P·L·index_head_dim·E``, one head."""
    row_bytes = index_head_dim * dtype_bytes(BLOCK_INDEX_DTYPE)
    return (Component("k", num_layers, page_tokens, row_bytes),)


def state_components(
    *,
    num_layers: int,
    temporal_shape: tuple[int, ...],
    conv_shapes: tuple[tuple[int, ...], ...],
    temporal_dtype: str,
    conv_dtype: str,
    extra: Sequence[tuple[str, tuple[int, ...], str]] = (),
) -> tuple[Component, ...]:
    """``temporal`` and ``conv_i`` of one recurrent state, then each extra ``(name, shape, dtype)``.

    The shapes are those of this rank.

    Raises:
        ConfigError: an unknown dtype.
    """
    temporal = prod(temporal_shape) * dtype_bytes(temporal_dtype) if temporal_shape else 0
    convs = [prod(shape) * dtype_bytes(conv_dtype) if shape else 0 for shape in conv_shapes]
    return (
        Component("temporal", num_layers, 1, temporal),
        *(Component(f"conv_{i}", num_layers, 1, size) for i, size in enumerate(convs)),
        *(
            Component(name, num_layers, 1, prod(shape) * _state_dtype_bytes(dtype))
            for name, shape, dtype in extra
        ),
    )


def _state_dtype_bytes(dtype: str) -> int:
    if dtype not in STATE_DTYPE_BYTES:
        raise ConfigError(f"unknown dtype {dtype!r}; allowed: {', '.join(STATE_DTYPE_BYTES)}")
    return STATE_DTYPE_BYTES[dtype]


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


def compressor_state_components(
    *, num_layers: int, dim: int, overlap: bool, ring: int = V4_STATE_RING
) -> tuple[Component, ...]:
    """fp32 ring of a compressor's running state: ``ring·2·(1+overlap)·dim·4`` bytes per layer and page."""
    return (Component("page", num_layers, 1, ring * 2 * (1 + overlap) * dim * 4),)


StateShapes = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]
"""Shape of the temporal state of one layer (empty: none), and those of its convolutions, on one rank."""


def mamba2_state_shapes(
    *, heads: int, head_dim: int, state_dim: int, groups: int, conv_kernel: int, tp_size: int = 1
) -> StateShapes:
    """Shapes of a Mamba-2 layer; groups that ranks do not divide are padded to one a rank.

    Source: SGLang 0.5.23 ``configs/mamba_utils.py``, ``Mamba2StateShape.create``.
    """
    _check_divides(heads, tp_size)
    if groups % tp_size:
        groups = tp_size
    conv_dim = heads * head_dim + 2 * groups * state_dim
    return (heads // tp_size, head_dim, state_dim), ((conv_dim // tp_size, conv_kernel - 1),)


def gdn_state_shapes(
    *, key_heads: int, value_heads: int, key_dim: int, value_dim: int, conv_kernel: int, tp_size: int = 1
) -> StateShapes:
    """Shapes of a gated delta rule layer (Qwen3-Next): a Mamba-2 state with the key heads as its groups.

    Source: as :func:`mamba2_state_shapes`; SGLang 0.5.23 ``configs/qwen3_next.py``.
    """
    return mamba2_state_shapes(
        heads=value_heads,
        head_dim=value_dim,
        state_dim=key_dim,
        groups=key_heads,
        conv_kernel=conv_kernel,
        tp_size=tp_size,
    )


def mamba1_state_shapes(*, inner_dim: int, state_dim: int, conv_kernel: int, tp_size: int = 1) -> StateShapes:
    """Shapes of a Mamba-1 layer: its convolution spans the inner channels alone.

    Source: SGLang 0.5.23 ``configs/mamba_utils.py``, ``Mamba2StateShape.create_full_rank``.
    """
    _check_divides(inner_dim, tp_size)
    return (inner_dim // tp_size, 1, state_dim), ((inner_dim // tp_size, conv_kernel - 1),)


def kda_state_shapes(*, heads: int, head_dim: int, conv_kernel: int, tp_size: int = 1) -> StateShapes:
    """Shapes of a Kimi delta attention layer; q, k and v share one conv.

    Source: SGLang 0.5.23 ``configs/mamba_utils.py``, ``KimiLinearStateShape``.
    """
    _check_divides(heads, tp_size)
    return (heads // tp_size, head_dim, head_dim), ((conv_kernel - 1, 3 * heads * head_dim // tp_size),)


def lightning_state_shapes(*, heads: int, head_dim: int, tp_size: int = 1) -> StateShapes:
    """Shapes of a lightning attention layer: one ``head_dim x head_dim`` matrix a head, no convolution."""
    _check_divides(heads, tp_size)
    return (heads // tp_size, head_dim, head_dim), ()


def short_conv_state_shapes(*, channels: int, conv_kernel: int, tp_size: int = 1) -> StateShapes:
    """Shapes of a short convolution layer: no temporal state."""
    _check_divides(channels, tp_size)
    return (), ((channels // tp_size, conv_kernel - 1),)


def _check_divides(heads: int, tp_size: int) -> None:
    if heads % tp_size:
        raise ConfigError(
            f"{heads} state heads cannot be split over TP {tp_size}; use a TP that divides them"
        )
