"""Where a run took place, without anything that names the machine or its user."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import PurePath

import numpy as np

_HIDDEN = {"--master": "HOST:PORT", "--salt": "SALT"}
_MOONCAKE = ("mooncake-transfer-engine-non-cuda", "mooncake-transfer-engine")


def library_versions(*, with_mooncake: bool) -> dict[str, str]:
    """Versions of the libraries that moved or counted the bytes."""
    versions = {"numpy": np.__version__}
    for name in _MOONCAKE if with_mooncake else ():
        found = _version(name)
        if found is not None:
            versions[name] = found
    return versions


def _version(name: str) -> str | None:
    # Imported here: reading package metadata costs more than all that a run without Mooncake asks of it.
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def describe_environment() -> dict[str, str | int]:
    """Interpreter, operating system, architecture and processors."""
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "processors": os.cpu_count() or 0,
    }


def reduced_command(arguments: Sequence[str]) -> tuple[str, ...]:
    """The command line as a record may keep it: paths cut to their last part, no address and no salt."""
    return tuple(
        _reduced(argument, before) for before, argument in zip(("", *arguments), arguments, strict=False)
    )


def _reduced(argument: str, before: str) -> str:
    if before in _HIDDEN:
        return _HIDDEN[before]
    option, equals, value = argument.partition("=")
    if equals and option.startswith("-"):
        return f"{option}={_reduced(value, option)}"
    return PurePath(argument).name if "/" in argument else argument
