from __future__ import annotations

import pytest

from hicache_bench.config.load import parse_model
from hicache_bench.config.schema import ATTENTION_TYPES
from hicache_bench.errors import ConfigError

GOOD = """\
schema: 1
name: tiny
summary: a model
architecture: Tiny
served_by: []
page_tokens: 16
engine_default_page_tokens: 1
attentions:
  full: {attention: full, kv_heads: 2, head_dim: 8, source: here}
layers:
  - repeat: 2
    of: [full]
"""


def message(content: str | bytes, file: str = "my.yaml") -> str:
    with pytest.raises(ConfigError) as error:
        parse_model(content.encode() if isinstance(content, str) else content, file=file)
    return str(error.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "my.yaml:1:1: the file holds nothing"),
        ("[1]", "my.yaml:1:1: given a list; allowed: a map of fields"),
        ("text", "my.yaml:1:1: given 'text' (text); allowed: a map of fields"),
        ("8", "my.yaml:1:1: given 8; allowed: a map of fields"),
        (
            GOOD.replace("  full:", "\tfull:"),
            "my.yaml:9:1: a tab in the indentation; YAML allows spaces only",
        ),
        (GOOD + "---\nname: b\n", "my.yaml:13:1: a second document starts here; a file holds one"),
        (
            GOOD.replace("tiny", "!!python/object/apply:os.system [ls]"),
            "my.yaml:2:7: name: given tag '!!python/object/apply:os.system'; tags are not read: remove it",
        ),
        (
            GOOD.replace("[full]", "&all [full]"),
            "my.yaml:12:9: layers[0].of: given &all; anchors and aliases are not read: write the value out",
        ),
        (
            GOOD.replace("page_tokens: 16", "page_tokens: .nan"),
            "my.yaml:6:14: page_tokens: given .nan; allowed: finite numbers",
        ),
        (GOOD + "name: b\n", "my.yaml:13:1: name: written twice, first on line 2; remove one of them"),
        (GOOD + "1: b\n", "my.yaml:13:1: given key 1; a key is text: quote it"),
        (
            GOOD.replace("kv_heads: 2", 'kv_heads: "8"'),
            "my.yaml:9:27: attentions.full.kv_heads: given '8' (text); allowed: a whole number",
        ),
        (
            GOOD.replace("kv_heads: 2", "kv_heads: true"),
            "my.yaml:9:27: attentions.full.kv_heads: given true; allowed: a whole number",
        ),
        (
            GOOD.replace("kv_heads: 2", "kv_heads: 0"),
            "my.yaml:9:27: attentions.full.kv_heads: given 0; allowed: at least 1",
        ),
        (
            GOOD.replace("kv_heads", "kv_head"),
            (
                "my.yaml:9:27: attentions.full.kv_head: unknown field; allowed: attention, kv_heads, "
                "head_dim, v_head_dim, source; did you mean 'kv_heads'?"
            ),
        ),
        (
            GOOD.replace(": full,", ": ful,"),
            (
                "my.yaml:9:10: attentions.full.attention: given 'ful' (text); "
                f"allowed: {', '.join(ATTENTION_TYPES)}; did you mean 'full'?"
            ),
        ),
        (
            GOOD.replace(", source: here", ""),
            (
                "my.yaml:9:3: attentions.full.source: missing (where the dimensions come from, and whether "
                "that was verified)"
            ),
        ),
        (
            GOOD.replace("repeat: 2", "repeat: 0"),
            "my.yaml:11:5: layers[0].repeat: given 0; allowed: at least 1",
        ),
        (
            GOOD.replace("repeat: 2", "repeat: 1000000000"),
            "my.yaml:11:5: layers[0].repeat: given 1000000000; allowed: at most 10,000",
        ),
        (
            GOOD.replace("repeat: 2", "repeat: 9000").replace("[full]", "[full, full]"),
            "my.yaml:10:1: layers: given a list; allowed: at most 10,000 layers, and these expand to 18,000",
        ),
        (
            GOOD.replace("page_tokens: 16", "page_tokens: 0"),
            "my.yaml:6:1: page_tokens: given 0; allowed: at least 1",
        ),
    ],
)
def test_one_fault_is_one_line(content, expected):
    lines = message(content).splitlines()
    # A mistyped field is missing, too.
    assert expected in [line.strip() for line in lines]
    assert len(lines) <= 3


def test_an_unknown_layer_and_an_unused_attention():
    assert (
        "my.yaml has 2 problems:\n"
        "  my.yaml:9:3: attentions.full: no layer uses it; name it under 'layers' or remove it\n"
        "  my.yaml:12:10: layers[0].of[0]: given 'ful', which is not among the attentions; "
        "did you mean 'full'?"
    ) == message(GOOD.replace("[full]", "[ful]"))


@pytest.mark.parametrize("name", ["[key]", "dims", "full", "<group>", "source", "attention"])
def test_names_of_the_schema_are_names_like_any_other(name):
    renamed = GOOD.replace("  full:", f'  "{name}":').replace("[full]", f'["{name}"]')
    refused = message(renamed.replace("kv_heads: 2", "kv_heads: 0, dims: 0, full: 0"))
    assert f"attentions.{name}.kv_heads: given 0; allowed: at least 1" in refused
    assert f"attentions.{name}.dims: unknown field" in refused
    assert f"attentions.{name}.full: unknown field" in refused
    assert f"attentions.{name}.attention: given nothing" in message(renamed.replace(": full,", ": null,"))
    layer = renamed.replace("repeat: 2", 'repeat: 0, "<group>": 1').replace("- repeat", "- {repeat")
    layer = layer.replace("1\n    of: [", "1, of: [").rstrip() + "}\n"
    assert "layers[0].<group>: unknown field; allowed: repeat, of" in message(layer)
    assert "layers[0].repeat: given 0" in message(layer)


def test_every_problem_is_told_at_once_and_in_the_order_of_lines():
    content = """\
schema: 2
name: A b
served_by: [vllm]
page_tokens: "8"
page_tokens: 8
kv_dtype: fp9
attentions:
  full: {attention: full, kv_heads: 0, head_dim: x, extra: 1}
  spare: {attention: kda, heads: 1, head_dim: .inf, conv_kernel: 4, source: "?"}
layers:
  - repeat: -1
    of: []
  - full + typo
zzz: 1
"""
    expected = [
        (1, "architecture"),
        (1, "engine_default_page_tokens"),
        (1, "schema"),
        (1, "summary"),
        (2, "name"),
        (3, "served_by[0]"),
        (4, "page_tokens"),
        (5, "page_tokens"),
        (6, "kv_dtype"),
        (8, "attentions.full.source"),
        (8, "attentions.full.kv_heads"),
        (8, "attentions.full.head_dim"),
        (8, "attentions.full.extra"),
        (9, "attentions.spare"),
        (9, "attentions.spare.head_dim"),
        (11, "layers[0].repeat"),
        (12, "layers[0].of"),
        (13, "layers[1]"),
        (14, "zzz"),
    ]

    head, *lines = message(content).splitlines()

    assert f"my.yaml has {len(expected)} problems:" == head
    assert expected == [(int(line.split(":")[1]), line.split(": ")[1]) for line in lines]


def test_thousands_of_problems_do_not_flood_the_terminal():
    content = GOOD + "".join(f"unknown_{number}: 1\n" for number in range(5_000))
    lines = message(content).splitlines()
    assert "  ... and 4900 more" == lines[-1]
    assert 102 == len(lines)


def test_long_values_do_not_flood_the_terminal():
    assert len(message(GOOD.replace("tiny", "X" * 100_000))) < 300
    assert len(message(GOOD.replace("[full]", "[" + "y" * 100_000 + "]"))) < 500
