from __future__ import annotations

import errno
import json
import os
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from hicache_bench.cli import doctor as command
from hicache_bench.store.client import Availability
from hicache_bench.workflows import doctor
from hicache_bench.workflows.doctor import Check, CheckStatus

HEALTHY = Availability(
    importable=True,
    version="0.3.13.post1",
    distributions=("mooncake-transfer-engine-non-cuda",),
    missing_libraries=(),
    reason=None,
    advice=None,
)
NO_WHEEL = Availability(
    importable=False,
    version=None,
    distributions=(),
    missing_libraries=(),
    reason="the wheel is not installed",
    advice="install it",
)
BOTH = Availability(
    importable=True,
    version="0.3.13.post1",
    distributions=("mooncake-transfer-engine", "mooncake-transfer-engine-non-cuda"),
    missing_libraries=(),
    reason=None,
    advice=None,
)


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command("doctor")(command.doctor_command)
    return app


def with_mooncake(monkeypatch: pytest.MonkeyPatch, availability: Availability) -> None:
    monkeypatch.setattr(doctor, "mooncake_availability", lambda: availability)


def refuse(code: int) -> OSError:
    return OSError(code, os.strerror(code))


@pytest.mark.parametrize(
    ("version", "status"),
    [((3, 9), "fail"), ((3, 10), "ok"), ((3, 13), "ok"), ((3, 14), "fail"), ((4, 0), "fail")],
)
def test_python(version: tuple[int, int], status: str) -> None:
    check = doctor.check_python(version)
    assert status == check.status.value
    assert (status == "fail") == (check.advice is not None)


def test_libraries_are_named_with_their_versions() -> None:
    check = doctor.check_libraries()
    assert check.status is CheckStatus.OK
    assert f"numpy {np.__version__}," in check.found


def test_missing_library_fails() -> None:
    check = doctor.check_libraries(("numpy", "no-such-distribution"))
    assert check.status is CheckStatus.FAIL
    assert check.found == "not installed: no-such-distribution"
    assert check.advice is not None


@pytest.mark.parametrize(("missing_bytes", "status"), [(0, CheckStatus.OK), (1, CheckStatus.WARN)])
def test_memory(missing_bytes: int, status: CheckStatus) -> None:
    assert status is doctor.check_memory(doctor.DEFAULT_RUN_BYTES - missing_bytes).status


def test_results_directory_may_be_missing_and_stays_missing(tmp_path: Path) -> None:
    check = doctor.check_results_directory(tmp_path / "results" / "runs")
    assert check.status is CheckStatus.OK
    assert list(tmp_path.iterdir()) == []


def test_results_directory_that_exists_stays_empty(tmp_path: Path) -> None:
    assert doctor.check_results_directory(tmp_path).status is CheckStatus.OK
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", [".", "runs"])
def test_results_directory_that_is_a_file(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    check = doctor.check_results_directory(tmp_path / "file" / below)
    assert check.status is CheckStatus.FAIL
    assert check.advice is not None


def test_results_directory_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write anywhere, so the refusal is played.
    def temporary_file(dir: Path) -> None:  # noqa: A002 - the name is tempfile's
        raise refuse(errno.EROFS)

    monkeypatch.setattr("tempfile.TemporaryFile", temporary_file)
    check = doctor.check_results_directory(tmp_path)
    assert check.status is CheckStatus.FAIL
    assert os.strerror(errno.EROFS) in check.found


def test_healthy_mooncake() -> None:
    check = doctor.check_mooncake(HEALTHY)
    assert Check("Mooncake", CheckStatus.OK, "mooncake-transfer-engine-non-cuda 0.3.13.post1") == check


def test_missing_mooncake_is_a_warning_with_its_cure() -> None:
    check = doctor.check_mooncake(NO_WHEEL)
    assert check.status is CheckStatus.WARN
    assert "the wheel is not installed" in check.found
    assert "install it" == check.advice


def test_both_mooncake_distributions_fail_although_they_import() -> None:
    check = doctor.check_mooncake(BOTH)
    assert check.status is CheckStatus.FAIL
    assert check.advice is not None
    assert "-m pip uninstall -y mooncake-transfer-engine mooncake-transfer-engine-non-cuda" in check.advice


def test_ports() -> None:
    assert doctor.check_ports().status is CheckStatus.OK


def test_ports_that_cannot_be_bound_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_server(address: tuple[str, int]) -> socket.socket:
        raise refuse(errno.EADDRNOTAVAIL)

    monkeypatch.setattr("socket.create_server", create_server)
    assert doctor.check_ports().status is CheckStatus.WARN


def test_every_check_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_mooncake(monkeypatch, HEALTHY)
    names = [check.name for check in doctor.diagnose(tmp_path)]
    assert names == ["Python", "Libraries", "Memory", "Results", "Mooncake", "Ports", "Data port"]


@pytest.mark.parametrize("availability", [HEALTHY, NO_WHEEL])
def test_command_passes_without_mooncake(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, availability: Availability
) -> None:
    with_mooncake(monkeypatch, availability)
    result = CliRunner().invoke(app, ["--out", str(tmp_path)])
    assert result.exit_code == 0
    assert (availability.reason or "0.3.13.post1") in result.stdout


def test_command_fails_with_both_distributions(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_mooncake(monkeypatch, BOTH)
    result = CliRunner().invoke(app, ["--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "fail Mooncake" in result.stdout


def test_json_says_the_same(app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_mooncake(monkeypatch, BOTH)
    result = CliRunner().invoke(app, ["--json", "--out", str(tmp_path)])
    printed = json.loads(result.stdout)
    assert result.exit_code == 1
    assert printed["ok"] is False
    expected = [
        {"name": check.name, "status": check.status.value, "found": check.found, "advice": check.advice}
        for check in doctor.diagnose(tmp_path)
        if check.name != "Memory"  # changes from one look to the next
    ]
    assert expected == [check for check in printed["checks"] if check["name"] != "Memory"]


def test_output_fits_80_columns_and_carries_no_colour_when_piped(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_mooncake(monkeypatch, BOTH)
    # The path of this Python, or one under pytest's own folder, could be one long word.
    monkeypatch.setattr(doctor, "PIP", "python -m pip")
    monkeypatch.setattr(doctor, "INSTALL_COMMAND", "python -m pip install mooncake-transfer-engine-non-cuda")
    lines = CliRunner().invoke(app, ["--out", "runs"]).stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert [line for line in lines if "\x1b" in line] == []


def test_commands_in_the_advice_are_not_broken_inside_a_word(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_mooncake(monkeypatch, BOTH)
    words = CliRunner().invoke(app, ["--out", str(tmp_path)]).stdout.split()
    assert words.count("mooncake-transfer-engine-non-cuda") == 3
    assert words.count(sys.executable) == 2
