"""Records as tables: one of any kind as its own command shows it, or many as a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hicache_bench.errors import InputError
from hicache_bench.records.gate import subject_of
from hicache_bench.records.io import read_record, record_files
from hicache_bench.records.kinds import evidence_of
from hicache_bench.units import format_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One ``.json`` file; ``fault`` says why it is no record that can be read."""

    file: str
    kind: str
    subject: str
    tokens: tuple[int, ...]
    evidence: str
    status: str
    created_utc: str
    fault: str | None = None


def render_record(record: Any) -> RenderableType:
    """A record as the command that made it shows it; of a kind without tables, what it is of.

    Raises:
        InputError: each field has its type, and yet no table can be made of them: a file that was changed.
    """
    render = _RENDERERS.get(record.kind)
    if render is None:
        return Text(f"{record.kind} record of {record.subject}, {record.created_utc}: {record.status}")
    try:
        return render(record)
    except (ArithmeticError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise InputError(
            f"this {record.kind} record fits no table ({type(error).__name__}: {error}): it was changed "
            "after it was written; make it again"
        ) from error


# What a kind needs is imported when one is shown: the tables of all kinds would take their time.


def _bench(record: Any) -> RenderableType:
    from hicache_bench.report.bench import render_bench

    return render_bench(record)


def _replay(record: Any) -> RenderableType:
    from hicache_bench.report.replay import render_replay

    return render_replay(record)


def _roundtrip(record: Any) -> RenderableType:
    from hicache_bench.report.roundtrip import render_roundtrip

    return render_roundtrip(record)


def _run(record: Any) -> RenderableType:
    from hicache_bench.report.tables import render_run

    return render_run(record)


def _simulate(record: Any) -> RenderableType:
    from hicache_bench.report.simulate import render_simulation

    return render_simulation([record])


_RENDERERS: Mapping[str, Callable[[Any], RenderableType]] = {
    "bench": _bench,
    "replay": _replay,
    "roundtrip": _roundtrip,
    "run": _run,
    "simulate": _simulate,
}


def sweep_rows(records: Sequence[Any]) -> list[dict[str, Any]]:
    """The flat rows of records of one kind, ``simulate`` or ``replay``, as in the table beside a sweep.

    Raises:
        InputError: records of several kinds, or of one that has no such rows.
    """
    kinds = sorted({record.kind for record in records})
    if kinds == ["replay"]:
        from hicache_bench.report.replay import tidy_rows

        return tidy_rows(records)
    if kinds == ["simulate"]:
        from hicache_bench.report.simulate_csv import rows_of

        return list(rows_of(records))
    raise InputError(
        f"these {len(records)} records are of {', '.join(kinds)}, which no table holds; give records of run, "
        "of simulate or of replay alone"
    )


def listed_in(directory: Path) -> list[Listed]:
    """The ``.json`` files of a directory, by name.

    Raises:
        InputError: there is none.
    """
    files = record_files(directory)
    if not files:
        raise InputError(f"directory {str(directory)!r} holds no record; hicache-bench run writes some")
    return [_listed(file) for file in files]


def _listed(file: Path) -> Listed:
    try:
        data = read_record(file)
    except InputError as error:
        return Listed(
            file=file.name,
            kind="-",
            subject="-",
            tokens=(),
            evidence="-",
            status="unreadable",
            created_utc="-",
            fault=str(error),
        )
    results = data.get("results", ())
    return Listed(
        file=file.name,
        kind=data["kind"],
        subject=subject_of(data),
        tokens=tuple(result["tokens"] for result in results if "tokens" in result),
        evidence=evidence_of(data),
        status=data["status"],
        created_utc=data["created_utc"],
    )


def render_listed(listed: Sequence[Listed]) -> RenderableType:
    """Many records, a line each, and what is wrong with those that cannot be read."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    table.add_column("file", overflow="fold")
    for column in ("kind", "tokens"):
        table.add_column(column, overflow="fold", max_width=12)
    table.add_column("status", no_wrap=True)
    for one in listed:
        lengths = ",".join(map(format_tokens, one.tokens))
        table.add_row(*map(Text, (one.file, one.kind, lengths or "-", one.status)))
    faults = [Text(f"{one.file}: {one.fault}") for one in listed if one.fault is not None]
    return Group(table, *faults)
