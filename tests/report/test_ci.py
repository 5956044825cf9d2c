from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from hicache_bench.records.gate import Filed, GateReport, gate
from hicache_bench.records.judge import Outcome
from hicache_bench.records.thresholds import DEFAULT_THRESHOLDS
from hicache_bench.report.ci import MAX_ANNOTATIONS, gate_junit_xml, github_annotations, markdown
from tests.records.changes import Data, changed, other_preset, reads_the_window, renamed
from tests.records.golden import golden_record
from tests.report.outputs import many, report

WILD = 'a|b<c>&"`*_\n[x](y) %0A::error::\x00'


def gated(before: list[Filed], after: list[Filed]) -> GateReport:
    return gate(before, after, DEFAULT_THRESHOLDS)


def filed(*changes) -> Filed:
    return Filed(changed(golden_record("run"), *changes))


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own


def read_back(command: str) -> tuple[str, dict[str, str], str]:
    """A workflow command as GitHub's runner reads it (actions/runner, ActionCommand.TryParseV2)."""
    match = re.fullmatch(r"::(\w+) ?([^:]*)::(.*)", command)
    assert match is not None
    level, properties, message = match.groups()

    def plain(text: str) -> str:
        for code, mark in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            text = text.replace(code, mark)
        return text

    named = dict(part.split("=", 1) for part in properties.split(",") if part)
    return level, {name: plain(value) for name, value in named.items()}, plain(message)


def test_annotations_are_read_back_as_they_were_meant() -> None:
    level, properties, message = read_back(github_annotations(report((), (other_preset,)))[0])
    assert ("warning", {"title": "kitchen-sink: not comparable"}) == (level, properties)
    assert "preset_digest: baseline 3570ae36d409, new 0123456789ab\nother settings" in message


def test_no_name_can_forge_a_command() -> None:
    (command,) = github_annotations(gated([], [filed(renamed(WILD))]))
    assert 1 == len(command.splitlines())
    level, properties, _ = read_back(command)
    assert ("warning", f"{WILD}: not comparable") == (level, properties["title"])


def test_the_worst_come_first_and_passing_ones_not_at_all() -> None:
    levels = [read_back(command)[0] for command in github_annotations(many())]
    assert ["error", "error", "warning", "warning", "warning"] == levels
    assert [] == github_annotations(report((), ()))


def test_no_more_than_github_shows() -> None:
    names = [f"model-{index}" for index in range(25)]
    before = [filed(renamed(name)) for name in names]
    after = [filed(renamed(name), reads_the_window) for name in names]
    found = github_annotations(gated(before, after))
    assert MAX_ANNOTATIONS == len(found)
    assert "::error title=hicache-bench gate::and 16 records more" == found[-1]
    assert MAX_ANNOTATIONS == len(github_annotations(gated(before[:10], after[:10])))


def test_markdown_has_one_line_a_row_and_no_tag_of_a_name() -> None:
    text = markdown(gated([], [filed(renamed(WILD))]))
    (row,) = (line for line in text.splitlines() if line.startswith("| a"))
    unescaped = re.sub(r"\\.", "", row)
    assert 8 == unescaped.count("|")
    assert not set("<>`*_[]") & set(unescaped)


def test_markdown_is_cut_and_says_so() -> None:
    def all_worse(record: Data) -> None:
        for rank in record["results"][0]["ranks"]:
            for place, policy in enumerate(rank["policies"]):
                for pool, account in enumerate(policy["pools"]):
                    for number, name in enumerate(("total", "needed", "read", "missed", "failed", "wasted")):
                        for unit in account[name]:
                            account[name][unit] += (place * 10 + pool) * 10 + number + 1

    text = markdown(gated([filed()], [filed(all_worse)]))
    assert "rows more; `--format json` has all of them." in text
    assert len(text) < 100_000


def test_junit_says_what_each_outcome_is() -> None:
    root = parsed(gate_junit_xml(many()))
    suites = {suite.get("name"): suite for suite in root}
    kinds = {
        name: {child.tag for case in suite for child in case} - {"system-out"}
        for name, suite in suites.items()
    }
    assert {
        "run.gone": {"failure"},
        "run.improved": set(),
        "run.inconclusive": {"skipped"},
        "run.not-comparable": {"error"},
        "run.regressed": {"failure"},
        "run.same": set(),
        "run.unknown": {"error"},
    } == kinds
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert len(root.findall(f".//{tag}")) == int(root.get(attribute, "-1"))
    assert len(root.findall(".//testcase")) == int(root.get("tests", "-1"))


def test_a_case_of_junit_is_as_bad_as_its_worst_row() -> None:
    def mixed(record: Data) -> None:
        read = record["results"][0]["ranks"][0]["policies"][0]["pools"][0]["read"]
        read["objects"] -= 1
        read["num_bytes"] += 1

    (case,) = parsed(gate_junit_xml(report((), (mixed,)))).iter("testcase")
    (element,) = case
    assert ("failure", "regressed") == (element.tag, element.get("type"))
    assert ["improved", "regressed"] == [line.rpartition(" ")[2] for line in str(element.text).splitlines()]


def test_junit_of_nothing_is_a_failure() -> None:
    report_of_nothing = gated([], [])
    assert Outcome.REGRESSED is report_of_nothing.outcome
    root = parsed(gate_junit_xml(report_of_nothing))
    assert ("1", "1") == (root.get("tests"), root.get("failures"))


def test_junit_takes_any_name() -> None:
    suite = parsed(gate_junit_xml(gated([], [filed(renamed(WILD))])))[0]
    assert "run." + WILD.replace("\x00", "?") == suite.get("name")
