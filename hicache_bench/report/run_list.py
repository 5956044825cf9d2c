"""Several run records as one table of at most 80 columns: a row for each preset and length."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hicache_bench.records.schema import Evidence, LengthResult, RunRecord
from hicache_bench.report.tables import plural
from hicache_bench.units import format_size, format_tokens


def render_runs(records: Sequence[RunRecord]) -> RenderableType:
    """What each policy reads of each preset, in a table for each tag."""
    parts: list[RenderableType] = []
    for evidence in Evidence:
        rows = [
            (record.preset["name"], result)
            for record in records
            for result in record.results
            if result.evidence == evidence.value
        ]
        if rows:
            parts += [Text(f"bytes read by all ranks [{evidence.value}]"), _table(rows)]
    checks = sum(len(result.checks) for record in records for result in record.results)
    failed = [(record, check) for record in records for check in record.failed_checks]
    for record, check in failed:
        name = record.preset["name"]
        parts.append(Text(f"FAILED {name}, {check.name}: expected {check.expected}, found {check.actual}"))
    parts.append(Text(f"{plural(len(records), 'preset')}: {checks - len(failed)} of {checks} checks passed"))
    return Group(*parts)


def _table(rows: Sequence[tuple[str, LengthResult]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    table.add_column("preset", overflow="fold")
    for column in ("tokens", "dense", "hit_policy", "selective", "vs\ndense", "vs\nhit_policy"):
        table.add_column(column, justify="right", no_wrap=True)
    shown = ""
    for name, result in rows:
        dense, hit, selective = (policy.read.num_bytes for policy in result.policies)
        table.add_row(
            Text(name if name != shown else ""),
            format_tokens(result.tokens),
            format_size(dense),
            format_size(hit),
            format_size(selective),
            _change(selective, dense),
            _change(selective, hit),
        )
        shown = name
    return table


def _change(num_bytes: int, baseline: int) -> str:
    return "-" if not baseline else f"{num_bytes / baseline - 1:+.1%}" if num_bytes != baseline else "0%"
