"""What SGLang 0.5.23 does with particular architectures, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence

from hicache_bench.errors import ConfigError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.spec import ModelSpec, SparseIndex
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import PACKED_FP8, SCALED_FP8, dashed
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

_WINDOW_MINUS_ONE = frozenset(
    {
        "BeamForCausalLM",
        "DiffusionGemmaForBlockDiffusion",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "GptOssForCausalLM",
        "InklingForConditionalGeneration",
        "MellumForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiMoV2ForCausalLM",
        "MuseGlimmerForCausalLM",
        "MuseGlimmerForConditionalGeneration",
    }
)

INDEXED_ARCHITECTURES = frozenset(
    {
        "DeepseekV32ForCausalLM",
        "GlmMoeDsaForCausalLM",
        "MiniMaxM3SparseForCausalLM",
        "MiniMaxM3SparseForConditionalGeneration",
    }
)
"""Architectures whose attention reads what an index selects: KV without its index restores wrong answers."""

DSA_PAGE_TOKENS = 64
DSA_INDEX_HEAD_DIM = 128
"""What ``DSATokenToKVPool`` asserts on CUDA, where one index key stands for one token."""

_STATE_DTYPES = ("fp32", "bf16", "fp16")
_HEADED = (AttentionType.FULL, AttentionType.SWA, AttentionType.CHUNKED)
_DCP_LAYOUTS = (Layout.LAYER_FIRST, Layout.PAGE_FIRST, Layout.PAGE_FIRST_DIRECT)


def engine_window(architecture: str, window: int) -> int:
    """The window that the cache is handed: some models leave out the query's own token.

    Source: SGLang 0.5.23 ``resolve_sliding_window_size``, which asks the model's class for
    ``get_attention_sliding_window_size``. Of a class without it (Granite, IQuest, Laguna, Step, DeepSeek V4)
    the config's number is taken, although some of their masks are one shorter. So it is with MiMo-V2, but its
    config leaves the query's own token out: 128, where the mask spans 129. Gemma-3 has no pool of windows.
    """
    return window - (architecture in _WINDOW_MINUS_ONE)


def check_sglang(spec: ModelSpec, deployment: Deployment, pools: Sequence[KVPoolDescriptor]) -> None:
    """Refuse what SGLang 0.5.23 refuses at start, with its reason.

    Raises:
        ConfigError: a host layout that a pool's class does not have; a format of rows, states or index keys
            that it never allocates; MiniMax-M3 over pipeline stages; context-parallel shards.
    """
    for pool in pools:
        _check_layout(spec, deployment, pool)
    _check_kv_format(spec)
    _check_index(spec)
    _check_states(spec, pools)
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


def _check_kv_format(spec: ModelSpec) -> None:
    """Refuse rows that no pool class has.

    Source: SGLang 0.5.23 ``calculate_mla_kv_cache_dim`` (packed rows), ``MHATokenToKVPool`` (plain fp8 has no
    scales), ``_dsa_kv_cache_dtype_default``.
    """
    if spec.kv_dtype == SCALED_FP8:
        raise _never_allocated(
            spec,
            "--kv-dtype fp8-scaled",
            "keeps no scale per token beside K and V",
            "--kv-dtype fp8, bf16, fp16 or fp32",
        )
    if spec.kv_dtype == PACKED_FP8 and not _indexes(spec):
        raise _never_allocated(
            spec,
            "--kv-dtype fp8-packed",
            "packs scales into MLA rows only where an index selects them",
            "--kv-dtype fp8, bf16, fp16 or fp32",
        )
    if spec.kv_dtype in ("fp16", "fp32") and _indexes(spec):
        raise _never_allocated(
            spec,
            f"--kv-dtype {spec.kv_dtype}",
            "has MLA rows that an index selects in bf16 and fp8 alone",
            "--kv-dtype bf16, fp8 or fp8-packed",
        )


def _check_index(spec: ModelSpec) -> None:
    """Refuse index keys of tokens other than those of ``DSATokenToKVPool`` on CUDA.

    Its page is also that of the host pool and of the store. Source: SGLang 0.5.23 ``DSATokenToKVPool``, and
    ``_deepseek_family_overrides``, which sets pages of 64 tokens whatever is asked for.
    """
    for index in _indexes(spec):
        if index.index_head_dim != DSA_INDEX_HEAD_DIM:
            raise _never_allocated(
                spec,
                f"index_head_dim {index.index_head_dim}",
                f"has index keys of {DSA_INDEX_HEAD_DIM} dims alone",
                f"index_head_dim {DSA_INDEX_HEAD_DIM}",
            )
        if spec.index_dtype != "fp8":
            raise _never_allocated(
                spec,
                f"--index-dtype {spec.index_dtype}",
                "has fp4 index keys for DeepSeek V4 alone",
                "--index-dtype fp8",
            )
        if spec.page_tokens != DSA_PAGE_TOKENS:
            raise _never_allocated(
                spec,
                f"--page-tokens {spec.page_tokens}",
                f"serves an index with pages of {DSA_PAGE_TOKENS} tokens alone",
                f"--page-tokens {DSA_PAGE_TOKENS}",
            )


def _check_states(spec: ModelSpec, pools: Sequence[KVPoolDescriptor]) -> None:
    """Refuse states in fp8.

    Source: SGLang 0.5.23 choices of ``--mamba-ssm-dtype``; ``mamba2_state_dtype`` for convolutions.
    """
    if not any(pool.attention is AttentionType.RECURRENT for pool in pools):
        return
    for field, dtype in (("--state-dtype", spec.state_dtype), ("conv_dtype", spec.conv_dtype)):
        if dtype not in _STATE_DTYPES:
            raise _never_allocated(
                spec,
                f"{field} {dashed(dtype)}",
                f"has states in {', '.join(_STATE_DTYPES)} alone",
                f"{field} {' or '.join(_STATE_DTYPES)}",
            )


def _indexes(spec: ModelSpec) -> list[SparseIndex]:
    return [attention for attention in spec.attentions.values() if isinstance(attention, SparseIndex)]


def _never_allocated(spec: ModelSpec, given: str, reason: str, instead: str) -> ConfigError:
    return ConfigError(
        f"model {spec.name!r}: {given} is not what SGLang 0.5.23 allocates: it {reason}; use {instead}, or "
        "--profile by_kind"
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
