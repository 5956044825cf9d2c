from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import ConfigError, InputError
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.records.replay import ReplayRecord, ReplayResult
from hicache_bench.trace.paths import OutputSave
from hicache_bench.trace.tier import Eviction
from hicache_bench.workflows.replay import replay_trace
from hicache_bench.workflows.replay_options import ReplayArguments, parse_replay
from hicache_bench.workflows.variant import VariantOptions, apply_options
from tests.report.replays import TIMES
from tests.trace.traces import plain_prompts


def replayed(preset: str = "deepseek-v4-flash", **changes: Any) -> ReplayRecord:
    variant = apply_options(load_model(preset), VariantOptions(tp=changes.pop("tp", 1)))
    direct = {
        name: changes.pop(name) for name in ("trace", "times") if not isinstance(changes.get(name, ""), str)
    }
    arguments = ReplayArguments(**{"trace": "multi-turn", "capacity": "1GiB,2GiB,inf", **changes})
    options = parse_replay(variant, arguments)
    return replay_trace(replace(options, **direct), lambda _: None)


def row(
    record: ReplayRecord, capacity: int | None, policy: TransferPolicy, save: str | None = None
) -> ReplayResult:
    gib = None if capacity is None else capacity << 30
    return next(
        result
        for result in record.results
        if (result.capacity_bytes, result.policy) == (gib, policy.value)
        and save in (None, result.save_policy)
    )


def resident(result: ReplayResult) -> int:
    return sum(pool.resident_bytes for pool in result.summary.pools)


def test_a_selective_save_lets_the_same_memory_hold_more_prefixes() -> None:
    record = replayed()
    assert 3 * 4 == len(record.results)
    short = "state=every:4096,window=trailing:+2"
    for capacity in (1, 2):
        keeping_all = row(record, capacity, TransferPolicy.SELECTIVE)
        keeping_less = row(record, capacity, TransferPolicy.SELECTIVE, short)
        assert keeping_less.summary.tokens.hit > 1.2 * keeping_all.summary.tokens.hit
    unbounded = row(record, None, TransferPolicy.SELECTIVE)
    less = row(record, None, TransferPolicy.SELECTIVE, short)
    assert 1.9 * resident(less) < resident(unbounded)


def test_dense_reads_more_for_the_same_hits() -> None:
    record = replayed(capacity="inf")
    dense, selective = (
        row(record, None, policy) for policy in (TransferPolicy.DENSE, TransferPolicy.SELECTIVE)
    )
    assert dense.summary.tokens == selective.summary.tokens
    read = [sum(pool.read_bytes for pool in result.summary.pools) for result in (dense, selective)]
    assert read[0] > 3 * read[1]


def test_what_no_capacity_changes_is_one_pass_and_the_rest_is_simulated() -> None:
    methods = {
        (result.policy, result.save_policy.endswith("all")): result.method for result in replayed().results
    }
    assert {
        ("dense", True): "stack",
        ("hit_policy", True): "simulated",
        ("selective", True): "simulated",
        ("selective", False): "simulated",
    } == methods
    assert {"stack"} == {result.method for result in replayed("deepseek-v3").results}
    assert {"simulated"} == {
        result.method for result in replayed("deepseek-v3", eviction="fifo", capacity="1GiB").results
    }


def test_policies_that_behave_alike_are_run_once() -> None:
    said: list[str] = []
    variant = apply_options(load_model("deepseek-v4-flash"), VariantOptions())
    options = parse_replay(variant, ReplayArguments(trace="multi-turn", capacity="4GiB,4TiB,8TiB,inf"))
    replay_trace(options, said.append)
    # At 4 GiB three of four; at 4 TiB nothing is evicted, so that more room changes nothing.
    assert 1 + 3 + 3 == len(said)


def test_more_room_never_hits_less_under_lru() -> None:
    record = replayed("gpt-oss-20b", capacity="256MiB,1GiB,4GiB,inf", policy="dense")
    hits = [result.summary.tokens.hit for result in record.results]
    assert sorted(hits) == hits
    assert hits[0] < hits[-1]


def test_a_shorter_checkpoint_interval_hits_more_and_writes_more() -> None:
    record = replayed(
        "qwen3-next-80b-a3b", capacity="inf", policy="selective", save_policy="state=every:1k|4k|last"
    )
    hits = [result.summary.tokens.hit for result in record.results]
    written = [sum(pool.written_bytes for pool in result.summary.pools) for result in record.results]
    assert hits[0] > hits[1] > hits[2]
    assert written[0] > written[1] > written[2]


def test_outputs_are_followed_where_the_trace_has_their_ids() -> None:
    without, with_outputs = (
        replayed("deepseek-v3", capacity="inf", include_output=outputs.value)
        for outputs in (OutputSave.NONE, OutputSave.ALL)
    )
    assert without.results[0].summary.tokens.hit < with_outputs.results[0].summary.tokens.hit
    assert any("decode KV is not modelled; the trace has its ids" in note for note in without.notes)
    assert not with_outputs.notes
    with pytest.raises(InputError, match="no output_hash_ids"):
        replayed("deepseek-v3", trace=plain_prompts(600, 600), include_output="all")
    assert any(
        "no output_hash_ids to follow it by" in note
        for note in replayed("deepseek-v3", trace=plain_prompts(600, 600)).notes
    )


@pytest.mark.parametrize("eviction", Eviction, ids=str)
def test_ranks_read_a_replicated_pool_each_and_store_it_once(eviction: Eviction) -> None:
    one, four = (
        replayed("deepseek-v3", tp=tp, capacity="8GiB", eviction=eviction.value, policy="selective")
        for tp in (1, 4)
    )
    (alone,), (shared,) = one.results[0].summary.pools, four.results[0].summary.pools
    assert alone.written_bytes == shared.written_bytes
    assert 4 * alone.read_bytes == shared.read_bytes


def test_a_page_that_does_not_divide_the_block_is_refused() -> None:
    with pytest.raises(InputError, match="no whole number of pages of 64"):
        replayed("deepseek-v3", trace=plain_prompts(600, block_tokens=96))


def test_e16_units_longer_than_any_prompt_are_told() -> None:
    record = replayed("deepseek-v3", trace=plain_prompts(40, 50, block_tokens=64))
    assert any(note.startswith("alignment 64 > prompt 50") for note in record.notes)
    assert 2 == record.results[0].summary.requests.skipped


def test_pools_that_no_engine_can_store_are_refused() -> None:
    with pytest.raises(ConfigError):
        replayed("llama-3.1-8b", tp=3)


def test_a_record_is_plain_data_with_its_definitions() -> None:
    record = replayed(times=TIMES)
    plain = json.loads(json.dumps(record.to_dict(), allow_nan=False))
    assert ("replay", 1, "ok") == (plain["kind"], plain["schema_version"], plain["status"])
    assert record.subject.startswith("replay-deepseek-v4-flash-")
    assert "at least one token" in plain["hit_definition_text"]
    assert {"counted", "modeled"} == set(plain["evidence"].values())
    summary = plain["results"][0]["summary"]
    assert set(summary["ttft"]["seconds"]["no_overlap"]) == {"p50", "p90", "p99", "mean"}
    assert 150 == summary["ttft"]["cut_requests"]
    assert ("wire", 8) == (plain["timing"]["link"], plain["timing_basis"]["ranks"])
    assert "300 prompts" in plain["notes"]
    assert {"swa", "deepseek_v4_c4"} < {pool["pool"] for pool in summary["pools"]}
