"""Whole configs against the presets, which were written from other sources; what is refused; properties."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.config.load import load_model
from hicache_bench.errors import ConfigError
from hicache_bench.models.engine_profile import SGLANG, pools_of
from hicache_bench.models.hf.importer import MAX_CONFIG_BYTES, import_config, read_config
from hicache_bench.models.spec import ModelSpec
from tests.models.hf.configs import CONFIGS, FP8_WEIGHTS, attention_of, dense

LLAMA = CONFIGS["llama-3.1-8b"]


def cached(spec: ModelSpec) -> list[Counter]:
    """What each layer caches, whatever its attentions are called."""
    return [Counter(spec.attentions[name] for name in names) for names in spec.layers]


@pytest.mark.parametrize("name", CONFIGS)
def test_published_config_is_the_preset(name):
    spec, preset = import_config(CONFIGS[name], name=name).spec, load_model(name).spec
    assert cached(spec) == cached(preset)
    for field in ("name", "architecture", "page_tokens", "kv_dtype", "state_dtype", "conv_dtype"):
        assert getattr(spec, field) == getattr(preset, field), field
    assert (spec.logical_anchor, spec.served_by) == (preset.logical_anchor, preset.served_by)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_attention_has_its_sources(name):
    model = import_config(CONFIGS[name])
    assert set(model.sources) == set(model.spec.attentions)
    fields = {field for source in model.sources.values() for field in source.split(", ")}
    assert all(field.split(".")[0] in CONFIGS[name] for field in fields), fields


@pytest.mark.parametrize("name", CONFIGS)
def test_no_published_config_needs_a_warning(name):
    assert [note for note in import_config(CONFIGS[name]).notes if note.startswith("warning")] == []


@pytest.mark.parametrize(
    ("name", "default"),
    [("llama-3.1-8b", 1), ("deepseek-v3", 1), ("glm-5", 64), ("deepseek-v3.2", 64), ("deepseek-v4-pro", 256)],
)
def test_default_page_of_the_engine(name, default):
    assert import_config(CONFIGS[name]).spec.engine_default_page_tokens == default


def test_e78_layers_with_an_index_are_fewer_than_layers_with_a_latent():
    counts = import_config(CONFIGS["glm-5.2"]).spec.layer_counts
    assert dict(counts) == {"latent": 78, "index": 21}


def test_e69_bytes_of_a_deepseek_token():
    (pool,) = pools_of(import_config(CONFIGS["deepseek-v3"]).spec, profile=SGLANG)
    assert pool.unit_bytes // pool.unit_tokens == 70_272


def test_e68_given_head_dim_wins_over_hidden_size():
    config = dense("Qwen3ForCausalLM", "qwen3", 36, 2560, 32, 8, head_dim=128)
    (pool,) = pools_of(import_config(config).spec, profile=SGLANG)
    assert pool.unit_bytes // pool.unit_tokens == 147_456
    derived = import_config({name: value for name, value in config.items() if name != "head_dim"}).spec
    assert attention_of(derived, "full").head_dim == 128  # and not the 80 of hidden size by heads


def windowed_bytes(spec: ModelSpec, tokens: int) -> int:
    """Bytes of K and V that ``tokens`` tokens need, each layer by its own rule."""
    total = 0
    for name, count in spec.layer_counts.items():
        attention = attention_of(spec, name)
        kept = min(tokens, getattr(attention, "window", tokens))
        total += count * kept * 2 * 2 * attention.kv_heads * attention.head_dim
    return total


def test_e71_windows_are_not_charged_as_full_attention():
    gpt_oss = import_config(CONFIGS["gpt-oss-20b"]).spec
    assert windowed_bytes(gpt_oss, 8192) * 32 / 2**30 == pytest.approx(6.09, abs=0.005)
    small = dense("Gemma3ForCausalLM", "gemma3_text", 26, 1152, 4, 1, head_dim=256, sliding_window=512)
    gemma = import_config(small | {"sliding_window_pattern": 6}).spec
    assert windowed_bytes(gemma, 32_768) == 139 * 2**20
    assert len(gemma.layers) * 32_768 * 1024 == 832 * 2**20


@pytest.mark.parametrize(
    "path", [["text_config"], ["llm_config"], ["language_config"], ["thinker_config", "text_config"]]
)
def test_e81_nested_dims_beat_those_of_the_top(path):
    config = {name: value for name, value in LLAMA.items() if name != "architectures"}
    for name in reversed(path):
        config = {name: config, "num_hidden_layers": 27, "hidden_size": 1152, "num_attention_heads": 16}
    config["architectures"] = ["LlamaForCausalLM"]
    model = import_config(config)
    assert model.spec.layer_counts == {"full": 32}
    assert model.sources["full"].startswith(".".join(path))


def test_e81_an_empty_nested_config_is_no_reason_to_read_the_top():
    with pytest.raises(ConfigError, match=r"text_config\.num_hidden_layers"):
        import_config({**LLAMA, "text_config": {"model_type": "llama"}})


def test_two_nested_configs_are_ambiguous():
    with pytest.raises(ConfigError, match="llm_config and language_config"):
        import_config({"language_config": dict(LLAMA), "llm_config": dict(LLAMA)} | {"text_config": None})


def test_e75_weights_say_nothing_of_the_cache():
    plain, quantized = import_config(LLAMA), import_config(LLAMA | {"quantization_config": FP8_WEIGHTS})
    assert quantized.spec == plain.spec
    assert any("quantization is that of weights" in note for note in quantized.notes)
    scheme = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    named = import_config(LLAMA | {"quantization_config": scheme})
    assert named.spec == plain.spec
    assert any(note.startswith("warning") and "--kv-dtype" in note for note in named.notes)


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({"torch_dtype": "float16"}, "fp16"),
        ({"dtype": "bfloat16"}, "bf16"),
        ({"dtype": "torch.bfloat16", "torch_dtype": "bfloat16"}, "bf16"),
        ({"torch_dtype": None}, "bf16"),
        ({"torch_dtype": "auto"}, "bf16"),
    ],
)
def test_kv_dtype(fields, dtype):
    model = import_config(LLAMA | fields)
    assert model.spec.kv_dtype == dtype
    assumed = any("dtype is absent" in note for note in model.notes)
    assert assumed is (fields.get("torch_dtype", "float16") in (None, "auto"))


@pytest.mark.parametrize(("model_type", "dtype"), [("llama", "fp16"), ("gemma2", "bf16"), ("gemma", "bf16")])
def test_fp32_is_lowered_as_sglang_does(model_type, dtype):
    model = import_config(LLAMA | {"model_type": model_type, "torch_dtype": "float32", "head_dim": 128})
    assert model.spec.kv_dtype == dtype
    assert f"the config's dtype is fp32, which SGLang 0.5.23 lowers: KV is {dtype}" in model.notes


def test_fp32_of_gemma_2_is_not_twice_its_size():
    gemma = CONFIGS["gemma-3-27b"]
    lowered = import_config(gemma | {"torch_dtype": "float32"}).spec
    sizes = [
        sum(pool.unit_bytes for pool in pools_of(spec, profile=SGLANG))
        for spec in (lowered, import_config(gemma).spec)
    ]
    assert sizes[0] == sizes[1] > 0


def test_state_dtype_is_the_field_that_the_engine_reads():
    nano = CONFIGS["nemotron-3-nano-30b-a3b"]
    assert import_config(nano | {"mamba_ssm_cache_dtype": "bfloat16"}).spec.state_dtype == "fp32"
    assert import_config(nano | {"mamba_ssm_dtype": "bfloat16"}).spec.state_dtype == "bf16"
    nested = CONFIGS["qwen3.5-35b-a3b"] | {"mamba_ssm_dtype": "bfloat16"}
    assert import_config(nested).spec.state_dtype == "fp32"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"_name_or_path": "meta-llama/Llama-3.1-8B"}, "llama-3.1-8b"),
        ({"_name_or_path": "C:\\models\\My Model\\"}, "my-model"),
        ({"_name_or_path": "", "model_type": "gpt_oss"}, "gpt_oss"),
        ({"_name_or_path": "模型", "model_type": None}, "imported-model"),
        ({"_name_or_path": "x" * 100}, "x" * 64),
    ],
)
def test_name(fields, name):
    assert import_config(LLAMA | fields).spec.name == name
    assert import_config(LLAMA | fields, name="mine").spec.name == "mine"


def test_unknown_architecture_is_imported_with_a_warning():
    model = import_config(LLAMA | {"architectures": ["NewForCausalLM"], "model_type": "new"})
    assert model.spec.layers == import_config(LLAMA).spec.layers
    assert (model.spec.architecture, model.spec.served_by) == ("NewForCausalLM", ())
    assert any(note.startswith("warning: architecture 'NewForCausalLM'") for note in model.notes)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_type": "t5", "is_encoder_decoder": True, "num_layers": 6, "d_model": 512},
            "encoder-decoder",
        ),
        (
            {
                "model_type": "vit",
                "num_hidden_layers": 12,
                "hidden_size": 768,
                "num_attention_heads": 12,
                "patch_size": 16,
            },
            "vision",
        ),
        (
            {
                "model_type": "x",
                "vocab_size": 32,
                "num_hidden_layers": 12,
                "hidden_size": 768,
                "feat_extract_norm": "group",
            },
            "audio",
        ),
        (
            {"model_type": "bert", "num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12},
            "encoder",
        ),
        ({"vision_config": {"num_hidden_layers": 12}}, "num_hidden_layers"),
        ({}, "num_hidden_layers"),
        (LLAMA | {"use_bidirectional_attention": True}, "bidirectional"),
        (LLAMA | {"model_type": "longcat_flash"}, "two attentions"),
        (LLAMA | {"torch_dtype": "float8"}, "torch_dtype"),
        (LLAMA | {"architectures": [7]}, "architectures"),
        (LLAMA | {"text_config": "llama"}, "text_config"),
        (
            LLAMA
            | {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "sliding_window": 4096, "model_type": "mistral"},
            "latent with a window",
        ),
    ],
)
def test_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        import_config(config)


@pytest.mark.parametrize("value", [0, -8, True, 8.0, "8", [8], 2**24 + 1, pytest.param(10**5000, id="huge")])
@pytest.mark.parametrize(
    "field", ["num_hidden_layers", "num_key_value_heads", "hidden_size", "num_attention_heads"]
)
def test_impossible_dimension_is_named(field, value):
    with pytest.raises(ConfigError, match=field) as caught:
        import_config(LLAMA | {field: value})
    assert len(str(caught.value)) < 300


def test_an_encoder_class_used_as_a_decoder_has_a_cache():
    bert = {"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    assert import_config(bert | {"is_decoder": True}).spec.layer_counts == {"full": 2}


def test_too_many_layers():
    assert len(import_config(LLAMA | {"num_hidden_layers": 10_000}).spec.layers) == 10_000
    with pytest.raises(ConfigError, match="10,001 layers"):
        import_config(LLAMA | {"num_hidden_layers": 10_001})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"num_hidden_layers": 3', r"line 1, column 24.*is the file whole"),
        (b"[1, 2]", "a list, and must be a JSON object"),
        (b"", "not JSON"),
        (b'{"a": 1, "b": {"c": 2, "c": 3}}', "'c' is there twice"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a number of 5,000 digits, .* correct the field"),
        (b" " * (MAX_CONFIG_BYTES + 1), r"16,777,217 bytes"),
    ],
    ids=["truncated", "list", "empty", "duplicate", "nan", "utf8", "deep", "digits", "large"],
)
def test_unreadable_content(content, message):
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(content, file="config.json")
    assert str(caught.value).startswith("config.json: ")
    assert "\n" not in str(caught.value)


def test_readable_content():
    assert read_config(b'\xef\xbb\xbf{"time_step_limit": [0.0, Infinity]}', file="x")["time_step_limit"][
        1
    ] == float("inf")
    text = json.dumps(CONFIGS["nemotron-3-nano-30b-a3b"]).encode()
    assert read_config(text, file="x") == CONFIGS["nemotron-3-nano-30b-a3b"]


def shuffled(value: Any, generator: random.Random) -> Any:
    if isinstance(value, dict):
        names = list(value)
        generator.shuffle(names)
        return {name: shuffled(value[name], generator) for name in names}
    return value


@given(name=st.sampled_from(sorted(CONFIGS)), seed=st.integers(0, 2**32))
def test_order_of_fields_does_not_matter(name, seed):
    config = shuffled(CONFIGS[name], random.Random(seed))  # noqa: S311
    assert import_config(config) == import_config(CONFIGS[name])


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=300)
@given(data=st.data())
def test_any_value_in_any_field_is_read_or_refused(data):
    config = dict(CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))])
    level = config
    if "text_config" in config and data.draw(st.booleans()):
        level = config["text_config"] = dict(config["text_config"])
    level[data.draw(st.sampled_from(sorted(level)))] = data.draw(JSON_VALUES)
    # Any other exception than a ConfigError fails the test.
    with suppress(ConfigError):
        assert 1 <= len(import_config(config).spec.layers) <= 10_000


@given(config=st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=6))
def test_arbitrary_objects_are_refused(config):
    with pytest.raises(ConfigError):
        import_config(config)


@given(content=st.binary(max_size=64) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_arbitrary_content_is_an_object_or_refused(content):
    with suppress(ConfigError):
        assert isinstance(read_config(content, file="x"), dict)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_kv_that_an_index_selects_is_bf16(dtype):
    """SGLang 0.5.23 takes bf16 or fp8 there (``_dsa_kv_cache_dtype_default``)."""
    found = import_config(CONFIGS["glm-5"] | {"dtype": dtype, "torch_dtype": dtype})
    assert found.spec.kv_dtype == "bf16"
    assert "KV that an index selects is bf16 in SGLang 0.5.23, whatever dtype says" in found.notes
