"""How a record of an older schema version becomes one of this version, step by step.

When version N + 1 comes: its row in the format history of :mod:`hicache_bench.records.schema`; here one
function ``N: from_n``, which takes the plain data of a record of any kind and returns that of version N + 1;
and the golden records of version N stay in the tests for good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hicache_bench.errors import InputError
from hicache_bench.records.schema import SCHEMA_VERSION

Migration = Callable[[dict[str, Any]], dict[str, Any]]

MIGRATIONS: Mapping[int, Migration] = {}
"""By the version that a function takes."""


def migrated(
    data: dict[str, Any],
    *,
    migrations: Mapping[int, Migration] = MIGRATIONS,
    current: int = SCHEMA_VERSION,
) -> dict[str, Any]:
    """``data`` as version ``current`` has it.

    Raises:
        InputError: of a version that cannot be read: a newer one, or none.
    """
    version = data.get("schema_version")
    oldest = min(migrations, default=current)
    # true == 1 in Python, and is no version.
    if type(version) is not int or not oldest <= version <= current:
        known = f"version {current}" if oldest == current else f"versions {oldest} to {current}"
        newer = type(version) is int and version > current
        hint = "; a newer hicache-bench wrote it: update this one" if newer else ""
        raise InputError(f"it has schema version {version!r}; this release reads {known}{hint}")
    for step in range(version, current):
        data = {**migrations[step](data), "schema_version": step + 1}
    return data
