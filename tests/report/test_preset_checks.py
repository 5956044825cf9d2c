from __future__ import annotations

from dataclasses import replace

from hicache_bench.config.catalogue import shipped_files
from hicache_bench.report.preset_checks import checks_as_list, problem_text, render_checks
from hicache_bench.workflows.preset_check import FileCheck, check_files
from tests.report.test_presets import text_of

BAD = FileCheck(file="bad.yaml", problems=("bad.yaml: one", "bad.yaml: two"))
WORSE = FileCheck(file="worse.yaml", problems=("worse.yaml: three",))


def good() -> FileCheck:
    """Under a short name: a long path is folded, and how often depends on where this tree lies."""
    (check,) = check_files([str(shipped_files()["deepseek-v4-flash"])])
    return replace(check, file="good.yaml")


def test_a_good_file_is_a_row() -> None:
    row = text_of(render_checks([good()])).splitlines()[-1].split()
    assert ["7", "6", "9,158,208"] == row[-3:]


def test_a_bad_file_is_a_block() -> None:
    assert "bad.yaml: one\nbad.yaml: two" == problem_text([BAD])
    text = problem_text([BAD, good(), WORSE])
    assert ["bad.yaml: one\nbad.yaml: two", "worse.yaml: three", "2 of 3 files bad"] == text.split("\n\n")


def test_the_data_has_both() -> None:
    first, second = checks_as_list([good(), BAD])
    assert (True, "deepseek-v4-flash", []) == (first["ok"], first["preset"], first["problems"])
    assert (False, None, ["bad.yaml: one", "bad.yaml: two"]) == (
        second["ok"],
        second["preset"],
        second["problems"],
    )
