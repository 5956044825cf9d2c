from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Command, run_apart
from tests.records.golden import golden_path

RUN = golden_path("run")
NAME = "bytes-kitchen-sink"


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def figures(tmp_path: Path) -> Path:
    return tmp_path / "figures"


def test_a_record_becomes_its_figures(command: Command, figures: Path) -> None:
    answer = command("plot", RUN, "-o", figures, "--format", "png,svg")
    assert (0, "") == (answer.code, answer.err)
    paths = [Path(line) for line in answer.out.splitlines()]
    assert [".png", ".svg"] == [path.suffix for path in paths]
    assert all(path.name.startswith(NAME) and path.parent == figures for path in paths)
    assert sorted(path.name for path in paths) == names_in(figures)


def test_again_gives_the_same_bytes(command: Command, figures: Path) -> None:
    found = []
    for _ in range(2):
        (line,) = command("plot", RUN, "-o", figures, "--theme", "dark").out.splitlines()
        assert line.endswith("-dark.png")
        found.append(Path(line).read_bytes())
    assert found[0] == found[1]


def test_json_lists_the_files(command: Command, figures: Path) -> None:
    (path,) = json.loads(command("plot", RUN, "--json", "-o", figures).out)
    assert Path(path).exists()


def test_what_is_not_drawn_is_told(command: Command, figures: Path) -> None:
    answer = command("plot", RUN, golden_path("roundtrip"), "-o", figures)
    assert 0 == answer.code
    assert "not drawn: 1 roundtrip record" in answer.err
    assert 1 == len(answer.out.splitlines())


def test_a_directory_of_records(command: Command, figures: Path) -> None:
    answer = command("plot", RUN.parent, "-o", figures)
    assert 0 == answer.code
    assert {"bytes", "throughput"} <= {Path(line).name.partition("-")[0] for line in answer.out.splitlines()}


def test_mistakes_have_one_message(command: Command, figures: Path, tmp_path: Path) -> None:
    other, cut = tmp_path / "other.json", tmp_path / "cut.json"
    other.write_text('{"a": 1}')
    cut.write_text(RUN.read_text()[:-100])
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for arguments, message in (
        ((), "no record to draw; give files"),
        ((tmp_path / "none.json",), "No such file"),
        ((tmp_path / "empty",), "holds no record"),
        ((other,), "is not a record"),
        ((cut,), "is not a JSON record"),
        ((golden_path("roundtrip"),), "no figure exists for this kind"),
        ((golden_path("simulate"),), "at least two prefix lengths"),
        ((RUN, "--format", "pdf"), "allowed: png, svg"),
        ((RUN, "--theme", "sepia"), "allowed: light, dark"),
        ((RUN, "--docs"), "--docs makes its own records"),
    ):
        command("plot", *arguments, "-o", figures).assert_refused(2, message)
    assert not figures.exists()
    command("plot", RUN, "-o", tmp_path / "file").assert_refused(2, "is a file; give a directory")


def test_a_file_of_somebody_else_stays(command: Command, figures: Path) -> None:
    (path,) = map(Path, command("plot", RUN, "-o", figures).out.splitlines())
    path.write_bytes(b"mine")
    command("plot", RUN, "-o", figures).assert_refused(2, "no figure that hicache-bench drew")
    assert b"mine" == path.read_bytes()


def test_help_is_quick_and_has_an_example() -> None:
    answer = run_apart("plot", "--help")
    assert 0 == answer.code
    assert "hicache-bench plot" in answer.out
    assert "--theme" in answer.out
