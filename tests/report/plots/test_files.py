from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pytest

from hicache_bench.errors import InputError, OutputError
from hicache_bench.report.plots.files import (
    MARK,
    check_directory,
    file_bytes,
    parse_formats,
    write_figures,
)
from hicache_bench.report.plots.fingerprint import fingerprint
from hicache_bench.report.plots.pool_bytes import draw_pool_bytes
from hicache_bench.report.plots.style import THEMES, Theme, styled
from tests.report.plots.drawn import LIGHT
from tests.workflows.runs import cached_run

OURS = f"<svg>{MARK} 0123</svg>".encode()


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def made(file_format: str, theme: Theme = LIGHT) -> bytes:
    with styled(theme):
        return file_bytes(draw_pool_bytes([cached_run("qwen3-32b", 8192)], theme), file_format)


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
@pytest.mark.parametrize("file_format", ["png", "svg"])
def test_equal_input_gives_equal_bytes(file_format: str, theme: Theme) -> None:
    assert made(file_format, theme) == made(file_format, theme)


@pytest.mark.parametrize("file_format", ["png", "svg"])
def test_a_file_says_what_it_shows_and_what_drew_it_and_no_date(file_format: str) -> None:
    data = made(file_format)
    with styled(LIGHT):
        shown = fingerprint(draw_pool_bytes([cached_run("qwen3-32b", 8192)], LIGHT))
    assert f"{MARK} {shown}, drawn with matplotlib {mpl.__version__}".encode() in data
    assert b"date" not in data.lower().replace(b"update", b"")


def test_a_png_is_1600_pixels_wide() -> None:
    data = made("png")
    assert data.startswith(b"\x89PNG")
    assert 1600 == int.from_bytes(data[16:20], "big")


def test_an_svg_holds_text_as_text_and_no_blanks_at_the_end_of_a_line() -> None:
    data = made("svg")
    assert b">hit_policy</text>" in data
    assert not any(line.endswith(b" ") for line in data.splitlines())


@pytest.mark.parametrize(
    ("text", "formats"), [("png", ("png",)), ("svg, PNG,svg", ("svg", "png"))], ids=["one", "both"]
)
def test_formats(text: str, formats: tuple[str, ...]) -> None:
    assert formats == parse_formats(text)


@pytest.mark.parametrize("text", ["", "pdf", "png;svg", "png,"])
def test_unknown_formats_name_those_that_are(text: str) -> None:
    with pytest.raises(InputError, match="allowed: png, svg"):
        parse_formats(text)


def test_files_are_written_and_replace_ours(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "figures"
    for data in (OURS, OURS + b"2"):
        assert [directory / "a.svg"] == list(write_figures({"a.svg": data}, directory))
        assert data == (directory / "a.svg").read_bytes()
    assert ["a.svg"] == names_in(directory)


def test_a_file_of_somebody_else_stays_and_then_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "b.svg").write_text("mine")
    with pytest.raises(OutputError, match=r"b\.svg.*no figure that hicache-bench drew"):
        write_figures({"a.svg": OURS, "b.svg": OURS}, tmp_path)
    assert ["b.svg"] == names_in(tmp_path)
    assert "mine" == (tmp_path / "b.svg").read_text()


def test_a_directory_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.svg").mkdir()
    with pytest.raises(OutputError, match="is there"):
        write_figures({"a.svg": OURS}, tmp_path)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: Path, _target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OutputError, match="No space left on device"):
        write_figures({"a.svg": OURS}, tmp_path / "figures")
    assert [] == names_in(tmp_path)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is a file; give a directory"):
        check_directory(tmp_path / "file")


def test_looking_at_a_directory_leaves_nothing(tmp_path: Path) -> None:
    check_directory(tmp_path / "new")
    assert [] == names_in(tmp_path)
