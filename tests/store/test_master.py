"""The managed master, with stand-ins for the executable; the real one is in ``tests/integration``."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hicache_bench.errors import ConfigError, StoreUnavailableError
from hicache_bench.store import master
from hicache_bench.store.client import INSTALL_COMMAND
from hicache_bench.store.master import ManagedMaster, find_master_binary, master_command

InstallMaster = Callable[[str], Path]


@pytest.fixture
def install_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstallMaster:
    """Make a shell script the ``mooncake_master`` of this environment, and log its starts."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "mooncake", raising=False)

    def install(script: str) -> Path:
        package = tmp_path / "mooncake"
        package.mkdir()
        (package / "__init__.py").write_text("raise AssertionError('the package must not be imported')")
        binary, log = package / "mooncake_master", tmp_path / "starts.log"
        binary.write_text(f'#!/bin/sh\necho "$@" >> {log}\n{script}\n')
        binary.chmod(0o755)
        return log

    return install


def test_binary_is_found_without_importing_the_wheel(install_master: InstallMaster, tmp_path: Path) -> None:
    install_master("exit 0")
    assert tmp_path / "mooncake" / "mooncake_master" == find_master_binary()


def test_missing_wheel_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StoreUnavailableError, match=re.escape(f"install the wheel: {INSTALL_COMMAND}")):
        ManagedMaster()


def test_taken_ports_are_tried_again_with_others(install_master: InstallMaster) -> None:
    log = install_master("exit 1")
    with pytest.raises(StoreUnavailableError, match="ports taken 5 times"):
        ManagedMaster()
    ports = [part for line in log.read_text().splitlines() for part in line.split() if "port=" in part]
    assert 10 == len(ports)
    assert len(set(ports)) > 2


def test_broken_executable_is_not_tried_again(install_master: InstallMaster) -> None:
    log = install_master("echo 'error while loading shared libraries: libnuma.so.1' >&2; exit 127")
    with pytest.raises(StoreUnavailableError, match=r"code 127.*libnuma\.so\.1"):
        ManagedMaster()
    assert 1 == len(log.read_text().splitlines())


def test_master_that_never_serves_is_given_up(
    install_master: InstallMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master, "_READY_SECONDS", 0.3)
    install_master("exec sleep 300")
    with pytest.raises(StoreUnavailableError, match=r"not ready in 0\.3 s"):
        ManagedMaster()


@pytest.mark.parametrize(
    "options",
    [
        {"lease_ttl_ms": -1},
        {"eviction_watermark": 0.0},
        {"eviction_watermark": 1.1},
        {"eviction_ratio": 0.0},
        {"eviction_ratio": float("nan")},
    ],
    ids=str,
)
def test_impossible_options(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="not"):
        ManagedMaster(**options)  # type: ignore[arg-type]


def test_command_listens_on_loopback_only(tmp_path: Path) -> None:
    command = master_command(tmp_path, 1234, 5678, lease_ttl_ms=7, eviction_watermark=0.5, eviction_ratio=0.2)
    assert str(tmp_path) == command[0]
    expected = {
        "-rpc_address=127.0.0.1",
        "-rpc_port=1234",
        "-metrics_host=127.0.0.1",
        "-metrics_port=5678",
        "-default_kv_lease_ttl=7",
        "-eviction_high_watermark_ratio=0.5",
        "-eviction_ratio=0.2",
    }
    assert expected <= set(command)
