"""The configuration classes of transformers as an oracle: their defaults, saved and imported."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import ConfigError
from hicache_bench.models.hf.importer import import_config, read_config
from hicache_bench.models.spec import FullAttention, MlaAttention, SlidingWindow
from tests.models.hf.test_importer import cached

transformers = pytest.importorskip("transformers", reason="transformers 5 needs Python 3.11 or later")

from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402

PUBLISHED = {
    "DeepseekV3Config": "deepseek-v3",
    "DeepseekV32Config": "deepseek-v3.2",
    "GlmMoeDsaConfig": "glm-5",
    "GptOssConfig": "gpt-oss-120b",
    "JambaConfig": "jamba-1.5-mini",
    "Llama4TextConfig": "llama-4-scout",
    "Llama4Config": "llama-4-scout",
    "MiniMaxM2Config": "minimax-m2",
    "Ministral3Config": "ministral-3-8b",
    "Qwen3NextConfig": "qwen3-next-80b-a3b",
    "Qwen3_5MoeTextConfig": "qwen3.5-35b-a3b",
    "Qwen3_5MoeConfig": "qwen3.5-35b-a3b",
}
"""Classes whose defaults are a published model, and its preset."""


def saved(config) -> dict:
    """What ``save_pretrained`` would write, read back from its bytes."""
    return read_config(json.dumps(config.to_dict()).encode(), file="config.json")


@pytest.mark.parametrize("class_name", PUBLISHED)
def test_defaults_are_the_published_model(class_name):
    spec = import_config(saved(getattr(transformers, class_name)())).spec
    preset = load_model(PUBLISHED[class_name]).spec
    assert cached(spec) == cached(preset)
    assert (spec.page_tokens, spec.kv_dtype, spec.state_dtype) == (64, "bf16", "fp32")


def test_sparse_layers_of_minimax_m3():
    types = ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57
    spec = import_config(saved(transformers.MiniMaxM3VLTextConfig(layer_types=types))).spec
    assert cached(spec) == cached(load_model("minimax-m3").spec)
    dense = import_config(saved(transformers.MiniMaxM3VLTextConfig()))
    assert dense.spec.layer_counts == {"full": 60}
    assert any("no layer of layer_types has an index" in note for note in dense.notes)


def test_windows_of_mimo():
    """The class says nothing of the heads of sliding layers; its window counts the query's own token."""
    for spec in (
        import_config(saved(transformers.MiMoV2FlashConfig())).spec,
        load_model("mimo-v2-flash").spec,
    ):
        kinds = Counter(type(spec.attentions[name]) for names in spec.layers for name in names)
        windows = [kind.window for kind in spec.attentions.values() if isinstance(kind, SlidingWindow)]
        assert kinds == {FullAttention: 9, SlidingWindow: 39}
        assert windows == [129]


QWEN3 = transformers.Qwen3Config(
    num_hidden_layers=40, use_sliding_window=True, sliding_window=4096, max_window_layers=28
)


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        (transformers.Gemma2Config(), 13),
        (transformers.Gemma3TextConfig(num_hidden_layers=62), 52),
        (transformers.Gemma3nTextConfig(), 16),
        (transformers.GptOssConfig(num_hidden_layers=24), 12),
        (transformers.Olmo3Config(), 24),
        (transformers.Cohere2Config(), 30),
        (transformers.MinistralConfig(), 32),
        (transformers.Qwen2Config(), 0),
        (QWEN3, 12),
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_what_a_config_leaves_out_is_what_its_class_fills_in(config, windows):
    explicit = saved(config)
    implicit = {name: value for name, value in explicit.items() if not name.endswith(("_types", "_pattern"))}
    assert import_config(implicit).spec.layers == import_config(explicit).spec.layers
    assert import_config(implicit).spec.layer_counts.get("window", 0) == windows


def causal_configs() -> list[Any]:
    """Every causal class that needs no arguments."""
    names = sorted(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - {"gemma4_assistant"})
    return [CONFIG_MAPPING[name]() for name in names]


def test_every_causal_class_is_imported_right_or_refused():
    """What is imported has the layers, windows, heads and head sizes of the class's own attributes."""
    outcomes: Counter[str] = Counter()
    for config in causal_configs():
        try:
            spec = import_config(saved(config)).spec
        except ConfigError:
            outcomes["refused"] += 1
            continue
        outcomes["imported"] += 1
        text = config.get_text_config()
        name = config.model_type
        assert len(spec.layers) == text.num_hidden_layers, name
        shared = getattr(text, "num_kv_shared_layers", 0) or 0
        types = (getattr(text, "layer_types", None) or [])[: len(spec.layers) - shared]
        windows = sum(
            n for key, n in spec.layer_counts.items() if isinstance(spec.attentions[key], SlidingWindow)
        )
        if types and not spec.logical_anchor:
            assert windows == types.count("sliding_attention"), name
        for attention in spec.attentions.values():
            if isinstance(attention, MlaAttention):
                assert (attention.kv_lora_rank, attention.qk_rope_head_dim) == (
                    text.kv_lora_rank,
                    text.qk_rope_head_dim,
                ), name
            if isinstance(attention, FullAttention) and not getattr(text, "per_layer_config", None):
                default = text.hidden_size // text.num_attention_heads
                given = getattr(text, "head_dim", None) or getattr(text, "attention_head_dim", None)
                given = given or getattr(text, "kv_channels", None) or default
                assert attention.head_dim == given, name
                if not getattr(text, "multi_query", False):
                    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
                    assert attention.kv_heads == heads, name
    assert outcomes["imported"] > 120
    assert outcomes["refused"] > 40
