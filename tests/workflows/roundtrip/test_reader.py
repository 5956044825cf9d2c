"""What becomes of a reader's answer, or of none; a real one is in tests/integration."""

from __future__ import annotations

import json
import sys
import time

import pytest

from hicache_bench.config.load import parse_model
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.records.proof import Proof
from hicache_bench.store.local import LocalKVStore
from hicache_bench.workflows.roundtrip.byte_proofs import ByteJob, BytePlan
from hicache_bench.workflows.roundtrip.reader import _preset_text, reader_proof
from hicache_bench.workflows.variant import apply_options
from tests.workflows.roundtrip.rig import POLICIES, variant_of
from tests.workflows.runs import PRESETS, quiet

VARIANT = variant_of("kitchen-sink", salt="s3cret")


def ask(code: str, *, limit_seconds: float = 20.0) -> Proof:
    """The proof that this reader leads to."""
    plan = BytePlan(clusters=(), save_policy=SavePolicy(), batch_pages=4, needed_bytes=0)
    with LocalKVStore(1 << 20) as store:
        job = ByteJob(variant=VARIANT, plan=plan, store=store, policies=POLICIES, seed=1, progress=quiet)
        return reader_proof(
            job,
            5,
            master="127.0.0.1:1",
            command=[sys.executable, "-c", code],
            limit_seconds=limit_seconds,
        )


def answering(**answer: object) -> str:
    """A reader that asks nobody."""
    return f"import sys; sys.stdin.read(); print({json.dumps(json.dumps(answer))})"


GOOD = {
    "checks": [{"name": "same", "expected": "none", "actual": "none", "passed": True}],
    "digest": VARIANT.spec.digest,
    "bytes_compared": 10,
    "gb_per_s": 1.5,
}


def test_an_answer_becomes_a_proof() -> None:
    proof = ask(answering(**GOOD))
    assert proof.passed
    assert ("reader", "kitchen-sink") == (proof.section, proof.subject)
    assert {"bytes_compared": 10, "gb_per_s": 1.5} == proof.figures


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        ({**GOOD, "digest": "another"}, "keys are those of the writer"),
        ({**GOOD, "bytes_compared": 0}, "bytes compared by the reader"),
        ({"problem": "no master"}, "what kept the reader from answering"),
        (
            {**GOOD, "checks": [{"name": "same", "expected": "none", "actual": "1: kv:3", "passed": False}]},
            "same",
        ),
    ],
)
def test_a_wrong_answer_is_a_failure(answer: dict[str, object], failed: str) -> None:
    assert [failed] == [check.name for check in ask(answering(**answer)).checks if not check.passed]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import sys; sys.exit('broken\\nin two lines')", "exit code 1: in two lines"),
        ("print('hello')", "exit code 0: it said nothing"),
        ("print([1])", "exit code 0: it said nothing"),
    ],
)
def test_a_reader_that_fails_says_so(code: str, problem: str) -> None:
    (check,) = ask("import sys; sys.stdin.read();" + code).checks
    assert (False, problem) == (check.passed, check.actual)


def test_a_reader_that_hangs_is_killed() -> None:
    started = time.monotonic()
    (check,) = ask("import time; time.sleep(60)", limit_seconds=0.5).checks
    assert (False, "no answer within 0.5 s; it was killed") == (check.passed, check.actual)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("preset", PRESETS)
def test_the_reader_builds_the_same_model(preset: str) -> None:
    variant = variant_of(preset)
    read = apply_options(parse_model(_preset_text(variant).encode(), file="request"), variant.options)
    assert (variant.spec, variant.profile) == (read.spec, read.profile)
    assert variant.pools == read.pools
