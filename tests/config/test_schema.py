from __future__ import annotations

import copy
from dataclasses import fields
from typing import get_args

import pytest
from pydantic import ValidationError

from hicache_bench.config.schema import ATTENTION_TYPES, MAX_DIMENSION, MAX_LAYERS, ModelPreset
from hicache_bench.models.engine_profile import BY_KIND, SGLANG
from hicache_bench.models.spec import Attention, FullAttention, SlidingWindow

PLAIN = {
    "schema": 1,
    "name": "tiny",
    "summary": "a model",
    "architecture": "Tiny",
    "served_by": [SGLANG],
    "page_tokens": 16,
    "engine_default_page_tokens": 1,
    "attentions": {
        "full": {"attention": "full", "kv_heads": 2, "head_dim": 8, "source": "here"},
        "window": {"attention": "swa", "kv_heads": 2, "head_dim": 8, "window": 32, "source": "there"},
    },
    "layers": ["window", {"repeat": 2, "of": ["full", "none"]}],
}


def plain(**changes) -> dict:
    return {**copy.deepcopy(PLAIN), **changes}


def places(data: dict) -> list[str]:
    with pytest.raises(ValidationError) as error:
        ModelPreset.from_plain(data)
    return [".".join(map(str, details["loc"])) for details in error.value.errors()]


def test_the_spec_holds_what_the_file_says():
    spec = ModelPreset.from_plain(plain()).spec

    assert {
        "full": FullAttention(kv_heads=2, head_dim=8),
        "window": SlidingWindow(kv_heads=2, head_dim=8, window=32),
    } == spec.attentions
    assert (("window",), ("full",), (), ("full",), ()) == spec.layers
    assert ("tiny", "Tiny", 16, 1) == (
        spec.name,
        spec.architecture,
        spec.page_tokens,
        spec.engine_default_page_tokens,
    )
    assert ("bf16", "fp32", "bf16", "fp8", False, None) == (
        spec.kv_dtype,
        spec.state_dtype,
        spec.conv_dtype,
        spec.index_dtype,
        spec.logical_anchor,
        spec.revision,
    )
    assert (SGLANG,) == spec.served_by


def test_sources_stay_outside_the_spec():
    preset = ModelPreset.from_plain(plain())
    assert {"full": "here", "window": "there"} == preset.sources


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, SGLANG),
        ({"served_by": []}, BY_KIND),
        ({"profile": BY_KIND}, BY_KIND),
        ({"profile": SGLANG, "served_by": []}, SGLANG),
    ],
    ids=str,
)
def test_profile_is_the_files_own_or_the_first_engines(changes, expected):
    assert expected == ModelPreset.from_plain(plain(**changes)).profile


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["full + window"], (("full", "window"),)),
        (["full+window"], (("full", "window"),)),
        (["none", "full", " window "], ((), ("full",), ("window",))),
        (
            [{"repeat": 2, "of": [{"repeat": 2, "of": ["full"]}, "window"]}],
            (("full",), ("full",), ("window",)) * 2,
        ),
    ],
    ids=str,
)
def test_layers(written, expected):
    assert expected == ModelPreset.from_plain(plain(layers=written)).spec.layers


@pytest.mark.parametrize(
    "written", ["", "+", "full +", "full + full", "full + ", 3, None, ["full"], True], ids=repr
)
def test_a_layer_that_says_nothing_clear_is_refused(written):
    assert ["layers.0.<names>"] == places(plain(layers=[written, "full", "window"]))


@pytest.mark.parametrize("repeat", [0, -1, "2", 2.0, True, MAX_LAYERS + 1])
def test_repeat_is_a_whole_number_of_at_least_one(repeat):
    assert "layers.0.<group>.repeat" in places(plain(layers=[{"repeat": repeat, "of": ["full", "window"]}]))


def test_layers_are_counted_before_they_are_expanded():
    # Expanded, this is 10**40 layers: the test ends only if nobody tries.
    entry: dict = {"repeat": 10_000, "of": ["full + window"]}
    for _ in range(9):
        entry = {"repeat": 10_000, "of": [entry]}
    assert ["layers"] == places(plain(layers=[entry]))

    most = ModelPreset.from_plain(plain(layers=[{"repeat": MAX_LAYERS, "of": ["full + window"]}]))
    assert MAX_LAYERS == len(most.spec.layers)
    assert ["layers"] == places(plain(layers=[{"repeat": MAX_LAYERS, "of": ["full"]}, "window"]))


@pytest.mark.parametrize("value", ["8", True, False, 8.0, None, [8], 0, -8, MAX_DIMENSION + 1], ids=repr)
@pytest.mark.parametrize("field", ["kv_heads", "head_dim", "window"])
def test_dimensions_are_whole_numbers_within_bounds(field, value):
    data = plain()
    data["attentions"]["window"][field] = value
    (place,) = places(data)
    assert place.startswith("attentions.window.dims")
    assert place.endswith(field)


@pytest.mark.parametrize("value", ["16", True, 16.0, 0, -1, None, MAX_DIMENSION + 1], ids=repr)
@pytest.mark.parametrize("field", ["page_tokens", "engine_default_page_tokens"])
def test_page_sizes_are_whole_numbers_within_bounds(field, value):
    assert [field] == places(plain(**{field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema", 2),
        ("schema", "1"),
        ("schema", True),
        ("name", "Tiny"),
        ("name", "a b"),
        ("name", "../x"),
        ("name", ""),
        ("aliases", "x"),
        ("aliases", ["X"]),
        ("summary", "  "),
        ("architecture", None),
        ("served_by", ["vllm"]),
        ("served_by", [BY_KIND]),
        ("profile", "ideal"),
        ("kv_dtype", "int8"),
        ("state_dtype", "fp8_packed"),
        ("index_dtype", "bf16"),
        ("logical_anchor", 1),
        ("logical_anchor", "true"),
        ("attentions", {}),
        ("attentions", []),
        ("layers", []),
        ("layers", "full"),
        ("unknown", 1),
        ("dims", 1),
    ],
)
def test_a_field_that_does_not_fit_is_refused_where_it_stands(field, value):
    (place,) = places(plain(**{field: value}))
    assert field == place.split(".")[0]


@pytest.mark.parametrize("field", list(PLAIN))
def test_every_field_without_default_is_needed(field):
    data = plain()
    del data[field]
    assert [field] == places(data)


@pytest.mark.parametrize("name", ["none", "", "a b", "a+b", "1a", "x" * 33])
def test_attention_names_can_be_written_in_a_layer(name):
    data = plain()
    data["attentions"][name] = data["attentions"]["full"]
    assert [f"attentions.{name}.[key]"] == places(data)


def test_bounds_and_types_of_one_attention_are_told_together():
    data = plain()
    data["attentions"]["window"].update(kv_heads=0, head_dim="8", window=-1, extra=1)
    del data["attentions"]["window"]["source"]
    assert {"kv_heads", "head_dim", "window", "extra", "source"} == {
        place.rpartition(".")[2] for place in places(data)
    }


def test_there_is_a_word_for_every_attention_class():
    assert set(get_args(Attention)) == set(ATTENTION_TYPES.values())
    assert all(
        field.default == word
        for word, kind in ATTENTION_TYPES.items()
        for field in fields(kind)
        if field.name == "attention"
    )


def test_a_preset_cannot_be_changed():
    preset = ModelPreset.from_plain(plain())
    with pytest.raises(ValidationError):
        preset.name = "other"
