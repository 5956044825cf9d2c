"""Each pool of one worker, from the dimensions of its layers; ``engine_profile`` decides which share one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hicache_bench.errors import ConfigError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.spec import (
    Attention,
    BlockIndex,
    CompressedAttention,
    GatedDelta,
    HeadedAttention,
    KimiDelta,
    LatentWindow,
    Lightning,
    Mamba1,
    Mamba2,
    MlaAttention,
    ModelSpec,
    RecurrentAttention,
    ShortConv,
    SparseIndex,
)
from hicache_bench.pools import geometry
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.names import AttentionType, PoolName, Requirement, Sharding

Layers = Mapping[str, tuple[Attention, int]]
"""Attentions by name, each with the number of layers that have it."""

_Kind = TypeVar("_Kind")


def layers_of(layers: Layers, kind: type[_Kind]) -> list[tuple[_Kind, int]]:
    """The attentions of one kind, with their numbers of layers."""
    return [(attention, count) for attention, count in layers.values() if isinstance(attention, kind)]


@dataclass(frozen=True, slots=True)
class PoolBuilder:
    """What every pool of one model on one rank shares."""

    spec: ModelSpec
    deployment: Deployment
    rank: Rank
    required_for: Requirement = Requirement.CORRECTNESS

    @property
    def page_tokens(self) -> int:
        """Tokens of the tier's page: decode-context ranks share it, and each holds a page of its own size."""
        return self.spec.page_tokens * self.deployment.dcp_size

    def pool(self, name: str, attention: AttentionType, **fields: Any) -> KVPoolDescriptor:
        shared: dict[str, Any] = {
            "page_tokens": self.page_tokens,
            "layout": self.deployment.layout,
            "rank": self.rank,
            "dtype": self.spec.kv_dtype,
            "required_for": self.required_for,
        }
        return KVPoolDescriptor(name=name, attention=attention, **{**shared, **fields})

    def logical_anchor(self) -> KVPoolDescriptor:
        return self.pool(PoolName.KV.value, AttentionType.LOGICAL)

    def heads(
        self, name: str, kind: AttentionType, layers: Sequence[tuple[HeadedAttention, int]], **fields: Any
    ) -> KVPoolDescriptor:
        """A K/V pool over ``layers``, which must agree in their heads: one pool has one row size."""
        shapes = {(layer.kv_heads, layer.head_dim, layer.v_head_dim) for layer, _ in layers}
        if len(shapes) > 1:
            shown = " and ".join(
                f"{heads} x {dim}" + (f" (V {v_dim})" if v_dim not in (None, dim) else "")
                for heads, dim, v_dim in sorted(shapes, key=lambda shape: (shape[0], shape[1], shape[2] or 0))
            )
            raise ConfigError(
                f"model {self.spec.name!r}: pool {name!r} would hold layers of different KV heads x dims, "
                f"{shown}; one pool has one row size, so give its layers the same heads and dims"
            )
        kv_heads, head_dim, v_head_dim = shapes.pop()
        components = geometry.kv_components(
            num_layers=sum(count for _, count in layers),
            kv_heads=kv_heads,
            head_dim=head_dim,
            v_head_dim=v_head_dim,
            page_tokens=self._rows(name),
            dtype=self.spec.kv_dtype,
            tp_size=self.rank.tp_size,
        )
        if self.deployment.tp_lcm is not None:
            components = geometry.split_heads(
                components,
                tp_rank=self.rank.tp_rank,
                tp_size=self.rank.tp_size,
                tp_lcm=self.deployment.tp_lcm,
            )
        return self._tokens(name, kind, components=components, sharding=Sharding.SHARDED, **fields)

    def latent(self, name: str, attention: MlaAttention, num_layers: int) -> KVPoolDescriptor:
        components = geometry.mla_components(
            num_layers=num_layers,
            kv_lora_rank=attention.kv_lora_rank,
            qk_rope_head_dim=attention.qk_rope_head_dim,
            page_tokens=self._rows(name),
            dtype=self.spec.kv_dtype,
        )
        dcp_sharded = self.deployment.dcp_size > 1
        return self._tokens(name, AttentionType.MLA, components=components, dcp_sharded=dcp_sharded)

    def index(
        self, name: str, attention: SparseIndex | BlockIndex, num_layers: int, *, group_tokens: int = 1
    ) -> KVPoolDescriptor:
        """Index keys, one a group of tokens: fp8 or fp4 with scales, or one bf16 head for block sparsity."""
        rows = self._rows(name) // group_tokens
        if isinstance(attention, BlockIndex):
            dtype = geometry.BLOCK_INDEX_DTYPE
            components = geometry.block_index_components(
                num_layers=num_layers, index_head_dim=attention.index_head_dim, page_tokens=rows
            )
        else:
            dtype = self.spec.index_dtype
            components = geometry.index_components(
                num_layers=num_layers, index_head_dim=attention.index_head_dim, page_tokens=rows, dtype=dtype
            )
        return self._tokens(name, AttentionType.SPARSE_INDEX, components=components, dtype=dtype)

    def rows(
        self,
        name: str,
        kind: AttentionType,
        attention: LatentWindow | CompressedAttention,
        num_layers: int,
        *,
        ratio: int = 1,
        **fields: Any,
    ) -> KVPoolDescriptor:
        """Rows of DeepSeek V4, one per ``ratio`` tokens."""
        dims = (attention.nope_dim, attention.rope_dim)
        if dims != geometry.V4_ROW_DIMS:
            raise ConfigError(
                f"model {self.spec.name!r}: the cached row of pool {name!r} exists for dims "
                f"{geometry.V4_ROW_DIMS} only, not {dims}"
            )
        components = geometry.compressed_components(
            num_layers=num_layers, ratio=ratio, page_tokens=self.spec.page_tokens
        )
        return self.pool(name, kind, components=components, **fields)

    def ring(self, name: str, dim: int, num_layers: int) -> KVPoolDescriptor:
        """Running state of a compressor; SGLang keeps it under the keys of the sliding window.

        Speculative decoding widens it on every stage, not only on the one that the draft runs behind.
        """
        slots = geometry.V4_SPECULATIVE_RING if self.deployment.with_draft else geometry.V4_STATE_RING
        components = geometry.compressor_state_components(
            num_layers=num_layers, dim=dim, overlap=True, ring=slots
        )
        return self.pool(
            name,
            AttentionType.COMPRESSOR_STATE,
            components=components,
            dtype="fp32",
            derived_from=PoolName.SWA.value,
        )

    def state(self, attention: RecurrentAttention, num_layers: int) -> KVPoolDescriptor:
        temporal, convs = _state_shapes(attention, self.rank.tp_size)
        components = geometry.state_components(
            num_layers=num_layers,
            temporal_shape=temporal,
            conv_shapes=convs,
            temporal_dtype=self.spec.state_dtype,
            conv_dtype=self.spec.conv_dtype,
            extra=[(tensor.name, tensor.shape, tensor.dtype) for tensor in attention.extra],
        )
        return self.pool(
            PoolName.MAMBA.value,
            AttentionType.RECURRENT,
            components=components,
            dtype=self.spec.state_dtype,
            sharding=Sharding.SHARDED,
        )

    def _tokens(self, name: str, kind: AttentionType, **fields: Any) -> KVPoolDescriptor:
        """A pool of rows per token, which context-parallel ranks may share out."""
        return self.pool(name, kind, cp_sharded=self.deployment.cp_sharded, **fields)

    def _rows(self, name: str) -> int:
        """Tokens of a page that this rank holds."""
        shares = self.deployment.cp_size if self.deployment.cp_sharded else 1
        if self.spec.page_tokens % shares:
            raise ConfigError(
                f"pool {name!r}: pages of {self.spec.page_tokens} tokens cannot be shared out to {shares} "
                "context-parallel ranks; use a page size that they divide"
            )
        return self.spec.page_tokens // shares


def _state_shapes(attention: RecurrentAttention, tp_size: int) -> geometry.StateShapes:
    match attention:
        case GatedDelta():
            return geometry.gdn_state_shapes(
                key_heads=attention.key_heads,
                value_heads=attention.value_heads,
                key_dim=attention.key_dim,
                value_dim=attention.value_dim,
                conv_kernel=attention.conv_kernel,
                tp_size=tp_size,
            )
        case KimiDelta():
            return geometry.kda_state_shapes(
                heads=attention.heads,
                head_dim=attention.head_dim,
                conv_kernel=attention.conv_kernel,
                tp_size=tp_size,
            )
        case Mamba1():
            return geometry.mamba1_state_shapes(
                inner_dim=attention.inner_dim,
                state_dim=attention.state_dim,
                conv_kernel=attention.conv_kernel,
                tp_size=tp_size,
            )
        case Mamba2():
            return geometry.mamba2_state_shapes(
                heads=attention.heads,
                head_dim=attention.head_dim,
                state_dim=attention.state_dim,
                groups=attention.groups,
                conv_kernel=attention.conv_kernel,
                tp_size=tp_size,
            )
        case Lightning():
            return geometry.lightning_state_shapes(
                heads=attention.heads, head_dim=attention.head_dim, tp_size=tp_size
            )
        case ShortConv():
            return geometry.short_conv_state_shapes(
                channels=attention.channels, conv_kernel=attention.conv_kernel, tp_size=tp_size
            )
