from __future__ import annotations

from dataclasses import replace

from hicache_bench.records.proof import Proof, RoundtripRecord
from hicache_bench.records.schema import Check
from hicache_bench.report.roundtrip import render_roundtrip
from tests.report.test_presets import text_of

GOOD = Check("same bytes", "none", "none", True)
BAD = Check("dense at 8k tokens: restored pages that differ", "none", "1: kv:3 [bold]", False)


def proof(name: str = "128 pages", *checks: Check, section: str = "bytes", **fields: object) -> Proof:
    given = {"subject": "kitchen-sink", "checks": checks or (GOOD,), **fields}
    return Proof(section=section, name=name, **given)  # type: ignore[arg-type]


def record_of(*proofs: Proof) -> RoundtripRecord:
    return RoundtripRecord(
        status="ok" if all(found.passed for found in proofs) else "failed",
        created_utc="2026-11-29T00:00:00.000000Z",
        command=("hicache-bench", "roundtrip"),
        tool_version="0",
        libraries={},
        environment={},
        seed=7,
        store="local",
        store_settings={},
        presets={"kitchen-sink": "d1"},
        proofs=proofs,
    )


def words(*proofs: Proof) -> str:
    return " ".join(text_of(render_roundtrip(record_of(*proofs))).split())


def test_a_row_says_what_was_proved() -> None:
    figures = {"bytes_compared": 3 << 30, "gb_per_s": 6.0, "batch_pages": 128}
    text = words(proof("a flipped byte", section="control"), proof(figures=figures, seconds=2.0))
    assert "kitchen-sink: store local, seed 7" in text
    assert "control kitchen-sink a flipped byte 1 ok" in text
    assert "bytes kitchen-sink 128 pages 1 ok" in text
    assert "1 control came out as they must" in text
    assert "3.00 GiB compared, every byte, at 6.0 GB/s [measured]" in text
    assert "batches of 128 pages for kitchen-sink" in text
    assert "2 proofs, 2 checks: all passed; 2.00 s of proving" in text


def test_a_failure_is_told_with_what_was_expected_and_found() -> None:
    text = words(proof("128 pages", GOOD, BAD))
    assert "1 failed" in text
    assert f"{BAD.name} expected none found 1: kv:3 [bold]" in text
    assert "2 checks: 1 FAILED" in text


def test_a_control_that_missed_its_fault_is_told() -> None:
    assert "0 controls came out as they must, 1 did NOT" in words(
        proof("a flipped byte", BAD, section="control")
    )


def test_no_controls_are_told() -> None:
    assert "no controls ran" in words(proof())


def test_a_proof_without_a_check_is_no_success() -> None:
    text = words(replace(proof(), checks=()))
    assert "not checked" in text


def test_many_proofs_share_rows() -> None:
    text = words(*(proof(f"{pages} pages") for pages in range(100)), proof("two salts", section="isolation"))
    assert "bytes kitchen-sink 100 proofs 100 ok" in text
    assert "isolation kitchen-sink two salts 1 ok" in text


def test_batches_are_told_largest_first() -> None:
    sizes = {"a": 4, "b": 128, "c": 4}
    text = words(*(proof(subject=name, figures={"batch_pages": size}) for name, size in sizes.items()))
    assert "batches of 128 pages for b batches of 4 pages for 2 presets" in text


def test_many_failures_are_cut() -> None:
    text = words(*(proof("128 pages", BAD) for _ in range(30)))
    assert "... and 10 checks more" in text


def test_a_rate_that_nobody_measured_is_not_told() -> None:
    assert "1.00 KiB compared, every byte 1 proof" in words(proof(figures={"bytes_compared": 1024})).replace(
        "no controls ran: nothing here shows that the checks can fail ", ""
    )


def test_faults_alone_have_no_controls_to_miss() -> None:
    text = " ".join(text_of(render_roundtrip(replace(record_of(proof()), presets={}))).split())
    assert text.startswith("faults alone: store local")
    assert "controls" not in text


def test_the_cost_of_checksums_is_told() -> None:
    one = proof(figures={"digest_bytes": 1024, "digest_seconds": 0.25})
    assert "checksums cost 2.00 KiB of the store and 500.0 ms [measured]" in words(one, one)
    assert "checksums" not in words(proof())


def test_the_arithmetic_is_told_pool_by_pool() -> None:
    figures = {"pages_restored": 3, "pages_skipped": 1200, "max_difference": 5.04e-6, "tolerance": 0.047}
    lost = {**figures, "max_difference": "nan"}
    text = words(
        proof("pool swa", section="numerics", figures=figures),
        proof("pool kv", BAD, section="numerics", figures=lost),
    )
    assert "pool swa 3 1,200 5.0e-06 4.7e-02 ok" in text
    assert "pool kv 3 1,200 nan 4.7e-02 1 failed" in text
    other = words(
        proof("pool swa", section="numerics", figures=figures),
        proof("pool swa", section="numerics", figures=figures, subject="gpt-oss"),
    )
    assert "gpt-oss, pool swa 3" in other


def test_a_control_that_a_model_cannot_be_tried_with_is_told() -> None:
    figures = {"inapplicable_control": "blocks chosen by a stale index"}
    text = words(proof("1 page", section="numerics", figures=figures), proof(section="control"))
    assert "kitchen-sink: no control 'blocks chosen by a stale index', as its index selects" in text
    assert "no control" not in words(proof("1 page", section="numerics"), proof(section="control"))
