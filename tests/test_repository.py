"""Habits that no linter holds: file sizes, the mirror of packages and tests, nothing of one machine."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

import hicache_bench
from hicache_bench.workflows.doctor import NEWEST_PYTHON, OLDEST_PYTHON, REQUIRED_DISTRIBUTIONS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "hicache_bench"
TESTS = ROOT / "tests"
MAX_LINES = 400
MAX_PUBLIC_NAMES = 12

# The brackets keep these patterns from finding themselves.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:hom[e]|roo[t]|tm[p]|User[s]|wor[k])/\w")
UNFINISHED = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X])\b")


def sources(*suffixes: str) -> list[Path]:
    """Files that people write: no caches, no environments, no results of runs."""
    folders = ("hicache_bench", "tests", "benchmarks", "presets", "scripts", ".ci", "results/baselines")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    # In a git worktree .git is a file, which names a path of this machine.
    found += [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    return [path for path in found if path.suffix in suffixes and "__pycache__" not in path.parts]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]  # type: ignore[no-any-return]


def test_no_file_is_too_long() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in sources(".py")}
    assert len(lengths) > 10
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


@pytest.mark.parametrize("pattern", [MACHINE_PATH, UNFINISHED], ids=["machine path", "unfinished mark"])
def test_text_is_free_of(pattern: re.Pattern[str]) -> None:
    texts = sources(".py", ".md", ".yaml", ".yml", ".toml", ".json", ".sh", "")
    assert [name_of(path) for path in texts if pattern.search(path.read_text(errors="replace"))] == []


@pytest.mark.parametrize("text", ["/roo" + "t/x", 'open("/tm' + 'p/x")', "/hom" + "e/user"])
def test_machine_paths_are_recognised(text: str) -> None:
    assert MACHINE_PATH.search(text)


def test_every_package_has_its_mirror_and_tests_in_it() -> None:
    packages = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("__init__.py")}
    tested = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    assert packages - tested == set()


def test_public_api_is_small_sorted_and_there() -> None:
    names = hicache_bench.__all__
    assert sorted(names) == names
    assert len(names) <= MAX_PUBLIC_NAMES
    assert [name for name in names if not hasattr(hicache_bench, name)] == []


def test_every_module_imports() -> None:
    modules = [path.relative_to(ROOT).with_suffix("") for path in PACKAGE.rglob("*.py")]
    for module in modules:
        if module.name != "__main__":
            importlib.import_module(".".join(module.parts).removesuffix(".__init__"))


def test_doctor_looks_for_what_the_project_requires(project: dict[str, list[str]]) -> None:
    required = {re.split(r"[^\w-]", line)[0] for line in project["dependencies"]}
    assert required == set(REQUIRED_DISTRIBUTIONS)


def test_supported_pythons_are_the_same_everywhere(project: dict[str, str]) -> None:
    (oldest, newest) = (".".join(map(str, version)) for version in (OLDEST_PYTHON, NEWEST_PYTHON))
    beyond = f"{NEWEST_PYTHON[0]}.{NEWEST_PYTHON[1] + 1}"
    assert f">={oldest},<{beyond}" == project["requires-python"]
    assert f"Programming Language :: Python :: {newest}" in project["classifiers"]
    assert f"Programming Language :: Python :: {beyond}" not in project["classifiers"]
    setup = (ROOT / "scripts" / "setup_env.sh").read_text()
    assert f"{OLDEST_PYTHON} <= sys.version_info[:2] <= {NEWEST_PYTHON}" in setup
