from __future__ import annotations

from copy import deepcopy

import pytest

from hicache_bench.errors import InputError
from hicache_bench.records.compare import compare
from hicache_bench.records.decode import decode
from hicache_bench.records.judge import Outcome
from hicache_bench.records.kinds import KINDS
from hicache_bench.records.merge import merged
from hicache_bench.records.thresholds import DEFAULT_THRESHOLDS
from tests.records.changes import Data, changed, other_preset, reads_the_window, with_times
from tests.records.golden import golden_record


def part(*changes, samples: int = 3, day: int = 1) -> Data:
    record = changed(golden_record("run"), *changes)
    with_times(record, 1 + day / 1000, samples=samples)
    record["created_utc"] = f"2026-01-0{day}T00:00:00.000000Z"
    return record


def samples_of(record: Data) -> list[int]:
    return [len(policy["seconds"]) for policy in record["results"][0]["ranks"][0]["policies"]]


def test_samples_of_several_runs_stand_together() -> None:
    whole = merged([part(day=2, samples=4), part(day=1, samples=3)])
    assert [7, 7, 7] == samples_of(whole)
    decode(KINDS["run"].record, whole)
    policy = whole["results"][0]["ranks"][0]["policies"][0]
    assert part(samples=3)["results"][0]["ranks"][0]["policies"][0]["seconds"] == policy["seconds"][:3]
    assert "2026-01-02T00:00:00.000000Z" == whole["created_utc"]


def test_merged_samples_are_enough_to_judge_time() -> None:
    slower = [part(lambda record: with_times(record, 2, samples=3), day=day) for day in (1, 2)]
    fast = [part(), part(day=2)]
    assert Outcome.INCONCLUSIVE is compare(fast[0], slower[0], DEFAULT_THRESHOLDS).outcome
    assert Outcome.REGRESSED is compare(merged(fast), merged(slower), DEFAULT_THRESHOLDS).outcome


def test_lengths_stand_side_by_side() -> None:
    other = part(day=2)
    other["results"][0]["tokens"] = 4096
    whole = merged([part(), other])
    assert [4096, 8192] == [result["tokens"] for result in whole["results"]]
    assert [3, 3, 3] == samples_of(whole)


def test_one_record_stays_as_it_is() -> None:
    assert part() == merged([part()])


def test_a_failure_stays_one() -> None:
    failed = part()
    failed["status"] = "failed"
    assert "failed" == merged([failed, part(day=2)])["status"]


def elsewhere(record: Data) -> None:
    record["environment"]["processors"] = 1024


def newer(record: Data) -> None:
    record["tool_version"] = "9.9.9"


def of_counts(record: Data) -> None:
    record["results"][0]["evidence"] = "counted"


def one_more_key(record: Data) -> None:
    record["results"][0]["ranks"][0]["lookup_keys"] += 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_preset, "preset_digest: baseline 3570ae36d409, new 0123456789ab"),
        (elsewhere, "environment"),
        (newer, "tool_version"),
        (of_counts, "at 8192 tokens the evidence differs: measured and counted"),
        (one_more_key, "disagree in 1 figures .* is 8192, the only rank, lookup_keys; compare"),
        (reads_the_window, r"disagree in \d+ figures.*8192, .*hicache-bench gate"),
    ],
)
def test_records_that_differ_are_refused(change, message: str) -> None:
    with pytest.raises(InputError, match=message):
        merged([part(), part(change, day=2)])


def test_only_runs_are_merged() -> None:
    with pytest.raises(InputError, match="of kind 'bench'"):
        merged([part(), golden_record("bench")])
    with pytest.raises(InputError, match="nothing to merge"):
        merged([])


def test_the_same_samples_do_not_become_more() -> None:
    """Three samples, twice, would be enough to call a time significant that was measured three times."""
    once = part()
    both = merged([once, part(day=2)])
    for again in (once, {**once, "created_utc": "2026-01-09T00:00:00.000000Z"}):
        for parts in ([once, again], [both, again], [again, both]):
            with pytest.raises(
                InputError, match=r"at 8192 tokens the same samples are there twice.*each run once"
            ):
                merged(parts)
    counts = [part(samples=0), part(samples=0)]
    assert [0, 0, 0] == samples_of(merged(counts))


def test_what_is_merged_is_left_alone() -> None:
    parts = [part(), part(day=2)]
    before = deepcopy(parts)
    merged(parts)
    assert before == parts
