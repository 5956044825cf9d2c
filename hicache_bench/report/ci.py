"""A gate report for CI systems: Markdown for comments, GitHub's annotations, JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from xml.etree import ElementTree as ET

from hicache_bench.records.gate import GateReport, Pair
from hicache_bench.records.judge import Outcome
from hicache_bench.report.gate_rows import Group, counts_of, explanations_of, groups_of, notes_of
from hicache_bench.report.junit import xml_text

MAX_ANNOTATIONS = 10
"""GitHub shows ten errors and ten warnings of a step, and drops the rest without a word."""

_MAX_ROWS = 100
"""Of one comparison: a step summary may have 1 MiB."""

_LEVELS = {
    Outcome.REGRESSED: "error",
    Outcome.NOT_COMPARABLE: "warning",
    Outcome.INCONCLUSIVE: "warning",
}


def markdown(report: GateReport) -> str:
    """The whole report as GitHub-flavoured Markdown."""
    return "\n".join(_markdown(report)) + "\n"


def _markdown(report: GateReport) -> Iterator[str]:
    yield f"## hicache-bench gate: {report.outcome.value}"
    yield ""
    yield f"{counts_of(report.pairs) or 'nothing was compared'}; exit code {report.exit_code}"
    yield ""
    yield "| record | kind | evidence | outcome | metrics | changed | |"
    yield "|---|---|---|---|---:|---:|---|"
    for pair in report.pairs:
        comparison = pair.comparison
        cells = (
            pair.subject,
            pair.kind,
            pair.evidence,
            comparison.outcome.value,
            f"{comparison.metrics:,}",
            f"{len(comparison.findings):,}",
            "; ".join(notes_of(pair)),
        )
        yield f"| {' | '.join(map(_cell, cells))} |"
    for pair in report.pairs:
        if pair.comparison.findings:
            yield from _details(pair)
    for note in report.notes:
        yield ""
        yield f"Note: {_cell(note)}"


def _details(pair: Pair) -> Iterator[str]:
    yield ""
    yield f"### {_cell(pair.subject)}: {pair.comparison.outcome.value}"
    yield ""
    yield "| where | metric | baseline | new | difference | outcome | reason |"
    yield "|---|---|---:|---:|---:|---|---|"
    rows = [(group, row) for group in groups_of(pair) for row in group.rows]
    for group, row in rows[:_MAX_ROWS]:
        reason = group.reason or row.why
        cells = (group.title, row.metric, row.baseline, row.new, row.difference, row.outcome.value, reason)
        yield f"| {' | '.join(map(_cell, cells))} |"
    if len(rows) > _MAX_ROWS:
        yield ""
        yield f"{len(rows) - _MAX_ROWS:,} rows more; `--format json` has all of them."


def _cell(text: str) -> str:
    """Text that cannot end a cell, open a tag or set type: names come from presets and files."""
    for mark in "\\`*_[]<>|":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\r", " ").replace("\n", " ")


def github_annotations(report: GateReport) -> list[str]:
    """Workflow commands that GitHub shows beside a change, the worst first."""
    levels = ("error", "warning")
    shown = [pair for pair in report.pairs if pair.comparison.outcome in _LEVELS]
    shown.sort(key=lambda pair: levels.index(_LEVELS[pair.comparison.outcome]))
    lines = [_annotation(pair) for pair in shown]
    if len(lines) > MAX_ANNOTATIONS:
        hidden = len(lines) - MAX_ANNOTATIONS + 1
        rest = shown[MAX_ANNOTATIONS - 1]
        level = _LEVELS[rest.comparison.outcome]
        lines[MAX_ANNOTATIONS - 1 :] = [f"::{level} title=hicache-bench gate::and {hidden} records more"]
    return lines


def _annotation(pair: Pair) -> str:
    outcome = pair.comparison.outcome
    said = list(notes_of(pair)) + [_line(group) for group in groups_of(pair)]
    text = "\n".join(said[:5]) + (f"\n... and {len(said) - 5} more" if len(said) > 5 else "")
    title = f"{pair.subject}: {outcome.value}"
    return f"::{_LEVELS[outcome]} title={_escaped(title, in_property=True)}::{_escaped(text)}"


def _line(group: Group) -> str:
    """The bytes of a group if they changed, else the first figure that did, with the reason."""
    worst = [row for row in group.rows if row.outcome is not Outcome.PASS]
    row = next((row for row in worst if row.metric.endswith(" bytes")), group.rows[0])
    because = group.reason or row.why
    return (
        f"{group.title}: {row.metric} {row.baseline} -> {row.new} ({row.difference})"
        + (f", {because}" if because else "")
    )  # fmt: skip


def _escaped(text: str, *, in_property: bool = False) -> str:
    """As GitHub's runner reads it back; a property also ends at a colon or comma."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if in_property else text


def gate_junit_xml(report: GateReport) -> str:
    """The report as JUnit XML: a suite for each record, a case for each place that changed.

    A record in which nothing changed has one case for all its metrics. Regressed is a failure, not comparable
    an error, inconclusive skipped.
    """
    root = ET.Element("testsuites", {"name": "hicache-bench gate"})
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for pair in report.pairs:
        suite = ET.SubElement(root, "testsuite", {"name": xml_text(f"{pair.kind}.{pair.subject}")})
        _add_cases(suite, pair)
        counts = {
            "tests": len(suite.findall("testcase")),
            "failures": len(suite.findall("testcase/failure")),
            "errors": len(suite.findall("testcase/error")),
            "skipped": len(suite.findall("testcase/skipped")),
        }
        for name, count in counts.items():
            suite.set(name, str(count))
            totals[name] += count
    if not report.pairs:
        case = ET.SubElement(
            ET.SubElement(root, "testsuite", {"name": "gate"}), "testcase", classname="gate", name="records"
        )
        ET.SubElement(case, "failure", type="gate", message="nothing was compared")
        totals |= {"tests": 1, "failures": 1}
    for name, count in totals.items():
        root.set(name, str(count))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


_ELEMENTS = {
    Outcome.REGRESSED: "failure",
    Outcome.NOT_COMPARABLE: "error",
    Outcome.INCONCLUSIVE: "skipped",
}


def _add_cases(suite: ET.Element, pair: Pair) -> None:
    comparison = pair.comparison
    notes = "\n".join(notes_of(pair))
    groups = groups_of(pair)
    if notes or not groups:
        outcome = Outcome.PASS if groups else comparison.outcome
        name = f"{comparison.metrics:,} metrics" if comparison.metrics else "comparison"
        _add_case(suite, pair, name, outcome, notes)
    for group in groups:
        order = list(Outcome)
        outcome = max((row.outcome for row in group.rows), key=order.index)
        _add_case(suite, pair, group.title, outcome, "\n".join(_lines(group)))


def _lines(group: Group) -> Iterator[str]:
    if group.reason:
        yield f"reason: {group.reason}"
    for row in group.rows:
        yield f"{row.metric}: {row.baseline} -> {row.new} ({row.difference}) {row.outcome.value}"
    yield from explanations_of(group)


def _add_case(suite: ET.Element, pair: Pair, name: str, outcome: Outcome, text: str) -> None:
    case = ET.SubElement(
        suite, "testcase", classname=xml_text(f"{pair.kind}.{pair.subject}"), name=xml_text(name)
    )
    kind = _ELEMENTS.get(outcome)
    if kind is None:
        if text:
            ET.SubElement(case, "system-out").text = xml_text(text)
        return
    first = next(islice(text.splitlines(), 1), outcome.value)
    element = ET.SubElement(case, kind, message=xml_text(f"{outcome.value}: {first}"))
    if kind != "skipped":
        element.set("type", outcome.value)
    element.text = xml_text(text)
