"""The points of a sweep as one tidy table: a row for each, written beside the records."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hicache_bench.records.io import Record, record_name, write_text


class PointRecord(Record, Protocol):
    """A record that is one of ``points`` of a sweep."""

    @property
    def points(self) -> int:
        """Points of the sweep."""


def write_rows(rows: Sequence[Mapping[str, object]], first: PointRecord, directory: Path) -> Path:
    """Write ``rows`` under the name of the ``first`` record, and return the path.

    Raises:
        OutputError: the directory cannot be written, or a file of that name exists.
    """
    name = record_name(first).removesuffix(".json")
    if first.points > 1:
        name = name.rpartition("-")[0]  # without the place in the sweep
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_text(text.getvalue(), directory / f"{name}.csv")
