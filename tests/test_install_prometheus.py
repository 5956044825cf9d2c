"""When ``scripts/install_prometheus.sh`` installs, and what it says where it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHELL = "/bin/sh"
COMMAND = "apt-get install -y --no-install-recommends prometheus"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH with what the script itself calls, and nothing to install with."""
    for name in ("sh", "dirname", "env", "id"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    return tmp_path


def add_program(programs: Path, name: str, text: str = "") -> None:
    (programs / name).write_text(f"#!{SHELL}\n{text}\n")
    (programs / name).chmod(0o755)


def install(programs: Path, **environment: str) -> str:
    """Run the script; what it says."""
    done = subprocess.run(
        [SHELL, str(ROOT / "scripts" / "install_prometheus.sh")],
        env={**os.environ, "PATH": str(programs), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "" == done.stdout
    return done.stderr


def test_what_is_there_is_left_alone(programs: Path) -> None:
    add_program(programs, "prometheus")
    assert "" == install(programs, CI="true")


def test_without_apt_it_says_what_to_do(programs: Path) -> None:
    said = install(programs, CI="true")
    assert COMMAND in said
    assert 1 == len(said.splitlines())


def test_ci_installs_as_root(programs: Path) -> None:
    add_program(programs, "apt-get", f'echo "ran: apt-get $*" >&2; : >"{programs}/prometheus"')
    add_program(programs, "sudo", '[ "$1" = -n ] && shift; exec "$@"')
    add_program(programs, "true")
    assert ["ran: apt-get update", f"ran: {COMMAND}"] == install(programs, CI="true").splitlines()[:2]


def test_elsewhere_it_installs_only_where_no_service_would_start(programs: Path) -> None:
    add_program(programs, "apt-get", "echo ran >&2")
    said = install(programs, CI="")
    assert ("ran" in said.splitlines()) is not Path("/run/systemd/system").is_dir()
    assert COMMAND in said
