"""Writing and reading records: atomic, never over an existing file by itself, never half."""

from __future__ import annotations

import difflib
import json
import math
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from hicache_bench.errors import InputError, OutputError
from hicache_bench.records.decode import decode
from hicache_bench.records.files import replace_file
from hicache_bench.records.kinds import KINDS
from hicache_bench.records.migrations import migrated
from hicache_bench.records.sound import check_sound

OUT_ADVICE = "give a writable directory with --out"


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


def check_writable(out: Path, *, force: bool | None = None) -> None:
    """Prove that ``out`` (a directory, or a ``.json`` file) can be written; leaves nothing there.

    ``force`` None is that of a command without ``--force``, which the message then leaves out; so below.

    Raises:
        OutputError: it cannot, or it is a file that exists and must not be replaced.
    """
    directory = out
    if _is_file(out):
        directory = out.parent
        if out.exists() and not force:
            raise _exists(out, force)
    try:
        existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise OutputError(
            f"cannot write results to {str(out)!r}: {error.strerror or error}; {OUT_ADVICE}"
        ) from error


def record_name(record: Record) -> str:
    """``<UTC time>-<subject>.json``."""
    stamp = record.created_utc.replace("-", "").replace(":", "")
    return f"{stamp}-{record.subject}.json"


def write_record(record: Record, out: Path, *, force: bool | None = None) -> Path:
    """Write ``record`` and return the path; the file appears whole or not at all.

    ``out`` is a directory, in which the record gets its own name, or a file if it ends in ``.json``.

    Raises:
        OutputError: it cannot be written, or a file is there and ``force`` is not set.
    """
    target = out if _is_file(out) else out / record_name(record)
    return write_data(record.to_dict(), target, force=force)


def write_data(
    data: Mapping[str, Any], target: Path, *, force: bool | None = None, advice: str = OUT_ADVICE
) -> Path:
    """Write plain data to ``target`` in the same way.

    ``advice`` ends the message: what to do where it cannot be written.

    Raises:
        OutputError: it cannot be written, or a file is there and ``force`` is not set.
    """
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    return write_text(text, target, force=force, advice=advice)


def write_text(text: str, target: Path, *, force: bool | None = None, advice: str = OUT_ADVICE) -> Path:
    """Write ``text`` to ``target`` in the same way.

    Raises:
        OutputError: it cannot be written, or a file is there and ``force`` is not set.
    """
    try:
        replace_file(target, text.encode(), only_new=not force)
    except FileExistsError as error:
        raise _exists(target, force) from error
    except OSError as error:
        raise OutputError(
            f"cannot write {target.name} to {str(target.parent)!r}: {error.strerror or error}; {advice}"
        ) from error
    return target


def _is_file(out: Path) -> bool:
    return out.suffix == ".json" and not out.is_dir()


def _exists(target: Path, force: bool | None) -> OutputError:
    otherwise = "" if force is None else ", or --force to replace it"
    return OutputError(f"a record named {target.name} exists already; give another --out{otherwise}")


def read_record(path: Path, *, keep_nan: bool = False) -> dict[str, Any]:
    """Load a record as plain data of the current schema version; every field is checked.

    ``keep_nan`` lets numbers that are none through, for a gate that has to judge them.

    Raises:
        InputError: not a record, of an unknown kind or schema version, damaged, with such a number, or one
            that contradicts itself.
    """
    return _load(path, keep_nan=keep_nan)[0]


def record_files(directory: Path) -> list[Path]:
    """The ``.json`` files of a directory, by name; a pipe, which reading would wait for, is none."""
    return sorted(path for path in directory.glob("*.json") if not path.is_fifo())


def load_record(path: Path) -> Any:
    """Load a record as an instance of the dataclass of its kind.

    Raises:
        InputError: as :func:`read_record`.
    """
    return _load(path, keep_nan=False)[1]


def _load(path: Path, *, keep_nan: bool) -> tuple[dict[str, Any], Any]:
    data = _parse(path, keep_nan=keep_nan)
    if not isinstance(data, dict) or "schema_version" not in data:
        raise InputError(
            f"{str(path)!r} is not a record: it has no schema_version; hicache-bench run writes one"
        )
    try:
        data = migrated(data)
        record = decode(KINDS[_kind(data)].record, data)
        check_sound(data)
    except InputError as error:
        raise InputError(f"cannot use record {str(path)!r}: {error}") from error
    return data, record


def _kind(data: Mapping[str, Any]) -> str:
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        near = difflib.get_close_matches(str(kind), KINDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(f"kind {kind!r} is unknown; known: {', '.join(KINDS)}{hint}")
    return kind


def _parse(path: Path, *, keep_nan: bool) -> Any:
    def number(text: str) -> float:
        value = float(text)
        if keep_nan or math.isfinite(value):
            return value
        raise InputError(f"cannot use record {str(path)!r}: it holds {text}, which is no number")

    try:
        # Opening a pipe waits for a writer, who may never come, and a device may never end.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"{str(path)!r} is a pipe or a device; give the path of a record")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{str(path)!r} is not a JSON record: {error}") from error
    except OSError as error:
        raise InputError(
            f"cannot read record {str(path)!r}: {error.strerror or error}{_what_to_read(path)}"
        ) from error
    if not text.strip():
        raise InputError(f"{str(path)!r} is not a JSON record: it is empty")
    try:
        data = json.loads(text, parse_float=number, parse_constant=number)
        if _HALF_OF_A_PAIR.search(text) is not None:
            json.dumps(data, ensure_ascii=False).encode()
        return data
    except InputError:
        raise
    except UnicodeEncodeError as error:
        raise InputError(f"cannot use record {str(path)!r}: it holds half of a surrogate pair") from error
    except (ValueError, RecursionError) as error:
        cut = "; it ends early, so it may be cut off" if _ends_early(error, text) else ""
        raise InputError(f"{str(path)!r} is not a JSON record: {error}{cut}") from error


def _what_to_read(path: Path) -> str:
    """What can be done about a record that is not there; nothing to say of one that cannot be read."""
    if path.is_dir():
        return "; name a file in it"
    if path.exists():
        return ""
    others = [found.name for found in record_files(path.parent) if found.name != path.name]
    near = difflib.get_close_matches(path.name, others, n=1)
    return f"; did you mean {near[0]!r}?" if near else "; hicache-bench records list DIR shows those of DIR"


def _ends_early(error: Exception, text: str) -> bool:
    if not isinstance(error, json.JSONDecodeError):
        return False
    rest = text[error.pos :].rstrip()
    return error.msg.startswith("Unterminated string") or any(whole.startswith(rest) for whole in _WHOLE)


_HALF_OF_A_PAIR = re.compile(r"\\u[dD][89abAB]")
"""How JSON spells what may be no text."""

_WHOLE = ("true", "false", "null", "-", ".", "e+", "e-")
"""What a reader stops before if only the beginning of it is there; or if nothing is."""
