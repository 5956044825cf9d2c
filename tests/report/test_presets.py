from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import cache
from io import StringIO
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from hicache_bench.config.load import load_model
from hicache_bench.models.engine_profile import pools_of
from hicache_bench.models.spec import ShortConv, StateTensor
from hicache_bench.report.preset_data import preset_as_dict
from hicache_bench.report.presets import dimension_text, render_number, render_preset
from hicache_bench.workflows.footprint import VariantBytes, count_bytes
from hicache_bench.workflows.variant import VariantOptions, apply_options
from tests.workflows.runs import PRESETS


def text_of(result: RenderableType) -> str:
    console = Console(
        width=80, color_system=None, file=StringIO(), markup=False, emoji=False, highlight=False
    )
    console.print(result)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    return text


@cache
def counted(name: str, **options: Any) -> VariantBytes:
    return count_bytes(apply_options(load_model(name), VariantOptions(**options)))


def section(text: str, heading: str) -> list[str]:
    """Lines from a heading to the next blank line."""
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(heading))
    end = next((index for index in range(start, len(lines)) if not lines[index]), len(lines))
    return lines[start + 1 : end]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_shown_with_all_its_layers_pools_keys_and_sources(name: str) -> None:
    preset = load_model(name)
    text = text_of(render_preset(counted(name)))
    assert "…" not in text
    pools = {line.split()[0]: line.split() for line in section(text, "pools, bytes of a page")}
    for pool in pools_of(preset.spec, profile=preset.profile):
        assert f"{pool.unit_bytes:,}" == pools[pool.name][-1]
        assert str(len(pool.stored_components)) == pools[pool.name][-2]
    # The dimensions may go on in a next line, which begins with blanks.
    lines = [line for line in section(text, "layers by kind") if line[:1].strip()]
    layers = {line.split()[0]: line.split() for line in lines}
    for attention, count in preset.spec.layer_counts.items():
        assert str(count) == layers[attention][2]
    together = "".join(text.split())
    for entry in counted(name).pools:
        for example in entry.keys:
            shown = example.key.split("/", 3)[-1].replace("<page hash>", "<hash>")
            assert f"{entry.pool.name}{example.component},{example.num_bytes:,}bytes{shown}" in together
    assert preset.spec.digest[:16] in text
    words = " ".join(text.split())
    assert all(f"{kind}: {' '.join(source.split())}" in words for kind, source in preset.sources.items())


def test_layers_that_share_are_told() -> None:
    model = load_model("llama-3.1-8b")
    owned = model.spec.layers[:20]
    spec = replace(model.spec, layers=(*owned, *[()] * 12), shared_layers=model.spec.layers[20:])
    found = count_bytes(replace(apply_options(model, VariantOptions()), spec=spec))
    table = " ".join(" ".join(section(text_of(render_preset(found)), "layers by kind")).split())
    assert "none 12 0 caches nothing; 12 read what others cached" in table
    assert ["full"] * 12 == preset_as_dict(found)["shared_layers"]


def test_bytes_at_each_length_are_labelled() -> None:
    text = text_of(render_preset(counted("llama-4-scout")))
    rows = [line.split() for line in section(text, "bytes of a prefix, one rank [counted]")]
    assert ["8k", "1.50", "GiB", "1.50", "GiB", "384.0", "MiB"] in rows
    assert ["stored", "needed", "needed"] == rows[0]
    assert "selective is at most so much" in text


@pytest.mark.parametrize(
    ("name", "chunked", "selected"),
    [("llama-3.1-8b", False, False), ("llama-4-scout", True, False), ("deepseek-v3.2", False, True)],
)
def test_notes_below_the_slopes_are_of_pools_that_are_there(name: str, chunked: bool, selected: bool) -> None:
    text = text_of(render_preset(counted(name)))
    assert chunked == ("selective is at most so much" in text)
    assert selected == ("selective reads every block that an index may select" in text)


def test_two_numbers_and_no_average() -> None:
    rows = section(text_of(render_preset(counted("deepseek-v4-flash"))), "a restore needs, one rank")
    assert ["hit_policy", "3,899.25", "B", "8,160,000", "B", "7.78", "MiB"] == rows[2].split()[:7]


def test_ranks_and_cluster_are_shown() -> None:
    text = text_of(render_preset(counted("qwen3-235b-a22b", tp=8)))
    assert "TP 8, 8 ranks" in text
    rows = section(text, "pools of the cluster")
    assert ["kv", "8", "x", "its", "own", "part", "8", "2", "24,641,536"] in [row.split() for row in rows]
    assert "copies above 1" in text
    kimi = text_of(render_preset(counted("kimi-linear-48b-a3b", tp=2)))
    assert ["kv", "2", "x", "the", "same", "1", "1", "516,096"] in [
        line.split() for line in kimi.splitlines()
    ]
    assert "copies above 1" not in kimi


def test_profiles_are_compared() -> None:
    gemma = text_of(render_preset(counted("gemma-3-27b")))
    assert "the engine's grouping costs 12.59 GiB more under selective" in gemma
    assert "no difference" in text_of(render_preset(counted("llama-3.1-8b")))
    assert "engine profiles" not in text_of(render_preset(counted("kitchen-sink")))
    refused = text_of(render_preset(counted("gemma-3-27b", profile="by_kind", cp="2:sharded")))
    assert "sglang-0.5.23 cannot group these layers: " in refused
    mimo = text_of(render_preset(counted("mimo-v2-flash", page_tokens=128)))
    assert "engine profiles" in mimo


def test_layers_that_cache_nothing_are_counted() -> None:
    rows = section(text_of(render_preset(counted("nemotron-h-8b"))), "layers by kind")
    assert ["none", "24", "0", "caches", "nothing"] in [row.split() for row in rows]


def test_draft_pools_are_marked() -> None:
    text = text_of(render_preset(counted("deepseek-v3.2", draft=True, profile="by_kind")))
    marked = [line.split()[0] for line in section(text, "pools, bytes of a page") if "all pages*" in line]
    assert ["draft", "draft_indexer"] == marked
    assert "* for speed only" in text
    # SGLang packs them: the bytes are the same, the grouping is not.
    packed = text_of(render_preset(counted("deepseek-v3.2", draft=True)))
    assert "all pages*" not in packed
    assert "no difference: by_kind stores and needs the same bytes" in packed


@pytest.mark.parametrize("name", PRESETS)
def test_the_data_says_the_same(name: str) -> None:
    preset = load_model(name)
    data = json.loads(json.dumps(preset_as_dict(counted(name)), allow_nan=False))
    assert (name, preset.spec.digest) == (data["name"], data["digest"])
    for pool, shown in zip(pools_of(preset.spec, profile=preset.profile), data["pools"], strict=True):
        assert (pool.name, pool.unit_bytes) == (shown["name"], shown["unit_bytes"])
        assert pool.unit_bytes == sum(example["num_bytes"] for example in shown["objects"])
        assert (shown["trailing_pages"] is None) == (shown["hit_policy"] == "all_pages")
    for row in data["bytes"]:
        found = counted(name).footprints[row["tokens"]]
        assert (found.stored, found.hit_policy, found.selective) == (
            row["stored"],
            row["hit_policy"],
            row["selective"],
        )


@pytest.mark.parametrize(("name", "expected"), [("llama-3.1-8b", 131_072), ("deepseek-v4-flash", 3_899.25)])
def test_bytes_of_a_token_are_whole_where_they_can_be(name: str, expected: float) -> None:
    found = preset_as_dict(counted(name))["cluster"]["hit_policy"]["bytes_per_token"]
    assert (type(expected), expected) == (type(found), found)


def test_deepseek_is_found_by_its_alias() -> None:
    assert preset_as_dict(counted("deepseek-v4-flash")) == preset_as_dict(counted("deepseek"))


def test_numbers_and_dimensions() -> None:
    assert ("1,024", "3,899.25") == (render_number(Fraction(1024)), render_number(Fraction(15597, 4)))
    extra = (StateTensor(name="count", shape=(2, 3), dtype="int64"),)
    conv = ShortConv(channels=4, conv_kernel=3, extra=extra)
    assert "channels 4, conv_kernel 3, count 2x3 int64" == dimension_text(conv)
