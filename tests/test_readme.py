"""The README says what the tool says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from hicache_bench.config.load import list_presets

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.removeprefix("$ ").split("#")[0].strip()
    for line in README.splitlines()
    if line.startswith("$ hicache-bench")
]
TIMES = re.compile(r"[0-9.,]+ (?:s|ms|µs)\b|\s[0-9.]+$")


@cache
def help_of(*command: str) -> str:
    arguments = [*command, "--help"]
    script = "from hicache_bench.cli.app import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, check=True, text=True
    ).stdout


def test_the_table_of_presets_has_each_and_no_other() -> None:
    table = README.split("## Presets")[1].split("\n## ")[0]
    named = [
        name for line in table.splitlines() if line.startswith("|") for name in re.findall("`([^`]+)`", line)
    ]
    presets = [preset.name for preset in list_presets()]
    assert sorted(presets) == sorted(named)
    assert f"{len(presets)} models ship" in table


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_that_is_shown_exists(command: str) -> None:
    words = shlex.split(command)[1:]
    # A command of a group, such as `presets show`, has a help of its own.
    help_text = help_of(*words[: 2 if words[0] == "presets" else 1])
    for option in (word for word in words if word.startswith("-")):
        assert option in help_text


def test_the_output_that_is_shown_is_what_the_main_job_prints(tmp_path: Path) -> None:
    """All but the times: every line of the README's block, with the seconds and rates taken out."""
    script = "from hicache_bench.cli.app import main; main()"
    arguments = ["run", "--preset", "deepseek", "--out", str(tmp_path)]
    printed = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, check=True, text=True
    ).stdout
    block = README.split("$ hicache-bench run --preset deepseek\n")[2].split("```")[0]
    assert timeless(printed) == timeless(block)


def timeless(text: str) -> list[str]:
    return [
        # The rule of a table is as long as its widest time.
        re.sub(r"(\s)+|(─)+", r" \2", TIMES.sub("", TIMES.sub("", line.rstrip()))).strip()
        for line in text.strip().splitlines()
    ]


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^\$ make (\w+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
