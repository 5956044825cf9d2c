"""Writing and reading records: atomic, never over an existing file, never half."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Protocol

from hicache_bench.errors import InputError, OutputError
from hicache_bench.records.schema import SCHEMA_VERSION


class Record(Protocol):
    """What one command has to write: when it ran, what of, and everything as plain data."""

    @property
    def created_utc(self) -> str:
        """ISO time with microseconds, ending in ``Z``."""

    @property
    def subject(self) -> str:
        """What the record is about, as a part of a file name."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in field order."""


def check_writable(directory: Path) -> None:
    """Prove that a file can be written to ``directory``, or the directory be made; leaves nothing there.

    Raises:
        OutputError: it cannot.
    """
    try:
        existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise OutputError(
            f"cannot write results to {str(directory)!r}: {error.strerror or error}; "
            "give a writable directory with --out"
        ) from error


def record_name(record: Record) -> str:
    """``<UTC time>-<subject>.json``."""
    stamp = record.created_utc.replace("-", "").replace(":", "")
    return f"{stamp}-{record.subject}.json"


def write_record(record: Record, directory: Path) -> Path:
    """Write ``record`` under its own name and return the path; the file appears whole or not at all.

    Raises:
        OutputError: the directory cannot be written, or a record of that name exists.
    """
    text = json.dumps(record.to_dict(), indent=1, allow_nan=False) + "\n"
    target = directory / record_name(record)
    temporary = claimed = None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=directory, prefix=".record-", suffix=".tmp", delete=False, encoding="utf-8"
        ) as file:
            temporary = Path(file.name)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        # Claim the name first: a rename alone would replace a record that is there.
        with target.open("x"):
            claimed = target
        temporary.replace(target)
        claimed = None
    except FileExistsError as error:
        raise OutputError(f"a record named {target.name} exists already; it is never overwritten") from error
    except OSError as error:
        raise OutputError(
            f"cannot write the record to {str(directory)!r}: {error.strerror or error}; "
            "give a writable directory with --out"
        ) from error
    finally:
        for leftover in (temporary, claimed):
            if leftover is not None:
                leftover.unlink(missing_ok=True)
    return target


def read_record(path: Path) -> dict[str, Any]:
    """Load a record as plain data.

    Raises:
        InputError: not a record, or one of a schema version that this release does not know.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read record {str(path)!r}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{str(path)!r} is not a JSON record: {error}") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{str(path)!r} has schema version {version!r}; this release reads version {SCHEMA_VERSION}"
        )
    return dict(data)
