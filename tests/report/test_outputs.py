"""What is printed is what was looked at: the committed texts, and what holds of any of them."""

from __future__ import annotations

import pytest

from tests.report.outputs import FOLDER, OUTPUTS


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_committed_output_is_what_is_printed(name: str) -> None:
    assert OUTPUTS[name]() == (FOLDER / name).read_text(encoding="utf-8"), (
        "look at the difference; if it is meant: python -m tests.report.outputs"
    )


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name.endswith(".txt") and "github" not in name])
def test_text_fits_in_80_columns(name: str) -> None:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line != line.rstrip()]
