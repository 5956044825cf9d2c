from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.config.load import list_presets, load_model
from hicache_bench.errors import ConfigError
from hicache_bench.models.engine_profile import BY_KIND, SGLANG, pools_of
from hicache_bench.models.spec import (
    ChunkedAttention,
    CompressedAttention,
    ModelSpec,
    SlidingWindow,
    SparseIndex,
)
from hicache_bench.numerics.cache import Prompt
from hicache_bench.numerics.model import ReferenceModel, reduced, topical_tokens
from tests.numerics.rig import MODELS, V4, Rig, model_spec

PRESETS = [preset.name for preset in list_presets()]
TOLERANCE = {"fp32": 2e-4, "bf16": 2e-2, "fp8": 0.1, "fp8_scaled": 0.1}


def preset(name: str) -> tuple[ModelSpec, str]:
    loaded = load_model(name)
    return loaded.spec, loaded.spec.served_by[0] if loaded.spec.served_by else BY_KIND


@pytest.mark.parametrize("name", MODELS)
@given(stops=st.lists(st.integers(1, 39), max_size=5, unique=True))
@settings(max_examples=6)
def test_a_prompt_in_pieces_is_the_prompt_at_once(name: str, stops: list[int]) -> None:
    rig = Rig(MODELS[name], 40)
    difference = np.abs(rig.pieces(sorted(stops)) - rig.whole()).max()
    assert difference < TOLERANCE[rig.spec.kv_dtype]


@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_token_by_token_is_the_prompt_at_once(name: str) -> None:
    rig = Rig(MODELS[name], 30)
    difference = np.abs(rig.pieces(range(1, 30)) - rig.whole()).max()
    assert difference < TOLERANCE[rig.spec.kv_dtype]


def test_compressed_layers_in_pieces_are_the_prompt_at_once() -> None:
    rig = Rig(V4, 270)
    assert np.abs(rig.pieces([3, 130, 257, 258, 259, 260, 261]) - rig.whole()).max() < TOLERANCE["fp8"]


@pytest.mark.parametrize("name", MODELS)
def test_without_rounding_only_the_order_of_sums_is_left(name: str) -> None:
    if name == "scaled fp8":
        pytest.skip("its K and V are fp8")
    rig = Rig(replace(MODELS[name], kv_dtype="fp32", conv_dtype="fp32"), 40)
    assert np.abs(rig.pieces([7, 16, 17]) - rig.whole()).max() < TOLERANCE["fp32"]


@pytest.mark.parametrize("name", MODELS)
@given(end=st.integers(1, 5))
@settings(max_examples=4)
def test_a_restored_prefix_continues_as_the_whole_prompt(name: str, end: int) -> None:
    rig = Rig(MODELS[name], 48)
    difference = np.abs(rig.continued(rig.prefix(end), end) - rig.whole()[end * 8 :]).max()
    assert difference < TOLERANCE[rig.spec.kv_dtype]


@pytest.mark.parametrize("name", ["full", "window", "chunked", "block sparse", "side by side"])
def test_k_and_v_swapped_give_other_numbers(name: str) -> None:
    rig = Rig(MODELS[name], 48)
    saved = rig.prefix(4)
    right = rig.continued(saved, 4)
    for cache in saved.values():
        if {"k", "v"} <= set(cache._arrays):
            cache._arrays["k"], cache._arrays["v"] = cache._arrays["v"], cache._arrays["k"]
    assert np.abs(rig.continued(saved, 4) - right).max() > 0.1


@pytest.mark.parametrize("name", MODELS)
def test_layers_mixed_up_give_other_numbers(name: str) -> None:
    rig = Rig(MODELS[name], 48)
    saved = rig.prefix(4)
    right = rig.continued(saved, 4)
    mixed = False
    for cache in saved.values():
        for component, array in cache._arrays.items():
            mixed = mixed or array.shape[1] > 1
            cache._arrays[component] = array[:, ::-1].copy()
    assert not mixed or np.abs(rig.continued(saved, 4) - right).max() > 0.05


@pytest.mark.parametrize("name", MODELS)
def test_pages_of_another_prompt_give_other_numbers(name: str) -> None:
    rig, other = Rig(MODELS[name], 48), Rig(MODELS[name], 48, seed=1)
    saved, foreign = rig.prefix(4), other.prefix(4)
    right = rig.continued(saved, 4)
    for pool in rig.pools:
        if rig.pools[pool].name == "indexer":
            continue
        wrong = rig.continued({**saved, pool: foreign[pool]}, 4)
        assert np.abs(wrong - right).max() > 0.05, pool


def test_the_same_seed_gives_the_same_bits() -> None:
    first, second = (Rig(MODELS["hybrid"], 40).whole() for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("profile", [SGLANG, BY_KIND])
def test_every_layer_of_every_preset_has_its_place(name: str, profile: str) -> None:
    """The references take each layer of each pool once; what an engine refuses is not asked for."""
    spec, own_profile = preset(name)
    if profile == SGLANG and own_profile != SGLANG:
        pytest.skip("not served by that engine")
    small = reduced(spec, max_reach=64)
    pools = pools_of(small, profile=profile)
    ReferenceModel(small, pools, width=8)
    assert {pool.name for pool in pools} == {pool.name for pool in pools_of(spec, profile=profile)}


@pytest.mark.parametrize("name", PRESETS)
def test_a_reduced_model_keeps_dims_and_kinds_and_is_small(name: str) -> None:
    spec, _ = preset(name)
    small = reduced(spec)
    assert small.attentions == spec.attentions
    assert {names for names in spec.layers if names} == set(small.layers)
    assert max(small.layers.count(names) for names in small.layers) <= 4
    assert (small.page_tokens, small.kv_dtype) == (spec.page_tokens, spec.kv_dtype)


def test_a_layer_that_shares_an_index_stays_behind_one_that_owns_it() -> None:
    owner, sharer = ("latent", "index"), ("latent",)
    assert (owner, owner, sharer, sharer) == reduced(preset("glm-5.2")[0]).layers


def test_reach_bounds_windows_chunks_and_selections_and_nothing_else() -> None:
    spec = replace(
        MODELS["hybrid"],
        attentions={
            **MODELS["hybrid"].attentions,
            "window": SlidingWindow(kv_heads=2, head_dim=16, window=1000),
            "index": SparseIndex(index_head_dim=128, top_k=2048),
        },
    )
    small = reduced(spec, max_reach=64).attentions
    assert SlidingWindow(kv_heads=2, head_dim=16, window=64) == small["window"]
    assert SparseIndex(index_head_dim=128, top_k=64) == small["index"]
    assert spec.attentions["mla"] == small["mla"]
    chunked = reduced(MODELS["chunked"], max_reach=7).attentions["chunk"]
    assert ChunkedAttention(kv_heads=2, head_dim=16, chunk=7) == chunked
    compressed = reduced(V4, max_reach=64).attentions["c4"]
    assert isinstance(compressed, CompressedAttention)
    assert 16 == compressed.index_top_k


def test_pools_of_another_model_are_refused() -> None:
    pools = pools_of(MODELS["mla"], profile=BY_KIND)
    with pytest.raises(ConfigError, match="has 1 layers for pool 'kv', which holds 2; give the pools"):
        ReferenceModel(model_spec(("mla",)), pools)
    with pytest.raises(ConfigError, match="needs a full pool, and was given none"):
        ReferenceModel(MODELS["full"], pools)


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(ConfigError, match="width 33 is odd"):
        ReferenceModel(MODELS["mla"], pools_of(MODELS["mla"], profile=BY_KIND), width=33)


def test_a_prompt_stays_with_a_topic_for_a_run() -> None:
    tokens = topical_tokens(100, seed=3, run=16)
    topics = tokens // 1024
    assert (100,) == tokens.shape
    assert 5 <= len(set(topics.tolist())) <= 7
    assert all(len(set(topics[first : first + 16].tolist())) == 1 for first in range(0, 100, 16))
    assert len(set(tokens.tolist())) > 90
    np.testing.assert_array_equal(tokens, topical_tokens(100, seed=3, run=16))
    assert not np.array_equal(tokens, topical_tokens(100, seed=4, run=16))


def test_tokens_of_a_topic_are_alike_and_no_two_are_equal() -> None:
    model = Rig(MODELS["mla"], 1).model
    one, same_topic, other = model.embed([5, 6, 5 + 1024])
    assert one @ same_topic > one @ other
    assert not np.array_equal(one, same_topic)


def test_a_layer_before_any_index_reads_everything() -> None:
    rig = Rig(model_spec(("mla",), ("mla", "index")), 100)
    saved = rig.prefix(12)
    selected = rig.model.selected_units(rig.inputs[96:], 96, Prompt(saved))
    assert selected["kv"].all()
