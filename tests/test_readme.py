"""The README says what the tool says; its commands are run by ``tests/integration/test_docs.py``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from hicache_bench.config.load import list_presets

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
TIMES = re.compile(r"[0-9.,]+ (?:s|ms|µs)\b|\s[0-9.]+$")


def test_the_table_of_presets_has_each_and_no_other() -> None:
    table = README.split("## Presets")[1].split("\n## ")[0]
    named = [
        name for line in table.splitlines() if line.startswith("|") for name in re.findall("`([^`]+)`", line)
    ]
    presets = [preset.name for preset in list_presets()]
    assert sorted(presets) == sorted(named)
    assert f"{len(presets)} models ship" in table


def test_the_output_that_is_shown_is_what_the_main_job_prints(tmp_path: Path) -> None:
    """All but the times: every line of the README's block, with the seconds and rates taken out."""
    script = "from hicache_bench.cli.entry import main; main()"
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
