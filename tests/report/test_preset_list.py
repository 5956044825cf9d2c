from __future__ import annotations

from hicache_bench.config.catalogue import PresetSummary, list_presets
from hicache_bench.report.preset_list import render_list
from tests.report.test_presets import text_of


def test_the_list_names_every_preset_and_alias() -> None:
    text = text_of(render_list(list_presets()))
    assert "…" not in text
    lines = [line.split() for line in text.splitlines() if line.strip()]
    for preset in list_presets():
        place = next(index for index, words in enumerate(lines) if words[0] == preset.name)
        assert (preset.served_by or ("no",)) == (lines[place][1],)
        below = {words[0] for words in lines[place + 1 : place + 1 + len(preset.aliases)]}
        assert set(preset.aliases) == below


def test_a_summary_is_shown_as_it_is() -> None:
    preset = PresetSummary(name="x", aliases=(), summary="[red]all[/red] :ok:", served_by=())
    assert "[red]all[/red] :ok:" in text_of(render_list([preset]))
