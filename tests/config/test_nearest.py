from __future__ import annotations

from pathlib import Path

import pytest

from hicache_bench.config.catalogue import aliased_files, shipped_files
from hicache_bench.config.nearest import MAX_SHOWN, nearest

FILES = {
    name: Path(file)
    for name, file in {
        "deepseek-v3": "v3",
        "deepseek-v4-flash": "flash",
        "deepseek-v4-pro": "pro",
        "jamba-1.5-mini": "jamba",
        "llama-3.1-70b": "70b",
        "llama-3.1-8b": "8b",
        "llama-4-scout": "scout",
        "deepseek": "flash",
        "deepseek-v4pro": "pro",
        "jamba": "jamba",
        "llama": "scout",
    }.items()
}
V4 = ("deepseek-v4-flash", "deepseek-v4-pro")
LLAMAS = ("llama-3.1-70b", "llama-3.1-8b", "llama-4-scout")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("deepseek-v4", V4),
        ("deepseekv4", V4),
        ("deepseek_v4", V4),
        ("llama", LLAMAS),
        ("llama3", LLAMAS[:2]),
        ("deepseek-v4p", V4[1:]),
    ],
)
def test_what_starts_as_given_comes_first(given: str, names: tuple[str, ...]) -> None:
    assert names == nearest(given, FILES)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("depseek-v4", V4),
        ("deepseeek-v4", V4),
        ("deepseek-v4-flsh", V4[:1]),
        ("lama", ("llama",)),
        ("lama-3", LLAMAS[:2]),
        ("jmaba", ("jamba",)),
        ("depseek", ("deepseek",)),
        ("llama-3.1-8b-instruct", ("llama-3.1-8b",)),
    ],
)
def test_a_slip_finds_whole_names_and_their_starts(given: str, names: tuple[str, ...]) -> None:
    assert names == nearest(given, FILES)


@pytest.mark.parametrize("given", ["", "-", "d", "zzzzzz", "such", "x" * 5000, "\0"])
def test_what_is_like_no_name_finds_none(given: str) -> None:
    assert () == nearest(given, FILES)


def test_no_more_than_a_line_takes() -> None:
    files = {**shipped_files(), **aliased_files()}
    assert MAX_SHOWN == len(nearest("deepseek", files))
    assert () == nearest("deepseek", {})


@pytest.mark.parametrize("name", [*shipped_files(), *aliased_files()])
def test_a_letter_left_out_of_a_shipped_name_still_finds_it(name: str) -> None:
    files = {**shipped_files(), **aliased_files()}
    given = name[:3] + name[4:]
    if given not in files:
        assert files[name] in {files[found] for found in nearest(given, files)}
