from __future__ import annotations

import json
from pathlib import Path

from hicache_bench.config.load import list_presets
from tests.cli.command import Command


def test_list(command: Command) -> None:
    answer = command("presets", "list")
    assert (0, "") == (answer.code, answer.err)
    assert all(preset.name in answer.out for preset in list_presets())
    assert max(map(len, answer.out.splitlines())) <= 80


def test_list_as_json(command: Command) -> None:
    answer = command("presets", "list", "--json")
    assert [preset.name for preset in list_presets()] == [preset["name"] for preset in json.loads(answer.out)]


def test_show(command: Command) -> None:
    answer = command("presets", "show", "deepseek")
    assert (0, "") == (answer.code, answer.err)
    assert "6,440,192" in answer.out or "deepseek_v4_c4_indexer_state" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_show_as_json(command: Command) -> None:
    data = json.loads(command("presets", "show", "llama-3.1-8b", "--json").out)
    assert (64, 8_388_608) == (data["page_tokens"], data["pools"][0]["unit_bytes"])


def test_a_name_that_is_nearly_right_gets_the_right_one(command: Command) -> None:
    answer = command("presets", "show", "lama-3.1-8b")
    answer.assert_refused(2, "no preset is named 'lama-3.1-8b'", "did you mean", "llama-3.1-8b")


def test_a_file_of_ones_own(command: Command, tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "presets" / "models" / "kitchen-sink.yaml"
    mine = tmp_path / "mine.yaml"
    mine.write_text(source.read_text().replace("name: kitchen-sink", "name: mine"))
    assert "mine" == json.loads(command("presets", "show", mine, "--json").out)["name"]
    command("presets", "show", tmp_path / "gone.yaml").assert_refused(2, "gone.yaml")
