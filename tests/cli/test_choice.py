from __future__ import annotations

from pathlib import Path

import pytest

from hicache_bench.cli.choice import chosen_presets
from hicache_bench.errors import ConfigError
from tests.cli.command import Command
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


def test_a_file_of_that_name_is_what_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").touch()
    with pytest.raises(ConfigError, match=r"no preset is named 'mine'; did you mean 'mine\.yaml'\?"):
        chosen_presets("mine")
    for name in ("x" * 9999, "a\0b"):
        with pytest.raises(ConfigError, match="no preset is named"):
            chosen_presets(name)


def test_a_store_that_moves_nothing_is_not_among_those_allowed(command: Command) -> None:
    for name in ("bench", "roundtrip"):
        for store in ("''", "lokal"):
            answer = command(name, "--preset", "kitchen-sink", "--store", store.strip("'"))
            answer.assert_refused(2, "--store", "allowed: local, mooncake")
            assert "count" not in answer.err
        command(name, "--preset", "kitchen-sink", "--store", "count").assert_refused(2, "count")


def test_a_measured_link_without_a_file_is_told(command: Command) -> None:
    answer = command("simulate", "--preset", "kitchen-sink", "--link", "measured:")
    answer.assert_refused(2, "measured: names no file; give measured:FILE")
