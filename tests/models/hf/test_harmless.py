"""Fields that nobody reads: which stop an import, and which decide nothing."""

from __future__ import annotations

from typing import Any

import pytest

from hicache_bench.errors import ConfigError
from hicache_bench.models.hf.importer import import_config
from tests.models.hf.configs import CONFIGS, small

LLAMA = CONFIGS["llama-3.1-8b"]


@pytest.mark.parametrize(
    "field",
    [
        *("local_layer_ids", "x_attn_window", "kv_cache_ratio", "recurrent_depth", "attention_every"),
        *("ssm_rank", "use_cla", "cla_share_factor", "cross_layer_sharing", "num_self_decoder_layers"),
        *("reuse_layers", "share_layers", "kv_share_factor", "kv_sharing_start", "yoco_layers", "use_yoco"),
        *("share_kv_every", "layer_sharing_map", "num_shared_layers", "kv_reuse_map", "shared_kv_layers"),
    ],
)
def test_a_field_that_may_decide_is_not_passed_over(field):
    with pytest.raises(ConfigError, match=field):
        import_config(LLAMA | {field: 4})
    assert import_config(LLAMA | {field: None}).spec == import_config(LLAMA).spec


@pytest.mark.parametrize("field", ["use_cla", "cla_share_factor", "cross_layer_sharing", "reuse_layers"])
def test_sharing_that_is_switched_off_shares_nothing(field):
    values: tuple[Any, ...] = (False, 0, 1, None, [])
    for off in values:
        assert import_config(LLAMA | {field: off}) == import_config(LLAMA)
    for on in (True, 2, 1.0, "all", [1]):
        with pytest.raises(ConfigError, match=f"may decide what is cached and are not understood: {field}"):
            import_config(LLAMA | {field: on})


PUBLISHED_FIELDS: dict[str, dict[str, Any]] = {
    "llama-4-scout": {"for_llm_compressor": False, "floor_scale": 8192, "use_qk_norm": True},
    "falcon-h1-1.5b": {"mamba_use_mlp": True, "mamba_rms_norm": False, "mamba_norm_before_gate": False},
    "jamba-1.5-mini": {"mamba_inner_layernorms": True, "mamba_proj_bias": False, "num_logits_to_keep": 1},
    "step-3.5-flash": {"att_impl_type": "GQA", "share_expert_dim": 1280, "moe_layers_enum": "3,4"},
    "minimax-m2": {"shared_intermediate_size": 0, "qk_norm_type": "per_layer", "scoring_func": "sigmoid"},
    "deepseek-v3": {"n_shared_experts": 1, "moe_layer_freq": 1, "ep_size": 1},
    "qwen3-next-80b-a3b": {"shared_expert_intermediate_size": 512, "mlp_only_layers": []},
    "nemotron-3-nano-30b-a3b": {"moe_shared_expert_intermediate_size": 3712, "mamba_hidden_act": "silu"},
}


@pytest.mark.parametrize("name", PUBLISHED_FIELDS)
def test_more_fields_of_published_configs_change_nothing(name):
    config, more = CONFIGS[name], PUBLISHED_FIELDS[name]
    full = config | ({"text_config": config["text_config"] | more} if "text_config" in config else more)
    assert import_config(full) == import_config(config)


@pytest.mark.parametrize(
    ("model_type", "fields"),
    [
        (
            "bamba",
            {
                "attn_rotary_emb": 64,
                "attn_layer_indices": [0, 3],
                "mamba_n_heads": 8,
                "mamba_d_head": 16,
                "mamba_d_state": 16,
                "mamba_n_groups": 1,
                "mamba_d_conv": 4,
            },
        ),
        (
            "lfm2",
            {
                "full_attn_idxs": [1, 3],
                "conv_L_cache": 3,
                "conv_dim": 64,
                "conv_dim_out": 64,
                "conv_use_xavier_init": True,
                "block_dim": 64,
                "block_ff_dim": 128,
                "block_use_xavier_init": True,
                "num_heads": 4,
            },
        ),
        (
            "zamba2",
            {
                "layers_block_type": ["mamba", "hybrid", "mamba", "mamba"],
                "mamba_d_state": 16,
                "mamba_d_conv": 4,
                "mamba_expand": 2,
                "n_mamba_heads": 8,
                "mamba_headdim": 16,
                "mamba_ngroups": 2,
                "num_query_groups": 2,
                "lora_rank": 128,
                "use_shared_attention_lora": False,
                "use_shared_block_lora": True,
                "attention_hidden_size": 128,
            },
        ),
    ],
)
def test_fields_of_other_published_families(model_type, fields):
    assert len(import_config(small(4, model_type, **fields)).spec.layers) == 4


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attention_projection_layout", "fused_qkv"),
        ("add_swa_attention_sink_bias", True),
        ("attn_temperature_tuning", 4),
        ("cache_implementation", "hybrid"),
        ("lm_head_multiplier", 0.08),
        ("num_local_experts", 128),
        ("q_lora_rank", 1536),
        ("use_head_wise_attn_gate", True),
        ("layer_group_list", []),
    ],
)
def test_a_field_that_decides_nothing_is_passed_over(field, value):
    assert import_config(LLAMA | {field: value}) == import_config(LLAMA)
