"""JSON Schemas of what ``--json`` prints where it is no record: one committed file for each kind of output.

They lie beside the commands, not with those of records: a record is a file that later releases must read, and
an output is a command's own.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "schemas"


def output_kinds() -> tuple[str, ...]:
    """``presets-list``, ``keys-describe``, ...: a command, or a command and the option that changes it."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def output_schema_text(kind: str) -> str:
    """The schema of one of :func:`output_kinds`, as the text of its file."""
    return (FOLDER / f"{kind}.json").read_text(encoding="utf-8")
