from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Command


def test_a_machine_that_runs_these_tests_can_run_the_main_job(command: Command, tmp_path: Path) -> None:
    answer = command("doctor", "--out", tmp_path / "runs")
    assert (0, "") == (answer.code, answer.err)
    for name in ("Python", "Libraries", "Memory", "Results", "Mooncake", "Ports", "Data port"):
        assert name in answer.out
    assert [] == list(tmp_path.iterdir())


def test_json(command: Command, tmp_path: Path) -> None:
    data = json.loads(command("doctor", "--json", "--out", tmp_path).out)
    assert data["ok"]
    assert {"ok", "info", "warn"} >= {check["status"] for check in data["checks"]}


@pytest.mark.parametrize("options", [[], ["--json"]], ids=str)
def test_a_directory_that_cannot_be_written_fails(
    command: Command, tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "file").touch()
    answer = command("doctor", "--out", tmp_path / "file" / "runs", *options)
    assert (1, "") == (answer.code, answer.err)
    assert "choose a directory" in " ".join(answer.out.split())
