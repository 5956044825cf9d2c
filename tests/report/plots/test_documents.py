"""The figures of the docs are current: they show what would be drawn today, whatever drew them."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import pytest

from hicache_bench.report.plots.documents import document_files
from hicache_bench.report.plots.files import DOCUMENT_IMAGES, MARK
from hicache_bench.workflows.concepts import CONCEPTS
from tests.workflows.runs import quiet

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / DOCUMENT_IMAGES
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DREW = re.compile(rf"{MARK} ([0-9a-f]{{16}}), drawn with (matplotlib \S+ on \S+ \S+)<")
HERE = f"matplotlib {mpl.__version__} on {platform.system()} {platform.machine()}"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fresh() -> Mapping[str, bytes]:
    return document_files(quiet)


def stale(committed: Mapping[str, bytes], fresh: Mapping[str, bytes]) -> list[str]:
    """Names that are on one side only, or show something else.

    What was drawn by the same release on the same kind of machine must be the same file.
    """
    found = sorted(committed.keys() ^ fresh.keys())
    for name in sorted(committed.keys() & fresh.keys()):
        ours, theirs = (DREW.search(files[name].decode()) for files in (fresh, committed))
        assert ours is not None
        if (
            theirs is None
            or ours.group(1) != theirs.group(1)
            or (theirs.group(2) == HERE and committed[name] != fresh[name])
        ):
            found.append(name)
    return found


def committed() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in IMAGES.iterdir()}


def test_committed_figures_are_current(fresh: Mapping[str, bytes]) -> None:
    assert stale(committed(), fresh) == [], "draw them anew: hicache-bench plot --docs"


def test_stale_figures_are_found(fresh: Mapping[str, bytes]) -> None:
    name = "concept-swa.svg"
    (shown, drew), whole = DREW.findall(fresh[name].decode())[0], fresh[name]
    changed = {
        "another figure": whole.replace(shown.encode(), b"0" * 16),
        "another line of the same release": whole.replace(b"16 read", b"17 read", 1),
        "not ours": b"<svg/>",
    }
    for data in changed.values():
        assert [name] == stale({**fresh, name: data}, fresh)
    assert [name] == stale({other: data for other, data in fresh.items() if other != name}, fresh)
    elsewhere = whole.replace(drew.encode(), b"matplotlib 99.0 on Elsewhere arm64").replace(b"16 read", b"16")
    assert stale({**fresh, name: elsewhere}, fresh) == []


def test_figures_have_both_themes(fresh: Mapping[str, bytes]) -> None:
    light = {name for name in fresh if not name.endswith("-dark.svg")}
    assert {name.replace(".svg", "-dark.svg") for name in light} == fresh.keys() - light


def test_every_image_of_a_page_is_there_and_every_concept_is_on_its_page() -> None:
    names = {path.name for path in IMAGES.iterdir()}
    shown = set()
    for page in PAGES:
        for target in re.findall(r'(?:src|srcset)="([^"]*images/[^"]*)"', page.read_text()):
            assert (page.parent / target).resolve().parent == IMAGES
            assert Path(target).name in names, f"{page}: {target}"
            shown.add(Path(target).name)
    assert shown == names
    for name in CONCEPTS:
        text = (ROOT / "docs" / "concepts" / f"{name}.md").read_text()
        assert f"images/concept-{name}.svg" in text
        assert f"images/concept-{name}-dark.svg" in text
        assert 'alt="' in text
