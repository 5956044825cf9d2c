"""How an engine groups a model's layers into pools.

``sglang-0.5.23`` reproduces that release, quirks included; ``by_kind`` is the ideal grouping, one pool per
attention kind. The difference is what an engine leaves on the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from hicache_bench.errors import ConfigError
from hicache_bench.models.spec import (
    Attention,
    ChunkedAttention,
    CompressedAttention,
    FullAttention,
    GatedDelta,
    HeadedAttention,
    KimiDelta,
    LatentWindow,
    MlaAttention,
    ModelSpec,
    RecurrentAttention,
    SlidingWindow,
    SparseIndex,
)
from hicache_bench.pools import geometry
from hicache_bench.pools.descriptor import IndexSelection, KVPoolDescriptor, Rank
from hicache_bench.pools.names import AttentionType, Layout, PoolName, Sharding

SGLANG = "sglang-0.5.23"
BY_KIND = "by_kind"

V4_PAGE_TOKENS = 256
"""SGLang asserts it for DeepSeek V4 on CUDA. Source: SGLang 0.5.23 server arguments (facts/geometry.md)."""

HYBRID_SWA_ARCHITECTURES = frozenset(
    {"GptOssForCausalLM", "Llama4ForConditionalGeneration", "DeepseekV4ForCausalLM"}
)
"""Architectures whose windowed layers get a pool of their own; those of any other stay in the dense pool, all
pages. Source: SGLang 0.5.23 ``configs/model_config.py``, ``is_hybrid_swa_model`` (those that presets use)."""

WINDOW_MINUS_ONE_ARCHITECTURES = frozenset({"GptOssForCausalLM"})
"""Architectures that hand the cache ``window - 1``. Source: facts/geometry.md §5 (gpt-oss: 127)."""

_Kind = TypeVar("_Kind")
_Layers = Mapping[str, tuple[Attention, int]]


@dataclass(frozen=True, slots=True)
class _Builder:
    """What every pool of one model on one rank shares."""

    spec: ModelSpec
    layout: Layout
    rank: Rank

    def pool(self, name: str, attention: AttentionType, **fields: Any) -> KVPoolDescriptor:
        shared: dict[str, Any] = {
            "page_tokens": self.spec.page_tokens,
            "layout": self.layout,
            "rank": self.rank,
            "dtype": self.spec.kv_dtype,
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
            raise ConfigError(
                f"model {self.spec.name!r}: pool {name!r} would hold layers of different heads "
                f"{sorted(shapes, key=str)}; one pool has one row size"
            )
        kv_heads, head_dim, v_head_dim = shapes.pop()
        components = geometry.kv_components(
            num_layers=sum(count for _, count in layers),
            kv_heads=kv_heads,
            head_dim=head_dim,
            v_head_dim=v_head_dim,
            page_tokens=self.spec.page_tokens,
            dtype=self.spec.kv_dtype,
            tp_size=self.rank.tp_size,
        )
        return self.pool(name, kind, components=components, sharding=Sharding.SHARDED, **fields)

    def latent(self, name: str, attention: MlaAttention, num_layers: int) -> KVPoolDescriptor:
        components = geometry.mla_components(
            num_layers=num_layers,
            kv_lora_rank=attention.kv_lora_rank,
            qk_rope_head_dim=attention.qk_rope_head_dim,
            page_tokens=self.spec.page_tokens,
            dtype=self.spec.kv_dtype,
        )
        return self.pool(name, AttentionType.MLA, components=components)

    def index(
        self,
        attention: SparseIndex,
        num_layers: int,
        *,
        name: str = PoolName.INDEXER.value,
        group_tokens: int = 1,
    ) -> KVPoolDescriptor:
        components = geometry.index_components(
            num_layers=num_layers,
            index_head_dim=attention.index_head_dim,
            page_tokens=self.spec.page_tokens // group_tokens,
            dtype=self.spec.index_dtype,
        )
        return self.pool(
            name,
            AttentionType.SPARSE_INDEX,
            components=components,
            dtype=self.spec.index_dtype,
        )

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
        """Running state of a compressor; SGLang keeps it under the keys of the sliding window."""
        components = geometry.compressor_state_components(num_layers=num_layers, dim=dim, overlap=True)
        return self.pool(
            name,
            AttentionType.COMPRESSOR_STATE,
            components=components,
            dtype="fp32",
            derived_from=PoolName.SWA.value,
        )

    def state(self, attention: RecurrentAttention, num_layers: int) -> KVPoolDescriptor:
        tp_size = self.rank.tp_size
        if isinstance(attention, GatedDelta):
            temporal, convs = geometry.gdn_state_shapes(
                key_heads=attention.key_heads,
                value_heads=attention.value_heads,
                key_dim=attention.key_dim,
                value_dim=attention.value_dim,
                conv_kernel=attention.conv_kernel,
                tp_size=tp_size,
            )
        else:
            temporal, convs = geometry.kda_state_shapes(
                heads=attention.heads,
                head_dim=attention.head_dim,
                conv_kernel=attention.conv_kernel,
                tp_size=tp_size,
            )
        components = geometry.state_components(
            num_layers=num_layers,
            temporal_shape=temporal,
            conv_shapes=convs,
            temporal_dtype=self.spec.state_dtype,
            conv_dtype=self.spec.conv_dtype,
        )
        return self.pool(
            PoolName.MAMBA.value,
            AttentionType.RECURRENT,
            components=components,
            dtype=self.spec.state_dtype,
            sharding=Sharding.SHARDED,
        )


def pools_of(
    spec: ModelSpec, *, profile: str, layout: Layout = Layout.PAGE_FIRST, rank: Rank | None = None
) -> tuple[KVPoolDescriptor, ...]:
    """The pools of ``spec`` on ``rank`` as ``profile`` groups them, the anchor first.

    Raises:
        ConfigError: an unknown profile, or a combination that the engine refuses.
    """
    if profile not in PROFILES:
        raise ConfigError(f"unknown engine profile {profile!r}; allowed: {', '.join(PROFILES)}")
    builder = _Builder(spec, layout, rank or Rank())
    layers: _Layers = {name: (spec.attentions[name], count) for name, count in spec.layer_counts.items()}
    if any(isinstance(attention, CompressedAttention) for attention, _ in layers.values()):
        return _compressed_pools(builder, layers)
    return PROFILES[profile](builder, layers)


def _sglang_pools(builder: _Builder, layers: _Layers) -> tuple[KVPoolDescriptor, ...]:
    """SGLang 0.5.23: ``kv`` holds full or MLA layers, and windowed ones of unlisted architectures."""
    spec = builder.spec
    if spec.logical_anchor:
        raise ConfigError(
            f"model {spec.name!r} has a logical anchor without compressed layers, which {SGLANG} cannot "
            f"serve; use profile {BY_KIND}"
        )
    dense: list[tuple[HeadedAttention, int]] = [*_of(layers, FullAttention)]
    windows, chunks = _of(layers, SlidingWindow), _of(layers, ChunkedAttention)
    if windows and chunks:
        raise ConfigError(
            f"model {spec.name!r} has sliding and chunked layers, and {SGLANG} has one pool for both; "
            f"use profile {BY_KIND}"
        )
    if spec.architecture not in HYBRID_SWA_ARCHITECTURES:
        dense += [*windows, *chunks]
        windows, chunks = [], []
    pools = [_anchor(builder, PoolName.KV.value, dense, _of(layers, MlaAttention))]
    if windows:
        window = _window_of(windows)
        reduced = window - (spec.architecture in WINDOW_MINUS_ONE_ARCHITECTURES)
        pools.append(_windowed(builder, AttentionType.SWA, windows, window, reduced))
    if chunks:
        pools.append(
            _windowed(builder, AttentionType.CHUNKED, chunks, _window_of(chunks), _window_of(chunks))
        )
    return _with_states_and_index(builder, layers, pools)


def _by_kind_pools(builder: _Builder, layers: _Layers) -> tuple[KVPoolDescriptor, ...]:
    """One pool per attention kind; the anchor is the full or MLA pool, or a logical one."""
    dense, latent = _of(layers, FullAttention), _of(layers, MlaAttention)
    windows, chunks = _of(layers, SlidingWindow), _of(layers, ChunkedAttention)
    if builder.spec.logical_anchor:
        pools = [builder.logical_anchor()]
        if dense:
            pools.append(_anchor(builder, PoolName.FULL.value, dense, []))
        if latent:
            pools.append(_anchor(builder, PoolName.MLA.value, [], latent))
    else:
        pools = [_anchor(builder, PoolName.KV.value, dense, latent)]
    if windows:
        window = _window_of(windows)
        pools.append(_windowed(builder, AttentionType.SWA, windows, window, window))
    if chunks:
        chunk = _window_of(chunks)
        name = PoolName.CHUNKED.value if windows else PoolName.SWA.value
        pools.append(_windowed(builder, AttentionType.CHUNKED, chunks, chunk, chunk, name))
    return _with_states_and_index(builder, layers, pools)


def _compressed_pools(builder: _Builder, layers: _Layers) -> tuple[KVPoolDescriptor, ...]:
    """DeepSeek V4: a logical ``kv`` anchor and, per page, one object of each side pool.

    ``deepseek_v4_c128_state`` is never registered: a 256-token page holds whole groups of 128.
    """
    spec = builder.spec
    if spec.page_tokens != V4_PAGE_TOKENS:
        raise ConfigError(
            f"model {spec.name!r}: compressed pools are served with pages of {V4_PAGE_TOKENS} tokens only, "
            f"not {spec.page_tokens}"
        )
    pools = [builder.logical_anchor()]
    states: list[KVPoolDescriptor] = []
    for window, count in _of(layers, LatentWindow):
        pools.append(
            builder.rows(
                PoolName.SWA.value,
                AttentionType.SWA,
                window,
                count,
                window_tokens=window.window,
                engine_window_tokens=window.window,
            )
        )
    for attention, count in sorted(_of(layers, CompressedAttention), key=lambda layer: layer[0].ratio):
        name = f"deepseek_v4_c{attention.ratio}"
        pool = builder.rows(name, AttentionType.COMPRESSED, attention, count, ratio=attention.ratio)
        if attention.index_head_dim is None or attention.index_top_k is None:
            pools.append(pool)
            continue
        index = SparseIndex(index_head_dim=attention.index_head_dim, top_k=attention.index_top_k)
        index_pool = builder.index(index, count, name=f"{name}_indexer", group_tokens=attention.ratio)
        selection = IndexSelection(
            index_pool=index_pool.name, top_k=index.top_k, group_tokens=attention.ratio
        )
        pools += [replace(pool, selection=selection), index_pool]
        states += [
            builder.ring(f"{name}_state", attention.latent_dim, count),
            builder.ring(f"{index_pool.name}_state", index.index_head_dim, count),
        ]
    return tuple(pools + states)


def _anchor(
    builder: _Builder,
    name: str,
    dense: Sequence[tuple[HeadedAttention, int]],
    latent: Sequence[tuple[MlaAttention, int]],
) -> KVPoolDescriptor:
    if bool(dense) == bool(latent):
        found = "both full and MLA layers" if dense else "neither full nor MLA layers"
        raise ConfigError(
            f"model {builder.spec.name!r}: pool {name!r} needs full or MLA layers, and found {found}"
        )
    if dense:
        return builder.heads(name, AttentionType.FULL, dense)
    if len(latent) > 1:
        raise ConfigError(f"model {builder.spec.name!r}: MLA layers of different dims in one pool")
    return builder.latent(name, *latent[0])


def _windowed(
    builder: _Builder,
    kind: AttentionType,
    layers: Sequence[tuple[HeadedAttention, int]],
    window: int,
    engine_window: int,
    name: str = PoolName.SWA.value,
) -> KVPoolDescriptor:
    return builder.heads(name, kind, layers, window_tokens=window, engine_window_tokens=engine_window)


def _window_of(layers: Sequence[tuple[SlidingWindow | ChunkedAttention, int]]) -> int:
    windows = {layer.window if isinstance(layer, SlidingWindow) else layer.chunk for layer, _ in layers}
    if len(windows) > 1:
        raise ConfigError(f"windows of one pool must agree, and are {sorted(windows)}")
    return windows.pop()


def _with_states_and_index(
    builder: _Builder, layers: _Layers, pools: list[KVPoolDescriptor]
) -> tuple[KVPoolDescriptor, ...]:
    for attention, count in _of(layers, SparseIndex):
        pools.append(builder.index(attention, count))
        selection = IndexSelection(index_pool=PoolName.INDEXER.value, top_k=attention.top_k)
        position = next((i for i, pool in enumerate(pools) if pool.attention is AttentionType.MLA), None)
        if position is None:
            raise ConfigError(
                f"model {builder.spec.name!r} has an index, and no MLA pool that it could select from"
            )
        pools[position] = replace(pools[position], selection=selection)
    states: list[tuple[RecurrentAttention, int]] = [*_of(layers, GatedDelta), *_of(layers, KimiDelta)]
    if len(states) > 1:
        raise ConfigError(f"model {builder.spec.name!r}: recurrent layers of different dims in one pool")
    pools += [builder.state(attention, count) for attention, count in states]
    return tuple(pools)


def _of(layers: _Layers, kind: type[_Kind]) -> list[tuple[_Kind, int]]:
    return [(attention, count) for attention, count in layers.values() if isinstance(attention, kind)]


PROFILES: Mapping[str, Callable[[_Builder, _Layers], tuple[KVPoolDescriptor, ...]]] = MappingProxyType(
    {SGLANG: _sglang_pools, BY_KIND: _by_kind_pools}
)
