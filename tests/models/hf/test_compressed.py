"""DeepSeek V4 configs, in the form of the hub and in that of transformers."""

from __future__ import annotations

import pytest

from hicache_bench.errors import ConfigError
from hicache_bench.models.hf.importer import import_config
from hicache_bench.models.spec import CompressedAttention, LatentWindow
from tests.models.hf.configs import CONFIGS, V4

FLASH = CONFIGS["deepseek-v4-flash"]
WORDS = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}


def test_attentions():
    spec = import_config(FLASH).spec
    assert spec.attentions == {
        "window": LatentWindow(nope_dim=448, rope_dim=64, window=128),
        "c4": CompressedAttention(ratio=4, nope_dim=448, rope_dim=64, index_head_dim=128, index_top_k=512),
        "c128": CompressedAttention(ratio=128, nope_dim=448, rope_dim=64),
    }
    assert spec.layer_counts == {"window": 43, "c4": 21, "c128": 20}


@pytest.mark.parametrize(("name", "c4", "c128"), [("deepseek-v4-flash", 21, 20), ("deepseek-v4-pro", 30, 31)])
def test_layers_of_the_published_models(name, c4, c128):
    counts = import_config(CONFIGS[name]).spec.layer_counts
    assert (counts["c4"], counts["c128"]) == (c4, c128)


def test_the_form_of_transformers_is_the_same_model():
    ratios = FLASH["compress_ratios"][:43]
    saved = {
        name: value for name, value in FLASH.items() if name not in ("compress_ratios", "qk_rope_head_dim")
    }
    saved |= {"layer_types": [WORDS[ratio] for ratio in ratios], "partial_rotary_factor": 0.125}
    rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    model = import_config(saved | {"compress_rates": rates})
    assert model.spec.layers == import_config(FLASH).spec.layers
    assert model.spec.attentions == import_config(FLASH).spec.attentions
    assert model.spec.draft_layers == ()
    assert any("MTP layer is not counted" in note for note in model.notes)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"compress_ratios": [0, 4, 8]}, "compress_ratios holds 8; known are 0, 4, 128"),
        ({"compress_ratios": [0, 4, True]}, "compress_ratios holds True"),
        ({"compress_ratios": [0, 4]}, "2 entries for 3 layers and 1 draft"),
        ({"compress_ratios": [0, 4, 4, 0, 0]}, "5 entries for 3 layers"),
        ({"compress_ratios": "044"}, "compress_ratios is '044'"),
        (
            {"compress_ratios": None, "layer_types": ["full_attention", *[WORDS[4]] * 2]},
            "layer_types holds 'full_att",
        ),
        (
            {"compress_rates": {"compressed_sparse_attention": 8}},
            "compress_rates.compressed_sparse_attention is 8",
        ),
        ({"qk_rope_head_dim": 512}, "leave nothing of a head of 512"),
        ({"qk_rope_head_dim": None}, "qk_rope_head_dim, and partial_rotary_factor is None"),
        ({"qk_rope_head_dim": None, "partial_rotary_factor": 0.3}, "partial_rotary_factor is 0.3"),
        ({"qk_rope_head_dim": None, "partial_rotary_factor": float("nan")}, "partial_rotary_factor is nan"),
        ({"index_topk": None}, "index_topk"),
        ({"sliding_window": None}, "sliding_window"),
        ({"kv_source_layer_ids": [0, 1]}, "kv_source_layer_ids"),
    ],
)
def test_impossible_field_is_named(fields, message):
    config = V4 | {"num_hidden_layers": 3, "index_topk": 512, "compress_ratios": [0, 4, 128]}
    assert import_config(config).spec.layers == (("window",), ("window", "c4"), ("window", "c128"))
    with pytest.raises(ConfigError, match=message):
        import_config(config | fields)
