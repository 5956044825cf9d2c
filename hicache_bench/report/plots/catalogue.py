"""Which figures there are, and what records each is drawn from."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hicache_bench.errors import InputError
from hicache_bench.records.bench import BenchRecord
from hicache_bench.records.io import load_record
from hicache_bench.records.replay import ReplayRecord
from hicache_bench.records.schema import RunRecord
from hicache_bench.records.simulation import SimulationRecord
from hicache_bench.report.plots.break_even import draw_break_even
from hicache_bench.report.plots.capacity import draw_capacity
from hicache_bench.report.plots.files import file_bytes
from hicache_bench.report.plots.first_token import draw_first_token
from hicache_bench.report.plots.index_union import draw_index_union, unions_of
from hicache_bench.report.plots.pool_bytes import draw_pool_bytes
from hicache_bench.report.plots.style import Theme, styled
from hicache_bench.report.plots.throughput import draw_throughput, pool_series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Sequence[Any], Theme], "Figure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    """One kind of figure.

    ``setting`` tells which records share a figure: those for which it is equal. ``suffices`` says whether
    they are enough to draw it, and ``needs`` what is missing if not.
    """

    name: str
    record: type
    draw: Draw
    setting: Callable[[Any], Hashable]
    suffices: Callable[[Sequence[Any]], bool]
    needs: str


def _itself(record: Any) -> Hashable:
    return id(record)


def _sweep(record: SimulationRecord) -> Hashable:
    """All that a record says of its point but the prefix length and what follows from it."""
    varied = {"created_utc", "command", "environment", "preset", "constants", "recompute", "policies"} | {
        "break_even", "notes", "point", "points", "prefix_tokens", "libraries", "volumes", "compute",
    }  # fmt: skip
    return str({name: value for name, value in asdict(record).items() if name not in varied})


def _lengths(records: Sequence[SimulationRecord]) -> int:
    return len({record.prefix_tokens for record in records})


_TWO_LENGTHS = (
    "simulate records of at least two prefix lengths: simulate --prefix 1k,8k,32k, with --break-even for its "
    "map too"
)

FIGURES: tuple[FigureKind, ...] = (
    FigureKind(
        name="bytes",
        record=RunRecord,
        draw=draw_pool_bytes,
        setting=_itself,
        suffices=lambda records: any(result.ranks for result in records[0].results),
        needs="a run record with a result",
    ),
    FigureKind(
        name="union",
        record=RunRecord,
        draw=draw_index_union,
        setting=lambda _: None,
        suffices=lambda records: len({union.queries for union in unions_of(records)}) > 1,
        needs="run records of at least two numbers of queries: run --queries 1, then --queries 16",
    ),
    FigureKind(
        name="ttft",
        record=SimulationRecord,
        draw=draw_first_token,
        setting=_sweep,
        suffices=lambda records: _lengths(records) > 1,
        needs=_TWO_LENGTHS,
    ),
    FigureKind(
        name="break-even",
        record=SimulationRecord,
        draw=draw_break_even,
        setting=_sweep,
        suffices=lambda records: _lengths(records) > 1 and all(record.break_even for record in records),
        needs=_TWO_LENGTHS,
    ),
    FigureKind(
        name="capacity",
        record=ReplayRecord,
        draw=draw_capacity,
        setting=_itself,
        suffices=lambda records: bool(records[0].results),
        needs="a replay record with a result: simulate --trace",
    ),
    FigureKind(
        name="throughput",
        record=BenchRecord,
        draw=draw_throughput,
        setting=_itself,
        suffices=lambda records: bool(pool_series(records[0])),
        needs="a bench record with restores of single pools",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """One figure to draw, with the name of its file but for the format."""

    name: str
    records: tuple[Any, ...]
    draw: Draw

    def files(self, theme: Theme, formats: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Each file of the figure: its name and bytes.

        Raises:
            InputError: a record with figures that contradict each other, such as no seconds at all.
        """
        stem = self.name if theme.name == "light" else f"{self.name}-{theme.name}"
        with styled(theme):
            try:
                figure = self.draw(self.records, theme)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                # A record is read field by field; only drawing finds out that its figures do not fit.
                raise InputError(
                    f"figure {stem!r} cannot be drawn, the record's figures do not fit: {error}"
                ) from error
            for file_format in formats:
                yield f"{stem}.{file_format}", file_bytes(figure, file_format)


def load_records(paths: Sequence[Path]) -> list[Any]:
    """The records of files, and of the ``.json`` files of directories, each once.

    Raises:
        InputError: a directory without a file, or something that is no record.
    """
    files: dict[Path, None] = {}
    for path in paths:
        found = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not found:
            raise InputError(f"directory {str(path)!r} holds no record; hicache-bench run writes some")
        files |= dict.fromkeys(found)
    return [load_record(file) for file in files]


def drawings_of(records: Sequence[Any]) -> tuple[list[Drawing], list[str]]:
    """Every figure that ``records`` are enough for, and what those would need that are in none.

    Raises:
        InputError: they are enough for no figure; the message says what each would need.
    """
    found: list[Drawing] = []
    names: dict[str, int] = {}
    for kind in FIGURES:
        for group in _groups(kind, records):
            if kind.suffices(group):
                name = _name(kind, group)
                names[name] = names.get(name, 0) + 1
                if names[name] > 1:
                    name = f"{name}-{names[name]}"
                found.append(Drawing(name=name, records=tuple(group), draw=kind.draw))
    drawn = {id(record) for drawing in found for record in drawing.records}
    left = [record for record in records if id(record) not in drawn]
    if not found:
        raise InputError("nothing can be drawn:\n  " + "\n  ".join(_needs(left)))
    return found, _needs(left)


def _needs(records: Sequence[Any]) -> list[str]:
    """For each kind of record, what its figures need."""
    lines = []
    for kind in dict.fromkeys(record.kind for record in records):
        of_kind = [record for record in records if record.kind == kind]
        needs = dict.fromkeys(figure.needs for figure in FIGURES if isinstance(of_kind[0], figure.record))
        wanted = (
            f"needed: {'; or '.join(needs)}"
            if needs
            else "no figure exists for this kind; of run, simulate, replay and bench there are"
        )
        lines.append(f"{len(of_kind)} {kind} record{'' if len(of_kind) == 1 else 's'}: {wanted}")
    return lines


def _groups(kind: FigureKind, records: Sequence[Any]) -> list[list[Any]]:
    groups: dict[Hashable, list[Any]] = {}
    for record in records:
        if isinstance(record, kind.record):
            groups.setdefault(kind.setting(record), []).append(record)
    return list(groups.values())


def _name(kind: FigureKind, records: Sequence[Any]) -> str:
    presets: Mapping[str, str] = {record.preset_digest[:8]: record.preset["name"] for record in records}
    of = "-".join((*presets.values(), *presets)) if len(presets) == 1 else f"{len(presets)}-models"
    # A record says what its writer wanted, and a name in it may be a path.
    return re.sub(r"[^\w.-]", "_", f"{kind.name}-{of}")
