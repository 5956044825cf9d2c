"""What commands print of kept records: committed as text, read by people, compared by a test.

``python -m tests.report.outputs`` writes all of it again; look at the difference before it is committed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from rich.console import Console, RenderableType

from hicache_bench.records.baseline import as_baseline
from hicache_bench.records.gate import Filed, GateReport, gate
from hicache_bench.records.io import load_record
from hicache_bench.records.thresholds import DEFAULT_THRESHOLDS
from hicache_bench.records.tidy import csv_text, tidy_rows
from hicache_bench.report.ci import gate_junit_xml, github_annotations, markdown
from hicache_bench.report.gate import render_gate
from hicache_bench.report.records import listed_in, render_listed
from hicache_bench.report.run_list import render_runs
from tests.records.changes import (
    Data,
    changed,
    counted,
    other_preset,
    reads_the_window,
    renamed,
    with_times,
)
from tests.records.golden import FOLDER as RECORDS
from tests.records.golden import golden_path, golden_record

FOLDER = Path(__file__).parents[1] / "golden" / "outputs"

_Change = Callable[[Data], None]


def _record(*changes: _Change) -> Filed:
    return Filed(changed(golden_record("run"), *changes), Path("kitchen-sink.json"))


def report(before: tuple[_Change, ...], after: tuple[_Change, ...]) -> GateReport:
    """The gate of one record, changed in one way, against itself, changed in another."""
    return gate([_record(*before)], [_record(*after)], DEFAULT_THRESHOLDS)


def many() -> GateReport:
    """Seven records: of each outcome one, one without a baseline, and one that is gone."""
    names = ("improved", "inconclusive", "not-comparable", "regressed", "same")
    before: dict[str, tuple[_Change, ...]] = {"improved": (counted, reads_the_window)}
    after: dict[str, tuple[_Change, ...]] = {
        "improved": (counted,),
        "inconclusive": (partial(with_times, factor=1.2, samples=3),),
        "not-comparable": (other_preset,),
        "regressed": (reads_the_window,),
    }
    old = [_record(renamed(name), *before.get(name, ())) for name in names]
    new = [_record(renamed(name), *after.get(name, ())) for name in names]
    return gate([*old, _record(renamed("gone"))], [*new, _record(renamed("unknown"))], DEFAULT_THRESHOLDS)


def plain(result: RenderableType) -> str:
    """As a pipe gets it: 80 columns, no colour, no blanks at the end of a line."""
    console = Console(width=80, color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        console.print(result, end="")
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _gate(before: tuple[_Change, ...], after: tuple[_Change, ...]) -> str:
    return plain(render_gate(report(before, after)))


_REGRESSED = ((counted,), (counted, reads_the_window))

OUTPUTS: Mapping[str, Callable[[], str]] = {
    "gate-pass.txt": lambda: _gate((), ()),
    "gate-regressed.txt": lambda: _gate(*_REGRESSED),
    "gate-improved.txt": lambda: _gate((counted, reads_the_window), (counted,)),
    "gate-inconclusive.txt": lambda: _gate((), (partial(with_times, factor=1.2, samples=3),)),
    "gate-slower.txt": lambda: _gate((), (partial(with_times, factor=1.2),)),
    "gate-no-times.txt": lambda: _gate((), (counted,)),
    "gate-not-comparable.txt": lambda: _gate((), (other_preset,)),
    "gate-many.txt": lambda: plain(render_gate(many())),
    "gate-regressed.md": lambda: markdown(report(*_REGRESSED)),
    "gate-many.md": lambda: markdown(many()),
    "gate-regressed.xml": lambda: gate_junit_xml(report(*_REGRESSED)),
    "gate-many.xml": lambda: gate_junit_xml(many()),
    "gate-many.github.txt": lambda: "\n".join(github_annotations(many())) + "\n",
    "gate-not-comparable.json": lambda: _as_json(report((), (other_preset,))),
    "gate-slower.json": lambda: _as_json(report((), (partial(with_times, factor=1.2),))),
    "records-list.txt": lambda: plain(render_listed(listed_in(RECORDS))),
    "records-export.csv": lambda: csv_text(tidy_rows([as_baseline(_record(counted).data)])),
    "run-several.txt": lambda: plain(render_runs([load_record(golden_path("run"))] * 2)),
}


def _as_json(found: GateReport) -> str:
    return json.dumps(found.to_dict(), indent=1) + "\n"


if __name__ == "__main__":
    for name, make in OUTPUTS.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")
