"""Where ``scripts/setup_env.sh`` must stop, and what it leaves behind. That it works, CI itself shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHELL = "/bin/sh"
STATE = ".hicache-bench-state"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """As much of the project as the script reads, with nothing installed."""
    tree = tmp_path / "a tree"
    for name in ("scripts/setup_env.sh", "pyproject.toml", "hicache_bench/__init__.py"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    return tree


def set_up(tree: Path, *extras: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script without a package index."""
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run(
        [SHELL, "scripts/setup_env.sh", *extras],
        cwd=tree,
        env={**os.environ, **offline, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def interpreter(tree: Path, *, version: str, ensurepip: bool) -> str:
    """A program that answers the script's questions as a Python of this version would."""
    program = tree / "interpreter"
    supported = version in {"3.10", "3.11", "3.12", "3.13"}
    program.write_text(
        "#!/bin/sh\n"
        'case "$2" in\n'
        f"*sys.exit*) exit {int(not supported)} ;;\n"
        f"*print*) echo {version} ;;\n"
        f"*ensurepip*) exit {int(not ensurepip)} ;;\n"
        "*) exit 1 ;;\n"
        "esac\n"
    )
    program.chmod(0o755)
    return str(program)


def quick_python(tree: Path) -> str:
    """This Python, whose environments come without pip: installing there fails at once."""
    program = tree / "quick"
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1 $2" != "-m venv" ] || exec "{sys.executable}" -m venv --without-pip "$3"\n'
        f'exec "{sys.executable}" "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


def without_apt(tree: Path) -> str:
    """A PATH with the tools that the script needs, and no apt-get."""
    programs = tree / "bin"
    programs.mkdir()
    for name in ("sh", "cat", "cksum", "dirname", "find", "grep", "head", "id", "ls", "mkdir", "rm", "sed"):
        (programs / name).symlink_to(shutil.which(name) or name)
    return str(programs)


def test_python_that_does_not_run(tree: Path) -> None:
    result = set_up(tree, PYTHON="no-such-python")
    assert result.returncode == 2
    assert "PYTHON=no-such-python" in result.stderr
    assert "3.10 to 3.13" in result.stderr
    assert not (tree / ".venv").exists()


@pytest.mark.parametrize("version", ["2.7", "3.9", "3.14"])
def test_python_that_is_not_supported(tree: Path, version: str) -> None:
    result = set_up(tree, PYTHON=interpreter(tree, version=version, ensurepip=True))
    assert result.returncode == 2
    assert f"Python {version}; allowed are 3.10 to 3.13" in result.stderr
    assert not (tree / ".venv").exists()


def test_no_python_at_all(tree: Path) -> None:
    result = set_up(tree, PATH=without_apt(tree), PYTHON="")
    assert result.returncode == 2
    assert "there is no python3; allowed are 3.10 to 3.13" in result.stderr


def test_no_ensurepip_and_no_apt(tree: Path) -> None:
    python = interpreter(tree, version="3.12", ensurepip=False)
    result = set_up(tree, PATH=without_apt(tree), PYTHON=python)
    assert result.returncode == 2
    assert "has no ensurepip" in result.stderr
    assert not (tree / ".venv").exists()


def debian(tree: Path, *, user_id: int, apt_installs: bool = True, sudo: str | None = None) -> dict[str, str]:
    """The environment of a machine whose Python has no ensurepip until ``apt-get`` has installed it.

    ``apt-get`` says how it was called.
    """
    path, package = without_apt(tree), tree / "ensurepip"
    for name in ("mv", "paste", "sort"):
        (Path(path) / name).symlink_to(shutil.which(name) or name)
    installs = f': >"{package}"' if apt_installs else "exit 100"
    texts = {
        "id": f"echo {user_id}",
        "apt-get": (
            f'echo "ran: apt-get $*, ${{DEBIAN_FRONTEND:-asking}}" >&2\n[ "$1" = update ] || {installs}'
        ),
        "python": (
            f'case "$2" in *ensurepip*) [ -e "{package}" ]; exit ;; esac\nexec "{quick_python(tree)}" "$@"'
        ),
        **({} if sudo is None else {"sudo": sudo}),
    }
    for name, text in texts.items():
        program = Path(path) / name
        program.unlink(missing_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    return {"PATH": path, "PYTHON": str(Path(path) / "python")}


INSTALL = f"apt-get install -y python{sys.version_info[0]}.{sys.version_info[1]}-venv"


def test_root_installs_ensurepip_and_goes_on(tree: Path) -> None:
    machine = debian(tree, user_id=0)
    result = set_up(tree, DEBIAN_FRONTEND="", **machine)
    said = result.stderr.splitlines()
    package = INSTALL.rpartition(" ")[2]
    assert f"hicache-bench: {machine['PYTHON']} has no ensurepip; installing {package}" == said[0]
    assert ["ran: apt-get update, asking", f"ran: {INSTALL}, noninteractive"] == said[1:3]
    assert (tree / ".venv" / "bin" / "python").exists()
    assert "pip could not install" in said[-1]
    assert 1 == result.returncode


@pytest.mark.parametrize(
    ("sudo", "typed"), [(None, f"su -c '{INSTALL}'"), ("exit 1", f"sudo {INSTALL}")],
    ids=["no sudo", "sudo"],
)  # fmt: skip
def test_a_user_is_told_how_to_install_ensurepip(tree: Path, sudo: str | None, typed: str) -> None:
    machine = debian(tree, user_id=1000, sudo=sudo)
    result = set_up(tree, **machine)
    line = f"hicache-bench: {machine['PYTHON']} has no ensurepip. Run: {typed}\n"
    assert (2, line) == (result.returncode, result.stderr)
    assert not (tree / ".venv").exists()


def test_an_ensurepip_that_root_cannot_install(tree: Path) -> None:
    result = set_up(tree, **debian(tree, user_id=0, apt_installs=False))
    assert 2 == result.returncode
    assert result.stderr.splitlines()[-1].endswith(f"has no ensurepip. Run: su -c '{INSTALL}'")
    assert not (tree / ".venv").exists()


def test_folder_that_is_no_environment_is_left_alone(tree: Path) -> None:
    (tree / ".venv").mkdir()
    (tree / ".venv" / "thesis.txt").write_text("years of work")
    result = set_up(tree)
    assert result.returncode == 2
    assert "Move it away" in result.stderr
    assert [path.name for path in (tree / ".venv").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("leftover", ["pyvenv.cfg", STATE])
def test_what_an_interrupted_run_left_is_not_trusted(tree: Path, leftover: str) -> None:
    (tree / ".venv" / "lib").mkdir(parents=True)
    (tree / ".venv" / leftover).write_text("unfinished\n")
    result = set_up(tree, PYTHON=quick_python(tree))
    assert result.returncode == 1
    assert "building it anew" in result.stderr
    assert "pip could not install" in result.stderr
    assert (tree / ".venv" / "bin" / "python").exists()
    assert (tree / ".venv" / STATE).read_text() == "unfinished\n"


def test_failed_addition_keeps_a_finished_environment(tree: Path) -> None:
    venv.create(tree / ".venv", symlinks=True)
    (site_packages,) = (tree / ".venv" / "lib").glob("python3*/site-packages")
    (site_packages / "pip.pth").write_text(sysconfig.get_path("purelib"))
    command = "cat pyproject.toml hicache_bench/__init__.py scripts/setup_env.sh | cksum"
    fingerprint = subprocess.check_output([SHELL, "-c", command], cwd=tree, text=True)
    finished = f"{tree.resolve()}\n{fingerprint}test\n"
    (tree / ".venv" / STATE).write_text(finished)

    assert set_up(tree).returncode == 0
    assert set_up(tree, "test").returncode == 0
    added = set_up(tree, "dev")
    assert added.returncode == 1
    assert ".[dev,test]" in added.stderr
    assert finished == (tree / ".venv" / STATE).read_text()

    (tree / "pyproject.toml").write_text("[project]\n")
    assert set_up(tree).returncode == 1
