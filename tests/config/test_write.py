from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hicache_bench.config.catalogue import shipped_files
from hicache_bench.config.document import read_document
from hicache_bench.config.load import load_model, parse_model
from hicache_bench.config.schema import ModelPreset
from hicache_bench.config.write import LINE_WIDTH, Layer, RepeatedLayers, group_layers, write_preset
from hicache_bench.models.spec import FullAttention, ModelSpec, ShortConv, StateTensor

FULL = FullAttention(kv_heads=2, head_dim=8)


def written(preset: ModelPreset) -> str:
    return write_preset(
        preset.spec,
        sources=preset.sources,
        summary=preset.summary,
        aliases=preset.aliases,
        profile=preset.chosen_profile,
    )


@pytest.mark.parametrize("name", shipped_files())
def test_a_shipped_preset_is_read_back_as_it_was(name: str) -> None:
    preset = load_model(name)
    text = written(preset)
    again = parse_model(text.encode(), file="again.yaml")
    assert preset.spec == again.spec
    assert preset.spec.digest == again.spec.digest
    assert preset.sources == again.sources
    assert (preset.summary, preset.aliases, preset.profile) == (again.summary, again.aliases, again.profile)
    assert text == written(again)
    assert max(map(len, text.splitlines())) <= LINE_WIDTH


def tiny(architecture: str = "Tiny", revision: str | None = None) -> ModelSpec:
    return ModelSpec(
        name="tiny",
        architecture=architecture,
        attentions={"full": FULL},
        layers=(("full",), ()),
        page_tokens=16,
        engine_default_page_tokens=1,
        revision=revision,
    )


# Blank texts and control characters are refused by the loader; surrogates are no characters.
texts = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], whitelist_characters="\t\n"), min_size=1, max_size=300
).filter(str.strip)


@given(texts, texts, texts)
@example("null", "010", "yes: no # not a comment")
@example("- x", "a\u2028b", "a\tb\nc")
@example("w  " * 80 + "end", "ab  " * 60 + "end", "abc  " * 50 + "end")
@example("a \u2028 b", "word  " * 40 + "end", " \u2029x" * 60)
@example("\ufeffx", "a " * 80 + "b", "x" * 200)
@example("word " * 40 + "# end", "\u2028 " + "w " * 90 + "z", "ends with space ")
def test_any_text_is_read_back_as_it_was(summary: str, architecture: str, source: str) -> None:
    spec = tiny(architecture, revision=source)
    text = write_preset(spec, sources={"full": source}, summary=summary, comments=(summary, source))
    preset = parse_model(text.encode(), file="again.yaml")
    assert (spec, summary, source) == (preset.spec, preset.summary, preset.sources["full"])


def test_what_is_off_the_defaults_is_written() -> None:
    extra = (
        StateTensor(name="count", shape=(2, 3), dtype="int64"),
        StateTensor(name="a b", shape=(1,), dtype="fp32"),
    )
    spec = ModelSpec(
        name="odd",
        architecture="Odd",
        attentions={"conv": ShortConv(channels=4, conv_kernel=3, extra=extra), "true": FULL},
        layers=(("conv", "true"), ()),
        draft_layers=(("true",), ()),
        shared_layers=(("true",),),
        page_tokens=32,
        engine_default_page_tokens=16,
        kv_dtype="fp8",
        state_dtype="bf16",
        conv_dtype="fp16",
        index_dtype="fp4",
    )
    text = write_preset(spec, sources={"conv": "here", "true": "there"}, summary="odd")
    assert spec == parse_model(text.encode(), file="odd.yaml").spec


def test_defaults_are_left_out() -> None:
    text = write_preset(tiny(), sources={"full": "here"}, summary="small")
    assert {
        "state_dtype",
        "conv_dtype",
        "index_dtype",
        "logical_anchor",
        "revision",
        "draft_layers",
        "shared_layers",
    }.isdisjoint(read_document(text).data)
    assert "v_head_dim" not in text


def test_comments_stand_at_the_head_and_are_wrapped() -> None:
    note = "a note " * 40
    lines = write_preset(tiny(), sources={"full": "x"}, summary="y", comments=("first", note)).splitlines()
    assert "# first" == lines[0]
    head = lines[: lines.index("schema: 1")]
    assert all(line.startswith("#") and len(line) <= LINE_WIDTH for line in head)
    assert note.split() == " ".join(line.removeprefix("# ") for line in head[1:]).split()


def expand(entries: list[Layer | RepeatedLayers]) -> list[Layer]:
    return [
        layer
        for entry in entries
        for layer in (entry.of * entry.repeat if isinstance(entry, RepeatedLayers) else (entry,))
    ]


layer_lists = st.lists(st.sampled_from([("a",), ("b",), ("a", "b"), ()]), max_size=60)


@given(st.lists(st.tuples(layer_lists.filter(bool), st.integers(1, 9)), max_size=4))
def test_groups_expand_to_the_layers(parts: list[tuple[list[Layer], int]]) -> None:
    layers = [layer for part, repeat in parts for layer in part * repeat]
    entries = list(group_layers(layers))
    assert layers == expand(entries)
    assert all(entry.repeat > 1 for entry in entries if isinstance(entry, RepeatedLayers))


@given(layer_lists.filter(bool), st.integers(2, 50))
def test_a_repetition_is_one_entry(part: list[Layer], repeat: int) -> None:
    (entry,) = group_layers(part * repeat)
    assert isinstance(entry, RepeatedLayers)
    assert entry.repeat >= repeat


def test_the_shortest_period_is_taken() -> None:
    delta, full = ("delta",), ("full",)
    assert [RepeatedLayers(12, (delta, delta, delta, full))] == list(
        group_layers((delta, delta, delta, full) * 12)
    )
    assert [RepeatedLayers(8, (full,)), delta] == list(group_layers((full,) * 8 + (delta,)))
    assert [delta, full] == list(group_layers((delta, full)))


def test_thousands_of_layers_take_no_time() -> None:
    # A period search without a bound would take minutes here.
    layers = [("a",) if number % 127 else ("b",) for number in range(10_000)]
    assert layers == expand(list(group_layers(layers)))
