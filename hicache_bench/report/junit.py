"""A ``roundtrip`` record as JUnit XML, which every CI system shows: a suite a section, a case a proof."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from xml.etree import ElementTree as ET

from hicache_bench.records.proof import Proof, RoundtripRecord

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(record: RoundtripRecord) -> str:
    """The whole file. A proof with failed checks is a failure that lists what was expected and found."""
    root = ET.Element("testsuites", {"name": "hicache-bench roundtrip", **_counts(record.proofs)})
    by_section = sorted(record.proofs, key=lambda proof: proof.section)
    for section, group in groupby(by_section, key=lambda proof: proof.section):
        proofs = list(group)
        suite = ET.SubElement(
            root, "testsuite", {"name": section, "timestamp": record.created_utc, **_counts(proofs)}
        )
        properties = ET.SubElement(suite, "properties")
        for name, value in (("seed", record.seed), ("store", record.store)):
            ET.SubElement(properties, "property", name=name, value=str(value))
        for proof in proofs:
            _add_case(suite, proof)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counts(proofs: Iterable[Proof]) -> dict[str, str]:
    proofs = list(proofs)
    return {
        "tests": str(len(proofs)),
        "failures": str(sum(not proof.passed for proof in proofs)),
        "errors": "0",
        "time": f"{sum(proof.seconds for proof in proofs):.6f}",
    }


def _add_case(suite: ET.Element, proof: Proof) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=xml_text(f"{proof.section}.{proof.subject}"),
        name=xml_text(proof.name),
        time=f"{proof.seconds:.6f}",
    )
    if proof.passed:
        return
    failed = [check for check in proof.checks if not check.passed]
    message = f"{len(failed)} of {len(proof.checks)} checks failed" if failed else "nothing was checked"
    failure = ET.SubElement(case, "failure", type="check", message=message)
    failure.text = xml_text(
        "\n".join(f"{check.name}\n  expected {check.expected}\n  found    {check.actual}" for check in failed)
    )


def xml_text(text: str) -> str:
    """What XML 1.0 can hold; a character that it has no way to write becomes a question mark."""
    return _NOT_XML.sub("?", text)
