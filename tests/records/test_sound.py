from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hicache_bench.errors import InputError
from hicache_bench.records.io import read_record
from hicache_bench.records.kinds import KINDS
from hicache_bench.records.sound import check_sound
from tests.records.changes import Data, account_of, changed, reads_the_window, renamed
from tests.records.golden import golden_record
from tests.workflows.runs import PRESETS, cached_run

Change = Callable[[Data], None]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_record_agrees_with_itself(kind: str) -> None:
    check_sound(golden_record(kind))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_run_agrees_with_itself(preset: str) -> None:
    check_sound(json.loads(json.dumps(cached_run(preset, 1024).to_dict())))


def test_a_change_that_keeps_the_sums_is_a_figure_like_any_other() -> None:
    check_sound(changed(golden_record("run"), reads_the_window))


def total(record: Data) -> Any:
    return record["results"][0]["policies"][1]


def policy(record: Data) -> Any:
    return record["results"][0]["ranks"][0]["policies"][1]


def less_read_in_all(record: Data) -> None:
    total(record)["read"]["num_bytes"] = 0


def less_read_by_a_rank(record: Data) -> None:
    policy(record)["read"]["objects"] -= 1


def less_read_of_a_pool(record: Data) -> None:
    account_of(record, "selective", "swa")["read"]["num_bytes"] -= 1


def not_skipped_any_more(record: Data) -> None:
    account_of(record, "selective", "swa")["skipped"].clear()


def below_zero(record: Data) -> None:
    account = account_of(record, "selective", "swa")
    account["missed"]["pages"] = -1
    account["total"]["pages"] -= 1


def wasted_beyond_what_was_read(record: Data) -> None:
    account_of(record, "selective", "swa")["wasted"]["pages"] = 1 << 20


def used_beyond_the_hit(record: Data) -> None:
    policy(record)["used_tokens"] += 64


def less_stored_than_written(record: Data) -> None:
    record["results"][0]["stored"]["num_bytes"] -= 1


def more_stored_than_there_is(record: Data) -> None:
    record["results"][0]["stored"]["objects"] *= 2


def saved_below_zero(record: Data) -> None:
    record["results"][0]["ranks"][0]["saved"][0]["existing"]["pages"] = -1


def all_ranks_use_more_than_each(record: Data) -> None:
    total(record)["used_tokens"] += 64


def all_ranks_hit_less_than_each(record: Data) -> None:
    total(record)["hit_tokens"] -= 64


def hit_beyond_the_prefix(record: Data) -> None:
    for holder in (total(record), policy(record)):
        holder["hit_tokens"] = 1 << 20


def arrived_beyond_what_is_used(record: Data) -> None:
    policy(record)["fulfilled_tokens"] = policy(record)["used_tokens"] + 64


def needed_below_zero(record: Data) -> None:
    account_of(record, "selective", "swa")["needed"]["pages"] = -1


def needed_in_part_of_a_page(record: Data) -> None:
    account_of(record, "selective", "swa")["needed"]["num_bytes"] += 1


def units_of_another_size(record: Data) -> None:
    record["pools"][0]["unit_bytes"] = 1


def nothing_done(record: Data) -> None:
    record["results"] = []


def no_rank(record: Data) -> None:
    record["results"][0]["ranks"] = []


def no_policy(record: Data) -> None:
    record["results"][0]["policies"] = []


def a_policy_of_one_rank_gone(record: Data) -> None:
    del record["results"][0]["ranks"][0]["policies"][0]


def a_length_twice(record: Data) -> None:
    """The gate would take the second one for a length that the baseline lacks."""
    record["results"].append(record["results"][0])


def a_pool_twice(record: Data) -> None:
    policy(record)["pools"].append(policy(record)["pools"][0])


def a_failure_called_ok(record: Data) -> None:
    record["results"][0]["checks"][0]["passed"] = False


def another_status(record: Data) -> None:
    record["status"] = "fine"


def no_name(record: Data) -> None:
    record["preset"] = {}


def time_before_it_began(record: Data) -> None:
    policy(record)["seconds"] = [-1.0] * 6


FAULTS: list[tuple[Change, str]] = [
    (less_read_in_all, "read by all ranks is 0 bytes, and its parts add up to"),
    (less_read_by_a_rank, "read by all ranks is .* objects"),
    (less_read_of_a_pool, "read of all pools is .* bytes"),
    (not_skipped_any_more, "swa: total is 128 pages, and its parts add up to 8"),
    (below_zero, "swa: pages below zero"),
    (wasted_beyond_what_was_read, "swa: more pages are wasted than read"),
    (used_beyond_the_hit, r"8256 tokens are used, and 8192 were hit"),
    (less_stored_than_written, "8192 tokens: .* bytes are stored, where .* were written and 0 were there"),
    (more_stored_than_there_is, "8192 tokens: .* objects are stored"),
    (saved_below_zero, "8192 tokens: pages saved below zero"),
    (all_ranks_use_more_than_each, r"used_tokens of all ranks is 8,256, and the least of them 8,192"),
    (all_ranks_hit_less_than_each, r"hit_tokens of all ranks is 8,128, and the least of them 8,192"),
    (hit_beyond_the_prefix, r"1048576 tokens were hit, of 8192"),
    (arrived_beyond_what_is_used, r"8256 tokens arrived, and 8192 are used"),
    (needed_below_zero, "swa: pages below zero"),
    (needed_in_part_of_a_page, "swa: needed is no whole pages of the pool"),
    (units_of_another_size, "a unit of pool kv has 1 bytes, and its objects"),
    (nothing_done, "there are no results"),
    (no_rank, "there are no ranks at 8192 tokens"),
    (no_policy, "there are no policies at 8192 tokens"),
    (a_policy_of_one_rank_gone, "the policies are"),
    (a_length_twice, "8192 is twice among the results"),
    (a_pool_twice, "is twice among the pools"),
    (a_failure_called_ok, "its status is ok, and the check .* failed"),
    (another_status, "its status is 'fine'"),
    (no_name, "None is no name of a preset"),
    (time_before_it_began, "seconds below zero"),
]


@pytest.mark.parametrize(("change", "words"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_contradiction_is_named(change: Change, words: str, tmp_path: Path) -> None:
    record = changed(golden_record("run"), change)
    with pytest.raises(InputError, match=f"it contradicts itself: .*{words}"):
        check_sound(record)
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    with pytest.raises(
        InputError, match=rf"cannot use record .*record\.json': it contradicts itself.*{words}"
    ):
        read_record(path)


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/x", "a b", "a\x1b[31m", "a\n::error::x", "", "\ud800", "x" * 65]
)
def test_a_name_that_could_be_something_else_is_refused(name: str) -> None:
    """It becomes the file name of a baseline, and a line of a terminal and of a job's log."""
    with pytest.raises(InputError, match="is no name of a preset"):
        check_sound(changed(golden_record("run"), renamed(name)))
    with pytest.raises(InputError, match="is no name of a preset"):
        check_sound({**golden_record("roundtrip"), "presets": {name: "0" * 64}})


@pytest.mark.parametrize("kind", ["bench", "roundtrip"])
def test_a_failure_is_found_wherever_a_kind_keeps_its_checks(kind: str) -> None:
    record = golden_record(kind)
    holder = record if kind == "bench" else record["proofs"][0]
    holder["checks"][0]["passed"] = False
    with pytest.raises(InputError, match="its status is ok, and the check"):
        check_sound(record)
    check_sound({**record, "status": "failed"})


HOLD = [
    ("8192", "8192"),
    ("32", "32: 20 used + 12 timeout"),
    ("at least 1", "1"),
    ("at least one", "4"),
    ("at most 0.0234", "6.1e-05"),
    ("at most 10 s", "9.99 s"),
    ("up to 10", "0.003"),
    ("in this order", "64, 64, 128"),
    ("StoreUnavailableError … start one", "StoreUnavailableError: no master; start one"),
]
"""What commands write as expected and found of a check that passed."""

CONTRADICT = [
    ("8192", "7"),
    ("none", ""),
    ("1", "10"),
    ("32", "20: 20 used"),
    ("at least 1", "0"),
    ("at least one", "none"),
    ("at most 0.0234", "0.0235"),
    ("at most 0.0234", "nan"),
    ("at most 10 s", "killed after 9 s"),
    ("up to 10", "10.001"),
    ("in this order", "64, 128, 64"),
    ("in this order", ""),
    ("StoreUnavailableError … start one", "no error"),
]


def with_check(expected: str, actual: str, *, passed: bool) -> Data:
    record = golden_record("roundtrip")
    record["proofs"][0]["checks"][0] |= {"expected": expected, "actual": actual, "passed": passed}
    return record


@pytest.mark.parametrize(("expected", "actual"), HOLD)
def test_a_check_that_holds_is_believed(expected: str, actual: str) -> None:
    check_sound(with_check(expected, actual, passed=True))


@pytest.mark.parametrize(("expected", "actual"), CONTRADICT)
@pytest.mark.parametrize("status", ["ok", "failed"])
def test_a_check_that_passed_and_did_not_find_it_is_not_believed(
    expected: str, actual: str, status: str
) -> None:
    record = with_check(expected, actual, passed=True) | {"status": status}
    with pytest.raises(InputError, match=r"the check .* passed, and expected .* was found"):
        check_sound(record)
    check_sound(with_check(expected, actual, passed=False) | {"status": "failed"})


def test_samples_of_a_bench_are_looked_at() -> None:
    record = golden_record("bench")
    record["series"][0]["store_seconds"] = [-0.5]
    with pytest.raises(InputError, match="store_seconds below zero"):
        check_sound(record)


def test_a_record_with_failed_checks_may_contradict_itself() -> None:
    """That is what its checks say, and it must be possible to look at it."""
    check_sound({**changed(golden_record("run"), not_skipped_any_more), "status": "failed"})


def test_a_number_that_is_none_is_left_to_the_gate() -> None:
    record = golden_record("run")
    account_of(record, "selective", "swa")["read"]["num_bytes"] = math.nan
    check_sound(record)
