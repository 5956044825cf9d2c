from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from hicache_bench.config.load import list_presets, load_model
from hicache_bench.models.engine_profile import pools_of
from hicache_bench.report.presets import preset_as_dict, render_list, render_preset
from tests.workflows.runs import PRESETS


def text_of(result: RenderableType) -> str:
    console = Console(width=80, color_system=None, file=StringIO())
    console.print(result, highlight=False)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    return text


def test_the_list_names_every_preset_and_alias() -> None:
    text = text_of(render_list(list_presets()))
    assert "…" not in text
    words = text.replace("(", " ").replace(")", " ").replace(",", " ").split()
    for preset in list_presets():
        assert {preset.name, *preset.aliases} <= set(words)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_shown_with_all_its_pools_and_sources(name: str) -> None:
    preset = load_model(name)
    text = text_of(render_preset(preset))
    assert "…" not in text
    assert "[counted]" in text
    rows = {line.split()[0]: line.split()[-1] for line in text.splitlines() if line.strip()}
    for pool in pools_of(preset.spec, profile=preset.profile):
        assert f"{pool.unit_bytes:,}" == rows[pool.name]
    assert preset.spec.digest[:16] in text
    assert all(f"{kind}: " in text for kind in preset.sources)


@pytest.mark.parametrize("name", PRESETS)
def test_the_data_says_the_same(name: str) -> None:
    preset = load_model(name)
    data = json.loads(json.dumps(preset_as_dict(preset), allow_nan=False))
    assert (name, preset.spec.digest) == (data["name"], data["digest"])
    for pool, shown in zip(pools_of(preset.spec, profile=preset.profile), data["pools"], strict=True):
        assert (pool.name, pool.unit_bytes) == (shown["name"], shown["unit_bytes"])
        assert pool.unit_bytes == sum(shown["object_bytes"].values())
        assert (shown["trailing_pages"] is None) == (shown["hit_policy"] == "all_pages")


def test_deepseek_is_found_by_its_alias() -> None:
    assert preset_as_dict(load_model("deepseek-v4-flash")) == preset_as_dict(load_model("deepseek"))
