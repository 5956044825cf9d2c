from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from hicache_bench.records import schema
from hicache_bench.records.schema import SCHEMA_VERSION, Check, Evidence, PolicyResult, RunRecord
from tests.workflows.runs import cached_run


def test_the_first_row_of_the_format_history_is_the_version_that_is_written() -> None:
    assert schema.__doc__ is not None
    versions = [int(row) for row in re.findall(r"^(\d+) ", schema.__doc__, flags=re.MULTILINE)]
    assert list(range(SCHEMA_VERSION, 0, -1)) == versions
    assert SCHEMA_VERSION == cached_run("kitchen-sink", 1024).schema_version


def test_the_order_on_disk_is_part_of_the_format() -> None:
    data = cached_run("kitchen-sink", 1024).to_dict()
    assert [
        "schema_version", "kind", "status", "created_utc", "command", "tool_version", "libraries",
        "environment", "preset", "preset_digest", "profile", "deployment", "key_scheme", "namespace",
        "model_name", "extra_backend_tag", "adapter", "salt", "token_seed", "save_policy",
        "local_prefix_tokens", "queries", "store", "pools", "sharing", "results",
    ] == list(data)  # fmt: skip
    assert [
        "tokens", "pages", "evidence", "evidence_reason", "store", "store_settings", "memory_bytes",
        "stored", "policies", "ranks", "checks", "warnings",
    ] == list(data["results"][0])  # fmt: skip
    assert [
        "rank", "saved", "save_seconds", "lookup_seconds", "lookup_keys", "lookup_calls", "policies",
    ] == list(data["results"][0]["ranks"][0])  # fmt: skip
    assert ["policy", "hit_tokens", "used_tokens", "read"] == list(data["results"][0]["policies"][0])
    assert ["tp", "pp", "cp", "cp_sharded", "dcp", "tp_lcm", "layout", "draft"] == list(data["deployment"])
    assert ["pages", "objects", "num_bytes"] == list(data["results"][0]["stored"])


def leaves(data: object) -> Iterator[object]:
    if isinstance(data, dict):
        assert all(type(key) is str for key in data)
        for value in data.values():
            yield from leaves(value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            yield from leaves(value)
    else:
        yield data


def test_a_record_is_plain_data() -> None:
    """No enum, no numpy number: a subclass of str or int would print differently elsewhere."""
    for record in (
        cached_run("kitchen-sink", 1024),
        cached_run("kitchen-sink", 1024, store="local"),
        cached_run("kitchen-sink", 1024, tp=2, pp=2, salt="s"),
    ):
        assert {type(leaf) for leaf in leaves(record.to_dict())} <= {str, int, float, bool, type(None)}
        json.dumps(record.to_dict(), allow_nan=False)


def test_failed_checks_are_those_of_all_lengths() -> None:
    record = cached_run("kitchen-sink", 1024, 2048)
    assert () == record.failed_checks
    bad = [Check(f"check {index}", "1", "2", passed=False) for index in range(2)]
    results = tuple(
        replace(result, checks=(*result.checks, check))
        for result, check in zip(record.results, bad, strict=True)
    )
    assert tuple(bad) == replace(record, results=results).failed_checks


def samples(record: RunRecord) -> list[PolicyResult]:
    return [policy for result in record.results for rank in result.ranks for policy in rank.policies]


def test_raw_samples_are_kept_and_counted_figures_have_none() -> None:
    moved = cached_run("kitchen-sink", 1024, store="local", repeat=4)
    assert {4} == {len(policy.seconds) for policy in samples(moved)}
    counted = cached_run("kitchen-sink", 1024)
    assert {0} == {len(policy.seconds) for policy in samples(counted)}
    (result,) = counted.results
    (rank,) = result.ranks
    assert (Evidence.COUNTED.value, None, None) == (result.evidence, rank.save_seconds, rank.lookup_seconds)
