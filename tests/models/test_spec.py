from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest
import yaml

from hicache_bench.config.load import list_presets, load_model, parse_model
from hicache_bench.errors import ConfigError
from hicache_bench.models.spec import CompressedAttention, FullAttention, ModelSpec

PRESETS = [preset.name for preset in list_presets()]


def spec(**changes) -> ModelSpec:
    attributes = {
        "name": "tiny",
        "architecture": "Tiny",
        "attentions": {"full": FullAttention(kv_heads=2, head_dim=8)},
        "layers": (("full",), ()),
        "page_tokens": 4,
        "engine_default_page_tokens": 1,
    }
    return ModelSpec(**{**attributes, **changes})


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", PRESETS)
def test_digest_does_not_depend_on_the_order_of_keys(name):
    preset = load_model(name)
    plain = preset.model_dump(by_alias=True, mode="json", exclude_none=True)
    plain["attentions"] = {
        name: {**entry["dims"], "source": entry["source"]} for name, entry in plain["attentions"].items()
    }
    for field in ("layers", "draft_layers", "shared_layers"):
        plain[field] = [" + ".join(names) or "none" for names in getattr(preset.spec, field)]
    straight = parse_model(yaml.safe_dump(plain, sort_keys=False).encode(), file="a.yaml")
    backwards = parse_model(yaml.safe_dump(reversed_keys(plain), sort_keys=False).encode(), file="b.yaml")

    assert list(straight.attentions) == list(reversed(backwards.attentions))
    assert preset.spec.digest == straight.spec.digest == backwards.spec.digest


def test_digest_does_not_hold_prose():
    text = json.dumps(
        {
            "schema": 1,
            "name": "tiny",
            "summary": "one",
            "architecture": "Tiny",
            "served_by": [],
            "page_tokens": 4,
            "engine_default_page_tokens": 1,
            "attentions": {"full": {"attention": "full", "kv_heads": 2, "head_dim": 8, "source": "one"}},
            "layers": ["full", "none"],
        }
    )
    one = parse_model(text.encode(), file="one.yaml")
    other = parse_model(text.replace('"one"', '"other"').encode(), file="other.yaml")
    assert one.summary != other.summary
    assert one.spec.digest == other.spec.digest == spec().digest


def test_digest_is_the_same_in_another_process():
    program = "from hicache_bench.config.load import load_model; print(load_model('deepseek').spec.digest)"
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert load_model("deepseek").spec.digest == result.stdout.strip()


@pytest.mark.parametrize("name", PRESETS)
def test_digest_changes_with_any_dimension(name):
    model = load_model(name).spec
    digests = {model.digest}
    num_variants = 1
    for attention_name, attention in model.attentions.items():
        for field in fields(attention):
            value = getattr(attention, field.name)
            if not isinstance(value, int):
                continue
            change: dict[str, Any] = {field.name: value + 1}
            changed = replace(attention, **change)
            digests.add(replace(model, attentions={**model.attentions, attention_name: changed}).digest)
            num_variants += 1
    assert num_variants == len(digests)


@pytest.mark.parametrize(
    "change",
    [
        {"revision": "main"},
        {"name": "other"},
        {"architecture": "Other"},
        {"page_tokens": 8},
        {"kv_dtype": "fp8"},
        {"state_dtype": "bf16"},
        {"conv_dtype": "fp32"},
        {"index_dtype": "fp4"},
        {"logical_anchor": True},
        {"layers": (("full",),)},
        {"layers": ((), ("full",))},
        {"attentions": {"full": FullAttention(kv_heads=2, head_dim=8, v_head_dim=4)}},
    ],
    ids=str,
)
def test_digest_changes_with_any_field(change):
    assert spec().digest != spec(**change).digest


def test_digest_does_not_say_who_serves_the_model():
    """Another engine, or another default of one, must not make every stored prefix a miss."""
    changes = ({"served_by": ("another",)}, {"engine_default_page_tokens": 4})
    assert {spec().digest} == {spec(**change).digest for change in changes}


SHARING = {"layers": (("full",), ("full",), (), ()), "shared_layers": (("full",), ())}


def test_shared_layers_are_counted_where_an_engine_allocates_them():
    sharing = spec(**SHARING)
    assert {"full": 2} == dict(sharing.layer_counts)
    assert (("full",), ("full",), ("full",), ()) == sharing.allocated_layers
    assert spec().layers == spec().allocated_layers


def test_digest_of_a_model_without_shared_layers_is_what_it_was():
    """The names of stored objects begin with it: this is what it was before presets had the field."""
    assert "ff30c6533a662451" == spec().digest[:16]
    assert spec(**SHARING).digest != spec(**SHARING | {"shared_layers": ()}).digest


def test_layer_counts():
    both = {"full": FullAttention(kv_heads=1, head_dim=1), "wide": FullAttention(kv_heads=2, head_dim=1)}
    counts = spec(attentions=both, layers=(("full", "wide"), (), ("wide",))).layer_counts
    assert {"full": 1, "wide": 2} == dict(counts)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layers": (("full", "c4"),)}, ["layer 0", "'c4'", "full"]),
        ({"layers": ((),)}, ["no layer uses attention 'full'"]),
        ({"attentions": {"full": FullAttention(kv_heads=0, head_dim=8)}}, ["full.kv_heads is 0"]),
        (
            {"shared_layers": (("full",),), "layers": (("full",), ("full",))},
            ["layer 1 is a shared one and caches full"],
        ),
        ({"shared_layers": (("full",), (), ()), "layers": ((), ())}, ["3 shared layers are the last of 2"]),
        ({"shared_layers": (("wide",),)}, ["shared layer 0 names 'wide'"]),
        (
            {"shared_layers": (("full",),), "layers": ((), ())},
            ["shared layer 0 reads 'full'", "no layer uses"],
        ),
        ({"page_tokens": 0, "engine_default_page_tokens": -1}, ["page_tokens is 0", "page_tokens is -1"]),
    ],
    ids=str,
)
def test_impossible_models_are_refused_with_every_reason(change, words):
    with pytest.raises(ConfigError) as error:
        spec(**change)
    assert all(word in str(error.value) for word in ["'tiny'", *words])


def test_a_compressed_row_has_plain_and_rope_dims():
    assert 512 == CompressedAttention(ratio=4, nope_dim=448, rope_dim=64).latent_dim
