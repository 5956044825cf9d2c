"""What ``scripts/install_mooncake_libraries.sh`` installs, and what it says where it may not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hicache_bench.store import client

ROOT = Path(__file__).parents[1]
SHELL = "/bin/sh"
INSTALL = "apt-get install -y --no-install-recommends"
LIBRARIES = "libibverbs.so.1 libnuma.so.1 libcurl.so.4"


class Machine:
    """A tree with the script, and a PATH with what it calls: nothing to install with, no root."""

    def __init__(self, folder: Path, missing: str) -> None:
        self._tree, self._programs = folder / "tree", folder / "programs"
        self._missing = folder / "missing"
        self._missing.write_text(missing)
        (self._tree / "scripts").mkdir(parents=True)
        (self._tree / ".venv" / "bin").mkdir(parents=True)
        self._programs.mkdir()
        for name in ("install_mooncake_libraries.sh", "apt.sh"):
            shutil.copy(ROOT / "scripts" / name, self._tree / "scripts")
        for name in ("sh", "dirname", "env", "cat", "cp"):
            (self._programs / name).symlink_to(shutil.which(name) or name)
        self._write(self._tree / ".venv" / "bin" / "python", f'cat "{self._missing}"')
        self.add("id", "echo 1000")

    def add(self, name: str, text: str = "") -> None:
        """Put a program on the PATH."""
        self._write(self._programs / name, text)

    def add_apt(self, *, installs: bool, has_t64: bool = False) -> None:
        """Put Debian's tools on the PATH; ``apt-get`` says how it was called."""
        mends = f'[ "$1" = update ] || cp /dev/null "{self._missing}"' if installs else "exit 100"
        self.add("apt-get", f'echo "ran: apt-get $*, ${{DEBIAN_FRONTEND:-asking}}" >&2\n{mends}')
        self.add("apt-cache", f'[ "$1 $2" = "show libcurl4t64" ] && exit {int(not has_t64)}; exit 1')

    def install(self) -> list[str]:
        """Run the script; the lines that it says."""
        done = subprocess.run(
            [SHELL, "scripts/install_mooncake_libraries.sh"],
            cwd=self._tree,
            env={"PATH": str(self._programs)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "" == done.stdout
        return [line.removeprefix("hicache-bench: ") for line in done.stderr.splitlines()]

    def _write(self, path: Path, text: str) -> None:
        path.write_text(f"#!{SHELL}\n{text}\n")
        path.chmod(0o755)


def test_a_machine_that_has_them_is_left_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "\n")
    machine.add_apt(installs=True)
    machine.add("id", "echo 0")
    assert [] == machine.install()


def test_without_apt_it_says_what_to_do(tmp_path: Path) -> None:
    needs, advice = Machine(tmp_path, LIBRARIES).install()
    assert f"the Mooncake wheel needs {LIBRARIES}" == needs
    assert advice.startswith("install the packages that hold them")


@pytest.mark.parametrize(("has_t64", "curl"), [(False, "libcurl4"), (True, "libcurl4t64")])
def test_root_installs_the_packages_of_what_is_missing(tmp_path: Path, has_t64: bool, curl: str) -> None:
    machine = Machine(tmp_path, LIBRARIES)
    machine.add_apt(installs=True, has_t64=has_t64)
    machine.add("id", "echo 0")
    update, install = machine.install()[1:]
    assert "ran: apt-get update, asking" == update
    assert f"ran: {INSTALL} libibverbs1 libnuma1 {curl}, noninteractive" == install


def test_a_user_with_sudo_that_asks_nothing_installs(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "libnuma.so.1")
    machine.add_apt(installs=True)
    machine.add("true")
    machine.add("sudo", '[ "$1" = -n ] && shift; exec "$@"')
    assert f"ran: {INSTALL} libnuma1, noninteractive" == machine.install()[-1]


@pytest.mark.parametrize(
    ("sudo", "typed"),
    [(None, f"su -c '{INSTALL} libnuma1'"), ("exit 1", f"sudo {INSTALL} libnuma1")],
    ids=["no sudo", "sudo asks"],
)
def test_a_user_is_told_the_command(tmp_path: Path, sudo: str | None, typed: str) -> None:
    machine = Machine(tmp_path, "libnuma.so.1")
    machine.add_apt(installs=True)
    if sudo:
        machine.add("sudo", sudo)
    assert f"the tests of the real store cannot run. Run: {typed}" == machine.install()[-1]
    assert 2 == len(machine.install())


def test_an_installation_that_fails_is_told_and_stops_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "libnuma.so.1")
    machine.add_apt(installs=False)
    machine.add("id", "echo 0")
    said = machine.install()
    assert "apt-get update failed; going on with the old lists" in said
    assert f"the tests of the real store cannot run. Run: su -c '{INSTALL} libnuma1'" == said[-1]


def test_a_library_of_no_known_package_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "libnuma.so.1 libnew.so.2")
    machine.add_apt(installs=True)
    assert "no package is known for libnew.so.2" in machine.install()


def test_every_library_that_the_client_looks_for_has_a_package(tmp_path: Path) -> None:
    packages = client._PACKAGE_OF_LIBRARY
    machine = Machine(tmp_path, " ".join(packages))
    machine.add_apt(installs=True)
    assert machine.install()[-1].endswith(f"{INSTALL} {' '.join(packages.values())}'")
