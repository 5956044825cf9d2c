"""How an engine groups a model's layers into pools.

``sglang-0.5.23`` reproduces that release, quirks included; ``by_kind`` is the ideal grouping, one pool per
attention kind. The difference is what an engine leaves on the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from hicache_bench.errors import ConfigError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.pool_builder import Layers, PoolBuilder, layers_of
from hicache_bench.models.sglang_draft import Grouping, packed_pools
from hicache_bench.models.sglang_rules import (
    HYBRID_SWA_ARCHITECTURES,
    INDEXED_ARCHITECTURES,
    check_sglang,
    engine_window,
)
from hicache_bench.models.spec import (
    BlockIndex,
    ChunkedAttention,
    CompressedAttention,
    FullAttention,
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
    SlidingWindow,
    SparseIndex,
    count_layers,
)
from hicache_bench.pools.descriptor import IndexSelection, KVPoolDescriptor, Rank
from hicache_bench.pools.geometry import dashed
from hicache_bench.pools.names import AttentionType, PoolName, Requirement

SGLANG = "sglang-0.5.23"
BY_KIND = "by_kind"

_V4_KINDS = (LatentWindow, CompressedAttention)

V4_PAGE_TOKENS = 256
"""SGLang asserts it for DeepSeek V4 on CUDA. Source: SGLang 0.5.23 server arguments (facts/geometry.md)."""


def pools_of(
    spec: ModelSpec, *, profile: str, deployment: Deployment | None = None, rank: Rank | None = None
) -> tuple[KVPoolDescriptor, ...]:
    """The pools of ``spec`` on ``rank`` (default: the first) as ``profile`` groups them, the anchor first.

    Raises:
        ConfigError: an unknown profile, or a combination that the engine refuses.
    """
    if profile not in PROFILES:
        raise ConfigError(f"unknown engine profile {profile!r}; allowed: {', '.join(PROFILES)}")
    deployment = deployment or Deployment()
    builder = PoolBuilder(spec, deployment, rank or deployment.ranks[0])
    stage = deployment.stage(len(spec.layers), builder.rank.pp_rank)
    # SGLang 0.5.23 sizes its pools by attention types alone (configs/model_config.py, get_hybrid_layer_ids).
    owners = spec.allocated_layers if profile == SGLANG else spec.layers
    layers = _counted(spec, owners[stage])
    # The whole model decides: the first stages of DeepSeek V4 may hold nothing but windows.
    compressed = layers_of(_counted(spec, spec.layers), CompressedAttention)
    group = _compressed_pools if compressed else PROFILES[profile]
    pools = group(builder, layers)
    if deployment.with_draft:
        draft = _draft_layers(spec)
        # The draft runs behind the last stage, as in SGLang with SGLANG_ENABLE_PP_SPEC.
        if builder.rank.pp_rank == deployment.pp_size - 1:
            if profile == SGLANG:
                pools = packed_pools(builder, group, layers, draft)
            else:
                pools += _draft_pools(builder, draft)
    if deployment.dcp_size > 1:
        _check_dcp(spec, pools, with_draft=deployment.with_draft)
    if profile == SGLANG:
        check_sglang(spec, deployment, pools)
    return pools


def _check_dcp(spec: ModelSpec, pools: Sequence[KVPoolDescriptor], *, with_draft: bool) -> None:
    """Decode-context ranks share out MLA rows; how they would hold anything else is not known.

    Source: SGLang 0.5.23 ``managers/cache_controller.py``, which takes an MLA pool and KDA states alone. A
    draft there holds every token of the page on each rank, which no pool here describes.
    """
    if with_draft:
        raise ConfigError(
            f"model {spec.name!r}: decode-context ranks do not share out the tokens of draft layers; leave "
            "--draft out, or use --dcp 1"
        )
    for pool in pools:
        if pool.attention not in (AttentionType.MLA, AttentionType.RECURRENT):
            raise ConfigError(
                f"model {spec.name!r}: decode-context parallelism stores MLA rows and recurrent states "
                f"alone, not pool {pool.name!r}; use --dcp 1"
            )


def cluster_pools(
    spec: ModelSpec, *, profile: str, deployment: Deployment
) -> Mapping[Rank, tuple[KVPoolDescriptor, ...]]:
    """The pools of every rank of ``deployment``.

    Raises:
        ConfigError: as :func:`pools_of`.
    """
    return {
        rank: pools_of(spec, profile=profile, deployment=deployment, rank=rank) for rank in deployment.ranks
    }


def _counted(spec: ModelSpec, layers: Sequence[tuple[str, ...]]) -> Layers:
    return {name: (spec.attentions[name], count) for name, count in count_layers(layers).items()}


def _sglang_pools(builder: PoolBuilder, layers: Layers) -> tuple[KVPoolDescriptor, ...]:
    """SGLang 0.5.23: ``kv`` holds full or MLA layers, and windowed ones of unlisted architectures."""
    spec = builder.spec
    _check_kinds(builder, layers, compressed=False)
    if spec.logical_anchor:
        raise ConfigError(
            f"model {spec.name!r} has a logical anchor without compressed layers, which {SGLANG} cannot "
            f"serve; use profile {BY_KIND}"
        )
    dense: list[tuple[HeadedAttention, int]] = [*layers_of(layers, FullAttention)]
    windows, chunks = layers_of(layers, SlidingWindow), layers_of(layers, ChunkedAttention)
    if windows and chunks:
        raise ConfigError(
            f"model {spec.name!r} has sliding and chunked layers, and {SGLANG} has one pool for both; "
            f"use profile {BY_KIND}"
        )
    if spec.architecture not in HYBRID_SWA_ARCHITECTURES:
        dense += [*windows, *chunks]
        windows, chunks = [], []
    pools = [_anchor(builder, PoolName.KV.value, dense, layers_of(layers, MlaAttention))]
    if windows:
        window = _window_of(windows)
        pools.append(
            _windowed(builder, AttentionType.SWA, windows, window, engine_window(spec.architecture, window))
        )
    if chunks:
        pools.append(
            _windowed(builder, AttentionType.CHUNKED, chunks, _window_of(chunks), _window_of(chunks))
        )
    return _with_states_and_index(builder, layers, pools)


def _by_kind_pools(builder: PoolBuilder, layers: Layers) -> tuple[KVPoolDescriptor, ...]:
    """One pool per attention kind; the anchor is the full or MLA pool, or a logical one."""
    _check_kinds(builder, layers, compressed=False)
    dense, latent = layers_of(layers, FullAttention), layers_of(layers, MlaAttention)
    windows, chunks = layers_of(layers, SlidingWindow), layers_of(layers, ChunkedAttention)
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


def _compressed_pools(builder: PoolBuilder, layers: Layers) -> tuple[KVPoolDescriptor, ...]:
    """DeepSeek V4: a logical ``kv`` anchor and, per page, one object of each side pool.

    ``deepseek_v4_c128_state`` is never registered: a 256-token page holds whole groups of 128.
    """
    spec = builder.spec
    _check_kinds(builder, layers, compressed=True)
    if builder.deployment.cp_sharded:
        raise ConfigError(
            f"model {spec.name!r}: compressed pools cannot be shared out to context-parallel ranks; "
            "use --cp N:replicated"
        )
    if spec.kv_dtype != "fp8":
        raise ConfigError(
            f"model {spec.name!r}: compressed rows are fp8 with bf16 rope dims, whatever is asked for; use "
            f"--kv-dtype fp8 instead of {dashed(spec.kv_dtype)}"
        )
    if spec.page_tokens != V4_PAGE_TOKENS:
        raise ConfigError(
            f"model {spec.name!r}: compressed pools are served with pages of {V4_PAGE_TOKENS} tokens only, "
            f"not {spec.page_tokens}"
        )
    pools = [builder.logical_anchor()]
    states: list[KVPoolDescriptor] = []
    for window, count in layers_of(layers, LatentWindow):
        pools.append(_latent_windowed(builder, PoolName.SWA, window, count))
    for attention, count in sorted(layers_of(layers, CompressedAttention), key=lambda layer: layer[0].ratio):
        name = f"deepseek_v4_c{attention.ratio}"
        pool = builder.rows(name, AttentionType.COMPRESSED, attention, count, ratio=attention.ratio)
        if attention.index_head_dim is None or attention.index_top_k is None:
            pools.append(pool)
            continue
        index = SparseIndex(index_head_dim=attention.index_head_dim, top_k=attention.index_top_k)
        index_pool = builder.index(f"{name}_indexer", index, count, group_tokens=attention.ratio)
        selection = IndexSelection(
            index_pool=index_pool.name, top_k=index.top_k, group_tokens=attention.ratio
        )
        pools += [replace(pool, selection=selection), index_pool]
        states += [
            builder.ring(f"{name}_state", attention.latent_dim, count),
            builder.ring(f"{index_pool.name}_state", index.index_head_dim, count),
        ]
    return tuple(pools + states)


def _check_kinds(builder: PoolBuilder, layers: Layers, *, compressed: bool) -> None:
    """Refuse layers that a grouping has no pool for: left out, a restore without them would be wrong."""
    kinds = [attention for attention, _ in layers.values()]
    strangers = {kind.attention for kind in kinds if isinstance(kind, _V4_KINDS) != compressed}
    if not strangers:
        return
    shown = ", ".join(sorted(strangers))
    if compressed:
        why = (
            "cannot stand beside compressed ones, whose pools hold nothing else; describe each layer as "
            "latent_window, compressed, or both"
        )
    else:
        why = (
            "have a pool only in a model with compressed layers, as DeepSeek V4 is; add those, or describe "
            "these as sliding_window"
        )
    raise ConfigError(f"model {builder.spec.name!r}: layers of attention {shown} {why}")


def _anchor(
    builder: PoolBuilder,
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
    builder: PoolBuilder,
    kind: AttentionType,
    layers: Sequence[tuple[HeadedAttention, int]],
    window: int,
    engine_window: int,
    name: str = PoolName.SWA.value,
) -> KVPoolDescriptor:
    return builder.heads(name, kind, layers, window_tokens=window, engine_window_tokens=engine_window)


def _latent_windowed(
    builder: PoolBuilder, name: PoolName, window: LatentWindow, num_layers: int
) -> KVPoolDescriptor:
    return builder.rows(
        name.value,
        AttentionType.SWA,
        window,
        num_layers,
        window_tokens=window.window,
        engine_window_tokens=window.window,
    )


def _window_of(layers: Sequence[tuple[SlidingWindow | ChunkedAttention, int]]) -> int:
    windows = {layer.window if isinstance(layer, SlidingWindow) else layer.chunk for layer, _ in layers}
    if len(windows) > 1:
        raise ConfigError(f"windows of one pool must agree, and are {sorted(windows)}")
    return windows.pop()


def _with_states_and_index(
    builder: PoolBuilder, layers: Layers, pools: list[KVPoolDescriptor]
) -> tuple[KVPoolDescriptor, ...]:
    """Add the side pools: an index, and what MLA rows it selects; one pool of recurrent states."""
    spec = builder.spec
    indexes: list[tuple[SparseIndex | BlockIndex, int]] = [
        *layers_of(layers, SparseIndex),
        *layers_of(layers, BlockIndex),
    ]
    owned = any(isinstance(attention, (SparseIndex, BlockIndex)) for attention in spec.attentions.values())
    if not owned and spec.architecture in INDEXED_ARCHITECTURES:
        raise ConfigError(
            f"model {spec.name!r}: {spec.architecture} selects what it reads by an index, and no layer here "
            "has one; a restore without it would be wrong. Add a sparse_index to the layers that own one"
        )
    if len(indexes) > 1:
        raise ConfigError(f"model {spec.name!r}: index layers of different dims in one pool")
    for index, count in indexes:
        pools.append(builder.index(PoolName.INDEXER.value, index, count))
        wanted = AttentionType.MLA if isinstance(index, SparseIndex) else AttentionType.FULL
        position = next((i for i, pool in enumerate(pools) if pool.attention is wanted), None)
        if position is None:
            raise ConfigError(
                f"model {spec.name!r} has a {index.attention}, and no {wanted} pool that it could select from"
            )
        if isinstance(index, SparseIndex):
            selection = IndexSelection(index_pool=PoolName.INDEXER.value, top_k=index.top_k)
            pools[position] = replace(pools[position], selection=selection)
    states: list[tuple[RecurrentAttention, int]] = [
        *layers_of(layers, GatedDelta),
        *layers_of(layers, KimiDelta),
        *layers_of(layers, Mamba1),
        *layers_of(layers, Mamba2),
        *layers_of(layers, Lightning),
        *layers_of(layers, ShortConv),
    ]
    if len(states) > 1:
        raise ConfigError(f"model {spec.name!r}: recurrent layers of different dims in one pool")
    pools += [builder.state(attention, count) for attention, count in states]
    return tuple(pools)


_DRAFTED = (FullAttention, MlaAttention, SlidingWindow, LatentWindow, SparseIndex)
"""Attentions of draft layers that SGLang 0.5.23 has a place for."""


def _draft_layers(spec: ModelSpec) -> Layers:
    if not spec.draft_layers:
        raise ConfigError(f"model {spec.name!r} has no draft layers; leave --draft out")
    layers = _counted(spec, spec.draft_layers)
    unknown = sorted({kind.attention for kind, _ in layers.values() if not isinstance(kind, _DRAFTED)})
    if unknown:
        raise ConfigError(
            f"model {spec.name!r}: how draft layers of attention {', '.join(unknown)} are pooled is not "
            "known; leave --draft out"
        )
    return layers


def _draft_pools(builder: PoolBuilder, draft: Layers) -> tuple[KVPoolDescriptor, ...]:
    """Pools of the draft (MTP) layers alone: they make decoding fast, and never constrain a restore."""
    builder = replace(builder, required_for=Requirement.SPEED)
    dense, latent = layers_of(draft, FullAttention), layers_of(draft, MlaAttention)
    windows = layers_of(draft, SlidingWindow)
    pools = []
    if dense or latent:
        pools.append(_anchor(builder, PoolName.DRAFT.value, dense, latent))
    if windows:
        tokens = _window_of(windows)
        pools.append(_windowed(builder, AttentionType.SWA, windows, tokens, tokens, PoolName.DRAFT_SWA.value))
    pools += [
        _latent_windowed(builder, PoolName.DRAFT_SWA, window, count)
        for window, count in layers_of(draft, LatentWindow)
    ]
    pools += [
        builder.index(PoolName.DRAFT_INDEXER.value, index, count)
        for index, count in layers_of(draft, SparseIndex)
    ]
    return tuple(pools)


PROFILES: Mapping[str, Grouping] = MappingProxyType({SGLANG: _sglang_pools, BY_KIND: _by_kind_pools})
