"""A gate report as text of at most 80 columns: what changed, where, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hicache_bench.records.gate import GateReport, Pair
from hicache_bench.records.judge import Outcome
from hicache_bench.report.gate_rows import Row, counts_of, explanations_of, groups_of, notes_of
from hicache_bench.report.tables import plural

_MAX_ROWS = 40
"""Of one comparison; ``--format json`` has all of them."""

_MAX_ALIKE = 3
"""More comparisons than this of which the same is to be said share a line."""

_NEW_BASELINE = "new baseline"

_STYLES = {
    Outcome.PASS: "green",
    Outcome.IMPROVED: "green",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.NOT_COMPARABLE: "yellow",
    Outcome.REGRESSED: "bold red",
}


def render_gate(report: GateReport) -> RenderableType:
    """Everything that a gate has to say."""
    parts: list[RenderableType] = []
    for pairs in _alike(report.pairs):
        if len(pairs) > _MAX_ALIKE:
            parts += _together(pairs, is_update=report.is_update)
        else:
            parts += [part for pair in pairs for part in _pair(pair, is_update=report.is_update)]
    parts += [Text(f"note: {note}") for note in report.notes]
    parts += [Text(f"accepted as baseline: {name}") for name in report.accepted]
    parts.append(_verdict(report))
    return Lines(*parts)


def _alike(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs of which the same is to be said, in the order of the first of them."""
    groups: dict[object, list[Pair]] = {}
    for pair in pairs:
        said = (pair.comparison.outcome, tuple(notes_of(pair)))
        groups.setdefault(pair if pair.comparison.findings else said, []).append(pair)
    return list(groups.values())


def _together(pairs: Sequence[Pair], *, is_update: bool) -> Iterator[RenderableType]:
    outcome = pairs[0].comparison.outcome
    metrics = sum(pair.comparison.metrics for pair in pairs)
    line = Text(f"{len(pairs)} records: ").append_text(_outcome(pairs[0], is_update=is_update))
    if metrics:
        line.append(f", {plural(metrics, 'metric')} as in their baselines")
    yield line
    if outcome is not Outcome.PASS:
        yield _indented(", ".join(pair.subject for pair in pairs))
    yield from map(_indented, notes_of(pairs[0]))


def _indented(text: str) -> Padding:
    return Padding(Text(text), (0, 0, 0, 2), expand=False)


def _is_fresh(pair: Pair) -> bool:
    """Whether nothing was compared, since there is no baseline."""
    return pair.baseline is None and pair.comparison.outcome is Outcome.NOT_COMPARABLE


def _outcome(pair: Pair, *, is_update: bool) -> Text:
    """What came of it; a record that had no baseline is one after an update."""
    outcome = pair.comparison.outcome
    if is_update and _is_fresh(pair):
        return Text(_NEW_BASELINE, style=_STYLES[Outcome.PASS])
    return Text(outcome.value, style=_STYLES[outcome])


def _pair(pair: Pair, *, is_update: bool) -> Iterator[RenderableType]:
    comparison = pair.comparison
    line = Text(f"{pair.subject}, {pair.kind} [{pair.evidence}]: ").append_text(
        _outcome(pair, is_update=is_update)
    )
    if comparison.metrics:
        changed = len(comparison.findings)
        line.append(f", {changed:,} of {plural(comparison.metrics, 'metric')} changed")
    yield line
    yield from map(_indented, notes_of(pair))
    left = _MAX_ROWS
    groups = groups_of(pair)
    for index, group in enumerate(groups):
        if left <= 0:
            hidden = sum(len(later.rows) for later in groups[index:])
            yield Text(f"  ... and {plural(hidden, 'row')} more; --format json has all of them")
            break
        yield Text(f"\n{group.title}", style="bold")
        if group.reason:
            yield Text(f"reason: {group.reason}")
        yield _table(group.rows[:left])
        left -= len(group.rows)
        yield from map(Text, explanations_of(group))
    if groups:
        yield Text("")


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("metric", overflow="fold", min_width=16)
    for column in ("baseline", "new", "difference"):
        table.add_column(column, justify="right", overflow="fold")
    table.add_column("outcome", no_wrap=True)
    for row in rows:
        table.add_row(
            Text(row.metric),
            Text(row.baseline),
            Text(row.new),
            Text(row.difference),
            Text(row.outcome.value, style=_STYLES[row.outcome]),
        )
    return table


def _verdict(report: GateReport) -> Text:
    allowed = ", ".join(f"{name} {amount * 100:.4g}%" for name, amount in report.thresholds.items() if amount)
    if report.is_update and all(map(_is_fresh, report.pairs)):
        text = Text("gate: ").append(_NEW_BASELINE, style=_STYLES[Outcome.PASS])
    else:
        text = Text("gate: ").append(report.outcome.value, style=_STYLES[report.outcome])
        text.append(f" ({counts_of(report.pairs) or 'nothing was compared'})")
    if report.is_update:
        text.append(f"; {plural(len(report.accepted), 'baseline')} written, {report.unchanged} as they were")
    else:
        text.append(f"; exit code {report.exit_code}")
    if allowed:
        text.append(f"\nallowed to get worse: {allowed}; all else not at all")
    return text
