from __future__ import annotations

import copy
from typing import Any

import pytest

from hicache_bench.config.catalogue import list_presets
from hicache_bench.config.deployments import load_compute
from hicache_bench.config.load import load_model
from hicache_bench.errors import ConfigError
from hicache_bench.models.compute import ComputeDims
from hicache_bench.models.spec import ModelSpec
from tests.models.parameters import DIMS, count

PRESETS = sorted(DIMS)
PUBLISHED = [name for name in PRESETS if "published" in DIMS[name]]

# transformers' class of a preset, where its defaults are that checkpoint.
CLASSES = {
    "deepseek-v3": "deepseek_v3", "deepseek-v3.2": "deepseek_v32", "deepseek-v4-flash": "deepseek_v4",
    "glm-5": "glm_moe_dsa", "gpt-oss-120b": "gpt_oss", "jamba-1.5-mini": "jamba",
    "llama-4-scout": "llama4_text", "minimax-m2": "minimax_m2", "minimax-m3": "minimax_m3_vl_text",
    "ministral-3-8b": "ministral3", "mistral-7b-v0.3": "mistral", "qwen3-next-80b-a3b": "qwen3_next",
    "qwen3.5-35b-a3b": "qwen3_5_moe_text",
}  # fmt: skip
FIELDS = {
    "hidden_size": "hidden_size", "vocab_size": "vocab_size", "q_lora_rank": "q_lora_rank",
    "qk_nope_head_dim": "qk_nope_head_dim", "v_head_dim": "v_head_dim", "index_heads": "index_n_heads",
    "o_lora_rank": "o_lora_rank", "o_groups": "o_groups", "residual_streams": "hc_mult",
    "dt_rank": "mamba_dt_rank",
}  # fmt: skip


def spec_of(name: str) -> ModelSpec:
    return load_model(name).spec


def active(name: str) -> float:
    parameters = load_compute()[name].active_parameters
    assert parameters is not None
    return parameters


def test_every_preset_of_a_model_has_dimensions() -> None:
    assert {preset.name for preset in list_presets()} - set(DIMS) == {"kitchen-sink"}


@pytest.mark.parametrize("name", PRESETS)
def test_width_is_that_of_the_config(name: str) -> None:
    assert DIMS[name]["hidden_size"] == load_compute()[name].hidden_size


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "llama-3.1-70b"])
def test_active_parameters_are_counted_from_the_dimensions(name: str) -> None:
    assert count(spec_of(name), DIMS[name]) == pytest.approx(active(name), rel=5e-4)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_figures_are_the_count_with_none_to_both_embeddings(name: str) -> None:
    dims = DIMS[name]
    counted = count(spec_of(name), dims)
    embeddings = 2 * dims["hidden_size"] * dims["vocab_size"]
    # Rounded as they are: "A3B" is 2.5 to 3.5.
    stated = float(dims["published"][0])
    assert 0.92 * counted <= stated <= 1.02 * (counted + embeddings)


def test_some_published_figures_are_met_to_their_last_digit() -> None:
    """Two that leave both embeddings out, and two that leave out one."""
    assert round(active("qwen3-32b") / 1e9, 1) == 31.2
    assert round(active("minimax-text-01") / 1e9, 1) == 45.9
    for name, stated in {"gpt-oss-120b": 5.1, "gpt-oss-20b": 3.6}.items():
        dims = DIMS[name]
        assert round((active(name) + dims["hidden_size"] * dims["vocab_size"]) / 1e9, 1) == stated


def test_the_closed_form_of_llama_3_1_70b_is_14_percent_below_its_count() -> None:
    counted = count(spec_of("llama-3.1-70b"), DIMS["llama-3.1-70b"])
    assert load_compute()["llama-3.1-70b"].active_parameters is None
    assert 11 * 80 * 8192**2 / counted == pytest.approx(0.863, abs=5e-4)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("deepseek-v3", ("feed_forward", 1, "per_token")),
        ("deepseek-v3.2", ("index_heads",)),
        ("deepseek-v4-flash", ("residual_streams",)),
        ("gpt-oss-120b", ("query_heads", "window")),
        ("jamba-1.5-mini", ("dt_rank",)),
        ("nemotron-3-nano-30b-a3b", ("feed_forward", 0, "layers")),
    ],
)
def test_a_dimension_that_is_off_by_one_part_in_four_is_noticed(
    name: str, path: tuple[str | int, ...]
) -> None:
    dims: dict[str, Any] = copy.deepcopy(DIMS[name])
    place: Any = dims
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] += max(1, place[path[-1]] // 4)
    assert count(spec_of(name), dims) != pytest.approx(active(name), rel=5e-4)


def test_the_least_dimensions_are_allowed_and_less_is_refused() -> None:
    assert 1 == ComputeDims(hidden_size=1, active_parameters=1.0, source="a test").hidden_size
    with pytest.raises(ConfigError, match="a hidden size of 0 is not possible"):
        ComputeDims(hidden_size=0, active_parameters=None, source="a test")
    for parameters in (0.5, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="active parameters are not possible"):
            ComputeDims(hidden_size=1, active_parameters=parameters, source="a test")


@pytest.mark.parametrize("name", CLASSES)
def test_dimensions_are_those_of_transformers(name: str) -> None:
    mapping = pytest.importorskip("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    if CLASSES[name] not in mapping:
        pytest.skip(f"this release of transformers has no {CLASSES[name]}")
    config = mapping[CLASSES[name]]()
    ours = {field: DIMS[name][field] for field in FIELDS if field in DIMS[name]}
    assert ours == {field: getattr(config, FIELDS[field]) for field in ours}
