from __future__ import annotations

import pytest

from hicache_bench.cli.choice import chosen_presets
from hicache_bench.errors import ConfigError
from tests.workflows.runs import PRESETS


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("deepseek", ["deepseek-v4-flash"]),
        ("kitchen-sink, deepseek", ["kitchen-sink", "deepseek-v4-flash"]),
        ("deepseek,deepseek-v4-flash,deepseek", ["deepseek-v4-flash"]),
        ("all", PRESETS),
        ("ALL", PRESETS),
        ("all,deepseek", PRESETS),
    ],
)
def test_each_preset_once(text: str, names: list[str]) -> None:
    assert names == [preset.name for preset in chosen_presets(text)]


@pytest.mark.parametrize("text", ["", "deepseek,", "al", "deepseek;kitchen-sink"])
def test_no_preset_of_that_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"no preset is named|''"):
        chosen_presets(text)
