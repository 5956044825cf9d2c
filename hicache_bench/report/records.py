"""Records as tables: one of any kind as its own command shows it, or many as a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hicache_bench.errors import InputError
from hicache_bench.records.gate import subject_of
from hicache_bench.records.io import read_record, record_files
from hicache_bench.records.kinds import evidence_of
from hicache_bench.units import format_tokens

_WIDTH = 80


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
    """Many records, a line each, and what is wrong with those that cannot be read.

    Where a name leaves no room for the rest, each name has a line of its own: it is there to be copied.
    """
    rows = [
        (one.file, one.kind, ",".join(map(format_tokens, one.tokens)) or "-", one.status) for one in listed
    ]
    faults = [Text(f"{one.file}: {one.fault}") for one in listed if one.fault is not None]
    if sum(max(map(cell_len, column)) + 1 for column in zip(*rows, strict=True)) > _WIDTH:
        lines = (
            (
                Text(file, no_wrap=True, overflow="ignore"),
                Text(f"  {kind}{'' if tokens == '-' else f' of {tokens}'}: {status}"),
            )
            for file, kind, tokens, status in rows
        )
        return Group(*(line for both in lines for line in both), *faults)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    for column in ("file", "kind", "tokens", "status"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return Group(table, *faults)
