"""Configs as model hubs publish them, cut down to fields that decide what is cached and fields that mislead.

The names are those of presets, which are an oracle written from other sources.
"""

from __future__ import annotations

from typing import Any

from hicache_bench.models.spec import ModelSpec

Config = dict[str, Any]


def dense(
    architecture: str, model_type: str, layers: int, hidden: int, heads: int, kv_heads: int, **more
) -> Config:
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "torch_dtype": "bfloat16",
        "vocab_size": 128256,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_cache": True,
        **more,
    }


def mla(architecture: str, model_type: str, layers: int, **more) -> Config:
    latent = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    return dense(architecture, model_type, layers, 7168, 128, 128, **latent, v_head_dim=128, **more)


def small(layers: Any = 4, model_type: Any = "llama", **fields: Any) -> Config:
    """A model of 4 heads of 16 and 2 KV heads, with ``fields`` beside them."""
    return dense("LlamaForCausalLM", model_type, layers, 64, 4, 2, **fields)


def attention_of(spec: ModelSpec, name: str) -> Any:
    """An attention, for tests that know its class."""
    return spec.attentions[name]


FP8_WEIGHTS = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
QWEN_WINDOW = {"sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 64}
GDN = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
}


def qwen35(layers: int, hidden: int, heads: int, value_heads: int) -> Config:
    """The sizes of the vision tower lie beside those of the text model."""
    text = dense("-", "qwen3_5_moe_text", layers, hidden, heads, 2, **GDN, head_dim=256)
    del text["architectures"], text["torch_dtype"]
    text |= {"dtype": "bfloat16", "linear_num_value_heads": value_heads, "mamba_ssm_dtype": "float32"}
    text |= {"full_attention_interval": 4, "attn_output_gate": True, "mtp_num_hidden_layers": 1}
    text["layer_types"] = (["linear_attention"] * 3 + ["full_attention"]) * (layers // 4)
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "text_config": text,
        "vision_config": {"depth": 27, "hidden_size": 1152, "num_heads": 16, "patch_size": 16},
    }


def nemotron(pattern: str, hidden: int, mamba_heads: int, kv_heads: int, **more) -> Config:
    mamba = {"mamba_num_heads": mamba_heads, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8}
    mamba |= {"conv_kernel": 4, "expand": 2, "chunk_size": 128, "use_mamba_kernels": True}
    config = dense("NemotronHForCausalLM", "nemotron_h", len(pattern), hidden, 32, kv_heads)
    return config | mamba | {"hybrid_override_pattern": pattern, "sliding_window": None, **more}


STEP_TYPES = (["full_attention"] + ["sliding_attention"] * 3) * 12
SPARSE_M3 = {
    "use_sparse_attention": True,
    "sparse_attention_freq": [0] * 3 + [1] * 57,
    "sparse_disable_index_value": [0] * 3 + [1] * 57,
    "sparse_index_dim": 128,
    "sparse_num_index_heads": 4,
    "sparse_block_size": 128,
    "sparse_topk_blocks": 16,
    "sparse_local_block": 1,
    "sparse_init_block": 0,
    "sparse_score_type": "max",
}
V4 = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "torch_dtype": "bfloat16",
    "vocab_size": 129280,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 1024,
    "o_lora_rank": 1024,
    "o_groups": 8,
    "sliding_window": 128,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "num_nextn_predict_layers": 1,
    "compress_rope_theta": 160000,
    "quantization_config": FP8_WEIGHTS,
}

CONFIGS: dict[str, Config] = {
    "deepseek-v3": mla(
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        61,
        num_nextn_predict_layers=1,
        quantization_config=FP8_WEIGHTS,
    ),
    "kimi-k2": mla("DeepseekV3ForCausalLM", "kimi_k2", 61, num_nextn_predict_layers=0)
    | {"num_attention_heads": 64, "num_key_value_heads": 64},
    "deepseek-v3.2": mla(
        "DeepseekV32ForCausalLM", "deepseek_v32", 61, index_head_dim=128, index_n_heads=64, index_topk=2048
    ),
    "glm-5": mla(
        "GlmMoeDsaForCausalLM", "glm_moe_dsa", 78, index_head_dim=128, index_n_heads=32, index_topk=2048
    ),
    "glm-5.2": mla(
        "GlmMoeDsaForCausalLM", "glm_moe_dsa", 78, index_head_dim=128, index_n_heads=32, index_topk=2048
    )
    | {"index_topk_freq": 4, "index_skip_topk_offset": 3, "index_topk_pattern": None}
    | {"indexer_types": ["full"] * 3 + (["shared"] * 3 + ["full"]) * 18 + ["shared"] * 3}
    | {"index_share_for_mtp_iteration": True, "indexer_rope_interleave": True, "qk_head_dim": 256}
    | {"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 75, "head_dim": 192, "num_nextn_predict_layers": 1},
    "deepseek-v4-flash": V4
    | {"num_hidden_layers": 43, "index_topk": 512, "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0]},
    "deepseek-v4-pro": V4
    | {"num_hidden_layers": 61, "index_topk": 1024, "compress_ratios": [128, 128, *[4, 128] * 29, 4, 0]},
    "kimi-linear-48b-a3b": mla("KimiLinearForCausalLM", "kimi_linear", 27, head_dim=72, mla_use_nope=True)
    | {
        "linear_attn_config": {
            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
            "kda_layers": [number for number in range(1, 27) if number % 4],
            "num_heads": 32,
            "head_dim": 128,
            "short_conv_kernel_size": 4,
        }
    },
    "llama-3.1-8b": dense("LlamaForCausalLM", "llama", 32, 4096, 32, 8, pretraining_tp=1),
    "llama-3.1-70b": dense("LlamaForCausalLM", "llama", 80, 8192, 64, 8),
    "qwen3-32b": dense("Qwen3ForCausalLM", "qwen3", 64, 5120, 64, 8, head_dim=128, **QWEN_WINDOW),
    "qwen3-235b-a22b": dense("Qwen3MoeForCausalLM", "qwen3_moe", 94, 4096, 64, 4, head_dim=128, **QWEN_WINDOW)
    | {"decoder_sparse_step": 1, "mlp_only_layers": []},
    "qwen3-next-80b-a3b": dense("Qwen3NextForCausalLM", "qwen3_next", 48, 2048, 16, 2, head_dim=256, **GDN)
    | {"linear_num_value_heads": 32, "full_attention_interval": 4},
    "qwen3.5-35b-a3b": qwen35(40, 2048, 16, 32),
    "qwen3.5-397b-a17b": qwen35(60, 4096, 32, 64),
    "gpt-oss-120b": dense("GptOssForCausalLM", "gpt_oss", 36, 2880, 64, 8, head_dim=64, sliding_window=128)
    | {
        "layer_types": ["sliding_attention", "full_attention"] * 18,
        "initial_context_length": 4096,
        "num_local_experts": 128,
    },
    "gpt-oss-20b": dense("GptOssForCausalLM", "gpt_oss", 24, 2880, 64, 8, head_dim=64, sliding_window=128)
    | {
        "layer_types": ["sliding_attention", "full_attention"] * 12,
        "quantization_config": {"quant_method": "mxfp4"},
    },
    "llama-4-scout": {
        "architectures": ["Llama4ForConditionalGeneration"],
        "model_type": "llama4",
        "torch_dtype": "bfloat16",
        "text_config": dense("-", "llama4_text", 48, 5120, 40, 8, head_dim=128)
        | {"architectures": None, "attention_chunk_size": 8192, "no_rope_layers": [], "attn_scale": 0.1},
        "vision_config": {"num_hidden_layers": 34, "hidden_size": 1408, "num_attention_heads": 16},
    },
    "gemma-3-27b": {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": {
            "model_type": "gemma3_text",
            "head_dim": 128,
            "hidden_size": 5376,
            "num_attention_heads": 32,
            "num_hidden_layers": 62,
            "num_key_value_heads": 16,
            "query_pre_attn_scalar": 168,
            "sliding_window": 1024,
        },
        "vision_config": {"hidden_size": 1152, "num_attention_heads": 16, "num_hidden_layers": 27},
    },
    "nemotron-h-8b": nemotron(
        "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", 4096, 128, 8, attention_head_dim=128
    ),
    "nemotron-3-nano-30b-a3b": nemotron(
        "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", 2688, 64, 2, head_dim=128
    )
    | {"mamba_ssm_cache_dtype": "float32", "time_step_limit": [0.0, float("inf")]},
    "falcon-h1-1.5b": dense("FalconH1ForCausalLM", "falcon_h1", 24, 2048, 8, 2, head_dim=128)
    | {
        "mamba_d_ssm": 3072,
        "mamba_n_heads": 48,
        "mamba_d_head": 64,
        "mamba_d_state": 256,
        "mamba_n_groups": 1,
    }
    | {"mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 128, "attn_layer_indices": None},
    "jamba-1.5-mini": dense("JambaForCausalLM", "jamba", 32, 4096, 32, 8)
    | {
        "attn_layer_period": 8,
        "attn_layer_offset": 4,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    }
    | {"mamba_dt_rank": 256, "sliding_window": None},
    "minimax-text-01": dense("MiniMaxText01ForCausalLM", "minimax_text_01", 80, 6144, 64, 8, head_dim=128)
    | {"attn_type_list": ([0] * 7 + [1]) * 10, "layernorm_linear_attention_alpha": 3.5},
    "minimax-m2": dense("MiniMaxM2ForCausalLM", "minimax_m2", 62, 3072, 48, 8, head_dim=128)
    | {"attn_type_list": [1] * 62, "use_mtp": True, "num_mtp_modules": 3, "mtp_transformer_layers": 1},
    "minimax-m3": {
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
        "model_type": "minimax_m3_vl",
        "torch_dtype": "bfloat16",
        "text_config": dense("-", "minimax_m3_vl_text", 60, 6144, 64, 4, head_dim=128)
        | {"architectures": None, "sparse_attention_config": SPARSE_M3},
    },
    "mistral-7b-v0.3": dense("MistralForCausalLM", "mistral", 32, 4096, 32, 8, sliding_window=None),
    "ministral-3-8b": {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "model_type": "mistral3",
        "dtype": "bfloat16",
        "text_config": dense("-", "ministral3", 34, 4096, 32, 8, head_dim=128) | {"architectures": None},
    },
    "step-3.5-flash": dense(
        "Step3p5ForCausalLM", "step3p5", 45, 4096, 64, 8, head_dim=128, sliding_window=512
    )
    | {"num_key_value_heads": None, "num_attention_groups": 8, "layer_types": STEP_TYPES}
    | {"num_nextn_predict_layers": 3}
    | {
        "attention_other_setting": {
            "attention_type": "sliding_attention",
            "num_attention_heads": 96,
            "num_attention_groups": 8,
            "head_dim": 128,
        }
    },
    "mimo-v2-flash": dense(
        "MiMoV2FlashForCausalLM", "mimo_v2_flash", 48, 4096, 64, 4, head_dim=192, v_head_dim=128
    )
    | {"sliding_window": 128, "sliding_window_size": 128, "attention_chunk_size": 128}
    | {
        "swa_num_attention_heads": 64,
        "swa_num_key_value_heads": 8,
        "swa_head_dim": 192,
        "swa_v_head_dim": 128,
    }
    | {"hybrid_layer_pattern": [int(i not in {0, 5, 11, 17, 23, 29, 35, 41, 47}) for i in range(48)]},
}
"""One published config for each preset of the catalogue."""
