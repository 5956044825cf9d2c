from __future__ import annotations

import subprocess
import sys

from hicache_bench.config.catalogue import aliased_files, list_presets, shipped_files
from hicache_bench.config.load import load_model


def test_what_is_listed_is_what_the_files_say_when_they_are_validated() -> None:
    listed = list_presets()
    assert len(listed) > 30
    for summary in listed:
        preset = load_model(summary.name)
        assert (preset.name, preset.aliases) == (summary.name, summary.aliases)
        assert (preset.summary, preset.served_by) == (summary.summary, summary.served_by)


def test_an_alias_leads_to_the_file_that_has_it() -> None:
    files, aliases = shipped_files(), aliased_files()
    assert files["deepseek-v4-flash"] == aliases["deepseek"]
    assert {alias for preset in list_presets() for alias in preset.aliases} == set(aliases)


def test_listing_validates_nothing() -> None:
    program = (
        "import sys; from hicache_bench.config.catalogue import list_presets; assert list_presets();"
        "print(sorted({'numpy', 'pydantic', 'rich', 'typer'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[]" == answer.stdout.strip()
