"""No record of any kind says whose machine it was made on."""

from __future__ import annotations

import platform
import socket
from pathlib import Path

import pytest

from hicache_bench.records.kinds import KINDS
from tests.cli.command import Command
from tests.records.golden import COMMANDS
from tests.test_repository import MACHINE_PATH

QUIRK = "quirkwood"
"""A word that nothing but this machine, its user and its folders has."""


@pytest.fixture
def quirky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, host and user of that name; the preset is read from there."""
    folder = tmp_path / QUIRK
    folder.mkdir()
    for name in ("USER", "LOGNAME", "USERNAME", "HOSTNAME"):
        monkeypatch.setenv(name, QUIRK)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr(socket, "gethostname", lambda: QUIRK)
    monkeypatch.setattr(platform, "node", lambda: QUIRK)
    presets = Path(__file__).parents[2] / "presets" / "models"
    for name in ("kitchen-sink", "deepseek-v4-flash"):
        (folder / f"{name}.yaml").write_text((presets / f"{name}.yaml").read_text())
    return folder


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind == "roundtrip" else ()) for kind in KINDS]
)
def test_nothing_of_the_machine_is_in_a_record(command: Command, quirky: Path, kind: str) -> None:
    models = {
        "kitchen-sink": quirky / "kitchen-sink.yaml",
        "deepseek": quirky / "deepseek-v4-flash.yaml",
    }
    arguments = [models.get(word, word) for word in COMMANDS[kind]]
    out = quirky / "out"
    assert 0 == command(*arguments, "--out", out).code
    (path,) = out.glob("*.json")
    text = path.read_text()
    assert QUIRK not in text + path.name
    assert not MACHINE_PATH.search(text)
    assert ".yaml" in text  # the file that was given is named, without its folder


@pytest.mark.parametrize("text", ["/hom" + "e/" + QUIRK, "/tm" + "p/x"])
def test_a_path_would_be_found(text: str) -> None:
    assert MACHINE_PATH.search(f'"command": ["{text}"]')
