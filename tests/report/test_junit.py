from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

from hicache_bench.records.schema import Check
from hicache_bench.report.junit import junit_xml
from tests.report.test_roundtrip import BAD, GOOD, proof, record_of


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 -- our own


def test_a_suite_a_section_and_a_case_a_proof() -> None:
    record = record_of(
        proof("a flipped byte", section="control"),
        proof("1 page", seconds=0.5),
        proof("2 pages", GOOD, BAD, seconds=0.25),
    )
    root = parsed(junit_xml(record))
    assert ("testsuites", "3", "1", "0.750000") == (
        root.tag,
        root.get("tests"),
        root.get("failures"),
        root.get("time"),
    )
    suites = root.findall("testsuite")
    assert [("bytes", "2", "1"), ("control", "1", "0")] == [
        (suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in suites
    ]
    assert {"seed": "7", "store": "local"} == {
        found.get("name"): found.get("value") for found in suites[0].iter("property")
    }
    first, second = suites[0].findall("testcase")
    assert ("bytes.kitchen-sink", "1 page", None) == (
        first.get("classname"),
        first.get("name"),
        first.find("failure"),
    )
    failure = second.find("failure")
    assert failure is not None
    assert "1 of 2 checks failed" == failure.get("message")
    assert f"{BAD.name}\n  expected none\n  found    {BAD.actual}" == failure.text


def test_text_that_xml_has_no_way_to_write() -> None:
    wild = Check('a<b & "c" ]]> \x00\x1b[0m \ud800', "<none>", "é\ufffe\n", False)
    root = parsed(junit_xml(record_of(proof("<page> \x08", wild, subject="a&b"))))
    failure = root.find("./testsuite/testcase/failure")
    assert failure is not None
    assert 'a<b & "c" ]]> ??[0m ?\n  expected <none>\n  found    é?\n' == failure.text
    case = root.find("./testsuite/testcase")
    assert case is not None
    assert ("bytes.a&b", "<page> ?") == (case.get("classname"), case.get("name"))


def test_a_proof_without_a_check_is_a_failure() -> None:
    failure = parsed(junit_xml(record_of(replace(proof(), checks=())))).find(".//failure")
    assert failure is not None
    assert "nothing was checked" == failure.get("message")
