"""The wheel, built and installed away from the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import hicache_bench

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    """Output of a command that must pass and must not see the source tree."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    child = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stdout + child.stderr
    return child.stdout


def build(target: str, source: Path, directory: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", directory, cwd=source)
    (built,) = directory.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it, which borrows the dependencies of this one."""
    directory = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", directory, cwd=directory)
    python = directory / "bin" / "python"
    run(
        *(sys.executable, "-m", "pip", "--python", python),
        *("install", "--no-index", "--no-deps", "--disable-pip-version-check", wheel),
        cwd=directory,
    )
    # The .pth files of a folder that a .pth file adds are not read: an editable install there stays unseen.
    site_packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=directory)
    Path(site_packages.strip(), "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return directory


def presets(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}


def test_wheel_carries_the_presets_and_the_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    prefix = "hicache_bench/presets/"
    expected = presets(ROOT / "presets")
    assert expected
    assert expected == {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
    assert [name for name in names if name.endswith("licenses/LICENSE")]


def test_wheel_carries_nothing_else(wheel: Path) -> None:
    version = hicache_bench.__version__
    folders = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert folders == {"hicache_bench", f"hicache_bench-{version}.dist-info"}


def test_wheel_of_the_source_archive_is_the_same(wheel: Path, tmp_path: Path) -> None:
    archive = build("sdist", ROOT, tmp_path / "archive")
    run("tar", "-xf", archive, cwd=tmp_path)
    source = tmp_path / archive.name.removesuffix(".tar.gz")
    rebuilt = build("wheel", source, tmp_path / "rebuilt")
    assert sorted(zipfile.ZipFile(wheel).namelist()) == sorted(zipfile.ZipFile(rebuilt).namelist())
    assert (source / "tests" / "test_packaging.py").exists()


def test_installed_package_is_not_the_source_tree(environment: Path, tmp_path: Path) -> None:
    python = environment / "bin" / "python"
    location = run(python, "-c", "import hicache_bench; print(hicache_bench.__file__)", cwd=tmp_path)
    assert Path(location.strip()).is_relative_to(environment)


def test_presets_are_found_by_the_installed_command(environment: Path, tmp_path: Path) -> None:
    output = run(environment / "bin" / "hicache-bench", "presets", "list", cwd=tmp_path)
    missing = [path.stem for path in (ROOT / "presets" / "models").glob("*.yaml") if path.stem not in output]
    assert missing == []


def test_main_job_runs_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    output = run(environment / "bin" / "hicache-bench", "run", "--preset", "deepseek", cwd=tmp_path)
    assert "deepseek-v4-flash" in output
