from __future__ import annotations

import platform
import socket
from importlib import metadata

import numpy as np
import pytest

from hicache_bench.workflows.environment import describe_environment, library_versions, reduced_command


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("/srv/someone/results/runs", "runs"),
        ("../mine.yaml", "mine.yaml"),
        ("results/runs/", "runs"),
        ("--out=/srv/someone/runs", "--out=runs"),
        ("--preset=/srv/someone/a=b.yaml", "--preset=a=b.yaml"),
        ("--save-policy", "--save-policy"),
        ("state=last,window=all", "state=last,window=all"),
        ("--tokens=8k,32k", "--tokens=8k,32k"),
        ("", ""),
    ],
)
def test_paths_of_a_command_are_cut_to_their_last_part(given: str, kept: str) -> None:
    assert ("hicache-bench", kept) == reduced_command(["hicache-bench", given])


def test_no_part_of_an_absolute_path_stays() -> None:
    command = reduced_command(["/usr/local/bin/hicache-bench", "run", "--out", "/srv/someone"])
    assert ("hicache-bench", "run", "--out", "someone") == command


def test_libraries_are_those_that_took_part() -> None:
    assert {"numpy": np.__version__} == library_versions(with_mooncake=False)


def test_mooncake_is_named_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "mooncake-transfer-engine":
            raise metadata.PackageNotFoundError(name)
        return "1.2.3"

    monkeypatch.setattr(metadata, "version", version)
    expected = {"numpy": np.__version__, "mooncake-transfer-engine-non-cuda": "1.2.3"}
    assert expected == library_versions(with_mooncake=True)


def test_the_environment_names_no_machine_and_nobody() -> None:
    environment = describe_environment()
    assert {"python", "system", "machine", "processors"} == set(environment)
    assert platform.python_version() == environment["python"]
    assert socket.gethostname() not in map(str, environment.values())
