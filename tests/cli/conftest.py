"""The command line as a fixture."""

from __future__ import annotations

import pytest

from tests.cli.command import Answer, Command, run_here


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run ``hicache-bench`` with these arguments, in this process."""

    def run(*arguments: object) -> Answer:
        return run_here(capsys, monkeypatch, *arguments)

    return run
