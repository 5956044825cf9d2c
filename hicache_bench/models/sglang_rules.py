"""What SGLang 0.5.23 does with particular architectures, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence

from hicache_bench.errors import ConfigError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.spec import ModelSpec
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType, Layout

HYBRID_SWA_ARCHITECTURES = frozenset(
    {
        "BeamForCausalLM",
        "DeepseekV4ForCausalLM",
        "DiffusionGemmaForBlockDiffusion",
        "EmbeddingGemma2Model",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "GptOssForCausalLM",
        "GraniteMoeSWAForCausalLM",
        "GraniteSWAForCausalLM",
        "IQuestQ1ForCausalLM",
        "InklingForConditionalGeneration",
        "LagunaForCausalLM",
        "Llama4ForConditionalGeneration",
        "MellumForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiMoV2ForCausalLM",
        "MuseGlimmerForCausalLM",
        "MuseGlimmerForConditionalGeneration",
        "Step3p5ForCausalLM",
        "Step3p7ForConditionalGeneration",
        "UnlimitedOCRForCausalLM",
    }
)
"""Architectures whose windowed layers get a pool of their own; those of any other stay in the dense pool, all
pages. Source: SGLang 0.5.23 ``configs/model_config.py``, ``is_hybrid_swa_model`` (draft heads left out)."""

_WINDOW_MINUS_ONE = frozenset({"GptOssForCausalLM", "MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"})

INDEXED_ARCHITECTURES = frozenset(
    {
        "DeepseekV32ForCausalLM",
        "GlmMoeDsaForCausalLM",
        "MiniMaxM3SparseForCausalLM",
        "MiniMaxM3SparseForConditionalGeneration",
    }
)
"""Architectures whose attention reads what an index selects: KV without its index restores wrong answers."""

_HEADED = (AttentionType.FULL, AttentionType.SWA, AttentionType.CHUNKED)
_DCP_LAYOUTS = (Layout.LAYER_FIRST, Layout.PAGE_FIRST, Layout.PAGE_FIRST_DIRECT)


def engine_window(architecture: str, window: int) -> int:
    """The window that the cache is handed: some models leave out the query's own token.

    Source: facts/geometry.md §5 (gpt-oss: 127 of 128; MiMo-V2: 128, where the model's mask spans 129).
    """
    return window - (architecture in _WINDOW_MINUS_ONE)


def check_sglang(spec: ModelSpec, deployment: Deployment, pools: Sequence[KVPoolDescriptor]) -> None:
    """Refuse what SGLang 0.5.23 refuses at start, with its reason.

    Raises:
        ConfigError: a host layout that a pool's class does not have; MiniMax-M3 over pipeline stages;
            context-parallel shards.
    """
    for pool in pools:
        _check_layout(spec, deployment, pool)
    if deployment.cp_sharded:
        raise ConfigError(
            f"model {spec.name!r}: SGLang 0.5.23 has no host pool whose tokens context-parallel ranks share "
            "out; use --cp N:replicated, --dcp, or --profile by_kind"
        )
    if deployment.dcp_size > 1 and deployment.layout not in _DCP_LAYOUTS:
        raise ConfigError(f"--dcp needs one of the layouts {', '.join(map(str, _DCP_LAYOUTS))}")
    if deployment.pp_size > 1 and spec.architecture.startswith("MiniMaxM3"):
        raise ConfigError(
            f"model {spec.name!r}: SGLang 0.5.23 serves MiniMax-M3 on one pipeline stage; use --pp 1"
        )


def _check_layout(spec: ModelSpec, deployment: Deployment, pool: KVPoolDescriptor) -> None:
    layout = deployment.layout
    equal_heads = len({component.object_bytes for component in pool.stored_components}) == 1
    head_outer = pool.attention in _HEADED and equal_heads
    if layout is Layout.PAGE_HEAD and not head_outer and not pool.is_logical:
        raise ConfigError(
            f"model {spec.name!r}: SGLang 0.5.23 has {layout} for K and V of equal heads only, not for pool "
            f"{pool.name!r}; use {Layout.PAGE_FIRST} or {Layout.PAGE_FIRST_DIRECT}"
        )
    unequal = pool.attention in _HEADED and not equal_heads
    if layout is Layout.LAYER_FIRST and (pool.attention is AttentionType.RECURRENT or unequal):
        raise ConfigError(
            f"model {spec.name!r}: SGLang 0.5.23 refuses {layout} for pool {pool.name!r}; "
            f"use {Layout.PAGE_FIRST} or {Layout.PAGE_FIRST_DIRECT}"
        )
    if deployment.tp_lcm is not None and layout is not Layout.PAGE_HEAD:
        raise ConfigError(
            f"--tp-lcm needs the head-outer layout, in which whole heads are contiguous; use --layout "
            f"{Layout.PAGE_HEAD} instead of {layout}"
        )
