from __future__ import annotations

import json
import math
from collections.abc import Callable
from copy import deepcopy
from itertools import chain
from typing import Any

import pytest

from hicache_bench.records.compare import FOLLOWS, Comparison, compare, setting_differences, worst
from hicache_bench.records.judge import NOT_A_NUMBER, Outcome
from hicache_bench.records.kinds import KINDS
from hicache_bench.records.thresholds import DEFAULT_THRESHOLDS
from tests.records.changes import Data, account_of, counted, other_preset, reads_the_window
from tests.records.golden import golden_record
from tests.workflows.runs import cached_run


def compared(*changes: Callable[[Data], None], kind: str = "run", to_baseline: bool = False) -> Comparison:
    """A kept record against itself after changes, or the other way round."""
    before, after = golden_record(kind), golden_record(kind)
    for change in changes:
        change(before if to_baseline else after)
    return compare(before, after, DEFAULT_THRESHOLDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_passes_against_itself(kind: str) -> None:
    comparison = compared(kind=kind)
    assert (Outcome.PASS, (), ()) == (comparison.outcome, comparison.findings, comparison.additions)
    assert comparison.metrics > 20


def test_a_run_in_memory_is_compared_like_one_from_disk() -> None:
    data = cached_run("kitchen-sink", 1024).to_dict()
    assert Outcome.PASS is compare(json.loads(json.dumps(data)), data, DEFAULT_THRESHOLDS).outcome


def test_what_was_moved_can_be_gated_by_what_was_counted() -> None:
    moved, only_counted = cached_run("kitchen-sink", 1024, store="local"), cached_run("kitchen-sink", 1024)
    assert Outcome.PASS is compare(only_counted.to_dict(), moved.to_dict(), DEFAULT_THRESHOLDS).outcome
    back = compare(moved.to_dict(), only_counted.to_dict(), DEFAULT_THRESHOLDS)
    assert Outcome.REGRESSED is back.outcome
    assert any(finding.why == "measured before, and not now" for finding in back.findings)


def test_reading_more_is_worse_and_the_reason_is_told() -> None:
    comparison = compared(reads_the_window)
    assert Outcome.REGRESSED is comparison.outcome
    (bytes_read,) = (
        finding
        for finding in comparison.findings
        if finding.where[-2:] == (("policies", "selective"), ("pools", "swa"))
        and finding.name == ("read", "num_bytes")
    )
    assert (1_048_576, 16_777_216, 15.0) == (bytes_read.baseline, bytes_read.new, bytes_read.change)
    assert "out_of_window 120 -> 0 pages" == bytes_read.reason
    assert {Outcome.REGRESSED} == {finding.outcome for finding in comparison.findings}


def test_reading_less_is_better_and_so_is_what_follows() -> None:
    comparison = compared(reads_the_window, to_baseline=True)
    assert Outcome.IMPROVED is comparison.outcome
    skipped = [finding for finding in comparison.findings if finding.name[0] == "skipped"]
    assert {(Outcome.IMPROVED, FOLLOWS)} == {(finding.outcome, finding.why) for finding in skipped}


def proof_of(record: Data) -> Data:
    """The proof that compared the bytes of a prefix."""
    (found,) = (proof for proof in record["proofs"] if "bytes_compared" in proof["figures"])
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bytes_compared", 1),
        ("bytes_compared", 1 << 40),
        ("pages_restored", 3),
        ("stored_bytes", 0),
        ("saved", "state=all"),
        ("bytes_compared", None),
    ],
)
def test_a_proof_of_something_else_is_a_regression(name: str, value: object) -> None:
    def change(record: Data) -> None:
        proof_of(record)["figures"][name] = value

    (finding,) = compared(change, kind="roundtrip").findings
    assert (("figures", name), Outcome.REGRESSED) == (finding.name, finding.outcome)


def test_a_figure_or_a_case_of_a_proof_must_not_vanish() -> None:
    def drop(record: Data) -> None:
        del proof_of(record)["figures"]["pages_restored"]

    def stand_for_less(record: Data) -> None:
        proof_of(record)["cases"] = ["E1"]

    assert Outcome.REGRESSED is compared(drop, kind="roundtrip").outcome
    assert Outcome.REGRESSED is compared(stand_for_less, kind="roundtrip").outcome
    assert Outcome.REGRESSED is compared(stand_for_less, kind="roundtrip", to_baseline=True).outcome


def test_how_fast_something_was_proved_is_not_judged() -> None:
    def change(record: Data) -> None:
        proof = proof_of(record)
        proof["seconds"] *= 100
        proof["figures"]["gb_per_s"] /= 100
        proof["figures"]["digest_seconds"] = 9.0

    assert Outcome.PASS is compared(change, kind="roundtrip").outcome


def move_reason(record: Data) -> None:
    """The same pages are skipped, for another reason."""
    skipped = account_of(record, "selective", "swa")["skipped"]
    skipped["superseded_state"] = skipped.pop("out_of_window")


def test_another_reason_for_the_same_bytes_is_a_regression() -> None:
    comparison = compared(move_reason)
    assert Outcome.REGRESSED is comparison.outcome
    assert {"skipped"} == {finding.name[0] for finding in comparison.findings}


def better_and_worse(record: Data) -> None:
    """A longer endpoint that costs more bytes."""
    for rank in record["results"][0]["ranks"]:
        for policy in rank["policies"]:
            policy["used_tokens"] += 64
            policy["read"]["num_bytes"] += 1


def test_one_figure_that_is_worse_outweighs_any_that_is_better() -> None:
    comparison = compared(better_and_worse)
    assert {Outcome.REGRESSED, Outcome.IMPROVED} == {finding.outcome for finding in comparison.findings}
    assert Outcome.REGRESSED is comparison.outcome


def one(path: str) -> Callable[[Data], Any]:
    return lambda record: eval(f"record{path}")  # noqa: S307 - paths written here


GONE = {
    "a length": ("['results']", "results 8192"),
    "a rank": ("['results'][0]['ranks']", "ranks the only rank"),
    "a policy": ("['results'][0]['ranks'][0]['policies']", "policies dense"),
    "a pool": ("['results'][0]['ranks'][0]['policies'][0]['pools']", "pools mla"),
    "a saved pool": ("['results'][0]['ranks'][0]['saved']", "saved mla"),
    "a descriptor": ("['pools']", "pools kv"),
}


@pytest.mark.parametrize(("path", "last"), GONE.values(), ids=GONE)
def test_what_is_missing_is_a_regression_and_told_once(path: str, last: str) -> None:
    def drop(record: Data) -> None:
        del one(path)(record)[0]

    comparison = compared(drop)
    assert Outcome.REGRESSED is comparison.outcome
    (finding,) = (finding for finding in comparison.findings if not finding.name)
    assert (last, "missing in the new record") == (" ".join(finding.where[-1]), finding.why)
    assert not [found for found in comparison.findings if found.where == finding.where and found.name]


def test_a_check_that_is_not_made_any_more() -> None:
    def drop(record: Data) -> None:
        result = record["results"][0]
        name = "dense at 8k tokens: guard zones that were written to"
        result["checks"] = [check for check in result["checks"] if check["name"] != name]

    (finding,) = compared(drop).findings
    assert Outcome.REGRESSED is finding.outcome


def new_pool(record: Data) -> None:
    pools = record["results"][0]["ranks"][0]["policies"][0]["pools"]
    pools.append({**deepcopy(pools[0]), "pool": "new"})


def new_failing_check(record: Data) -> None:
    record["results"][0]["checks"].append({"name": "new", "expected": "", "actual": "", "passed": False})


@pytest.mark.parametrize("add", [new_pool, new_failing_check])
def test_bytes_and_failures_from_nowhere_are_a_regression(add: Callable[[Data], None]) -> None:
    assert Outcome.REGRESSED is compared(add).outcome


def new_passing_check(record: Data) -> None:
    record["results"][0]["checks"].append({"name": "new", "expected": "", "actual": "", "passed": True})


def test_a_further_check_that_passes_is_welcome() -> None:
    assert Outcome.PASS is compared(new_passing_check).outcome


def new_length(record: Data) -> None:
    record["results"].append({**deepcopy(record["results"][0]), "tokens": 16384})


def test_another_length_is_told_and_not_judged() -> None:
    comparison = compared(new_length)
    assert (Outcome.PASS, (("results", "16384"),)) == (comparison.outcome, comparison.additions)
    assert Outcome.REGRESSED is compared(new_length, to_baseline=True).outcome


def test_another_length_whose_checks_fail_is_judged() -> None:
    def fails(record: Data) -> None:
        new_length(record)
        record["results"][1]["checks"] = [{"name": "new", "expected": "", "actual": "", "passed": False}]

    assert Outcome.REGRESSED is compared(fails).outcome


@pytest.mark.parametrize("field", ["save_seconds", "lookup_seconds"])
def test_a_number_that_is_none_is_found_wherever_it_is(field: str) -> None:
    def spoil(record: Data) -> None:
        record["results"][0]["ranks"][0][field] = math.nan

    (finding,) = compared(spoil).findings
    assert (Outcome.REGRESSED, NOT_A_NUMBER) == (finding.outcome, finding.why)
    assert ("results", "0", "ranks", "0", field) == finding.name


def emptied(record: Data) -> None:
    record["results"] = []


def test_a_setting_that_is_no_number_is_a_regression_and_no_other_setting() -> None:
    def spoil(record: Data) -> None:
        record["queries"] = math.nan

    comparison = compared(spoil)
    assert Outcome.REGRESSED is comparison.outcome
    assert [(("queries",), NOT_A_NUMBER)] == [(one.name, one.why) for one in comparison.findings]


def failing(times: int) -> Callable[[Data], None]:
    """A record of which so many checks of one name failed."""

    def fail(record: Data) -> None:
        record["status"] = "failed"
        check = record["results"][0]["checks"][0]
        record["results"][0]["checks"] += [{**check, "passed": False}] * times

    return fail


@pytest.mark.parametrize("before", [1, 2, 3])
def test_failed_checks_never_pass_whatever_the_baseline_says(before: int) -> None:
    """As many as before are no pass, and fewer no improvement."""
    baseline, new = golden_record("run"), golden_record("run")
    failing(before)(baseline)
    failing(1)(new)
    comparison = compare(baseline, new, DEFAULT_THRESHOLDS)
    assert Outcome.REGRESSED is comparison.outcome
    assert {(Outcome.REGRESSED, "a record with failed checks never passes, whatever its baseline says")} == {
        (finding.outcome, finding.why) for finding in comparison.findings
    }
    assert Outcome.IMPROVED is compare(baseline, golden_record("run"), DEFAULT_THRESHOLDS).outcome


def test_an_empty_comparison_is_a_regression() -> None:
    assert Outcome.REGRESSED is compared(emptied).outcome
    assert Outcome.REGRESSED is worst([])


def test_other_settings_are_not_compared_and_named() -> None:
    comparison = compared(other_preset, reads_the_window)
    assert (Outcome.NOT_COMPARABLE, ()) == (comparison.outcome, comparison.findings)
    assert ("preset_digest: baseline 3570ae36d409, new 0123456789ab",) == comparison.differences


def test_every_setting_is_named_with_both_values() -> None:
    record = golden_record("run")
    record["deployment"]["tp"] = 8
    record["adapter"] = "0" * 16
    record["save_policy"] = "state=all,window=all"
    assert [
        "deployment.tp: baseline 1, new 8",
        "adapter: baseline none, new 0000000000000000",
        "save_policy: baseline state=every:4096,window=all, new state=all,window=all",
    ] == setting_differences(golden_record("run"), record)
    assert (
        "kind: baseline run, new bench"
        == setting_differences(golden_record("run"), golden_record("bench"))[0]
    )


def slow_elsewhere(record: Data) -> None:
    record["environment"]["processors"] += 1
    for policy in record["results"][0]["ranks"][0]["policies"]:
        policy["seconds"] = [sample * 3 for sample in policy["seconds"]]


def test_time_of_another_machine_is_inconclusive() -> None:
    assert Outcome.INCONCLUSIVE is compared(slow_elsewhere).outcome
    assert Outcome.REGRESSED is compared(slow_elsewhere, new_failing_check).outcome


def on_mooncake(record: Data) -> None:
    record["store"] = record["results"][0]["store"] = "mooncake"


def over_rdma(record: Data) -> None:
    record["store_settings"]["protocol"] = "rdma"


def fast(record: Data) -> None:
    runs = [rank["policies"] for result in record.get("results", ()) for rank in result["ranks"]]
    for holder in chain(record.get("series", ()), *runs):
        for name in holder.keys() & {"seconds", "store_seconds", "key_seconds"}:
            holder[name] = [0.01 * sample for sample in holder[name]]


@pytest.mark.parametrize(("kind", "change"), [("run", on_mooncake), ("bench", over_rdma)])
def test_time_on_another_store_is_inconclusive_not_better(kind: str, change: Callable[[Data], None]) -> None:
    """A store in this process says nothing of one behind a network, in either direction."""
    assert Outcome.IMPROVED is compared(fast, kind=kind).outcome
    for to_baseline in (False, True):
        comparison = compared(fast, change, kind=kind, to_baseline=to_baseline)
        assert Outcome.INCONCLUSIVE is comparison.outcome
        assert {"measured on another store"} == {finding.why for finding in comparison.findings}


def test_a_counted_baseline_leaves_time_alone() -> None:
    assert Outcome.PASS is compared(counted, to_baseline=True).outcome


def test_the_worst_outcome_stands_for_all() -> None:
    order = ["pass", "improved", "inconclusive", "not comparable", "regressed"]
    assert order == [outcome.value for outcome in Outcome]
    for index, name in enumerate(order):
        assert name == worst(map(Outcome, order[: index + 1])).value
