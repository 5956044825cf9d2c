from __future__ import annotations

from itertools import pairwise

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.report.preset_diff import render_diff
from hicache_bench.workflows.preset_diff import Difference, Value, diff_presets
from tests.report.test_presets import text_of
from tests.workflows.runs import PRESETS


def shown(first: str, second: str) -> str:
    return text_of(render_diff(first, second, diff_presets(load_model(first), load_model(second))))


@pytest.mark.parametrize(("first", "second"), list(pairwise(PRESETS)))
def test_any_two_presets_fit_in_a_terminal(first: str, second: str) -> None:
    assert "…" not in shown(first, second)


def test_differences_stand_under_their_sections() -> None:
    lines = [line.split() for line in shown("llama-3.1-8b", "gpt-oss-20b").splitlines() if line.strip()]
    assert ["llama-3.1-8b", "gpt-oss-20b"] == lines[0]
    headings = [line[0] for line in lines if line[0] in ("fields", "layers", "dimensions", "pools", "needed")]
    assert ["fields", "layers", "dimensions", "pools", "needed"] == headings
    assert ["full.head_dim", "128", "64"] in lines
    assert ["swa.window", "-", "128"] in lines


def test_no_difference_is_said() -> None:
    assert shown("deepseek", "deepseek").startswith("no difference between deepseek and deepseek")


def test_values_are_told_apart() -> None:
    values: tuple[Value, ...] = (True, 0, 1234567, 0.5, "", "x")
    rows = [
        Difference(section="field", field=f"f{index}", first=value, second=None)
        for index, value in enumerate(values)
    ]
    text = text_of(render_diff("a", "b", rows))
    assert ["true", "0", "1,234,567", "0.5", "none", "x"] == [
        line.split()[1] for line in text.splitlines() if line.strip().startswith("f") and line.split()[1:]
    ]
