from __future__ import annotations

from pathlib import Path

import pytest

from tests.results_table import ROOT, pages, with_table


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_table_is_that_of_the_baselines(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert with_table(text, pages()[page]) == text, "write it again: python -m tests.results_table"


def test_another_figure_is_noticed() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    made = pages()[ROOT / "README.md"]
    assert with_table(text, made.replace("38.24 MiB", "38.25 MiB")) != text
