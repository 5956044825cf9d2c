"""Configs of published models that are no presets, with what each of their layers caches worked out by hand.

The configs have the fields of the published files that decide what is cached, those that look as if they did,
and those that only one family has.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from hicache_bench.errors import ConfigError
from hicache_bench.models.engine_profile import BY_KIND, SGLANG, pools_of
from hicache_bench.models.hf.importer import import_config, read_config
from hicache_bench.pools.names import HitPolicy
from tests.models.hf.configs import Config, attention_of, dense, mla

LLLG = ["sliding_attention"] * 3 + ["full_attention"]
QWEN_OFF = {"use_sliding_window": False, "sliding_window": None, "max_window_layers": 28}
HUNYUAN = {
    "add_classification_head": False,
    "attention_head_dim": 128,
    "cla_share_factor": 2,
    "use_cla": False,
}
ZAMBA2_HYBRID = {6, 11, 17, 23, 29, 35, 41, 47, 53, 59, 65, 71, 77}
ZAMBA2: Config = dense("Zamba2ForCausalLM", "zamba2", 81, 3584, 32, 32) | {
    "layers_block_type": ["hybrid" if layer in ZAMBA2_HYBRID else "mamba" for layer in range(81)],
    "kv_channels": 112,
    "mamba_headdim": 64,
    "mamba_ngroups": 2,
    "num_query_groups": 32,
    "lora_rank": 128,
    "num_mem_blocks": 2,
    "use_mem_rope": True,
    "use_shared_attention_lora": False,
    "sliding_window": None,
}
GRANITE_TYPES = ["attention" if layer in (5, 15, 25, 35) else "mamba" for layer in range(40)]
MAMBA2 = {"mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1}

# name: config, bytes of a token in the pools of all pages (0: no such pool), layers of each kind
PUBLISHED: dict[str, tuple[Config, int, dict[str, int]]] = {
    "qwen2-7b": (
        dense("Qwen2ForCausalLM", "qwen2", 28, 3584, 28, 4)
        | {"use_sliding_window": True, "sliding_window": 131072, "max_window_layers": 20},
        20 * 2 * 4 * 128 * 2,
        {"full": 20, "swa": 8},
    ),
    "gemma-2-9b": (
        dense("Gemma2ForCausalLM", "gemma2", 42, 3584, 16, 8, head_dim=256, sliding_window=4096)
        | {"sliding_window_size": 4096, "cache_implementation": "hybrid", "attn_logit_softcapping": 50.0}
        | {"query_pre_attn_scalar": 256, "torch_dtype": "float32"},
        21 * 2 * 8 * 256 * 2,
        {"full": 21, "swa": 21},
    ),
    "gemma-3n-e4b": (
        {
            "architectures": ["Gemma3nForConditionalGeneration"],
            "model_type": "gemma3n",
            "audio_config": {"conf_attention_chunk_size": 12, "conf_num_attention_heads": 8},
            "text_config": dense("-", "gemma3n_text", 35, 2048, 8, 2, head_dim=256, sliding_window=512)
            | {"architectures": None, "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7}
            | {"num_kv_shared_layers": 15, "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 25}
            | {"intermediate_size": [16384] * 35, "hidden_size_per_layer_input": 256},
        },
        4 * 2 * 2 * 256 * 2,
        {"full": 4, "swa": 16},
    ),
    "phi-3-mini-4k": (
        dense("Phi3ForCausalLM", "phi3", 32, 3072, 32, 32, sliding_window=2047),
        0,
        {"swa": 32},
    ),
    "glm-4.5-air": (
        dense("Glm4MoeForCausalLM", "glm4_moe", 46, 4096, 96, 8, head_dim=128)
        | {"num_nextn_predict_layers": 1, "first_k_dense_replace": 1},
        46 * 2 * 8 * 128 * 2,
        {"full": 46},
    ),
    "hunyuan-a13b": (
        dense("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", 32, 4096, 32, 8, head_dim=128)
        | HUNYUAN
        | {"kv_lora_rank": None, "q_lora_rank": None, "use_mla": False},
        32 * 2 * 8 * 128 * 2,
        {"full": 32},
    ),
    "command-r7b": (
        dense("Cohere2ForCausalLM", "cohere2", 32, 4096, 32, 8, head_dim=128, sliding_window=4096)
        | {"sliding_window_pattern": 4, "layer_switch": 4, "position_embedding_type": "rope_gptj"}
        | {"order_of_interleaved_layers": "local_attn_first", "cache_implementation": "hybrid"},
        8 * 2 * 8 * 128 * 2,
        {"full": 8, "swa": 24},
    ),
    "olmo-3-7b": (
        dense("Olmo3ForCausalLM", "olmo3", 32, 4096, 32, 32, sliding_window=4096, layer_types=LLLG * 8),
        8 * 2 * 32 * 128 * 2,
        {"full": 8, "swa": 24},
    ),
    "granite-4.0-h-small": (
        dense("GraniteMoeHybridForCausalLM", "granitemoehybrid", 40, 4096, 32, 8)
        | {"layer_types": GRANITE_TYPES, "layers_block_type": GRANITE_TYPES, "mamba_n_heads": 128, **MAMBA2}
        | {"attention_multiplier": 0.0078125, "mamba_chunk_size": 256, "position_embedding_type": "nope"},
        4 * 2 * 8 * 128 * 2,
        {"full": 4, "mamba2": 36},
    ),
    "zamba2-7b": (
        ZAMBA2
        | {"mamba_d_conv": 4, "mamba_d_state": 64, "mamba_expand": 2, "n_mamba_heads": 112}
        | {
            "attention_head_dim": 224,
            "attention_hidden_size": 7168,
            "hybrid_layer_ids": sorted(ZAMBA2_HYBRID),
        },
        13 * 2 * 32 * 224 * 2,
        {"full": 13, "mamba2": 81},
    ),
    "zamba2-7b of 2024": (
        ZAMBA2 | {"conv_dimension": 4, "expansion_factor": 2, "state_size": 64, "gated_linear_unit": True},
        13 * 2 * 32 * 224 * 2,
        {"full": 13, "mamba2": 81},
    ),
    "lfm2-1.2b": (
        dense("Lfm2ForCausalLM", "lfm2", 16, 2048, 32, 8, num_heads=32)
        | {"full_attn_idxs": [2, 5, 8, 10, 12, 14], "conv_L_cache": 3, "conv_dim": 2048, "block_dim": 2048},
        6 * 2 * 8 * 64 * 2,
        {"full": 6, "short_conv": 10},
    ),
    "bamba-9b": (
        dense("BambaForCausalLM", "bamba", 32, 4096, 32, 8, attn_layer_indices=[9, 18, 27])
        | {"mamba_n_heads": 128, "attn_rotary_emb": 64, **MAMBA2},
        3 * 2 * 8 * 128 * 2,
        {"full": 3, "mamba2": 29},
    ),
    "falcon-7b": (
        dense("FalconForCausalLM", "falcon", 32, 4544, 71, 0)
        | {"num_key_value_heads": None, "multi_query": True, "new_decoder_architecture": False},
        32 * 2 * 1 * 64 * 2,
        {"full": 32},
    ),
    "falcon-40b": (
        dense("FalconForCausalLM", "falcon", 60, 8192, 128, 0, num_kv_heads=8)
        | {"num_key_value_heads": None, "multi_query": True, "new_decoder_architecture": True},
        60 * 2 * 8 * 64 * 2,
        {"full": 60},
    ),
    "starcoder": (
        {
            "architectures": ["GPTBigCodeForCausalLM"],
            "model_type": "gpt_bigcode",
            "multi_query": True,
            "n_embd": 6144,
            "n_head": 48,
            "n_layer": 40,
            "n_inner": 24576,
            "vocab_size": 49152,
            "attention_softmax_in_fp32": True,
            "attn_pdrop": 0.1,
            "pre_allocate_kv_cache": True,
            "pad_key_length": True,
            "torch_dtype": "float32",
        },
        40 * 2 * 1 * 128 * 2,
        {"full": 40},
    ),
    "exaone-4.0-32b": (
        dense("Exaone4ForCausalLM", "exaone4", 64, 5120, 40, 8, head_dim=128, sliding_window=4096)
        | {"sliding_window_pattern": "LLLG", "layer_types": LLLG * 16},
        16 * 2 * 8 * 128 * 2,
        {"full": 16, "swa": 48},
    ),
    "smollm3-3b": (
        dense("SmolLM3ForCausalLM", "smollm3", 36, 2048, 16, 4, layer_types=["full_attention"] * 36)
        | {"no_rope_layers": [1, 1, 1, 0] * 9, "no_rope_layer_interval": 4, **QWEN_OFF},
        36 * 2 * 4 * 128 * 2,
        {"full": 36},
    ),
    "ernie-4.5-21b-a3b": (
        dense("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", 28, 2560, 20, 4)
        | {"use_flash_attention": False, "moe_layer_interval": 1, "moe_num_experts": 64},
        28 * 2 * 4 * 128 * 2,
        {"full": 28},
    ),
    "minicpm3-4b": (
        dense("MiniCPM3ForCausalLM", "minicpm3", 62, 2560, 40, 40, kv_lora_rank=256, q_lora_rank=768)
        | {"qk_nope_head_dim": 64, "qk_rope_head_dim": 32},
        62 * (256 + 32) * 2,
        {"mla": 62},
    ),
    "dots.llm1": (
        dense("Dots1ForCausalLM", "dots1", 62, 4096, 32, 32, layer_types=["full_attention"] * 62, **QWEN_OFF),
        62 * 2 * 32 * 128 * 2,
        {"full": 62},
    ),
    "ling-mini-2.0": (
        dense("BailingMoeV2ForCausalLM", "bailing_moe", 20, 2048, 16, 4, head_dim=128)
        | {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 20},
        20 * 2 * 4 * 128 * 2,
        {"full": 20},
    ),
    "nemotron-nano-9b-v2": (
        dense("NemotronHForCausalLM", "nemotron_h", 56, 4480, 40, 8, head_dim=128, sliding_window=None)
        | {"hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"}
        | {"mamba_num_heads": 128, "mamba_head_dim": 80, "ssm_state_size": 128, "n_groups": 8}
        | {"conv_kernel": 4, "expand": 2, "chunk_size": 128, "time_step_limit": [0.0, float("inf")]},
        4 * 2 * 8 * 128 * 2,
        {"full": 4, "mamba2": 27},
    ),
    "kimi-k3": (
        {
            "architectures": ["KimiK3ForConditionalGeneration"],
            "model_type": "kimi_k3",
            "text_config": mla("KimiLinearForCausalLM", "kimi_linear", 93, mla_use_nope=True)
            | {"attn_res_block_size": 12, "activation_situ_linear_beta": 25.0, "latent_moe_use_norm": True}
            | {
                "linear_attn_config": {
                    "full_attn_layers": [*range(4, 93, 4), 93],
                    "kda_layers": [number for number in range(1, 93) if number % 4],
                    "num_heads": 96,
                    "head_dim": 128,
                    "short_conv_kernel_size": 4,
                    "gate_lower_bound": -5.0,
                }
            },
        },
        24 * (512 + 64) * 2,
        {"mla": 24, "kda": 69},
    ),
    "decilm-7b": (
        dense("DeciLMForCausalLM", "deci", 32, 4096, 32, 0)
        | {"num_key_value_heads": None, "num_key_value_heads_per_layer": [4] * 16 + [2] * 8 + [1] * 8},
        0,
        {"full": 32},
    ),
    "openelm-270m": (
        {
            "architectures": ["OpenELMForCausalLM"],
            "model_type": "openelm",
            "vocab_size": 32000,
            "num_transformer_layers": 16,
            "model_dim": 1280,
            "head_dim": 64,
            "num_gqa_groups": 4,
            "num_kv_heads": [3] * 4 + [4] * 6 + [5] * 6,
            "num_query_heads": [12] * 4 + [16] * 6 + [20] * 6,
        },
        0,
        {"full": 16},
    ),
}


def counts_of(config: Config) -> dict[str, int]:
    """Layers of each attention, whatever its dimensions are."""
    spec = import_config(config).spec
    counts: dict[str, int] = {}
    for name, count in spec.layer_counts.items():
        kind = spec.attentions[name].attention
        counts[kind] = counts.get(kind, 0) + count
    return counts


@pytest.mark.parametrize("name", PUBLISHED)
def test_layers_of_a_published_model(name: str) -> None:
    config, _, layers = PUBLISHED[name]
    assert layers == counts_of(read_config(json.dumps(config).encode(), file=name))


@pytest.mark.parametrize("name", [name for name, (_, num_bytes, _) in PUBLISHED.items() if num_bytes])
def test_bytes_of_a_token(name: str) -> None:
    config, num_bytes, _ = PUBLISHED[name]
    spec = import_config(config).spec
    whole = [pool for pool in pools_of(spec, profile=BY_KIND) if pool.hit_policy is HitPolicy.ALL_PAGES]
    assert num_bytes * spec.page_tokens == sum(pool.unit_bytes for pool in whole)


@pytest.mark.parametrize(
    ("name", "state_bytes"),
    [
        # a state in fp32 and a convolution of 3 rows in bf16, or the convolution alone
        ("granite-4.0-h-small", 36 * (128 * 64 * 128 * 4 + (128 * 64 + 2 * 1 * 128) * 3 * 2)),
        ("zamba2-7b", 81 * (112 * 64 * 64 * 4 + (112 * 64 + 2 * 2 * 64) * 3 * 2)),
        ("zamba2-7b of 2024", 81 * (112 * 64 * 64 * 4 + (112 * 64 + 2 * 2 * 64) * 3 * 2)),
        ("bamba-9b", 29 * (128 * 64 * 128 * 4 + (128 * 64 + 2 * 1 * 128) * 3 * 2)),
        ("nemotron-nano-9b-v2", 27 * (128 * 80 * 128 * 4 + (128 * 80 + 2 * 8 * 128) * 3 * 2)),
        ("kimi-k3", 69 * (96 * 128 * 128 * 4 + 3 * 96 * 128 * 3 * 2)),
        ("lfm2-1.2b", 10 * 2048 * 2 * 2),
    ],
)
def test_bytes_of_a_state(name: str, state_bytes: int) -> None:
    pools = {pool.name: pool for pool in pools_of(import_config(PUBLISHED[name][0]).spec, profile=BY_KIND)}
    assert state_bytes == pools["mamba"].unit_bytes


RECURRENT_GEMMA = {"block_types": ["recurrent", "recurrent", "attention"], "attention_window_size": 2048}
UNSUPPORTED: dict[str, tuple[Config, str]] = {
    "hunyuan-large": (
        dense("HunYuanForCausalLM", "hunyuan", 64, 6400, 80, 8) | HUNYUAN | {"use_cla": True},
        "cla_share_factor, use_cla",
    ),
    "phi-3-small": (
        dense("Phi3SmallForCausalLM", "phi3small", 32, 4096, 32, 8, dense_attention_every_n_layers=2),
        "dense_attention_every_n_layers",
    ),
    "phi-4-mini-flash": (
        dense("Phi4FlashForCausalLM", "phi4flash", 32, 2560, 40, 20, sliding_window=[None, 512] * 16),
        "sliding_window is a list",
    ),
    "ring-mini-linear-2.0": (
        dense("BailingMoeLinearV2ForCausalLM", "bailing_moe_linear", 20, 2048, 16, 4, layer_group_size=5),
        "layer_group_size",
    ),
    "longcat-flash": (
        mla("LongcatFlashForCausalLM", "longcat_flash", 28, attention_method="MLA"),
        "longcat_flash.*two attentions",
    ),
    "llama-3.3-nemotron-super-49b": (
        dense("DeciLMForCausalLM", "nemotron-nas", 80, 8192, 64, 0)
        | {"num_key_value_heads": None, "block_configs": [{"attention": {"n_heads_in_group": 8}}] * 80},
        "block_configs",
    ),
    "hymba-1.5b": (
        dense("HymbaForCausalLM", "hymba", 32, 1600, 25, 5, kv_reuse_group=[[1, 2]], sliding_window=1024)
        | {"global_attn_idx": [0, 15, 31], "attn_window_size": 1024},
        "global_attn_idx",
    ),
    "dbrx": (
        {
            "architectures": ["DbrxForCausalLM"],
            "model_type": "dbrx",
            "n_layers": 40,
            "n_heads": 48,
            "d_model": 6144,
            "attn_config": {"kv_n_heads": 8},
            "vocab_size": 100352,
        },
        "attn_config",
    ),
    "recurrent-gemma": (
        dense("RecurrentGemmaForCausalLM", "recurrent_gemma", 26, 2560, 10, 1) | RECURRENT_GEMMA,
        "recurrent blocks",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_published_model_that_is_not_understood_is_refused_by_name(name: str) -> None:
    config, words = UNSUPPORTED[name]
    with pytest.raises(ConfigError, match=words) as refused:
        import_config(config)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"attention_head_dim": 64}, "attention_head_dim is 64"),
        ({"use_cla": True, "cla_share_factor": None}, "use_cla"),
        ({"use_cla": None}, "cla_share_factor"),
    ],
)
def test_a_hunyuan_that_says_something_else_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        import_config(PUBLISHED["hunyuan-a13b"][0] | fields)


def test_zamba2_without_heads_needs_a_head_size_that_fits() -> None:
    config = PUBLISHED["zamba2-7b of 2024"][0]
    with pytest.raises(ConfigError, match="heads of 60 do not make the inner size 7168"):
        import_config(config | {"mamba_headdim": 60})


@pytest.mark.parametrize(
    ("name", "heads"), [("decilm-7b", {4: 16, 2: 8, 1: 8}), ("openelm-270m", {3: 4, 4: 6, 5: 6})]
)
def test_heads_of_each_layer_are_read_and_that_no_pool_holds_them_is_told(
    name: str, heads: dict[int, int]
) -> None:
    model = import_config(PUBLISHED[name][0])
    counts = {
        attention_of(model.spec, kind).kv_heads: count for kind, count in model.spec.layer_counts.items()
    }
    assert heads == counts
    assert any("full layers differ in their dimensions (full_1, full_2, full_3)" in n for n in model.notes)
    for profile in (BY_KIND, SGLANG):
        with pytest.raises(ConfigError, match="one pool has one row size"):
            pools_of(model.spec, profile=profile)
