"""Dimensions of attentions, by every field that gives them."""

from __future__ import annotations

from typing import Any

import pytest

from hicache_bench.errors import ConfigError
from hicache_bench.models.engine_profile import SGLANG, pools_of
from hicache_bench.models.hf.importer import import_config
from hicache_bench.models.spec import (
    ChunkedAttention,
    FullAttention,
    GatedDelta,
    KimiDelta,
    Lightning,
    Mamba1,
    Mamba2,
    MlaAttention,
    ShortConv,
    SlidingWindow,
)
from tests.models.hf.configs import CONFIGS, attention_of, dense, small

LINEAR = ["linear_attention"] * 3 + ["full_attention"]
HEADS = {"mamba_n_heads": 8, "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_d_conv": 4}


def only(config: dict) -> Any:
    """The attention of the first layer, which all other layers have too, or full attention beside it."""
    spec = import_config(config).spec
    (first,) = spec.layers[0]
    assert set(spec.attentions) <= {first, "full"}
    return spec.attentions[first]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (small(head_dim=None), FullAttention(kv_heads=2, head_dim=16)),
        (small(head_dim=32), FullAttention(kv_heads=2, head_dim=32)),
        (small(attention_head_dim=32, kv_channels=8), FullAttention(kv_heads=2, head_dim=32)),
        (small(kv_channels=8), FullAttention(kv_heads=2, head_dim=8)),
        (small(v_head_dim=8), FullAttention(kv_heads=2, head_dim=16, v_head_dim=8)),
        (small(v_head_dim=16), FullAttention(kv_heads=2, head_dim=16)),
        (small() | {"num_key_value_heads": None}, FullAttention(kv_heads=4, head_dim=16)),
        (small() | {"num_key_value_heads": 1, "multi_query": True}, FullAttention(kv_heads=1, head_dim=16)),
        (
            small(model_type="falcon", num_kv_heads=4) | {"num_key_value_heads": None, "multi_query": True},
            FullAttention(kv_heads=1, head_dim=16),
        ),
        (small(num_query_groups=2), FullAttention(kv_heads=2, head_dim=16)),
        (small(num_query_groups=1) | {"num_key_value_heads": None}, FullAttention(kv_heads=1, head_dim=16)),
        (small(num_heads=4), FullAttention(kv_heads=2, head_dim=16)),
        (small(4, "zamba2", kv_channels=8), FullAttention(kv_heads=2, head_dim=32)),
        (
            small()
            | {
                "num_key_value_heads": None,
                "n_head_kv": 2,
                "multi_query": True,
                "new_decoder_architecture": True,
            },
            FullAttention(kv_heads=2, head_dim=16),
        ),
        (
            small()
            | {"num_key_value_heads": None, "multi_query_attention": True, "multi_query_group_num": 2},
            FullAttention(kv_heads=2, head_dim=16),
        ),
        (
            {"model_type": "gpt_bigcode", "n_layer": 2, "n_head": 4, "n_embd": 64, "multi_query": True},
            FullAttention(kv_heads=1, head_dim=16),
        ),
        (
            {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64},
            FullAttention(kv_heads=4, head_dim=16),
        ),
        (
            small(head_dim=64, kv_lora_rank=512, qk_rope_head_dim=64, v_head_dim=128),
            MlaAttention(kv_lora_rank=512, qk_rope_head_dim=64),
        ),
        (
            small(4, "mistral", sliding_window=8, swa_num_key_value_heads=1, swa_head_dim=24),
            SlidingWindow(kv_heads=1, head_dim=24, window=8),
        ),
        (
            small(4, "mistral", sliding_window=8, swa_head_dim=24, v_head_dim=12),
            SlidingWindow(kv_heads=2, head_dim=24, window=8),
        ),
        (
            small(4, "mistral", sliding_window=8, v_head_dim=12),
            SlidingWindow(kv_heads=2, head_dim=16, v_head_dim=12, window=8),
        ),
        (
            small(4, "mistral", sliding_window=8, swa_head_dim=24, swa_v_head_dim=8, v_head_dim=12),
            SlidingWindow(kv_heads=2, head_dim=24, v_head_dim=8, window=8),
        ),
        (
            small(no_rope_layers=[1] * 4, attention_chunk_size=8),
            ChunkedAttention(kv_heads=2, head_dim=16, chunk=8),
        ),
        (
            small(layer_types=["conv"] * 3 + ["full_attention"], conv_L_cache=3, conv_dim=64),
            ShortConv(channels=64, conv_kernel=3),
        ),
        (
            small(layer_types=LINEAR, linear_num_heads=4, linear_head_dim=8, linear_conv_kernel_dim=4),
            KimiDelta(heads=4, head_dim=8, conv_kernel=4),
        ),
        (
            small(
                layer_types=LINEAR,
                linear_num_key_heads=2,
                linear_num_value_heads=4,
                linear_key_head_dim=8,
                linear_value_head_dim=16,
                linear_conv_kernel_dim=3,
            ),
            GatedDelta(key_heads=2, value_heads=4, key_dim=8, value_dim=16, conv_kernel=3),
        ),
        (small(4, "minimax", layer_types=LINEAR, head_dim=32), Lightning(heads=4, head_dim=32)),
        (
            small(layer_types=LINEAR, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2),
            Mamba1(inner_dim=128, state_dim=16, conv_kernel=4),
        ),
        (
            small(layer_types=LINEAR, mamba_d_head=16, **HEADS),
            Mamba2(heads=8, head_dim=16, state_dim=16, groups=2, conv_kernel=4),
        ),
        (
            small(layer_types=LINEAR, mamba_d_head="auto", mamba_expand=2, **HEADS),
            Mamba2(heads=8, head_dim=16, state_dim=16, groups=2, conv_kernel=4),
        ),
        (
            small(layer_types=LINEAR, mamba_d_head="auto", mamba_expand=2, mamba_d_ssm=64, **HEADS),
            Mamba2(heads=8, head_dim=8, state_dim=16, groups=2, conv_kernel=4),
        ),
    ],
)
def test_dimensions(config, expected):
    assert only(config) == expected


PURE = {"num_hidden_layers": 2, "hidden_size": 64, "state_size": 16, "conv_kernel": 4, "expand": 2}


@pytest.mark.parametrize(
    "config",
    [
        PURE | {"model_type": "mamba"},
        PURE | {"model_type": "falcon_mamba"},
        PURE | {"model_type": "mamba2", "num_heads": 8, "head_dim": 16, "n_groups": 1},
        small(layer_types=["mamba"] * 4, mamba_d_head=16, **HEADS),
        small(layer_types=["conv"] * 4, conv_L_cache=3),
        small(layer_types=["mlp"] * 4),
    ],
)
def test_a_model_without_attention_has_no_anchor(config):
    with pytest.raises(ConfigError, match=r"not imported: no layer has attention.*anchor"):
        import_config(config)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"num_key_value_heads": 3}, ("num_key_value_heads is 3", "num_attention_heads 4")),
        ({"num_key_value_heads": 8}, ("num_key_value_heads is 8", "num_attention_heads 4")),
        ({"num_key_value_heads": [2, 2, 3, 2]}, ("num_key_value_heads is 3", "num_attention_heads 4")),
        ({"multi_query": True}, ("multi_query is true", "num_key_value_heads is 2")),
        (
            {"multi_query": True, "num_key_value_heads": None, "num_kv_heads": 2},
            ("multi_query is true", "num_kv_heads is 2"),
        ),
        ({"num_query_groups": 4}, ("num_key_value_heads is 2", "num_query_groups is 4")),
        ({"num_heads": 8}, ("num_attention_heads is 4", "num_heads is 8")),
        (
            {"multi_query_attention": True, "multi_query_group_num": 4},
            ("multi_query_group_num is 4", "num_key_value_heads is 2"),
        ),
        (
            {"model_type": "mistral", "sliding_window": 8, "swa_num_key_value_heads": 3},
            ("swa_num_key_value_heads is 3", "num_attention_heads 4"),
        ),
        (
            {
                "layer_types": ["sliding_attention"] * 4,
                "sliding_window": 8,
                "attention_other_setting": {"num_attention_heads": 6, "num_attention_groups": 4},
            },
            ("attention_other_setting.num_attention_groups is 4", "num_attention_heads 6"),
        ),
        (
            {"num_global_key_value_heads": 3, "attention_k_eq_v": True},
            ("num_global_key_value_heads is 3", "num_attention_heads 4"),
        ),
        (
            {"layer_types": LINEAR, "mamba_d_head": 16, **HEADS, "mamba_n_groups": 3},
            ("mamba_n_groups is 3", "mamba_n_heads 8"),
        ),
        ({"dtype": "float16"}, ("dtype is fp16", "torch_dtype is bf16")),
    ],
)
def test_a_contradiction_names_both_fields(fields, named):
    with pytest.raises(ConfigError, match="contradicts itself") as caught:
        import_config(small() | fields)
    assert all(part in str(caught.value) for part in named), str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mamba_d_head": 16, "mamba_d_ssm": 64}, "8 heads of 16 do not make"),
        ({"mamba_d_head": "auto", "mamba_d_ssm": 60}, "8 heads do not make"),
        ({"mamba_d_head": "auto"}, "mamba_expand is None"),
        ({"mamba_d_head": "auto", "mamba_expand": 0.3}, "no whole number"),
        ({"mamba_d_head": "auto", "mamba_expand": float("nan")}, "mamba_expand is nan"),
        ({"mamba_d_head": "auto", "mamba_expand": float("inf")}, "mamba_expand is inf"),
        ({"mamba_d_head": "wide"}, "mamba_d_head is 'wide'"),
        ({"mamba_d_head": 16, "mamba_n_groups": None}, "mamba_n_groups"),
    ],
)
def test_impossible_mamba_is_named(fields, message):
    with pytest.raises(ConfigError, match=message):
        import_config(small(layer_types=LINEAR, **{**HEADS, **fields}))


def test_heads_that_do_not_divide_the_hidden_size():
    with pytest.raises(ConfigError, match="hidden size 64 is no multiple of 5"):
        import_config(small() | {"num_attention_heads": 5, "num_key_value_heads": 5})


def test_absent_kv_heads_are_noted():
    model = import_config(small() | {"num_key_value_heads": None})
    assert any("num_key_value_heads is absent" in note for note in model.notes)
    assert model.sources["full"] == "num_attention_heads, hidden_size"


def test_layers_of_one_kind_that_differ_get_numbers():
    spec = import_config(small(head_dim=8) | {"num_key_value_heads": [4, 2, 4, 1]}).spec
    assert spec.layers == (("full_1",), ("full_2",), ("full_1",), ("full_3",))
    assert [attention_of(spec, f"full_{number}").kv_heads for number in (1, 2, 3)] == [4, 2, 1]


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([4, 2, 4], "has 3 entries for 4 layers"),
        ([4, 2, 4, 0], "num_key_value_heads is 0"),
        ([], "0 entries"),
    ],
)
def test_impossible_list_of_heads(heads, message):
    with pytest.raises(ConfigError, match=message):
        import_config(small(head_dim=8) | {"num_key_value_heads": heads})


GEMMA4 = dense("Gemma4ForCausalLM", "gemma4_text", 6, 64, 4, 2, head_dim=16, sliding_window=8) | {
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"]
}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"global_head_dim": 32}, FullAttention(kv_heads=2, head_dim=32)),
        ({"global_head_dim": 32, "num_global_key_value_heads": 1}, FullAttention(kv_heads=2, head_dim=32)),
        (
            {"global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": True},
            FullAttention(kv_heads=1, head_dim=32),
        ),
        (
            {"per_layer_config": {"05": {"head_dim": 32, "num_key_value_heads": 1}}},
            FullAttention(kv_heads=1, head_dim=32),
        ),
        (
            {"global_head_dim": 64, "per_layer_config": {"5": {"head_dim": 32}}},
            FullAttention(kv_heads=2, head_dim=32),
        ),
        ({"global_head_dim": None}, FullAttention(kv_heads=2, head_dim=16)),
        ({}, FullAttention(kv_heads=2, head_dim=512)),
    ],
)
def test_global_layers_of_gemma4(fields, expected):
    spec = import_config(GEMMA4 | fields).spec
    assert spec.attentions == {"window": SlidingWindow(kv_heads=2, head_dim=16, window=8), "full": expected}


@pytest.mark.parametrize(
    ("per_layer", "message"),
    [
        ({"6": {"head_dim": 32}}, "per_layer_config.6"),
        ({"last": {"head_dim": 32}}, "per_layer_config.last"),
        ({"5": 32}, "per_layer_config.5"),
        ({"5": {"kv_lora_rank": 32}}, "per_layer_config.5.kv_lora_rank"),
        ({"5": {"head_dim": 0}}, "head_dim is 0"),
    ],
)
def test_impossible_override_is_named(per_layer, message):
    with pytest.raises(ConfigError, match=message):
        import_config(GEMMA4 | {"per_layer_config": per_layer})


def test_window_of_mimo_counts_the_querys_own_token():
    config = CONFIGS["mimo-v2-flash"]
    assert attention_of(import_config(config).spec, "window").window == 129
    # SGLang takes either field as it stands.
    plain = {name: value for name, value in config.items() if name != "sliding_window_size"}
    assert plain["sliding_window"] == 128
    for spelling in (config, plain):
        spec = import_config(spelling).spec
        assert spec.attentions == import_config(config).spec.attentions
        (swa,) = (pool for pool in pools_of(spec, profile=SGLANG) if pool.name == "swa")
        assert (swa.window_tokens, swa.engine_window_tokens) == (129, 128)
    # transformers counts the query's own token, and writes layer_types for MiMo's pattern.
    types = ["sliding_attention" if layer else "full_attention" for layer in plain["hybrid_layer_pattern"]]
    saved = {name: value for name, value in plain.items() if name != "hybrid_layer_pattern"}
    saved |= {"sliding_window": 129, "layer_types": types}
    assert import_config(saved).spec.attentions == import_config(config).spec.attentions
    other = small(4, "mistral", sliding_window_size=128)
    assert only(other).window == 128


def test_windows_that_disagree():
    with pytest.raises(ConfigError, match="sliding_window_size is 8 and sliding_window is 9"):
        import_config(small(4, "mistral", sliding_window_size=8, sliding_window=9))
