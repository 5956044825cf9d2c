"""What this machine offers to a run: one check per thing that can be missing."""

from __future__ import annotations

import platform
import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path

from hicache_bench.errors import OutputError
from hicache_bench.records.io import check_writable
from hicache_bench.store.client import INSTALL_COMMAND, PIP, Availability, mooncake_availability
from hicache_bench.units import GIB, format_size
from hicache_bench.workflows.memory import available_memory_bytes

OLDEST_PYTHON = (3, 10)
NEWEST_PYTHON = (3, 13)
"""Pythons that the Mooncake wheel is built for, which are those that this project supports."""

REQUIRED_DISTRIBUTIONS = (
    "matplotlib",
    "ml-dtypes",
    "numpy",
    "pandas",
    "pydantic",
    "pyyaml",
    "rich",
    "typer",
    "xxhash",
)
"""What ``pip install hicache-bench`` brings along."""

DEFAULT_RUN_BYTES = 2 * GIB
"""Most memory that ``hicache-bench run --preset deepseek`` takes."""

_MANAGED_MASTER_PORTS = 2  # RPC and metrics


class CheckStatus(str, Enum):
    """``FAIL`` stops every run; ``WARN`` stops only what ``found`` names; ``INFO`` is worth knowing."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: what was found, and what to do about it where something is to be done."""

    name: str
    status: CheckStatus
    found: str
    advice: str | None = None


def diagnose(results_directory: Path) -> tuple[Check, ...]:
    """Look at everything that a run needs; changes nothing on this machine."""
    return (
        check_python(sys.version_info[:2]),
        check_libraries(),
        check_memory(available_memory_bytes()),
        check_results_directory(results_directory),
        check_mooncake(mooncake_availability()),
        check_ports(),
        describe_data_port(),
    )


def check_python(version: tuple[int, int]) -> Check:
    """Is this Python one of those that the project supports?"""
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if OLDEST_PYTHON <= version <= NEWEST_PYTHON:
        return Check("Python", CheckStatus.OK, found)
    oldest, newest = (".".join(map(str, bound)) for bound in (OLDEST_PYTHON, NEWEST_PYTHON))
    advice = f"install hicache-bench with Python {oldest} to {newest}"
    return Check("Python", CheckStatus.FAIL, found, advice)


def check_libraries(names: tuple[str, ...] = REQUIRED_DISTRIBUTIONS) -> Check:
    """Is every required distribution installed, and in which version?"""
    versions = {name: _installed_version(name) for name in names}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        found = f"not installed: {', '.join(missing)}"
        return Check("Libraries", CheckStatus.FAIL, found, "pip install --upgrade hicache-bench")
    found = ", ".join(f"{name} {version}" for name, version in versions.items())
    return Check("Libraries", CheckStatus.OK, found)


def check_memory(available_bytes: int) -> Check:
    """Is there memory for the default run?"""
    found = f"{format_size(available_bytes)} available"
    if available_bytes >= DEFAULT_RUN_BYTES:
        return Check("Memory", CheckStatus.OK, found)
    advice = (
        f"the default run takes up to {format_size(DEFAULT_RUN_BYTES)}; "
        "give fewer --tokens, or count bytes without moving them: --store count"
    )
    return Check("Memory", CheckStatus.WARN, found, advice)


def check_results_directory(directory: Path) -> Check:
    """Can a record be written to ``directory``, or the directory be made? Leaves nothing there."""
    try:
        check_writable(directory)
    except OutputError as error:
        advice = "choose a directory that you may write to: --out DIR"
        return Check("Results", CheckStatus.FAIL, str(error), advice)
    return Check(
        "Results", CheckStatus.OK, f"{directory} {'is writable' if directory.exists() else 'can be made'}"
    )


def check_mooncake(availability: Availability) -> Check:
    """Can ``--store mooncake`` run, and if not, why?"""
    if len(availability.distributions) > 1:
        found = f"{' and '.join(availability.distributions)} overwrite each other's files"
        uninstall = f"{PIP} uninstall -y {' '.join(availability.distributions)}"
        advice = f"{uninstall} && {INSTALL_COMMAND}"
        return Check("Mooncake", CheckStatus.FAIL, found, advice)
    if availability.importable:
        found = f"{', '.join(availability.distributions)} {availability.version}"
        return Check("Mooncake", CheckStatus.OK, found)
    found = f"--store mooncake cannot run: {availability.reason}"
    return Check("Mooncake", CheckStatus.WARN, found, availability.advice)


def check_ports(count: int = _MANAGED_MASTER_PORTS) -> Check:
    """Can the ports of a private ``mooncake_master`` be bound?"""
    with ExitStack() as sockets:
        try:
            for _ in range(count):
                sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
        except OSError as error:
            found = f"--store mooncake cannot start a master on 127.0.0.1: {error.strerror}"
            return Check("Ports", CheckStatus.WARN, found, "join a running master: --master HOST:PORT")
    return Check("Ports", CheckStatus.OK, "free ports of 127.0.0.1 can be bound")


def describe_data_port() -> Check:
    """Say who can reach a Mooncake client.

    Observed with the wheel 0.3.13: two ports between 15000 and 17000 on 0.0.0.0 and [::], whatever host name
    or bind address the client is given.
    """
    return Check(
        "Data port",
        CheckStatus.INFO,
        "--store mooncake listens on all interfaces (TCP 15000-17000), unauthenticated",
        "run it in a network that you trust, or close these ports to others",
    )


def _installed_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
