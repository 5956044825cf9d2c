from __future__ import annotations

import getpass
import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import ConfigError, InputError, MemoryBudgetError
from hicache_bench.pools.names import Layout
from hicache_bench.records.io import read_record, write_record
from hicache_bench.records.schema import PoolAccount
from hicache_bench.units import GIB, KIB, MIB
from hicache_bench.workflows import run as workflow
from hicache_bench.workflows.environment import reduced_command
from hicache_bench.workflows.stores import arena_bytes
from tests.workflows.runs import PRESETS, cached_run, only_length, policy_of, read_bytes, run_now

K = 1024
FIGURES = [
    # preset, prefix, pages, dense, hit_policy, selective
    ("deepseek-v4-flash", 8 * K, 32, 293_062_656, 40_102_656, 40_102_656),
    ("deepseek-v4-flash", 128 * K, 512, 4_689_002_496, 519_242_496, 519_242_496),
    ("gpt-oss-120b", 8 * K, 128, 603_979_776, 306_708_480, 306_708_480),
    ("llama-3.1-8b", 8 * K, 128, 1_073_741_824, 1_073_741_824, 1_073_741_824),
    ("llama-4-scout", 8 * K, 128, 1_610_612_736, 1_610_612_736, 402_653_184),
    ("deepseek-v3.2", 8 * K, 128, 641_630_208, 641_630_208, 641_630_208),
]
MOVED_TOKENS = 1024


@pytest.mark.parametrize(("preset", "tokens", "pages", "dense", "hit_policy", "selective"), FIGURES)
def test_the_published_figures_come_out(
    preset: str, tokens: int, pages: int, dense: int, hit_policy: int, selective: int
) -> None:
    record = cached_run(preset, tokens)
    assert (dense, hit_policy, selective) == read_bytes(record)
    result = only_length(record)
    assert (tokens, pages, "counted") == (result.tokens, result.pages, result.evidence)
    assert all(tokens == policy.used_tokens == policy.hit_tokens for policy in result.policies)


def test_the_main_job_really_moves_its_bytes() -> None:
    record = cached_run("deepseek", 8 * K, store="local", repeat=2)
    assert (293_062_656, 40_102_656, 40_102_656) == read_bytes(record)
    result = only_length(record)
    assert ("measured", None, "ok", ()) == (
        result.evidence, result.evidence_reason, record.status, record.failed_checks
    )  # fmt: skip
    (rank,) = result.ranks
    for policy in rank.policies:
        assert 2 == len(policy.seconds) == len(policy.store_seconds)
        assert all(
            0 < inside <= whole for inside, whole in zip(policy.store_seconds, policy.seconds, strict=True)
        )
    assert rank.save_seconds is not None
    # Of the lookup one check, and one for each policy; seven for each of two samples of each policy.
    assert 1 + 3 + 7 * 2 * 3 == len(result.checks)
    assert 293_062_656 < result.memory_bytes < 2 * GIB


@pytest.mark.parametrize("preset", PRESETS)
def test_dense_is_all_that_was_saved(preset: str) -> None:
    record = cached_run(preset, 8 * K)
    result = only_length(record)
    assert ("ok", ()) == (record.status, record.failed_checks)
    (rank,) = result.ranks
    written = sum(pool.written.num_bytes for pool in rank.saved)
    assert written == result.stored.num_bytes == policy_of(record, "dense").read.num_bytes
    assert sum(pool.written.objects for pool in rank.saved) == result.stored.objects
    assert all(not pool.existing.objects and not pool.failed.objects for pool in rank.saved)
    dense, hit_policy, selective = read_bytes(record)
    assert dense >= hit_policy >= selective > 0


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_counted_is_what_is_moved(preset: str) -> None:
    moved, counted = (cached_run(preset, MOVED_TOKENS, store=store) for store in ("local", "count"))
    assert ("measured", "counted") == (only_length(moved).evidence, only_length(counted).evidence)
    assert ((), ()) == (moved.failed_checks, counted.failed_checks)
    assert only_length(moved).stored == only_length(counted).stored
    assert only_length(moved).policies == only_length(counted).policies
    ((moved_rank,), (counted_rank,)) = only_length(moved).ranks, only_length(counted).ranks
    assert moved_rank.saved == counted_rank.saved
    for one, other in zip(moved_rank.policies, counted_rank.policies, strict=True):
        timed = replace(other, evidence=one.evidence, seconds=one.seconds, store_seconds=one.store_seconds)
        assert timed == one


@pytest.mark.parametrize("preset", PRESETS)
def test_every_account_balances(preset: str) -> None:
    def parts(pool: PoolAccount) -> list[int]:
        return [pool.read.num_bytes, pool.missed.num_bytes, pool.failed.num_bytes,
                *(amount.num_bytes for amount in pool.skipped.values())]  # fmt: skip

    result = only_length(cached_run(preset, 8 * K))
    (rank,) = result.ranks
    for policy in rank.policies:
        assert policy.read.num_bytes == sum(pool.read.num_bytes for pool in policy.pools)
        for pool in policy.pools:
            assert pool.total.num_bytes == sum(parts(pool))
            assert pool.needed.num_bytes == pool.read.num_bytes
            assert (0, False) == (pool.wasted.num_bytes, pool.degraded)
        assert result.stored.num_bytes == sum(pool.total.num_bytes for pool in policy.pools)


@pytest.mark.parametrize("layout", [Layout.PAGE_FIRST_DIRECT, Layout.PAGE_HEAD])
def test_a_layout_changes_no_figure(layout: Layout) -> None:
    record = run_now("kitchen-sink", MOVED_TOKENS, store="local", layout=layout.value)
    assert () == record.failed_checks
    assert read_bytes(cached_run("kitchen-sink", MOVED_TOKENS)) == read_bytes(record)
    assert {layout.value} == {pool.layout for pool in record.pools if pool.decision == "register"}
    assert layout.value == record.deployment["layout"]


def test_layer_first_is_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match="use page_first"):
        run_now("kitchen-sink", MOVED_TOKENS, layout="layer_first")


def test_a_length_that_does_not_fit_is_counted_and_says_why() -> None:
    record = run_now("kitchen-sink", 512, 64 * K, store="local", memory_bytes=256 * MIB)
    short, long = record.results
    assert ("measured", "counted") == (short.evidence, long.evidence)
    assert short.evidence_reason is None
    assert long.evidence_reason is not None
    assert "256.0 MiB may be taken" in long.evidence_reason
    assert long.memory_bytes > 256 * MIB
    assert () == record.failed_checks


@pytest.mark.parametrize(("spare", "evidence"), [(0, "measured"), (-1, "counted")])
def test_what_is_moved_takes_host_pools_and_store_and_no_more(spare: int, evidence: str) -> None:
    """The limit is exact, and holds the store's arena as well as one set of host pools."""
    needed = only_length(cached_run("kitchen-sink", 512, store="local")).memory_bytes
    assert needed > only_length(cached_run("kitchen-sink", 512)).stored.num_bytes + arena_bytes(1)
    record = run_now("kitchen-sink", 512, store="local", memory_bytes=needed + spare)
    assert evidence == only_length(record).evidence


def test_a_segment_that_is_asked_for_counts_as_memory() -> None:
    record = run_now("kitchen-sink", 512, store="mooncake", segment_bytes=1 << 50)
    (result,) = record.results
    assert ("counted", "count") == (result.evidence, result.store)
    assert result.memory_bytes > 1 << 50


def test_a_length_that_is_named_twice_is_run_once() -> None:
    assert [1024, 512] == [result.tokens for result in run_now("kitchen-sink", 1024, 512, 1024).results]


def test_each_length_names_the_store_it_ran_on() -> None:
    record = run_now("kitchen-sink", 512, 64 * K, store="local", memory_bytes=256 * MIB)
    short, long = record.results
    assert ("local", "local", "count") == (record.store, short.store, long.store)
    assert "capacity_bytes" in short.store_settings
    assert {} == long.store_settings


def test_memory_that_the_machine_lacks_is_refused() -> None:
    with pytest.raises(MemoryBudgetError, match=r"--memory 1024 TiB is more than the .* ask for less"):
        run_now("kitchen-sink", 512, store="local", memory_bytes=1 << 50)


def test_a_machine_without_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "usable_memory_bytes", lambda: 64 * KIB)
    assert "counted" == only_length(run_now("kitchen-sink", 512, store="local")).evidence


@pytest.mark.parametrize(("preset", "tokens"), [("llama-3.1-8b", 63), ("deepseek", 255), ("deepseek", 0)])
def test_a_prefix_shorter_than_a_page_is_refused(preset: str, tokens: int) -> None:
    page = load_model(preset).spec.page_tokens
    with pytest.raises(InputError, match=f"shorter than a page of {page}; give --tokens {page} or more"):
        run_now(preset, tokens)


def test_one_page_is_enough_and_a_rest_is_left_out() -> None:
    assert 1 == only_length(run_now("deepseek", 256, store="local")).pages
    rest = only_length(cached_run("llama-3.1-8b", 64 * 3 + 63))
    assert (3, 192) == (rest.pages, rest.policies[0].used_tokens)


@pytest.mark.parametrize("store", ["local", "moon"])
def test_a_store_that_cannot_be_is_refused_even_if_nothing_would_fit(store: str) -> None:
    with pytest.raises(InputError, match=r"unknown store|--master is for --store mooncake"):
        run_now("deepseek", 8 * K, store=store, master="127.0.0.1:1", memory_bytes=0)


@pytest.mark.parametrize("preset", ["deepseek", "gpt-oss-120b", "qwen3-next-80b-a3b"])
def test_the_key_scheme_changes_names_and_no_bytes(preset: str) -> None:
    record = cached_run(preset, MOVED_TOKENS, store="local", key_scheme="sglang")
    assert ("sglang", None, ()) == (record.key_scheme, record.namespace, record.failed_checks)
    assert read_bytes(cached_run(preset, MOVED_TOKENS)) == read_bytes(record)


def test_a_pool_that_sglang_cannot_key_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "open_store", None)
    with pytest.raises(ConfigError, match="use --key-scheme namespaced"):
        run_now("kitchen-sink", MOVED_TOKENS, key_scheme="sglang")


@pytest.mark.parametrize("preset", ["deepseek", "kitchen-sink", "llama-4-scout"])
def test_a_local_prefix_is_not_read_again(preset: str) -> None:
    moved, counted = (
        cached_run(preset, MOVED_TOKENS, store=store, local_prefix_tokens=512) for store in ("local", "count")
    )
    assert ((), ()) == (moved.failed_checks, counted.failed_checks)
    assert read_bytes(moved) == read_bytes(counted)
    whole = cached_run(preset, MOVED_TOKENS)
    dense = policy_of(moved, "dense")
    local = sum(
        pool.skipped["local_prefix"].num_bytes for pool in dense.pools if "local_prefix" in pool.skipped
    )
    assert read_bytes(whole)[0] - local == dense.read.num_bytes
    assert local > 0
    assert all(few <= many for few, many in zip(read_bytes(moved), read_bytes(whole), strict=True))
    assert MOVED_TOKENS == dense.used_tokens


@pytest.mark.parametrize("local_prefix", [MOVED_TOKENS, 4 * MOVED_TOKENS])
def test_a_prefix_that_is_local_as_a_whole_reads_nothing(local_prefix: int) -> None:
    record = run_now(
        "deepseek-v3.2", MOVED_TOKENS, store="local", local_prefix_tokens=local_prefix, num_queries=1
    )
    assert ((0, 0, 0), ()) == (read_bytes(record), record.failed_checks)


def test_what_a_save_leaves_out_is_no_part_of_dense() -> None:
    every_4k = cached_run("qwen3-next-80b-a3b", 8 * K)
    last, everything = (
        cached_run("qwen3-next-80b-a3b", 8 * K, save_policy=f"state={states}") for states in ("last", "all")
    )
    pages = [next(pool.written.pages for pool in only_length(record).ranks[0].saved if pool.pool == "mamba")
             for record in (last, every_4k, everything)]  # fmt: skip
    assert [1, 2, 128] == pages
    assert read_bytes(last)[0] < read_bytes(every_4k)[0] < read_bytes(everything)[0]
    assert 1 == len({read_bytes(record)[1:] for record in (last, every_4k, everything)})
    assert "state=last,window=all" == last.save_policy


def test_windows_that_are_not_saved_are_not_stored() -> None:
    record = cached_run("deepseek", 8 * K, save_policy="window=trailing:+2")
    saved = {pool.pool: pool.written.pages for pool in only_length(record).ranks[0].saved}
    assert (3, 3, 32) == (saved["swa"], saved["deepseek_v4_c4_state"], saved["deepseek_v4_c4"])
    assert read_bytes(cached_run("deepseek", 8 * K))[1:] == read_bytes(record)[1:]
    assert () == record.failed_checks


def test_a_record_survives_the_disk(tmp_path: Path) -> None:
    record = cached_run("kitchen-sink", MOVED_TOKENS, store="local")
    path = write_record(record, tmp_path)
    assert json.loads(json.dumps(record.to_dict())) == read_record(path)
    assert [path] == list(tmp_path.iterdir())


def test_a_record_does_not_say_where_it_was_made(tmp_path: Path) -> None:
    command = ["hicache-bench", "run", "--preset", str(tmp_path / "mine.yaml"), f"--out={tmp_path}/runs"]
    record = run_now("kitchen-sink", MOVED_TOKENS, store="local", command=reduced_command(command))
    text = write_record(record, tmp_path).read_text()
    assert ("hicache-bench", "run", "--preset", "mine.yaml", "--out=runs") == record.command
    for name in (
        str(tmp_path),
        tmp_path.parent.name,
        socket.gethostname(),
        str(Path.home()),
        str(Path.cwd()),
    ):
        assert f"{name}" not in text
    assert f'"{getpass.getuser()}"' not in text


def test_two_runs_of_one_command_agree_in_all_but_time_and_date() -> None:
    one, other = (run_now("kitchen-sink", MOVED_TOKENS) for _ in range(2))
    assert one.created_utc != other.created_utc
    assert one == replace(other, created_utc=one.created_utc)
