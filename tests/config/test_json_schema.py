from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hicache_bench.config.catalogue import shipped_files
from hicache_bench.config.document import read_document
from hicache_bench.config.json_schema import preset_schema, schema_text
from hicache_bench.config.load import parse_model
from hicache_bench.config.schema import ATTENTION_TYPES, ModelPreset
from hicache_bench.errors import ConfigError

COMMITTED = Path(__file__).parents[2] / "presets" / "model.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(preset_schema())

GOOD = """\
schema: 1
name: tiny
aliases: [small]
summary: a model
architecture: Tiny
revision: abc
served_by: []
profile: by_kind
page_tokens: 16
engine_default_page_tokens: 1
kv_dtype: fp8_scaled
attentions:
  full: {attention: full, kv_heads: 2, head_dim: 8, v_head_dim: null, source: here}
  conv: {attention: short_conv, channels: 4, conv_kernel: 3, source: here,
         extra: [{name: count, shape: [2, 3], dtype: int64}]}
layers:
  - repeat: 2
    of: [full + conv, {repeat: 3, of: [none]}]
  - full
  - none
shared_layers: [full]
"""


def plain(text: str) -> Any:
    return read_document(text).data


def test_the_committed_schema_is_the_generated_one() -> None:
    assert schema_text() == COMMITTED.read_text(encoding="utf-8"), (
        "write it again: hicache-bench presets schema > presets/model.schema.json"
    )


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text()))


@pytest.mark.parametrize("path", shipped_files().values(), ids=lambda path: path.stem)
def test_every_shipped_preset_is_valid(path: Path) -> None:
    VALIDATOR.validate(plain(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", shipped_files().values(), ids=lambda path: path.stem)
def test_every_shipped_preset_names_it(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert "# yaml-language-server: $schema=../model.schema.json" == first
    assert COMMITTED == (path.parent / first.partition("=")[2]).resolve()


def test_both_accept_a_file_with_everything_in_it() -> None:
    VALIDATOR.validate(plain(GOOD))
    parse_model(GOOD.encode(), file="good.yaml")


BROKEN = {
    "an unknown field": ("revision: abc", "revisions: abc"),
    "a missing field": ("summary: a model\n", ""),
    "another version": ("schema: 1", "schema: 2"),
    "true for 1": ("schema: 1", "schema: true"),
    "a name in capitals": ("name: tiny", "name: Tiny"),
    "a blank text": ("summary: a model", "summary: '  '"),
    "an alias that is no name": ("[small]", "[Small One]"),
    "an unknown engine": ("served_by: []", "served_by: [vllm]"),
    "by_kind, which serves nothing": ("served_by: []", "served_by: [by_kind]"),
    "an unknown profile": ("profile: by_kind", "profile: ideal"),
    "an unknown dtype": ("fp8_scaled", "int4"),
    "a text for a number": ("page_tokens: 16", "page_tokens: '16'"),
    "no tokens in a page": ("page_tokens: 16", "page_tokens: 0"),
    "a page beyond all bounds": ("page_tokens: 16", "page_tokens: 100000000"),
    "an attention without its word": ("attention: full, ", ""),
    "an unknown attention": ("attention: full", "attention: ring"),
    "an attention without a source": (", source: here}", "}"),
    "a dimension of another attention": ("kv_heads: 2", "kv_heads: 2, window: 4"),
    "a missing dimension": ("head_dim: 8, ", ""),
    "a negative dimension": ("kv_heads: 2", "kv_heads: -2"),
    "a fraction": ("kv_heads: 2", "kv_heads: 2.5"),
    "none as the name of an attention": ("  full: {", "  none: {"),
    "a name with a space": ("  full: {", "  'a b': {"),
    "layers as one text": ("layers:\n", "layers: full\nrest:\n"),
    "an empty list of layers": ("of: [full + conv, {repeat: 3, of: [none]}]", "of: []"),
    "a layer that ends in a plus": ("full + conv", "'full +'"),
    "a group without its layers": ("{repeat: 3, of: [none]}", "{repeat: 3}"),
    "a group that comes never": ("repeat: 3", "repeat: 0"),
    "a number for a layer": ("  - full\n", "  - 7\n"),
    "a number for a shared layer": ("shared_layers: [full]", "shared_layers: [7]"),
    "an unknown dtype of an extra tensor": ("int64", "int128"),
    "an extra tensor of no elements": ("[2, 3]", "[2, 0]"),
}


@pytest.mark.parametrize(("old", "new"), BROKEN.values(), ids=BROKEN)
def test_both_refuse(old: str, new: str) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    assert not VALIDATOR.is_valid(plain(text))
    with pytest.raises(ConfigError):
        parse_model(text.encode(), file="broken.yaml")


def test_it_describes_every_field_and_every_dimension() -> None:
    schema = preset_schema()
    names = {field.alias or name for name, field in ModelPreset.model_fields.items()}
    assert names == set(schema["properties"])
    assert all("description" in field for field in schema["properties"].values())
    for kind in ATTENTION_TYPES.values():
        definition = schema["$defs"][kind.__name__]
        assert {field.name for field in fields(kind)} | {"source"} == set(definition["properties"])
        assert definition["additionalProperties"] is False


def test_everything_that_it_refers_to_is_in_it() -> None:
    text = schema_text()
    defined = set(preset_schema()["$defs"])
    used = {part.partition('"')[0] for part in text.split("#/$defs/")[1:]}
    assert used == defined
