"""Layer patterns: which kinds each layer has, by every field that says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import ConfigError
from hicache_bench.models.hf.importer import ImportedModel, import_config
from tests.models.hf.configs import CONFIGS, GDN, SPARSE_M3, small

MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_conv": 4}
DELTA = GDN | {"linear_num_value_heads": 32}


def layers_of(config: dict) -> list[str]:
    return ["+".join(names) for names in import_config(config).spec.layers]


def notes_of(model: ImportedModel) -> str:
    return "\n".join(model.notes)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 0},
            "full full full full full",
        ),
        (
            {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 28},
            "full full full full full",
        ),
        (
            {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 3},
            "full full full window window",
        ),
        (
            {"sliding_window": None, "use_sliding_window": True, "max_window_layers": 3},
            "full full full full full",
        ),
        ({"sliding_window": 4096, "max_window_layers": 3}, "full full full full full"),
        (
            {
                "sliding_window": 4096,
                "use_sliding_window": False,
                "max_window_layers": 0,
                "layer_types": ["sliding_attention"] + ["full_attention"] * 4,
            },
            "window full full full full",
        ),
    ],
)
def test_e79_windows_of_qwen(fields, expected):
    assert layers_of(small(5, "qwen2", **fields)) == expected.split()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (small(layer_types=["attention", "mamba", "moe", "mlp"], **MAMBA), ["full", "mamba", "", ""]),
        (small(layer_types=["hybrid", "linear_attention"] * 2, **MAMBA), ["full+mamba", "mamba"] * 2),
        (small(layers_block_type=["mamba2", "hybrid"] * 2, **MAMBA), ["mamba", "full+mamba"] * 2),
        (small(hybrid_override_pattern="M*-E", **MAMBA), ["mamba", "full", "", ""]),
        (small(hybrid_layer_pattern=[0, 1, 1, 0], sliding_window=8), ["full", "window", "window", "full"]),
        (small(hybrid_layer_pattern="M**M", **MAMBA), ["mamba", "full", "full", "mamba"]),
        (small(layer_types=["conv", "full_attention"] * 2, conv_L_cache=3), ["conv", "full"] * 2),
        (small(full_attn_idxs=[1, 2], conv_L_cache=3), ["conv", "full", "full", "conv"]),
        (small(attn_layer_indices=[3], **MAMBA), ["mamba", "mamba", "mamba", "full"]),
        (small(attn_layer_period=3, attn_layer_offset=1, **MAMBA), ["mamba", "full", "mamba", "mamba"]),
        (small(attn_type_list=[0, 1, 0, 1]), ["linear", "full"] * 2),
        (small(full_attention_interval=2, **DELTA), ["delta", "full"] * 2),
        (small(no_rope_layers=[1, 0, 0, 1], attention_chunk_size=8), ["chunk", "full", "full", "chunk"]),
        (small(no_rope_layer_interval=2, attention_chunk_size=8), ["chunk", "full"] * 2),
        (small(no_rope_layers=[1, 0, 0, 1]), ["full"] * 4),
        (small(no_rope_layers=[1, 0, 0, 1], attention_chunk_size=None), ["full"] * 4),
        (small(sliding_window_pattern=2, sliding_window=8), ["window", "full"] * 2),
        (small(sliding_window_pattern="LLG", sliding_window=8), ["window", "window", "full", "window"]),
        (small(sliding_window_pattern=2, sliding_window=None), ["full"] * 4),
        (small(4, "gemma2", sliding_window=8), ["window", "full"] * 2),
        (small(4, "mistral", sliding_window=8), ["window"] * 4),
        (small(sparse_attention_config=SPARSE_M3 | {"use_sparse_attention": False}), ["full"] * 4),
        (small(4, "falcon_h1", **MAMBA), ["full+mamba"] * 4),
    ],
)
def test_pattern(config, expected):
    assert layers_of(config) == expected


def test_layer_count_of_a_pattern_alone():
    config = small(hybrid_override_pattern="MM*", **MAMBA)
    del config["num_hidden_layers"]
    assert layers_of(config) == ["mamba", "mamba", "full"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layer_types": ["full_attention", "telepathy", "moe", "moe"]}, "layer_types holds 'telepathy'"),
        ({"layer_types": ["full_attention", 7, "moe", "moe"]}, "layer_types holds 7"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types has 3 layers, and the config 4"),
        ({"layer_types": 4}, "layer_types is 4"),
        ({"layer_types": []}, "layer_types has 0 layers"),
        ({"hybrid_override_pattern": "M*-X"}, "hybrid_override_pattern holds 'X'"),
        ({"hybrid_override_pattern": "M*-"}, "hybrid_override_pattern has 3 layers, and the config 4"),
        ({"hybrid_layer_pattern": [0, 1, 2, 0]}, "hybrid_layer_pattern holds 2"),
        ({"hybrid_layer_pattern": [0, True, 0, 0]}, "hybrid_layer_pattern holds True"),
        ({"attn_type_list": [0, 1]}, "attn_type_list has 2 layers"),
        ({"attn_type_list": [0, 1, 2, 1]}, "attn_type_list is 2"),
        ({"attn_layer_period": 4, "attn_layer_offset": 4}, "attn_layer_offset is 4"),
        ({"attn_layer_period": 4}, "attn_layer_offset is None"),
        ({"attn_layer_indices": [4]}, "attn_layer_indices is 4"),
        ({"attention_chunk_size": 8}, "no_rope_layer_interval"),
        ({"no_rope_layers": [1, 0], "attention_chunk_size": 8}, "no_rope_layers has 2 layers"),
        ({"layer_types": ["linear_attention"] * 4}, "linear_num_value_heads"),
        ({"layer_types": ["sliding_attention"] * 4}, "sliding_window"),
        ({"sliding_window": 8, "use_sliding_window": True}, "max_window_layers is absent"),
        ({"sliding_window": 8, "use_sliding_window": "yes"}, "use_sliding_window is 'yes'"),
        ({"sliding_window": 8, "sliding_window_pattern": "LGX"}, "sliding_window_pattern holds 'X'"),
        (
            {"layer_types": ["full_attention"] * 4, "hybrid_override_pattern": "M***"} | MAMBA,
            "contradicts itself",
        ),
        ({"num_hidden_layers": 4, "n_layer": 5}, "num_hidden_layers is 4 and n_layer is 5"),
        (
            {"sparse_attention_config": {"sparse_attention_freq": [0, 1]}},
            "sparse_attention_freq has 2 layers",
        ),
        ({"full_attention_interval": 0}, "full_attention_interval is 0"),
        (
            {
                "sparse_attention_config": SPARSE_M3
                | {
                    "sparse_attention_freq": [0, 1, 1, 1],
                    "sparse_disable_index_value": [1] * 4,
                    "sparse_window": 4,
                }
            },
            "sparse_attention_config.sparse_window",
        ),
    ],
)
def test_impossible_pattern_is_named(fields, message):
    with pytest.raises(ConfigError, match=message):
        import_config(small(**fields))


def test_an_index_that_caches_values_is_refused():
    sparse = SPARSE_M3 | {"sparse_attention_freq": [0, 1, 1, 1], "sparse_disable_index_value": [0, 1, 0, 1]}
    with pytest.raises(ConfigError, match="index with values"):
        import_config(small(sparse_attention_config=sparse))
    del sparse["sparse_disable_index_value"]
    assert "taken not to be cached" in notes_of(import_config(small(sparse_attention_config=sparse)))


def test_window_without_a_pattern_is_assumed_everywhere_with_a_warning():
    model = import_config(small(sliding_window=8))
    assert model.spec.layer_counts == {"window": 4}
    assert "warning: no layer pattern" in notes_of(model)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (([1, 2], [3]), "leave out layers .4."),
        (([1, 2], [2, 3, 4]), "names layer 2"),
        (([0], [1, 2, 3]), "full_attn_layers is 0"),
        (([5], [1, 2, 3]), "full_attn_layers is 5"),
    ],
)
def test_kimi_lists_are_counted_from_one_and_complete(lists, message):
    block = dict(zip(("full_attn_layers", "kda_layers"), lists, strict=True))
    block |= {"num_heads": 2, "head_dim": 8, "short_conv_kernel_size": 4}
    with pytest.raises(ConfigError, match=message):
        import_config(small(linear_attn_config=block))


@given(layers=st.integers(1, 40), interval=st.integers(1, 9), first=st.integers(1, 9))
def test_index_schedule_by_interval_and_by_letters_agree(layers, interval, first):
    config = CONFIGS["glm-5"] | {"num_hidden_layers": layers}
    scheduled = import_config(config | {"index_topk_freq": interval, "index_skip_topk_offset": first}).spec
    letters = "".join("F" if "index" in names else "S" for names in scheduled.layers)
    words = [{"F": "full", "S": "shared"}[letter] for letter in letters]
    assert letters[0] == "F"
    assert import_config(config | {"index_topk_pattern": letters}).spec == scheduled
    types = ["indexed_attention"] * layers
    assert import_config(config | {"indexer_types": words, "layer_types": types}).spec == scheduled


def test_index_schedule_without_an_offset():
    spec = import_config(CONFIGS["glm-5"] | {"num_hidden_layers": 11, "index_topk_freq": 4}).spec
    assert [layer for layer, names in enumerate(spec.layers) if "index" in names] == [0, 1, 5, 9]


def test_an_index_schedule_that_is_spelled_wins_over_the_interval_beside_it():
    """GLM-5.2 publishes both; ``dsa_layer_skips_topk`` of SGLang reads the list."""
    words = ["full", "shared"] * 39
    beside = {"index_topk_pattern": "FS" * 39, "index_topk_freq": 4, "index_skip_topk_offset": 3}
    spec = import_config(CONFIGS["glm-5"] | {"indexer_types": words} | beside).spec
    assert spec.layer_counts == {"latent": 78, "index": 39}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"index_topk_pattern": "FS"}, "index_topk_pattern has 2 entries"),
        ({"indexer_types": ["full", "lazy"] * 39}, "indexer_types holds 'lazy'"),
        ({"index_topk_pattern": "S" + "F" * 77}, "no layer to share with"),
        (
            {"indexer_types": ["full"] * 78, "index_topk_pattern": "F" * 77 + "S"},
            "indexer_types and index_topk_pattern name different layers",
        ),
        ({"index_kpool": 4}, "index_kpool is 4"),
        ({"kv_lora_rank": None}, "without kv_lora_rank"),
        ({"index_head_dim": None}, "index_head_dim"),
    ],
)
def test_impossible_index_is_named(fields, message):
    with pytest.raises(ConfigError, match=message):
        import_config(CONFIGS["glm-5"] | fields)


def test_e73_shared_layers_own_nothing():
    pattern = (["sliding_attention"] * 4 + ["full_attention"]) * 7
    config = small(35, "gemma3n_text", head_dim=256, sliding_window=512, layer_types=pattern)
    spec = import_config(config | {"num_kv_shared_layers": 15}).spec
    assert (len(spec.layers), sum(spec.layer_counts.values())) == (35, 20)
    assert spec.layer_counts == {"window": 16, "full": 4}
    assert set(spec.layers[20:]) == {()}
    assert spec.shared_layers == (*[("window",)] * 4, ("full",)) * 3
    for shared, message in (
        (35, "35, and must be less than the 35"),
        (36, "less"),
        (-1, "-1"),
        (True, "True"),
    ):
        with pytest.raises(ConfigError, match=f"num_kv_shared_layers is .*{message}"):
            import_config(config | {"num_kv_shared_layers": shared})
    with pytest.raises(ConfigError, match="shared full layers have no earlier layer"):
        import_config(config | {"num_kv_shared_layers": 31})


@pytest.mark.parametrize(
    ("name", "fields", "draft"),
    [
        ("deepseek-v3", {}, [("latent",)]),
        ("glm-5", {"num_nextn_predict_layers": 1}, [("latent", "index")]),
        ("glm-5.2", {"num_nextn_predict_layers": 2}, [("latent", "index")] * 2),
        ("qwen3-next-80b-a3b", {"num_nextn_predict_layers": 1}, [("full",)]),
        ("qwen3.5-35b-a3b", {}, [("full",)]),
        ("step-3.5-flash", {}, [("window",)] * 3),
        ("minimax-m2", {}, [("full",)] * 3),
        ("deepseek-v4-flash", {}, [("window",)]),
        (
            "nemotron-3-nano-30b-a3b",
            {"num_nextn_predict_layers": 2, "mtp_hybrid_override_pattern": "*E"},
            [("full",), (), ("full",), ()],
        ),
        ("gpt-oss-20b", {"num_nextn_predict_layers": 1}, []),
        ("llama-3.1-8b", {}, []),
    ],
)
def test_draft_layers_are_counted_apart(name, fields, draft):
    plain, model = import_config(CONFIGS[name]), import_config(CONFIGS[name] | fields)
    assert model.spec.draft_layers == tuple(draft)
    assert model.spec.layers == plain.spec.layers
    assert model.spec.digest == plain.spec.digest
    expected = bool(draft) or "num_nextn_predict_layers" in fields
    assert ("MTP layer" in notes_of(model)) is expected
    assert ("not counted" in notes_of(model)) is (expected and not draft)
