from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import ConfigError
from hicache_bench.models.engine_profile import BY_KIND, SGLANG
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.workflows.footprint import COMPARED_TOKENS, LENGTHS, PAGE_HASH, VariantBytes, count_bytes
from hicache_bench.workflows.model_keys import shards_of
from hicache_bench.workflows.variant import VariantOptions, apply_options
from tests.workflows.runs import PRESETS, cached_run, only_length

GIB = 1 << 30
HIT, SELECTIVE = TransferPolicy.HIT_POLICY, TransferPolicy.SELECTIVE


@cache
def counted(name: str, **options: Any) -> VariantBytes:
    return count_bytes(apply_options(load_model(name), VariantOptions(**options)))


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "gpt-oss-20b", "llama-4-scout", "qwen3-next-80b-a3b"])
def test_a_run_reads_what_is_counted(name: str) -> None:
    result = only_length(cached_run(name, 8192))
    read = {policy.policy: policy.read.num_bytes for policy in result.policies}
    found = counted(name).footprints[8192]
    assert {"dense": found.stored, "hit_policy": found.hit_policy, "selective": found.selective} == read


def test_stored_and_needed_bytes_of_gpt_oss() -> None:  # cases E71: 32 requests of 8,192 tokens
    found = counted("gpt-oss-20b").footprints[8192]
    assert 12 * GIB == 32 * found.stored
    assert "6.09" == f"{32 * found.selective / GIB:.2f}"


def test_replicated_heads_are_stored_by_every_rank() -> None:  # Mooncake's own benchmark: 12.62 GB
    found = counted("qwen3-235b-a22b", tp=8)
    (kv,) = found.pools
    assert (8, 8, 2.0) == (kv.num_ranks, kv.shards, kv.copies)
    assert 2 * 192_512 == found.slopes[HIT].per_token
    assert 192_512 // 4 == found.rank_slopes[HIT].per_token
    assert "12.62" == f"{found.footprints[32 << 10].stored / 1e9:.2f}"


def test_the_index_is_counted() -> None:  # cases E70
    assert 48_068 == counted("deepseek-v3.2", kv_dtype="fp8-packed").slopes[HIT].per_token
    assert 70_272 == counted("deepseek-v3").slopes[SELECTIVE].per_token


def test_fixed_bytes_and_bytes_per_token_are_two_numbers() -> None:
    found = counted("deepseek-v4-flash").slopes[HIT]
    assert (Fraction(998_208, 256), 8_160_000) == (found.per_token, found.fixed)
    assert 0 == counted("llama-3.1-8b").slopes[HIT].fixed


def test_latent_rows_are_shared_and_states_are_not() -> None:  # cases E35
    found = counted("kimi-linear-48b-a3b", tp=2)
    kv, mamba = found.pools
    assert ((1, 516_096, 516_096), (2, 21_708_800, 43_417_600)) == tuple(
        (entry.shards, entry.rank_bytes[1], entry.cluster_bytes) for entry in (kv, mamba)
    )
    alone = counted("kimi-linear-48b-a3b")
    assert alone.footprints == found.footprints
    assert alone.slopes == found.slopes


@pytest.mark.parametrize(
    ("name", "options", "copies"),
    [
        ("deepseek-v3", {"tp": 8}, [1]),
        ("deepseek-v3", {"tp": 4, "dcp": 2}, [1]),  # each rank half of the tokens, in pages twice as long
        ("kimi-linear-48b-a3b", {"tp": 4, "dcp": 2}, [1, 1]),
        ("gpt-oss-20b", {"tp": 16, "pp": 2}, [2, 2]),
        ("llama-3.1-8b", {"tp": 2, "cp": "4:replicated"}, [1]),
        ("llama-3.1-8b", {"tp": 2, "cp": "4:sharded", "profile": "by_kind"}, [1]),
        ("llama-3.1-8b", {"tp": 2, "tp_lcm": 8, "layout": "page_head"}, [1]),
    ],
)
def test_copies_over_one_rank(name: str, options: dict[str, Any], copies: list[int]) -> None:
    found = counted(name, **options)
    assert copies == [entry.copies for entry in found.pools]
    keyed = shards_of(found.variant)
    assert {pool: len(shards) for pool, shards in keyed.items()} == {
        entry.pool.name: entry.shards for entry in found.pools
    }


def test_stages_hold_their_own_layers() -> None:
    found = counted("deepseek-v3", tp=4, pp=2)
    (kv,) = found.pools
    assert (8, 2) == (kv.num_ranks, kv.shards)
    assert (30 * 73_728, 31 * 73_728) == kv.rank_bytes  # 64 tokens x 576 dims x 2 bytes a layer
    assert 4_497_408 == kv.cluster_bytes
    assert 70_272 * 31 / 61 == found.rank_slopes[HIT].per_token


def test_the_engine_keeps_windows_of_gemma_that_by_kind_drops() -> None:
    engine, ideal = (entry.footprint for entry in counted("gemma-3-27b").profiles)
    assert engine is not None
    assert ideal is not None
    assert engine.stored == engine.hit_policy == engine.selective == ideal.stored == 507_904 * COMPARED_TOKENS
    page = 2 * 64 * 16 * 128 * 2
    assert (10 * 512 + 52 * 16) * page == ideal.selective


@pytest.mark.parametrize("name", PRESETS)
def test_by_kind_never_needs_more(name: str) -> None:
    profiles = counted(name).profiles
    assert [SGLANG, BY_KIND] * (SGLANG in load_model(name).served_by) == [entry.profile for entry in profiles]
    if profiles:
        engine, ideal = (entry.footprint for entry in profiles)
        assert engine is not None
        assert ideal is not None
        assert ideal.selective <= engine.selective


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_needed_was_stored_and_dense_is_most(name: str) -> None:
    found = counted(name)
    assert LENGTHS == tuple(found.footprints)
    for footprint in found.footprints.values():
        assert 0 < footprint.selective <= footprint.stored
        assert footprint.hit_policy <= footprint.stored
    keys = [example.key for entry in found.pools for example in entry.keys]
    assert keys
    assert all(PAGE_HASH in key for key in keys)
    for entry in found.pools:
        assert entry.rank_bytes[1] == sum(example.num_bytes for example in entry.keys)


def test_a_grouping_that_cannot_be_is_told_and_the_other_is_counted() -> None:
    found = counted("gemma-3-27b", profile="by_kind", cp="2:sharded")
    engine, ideal = found.profiles
    assert engine.footprint is None
    assert "context-parallel" in (engine.refusal or "")
    assert ideal.footprint is not None


def test_draft_pools_are_counted_where_they_are_asked_for() -> None:
    without, with_draft = counted("qwen3-next-80b-a3b"), counted("qwen3-next-80b-a3b", draft=True)
    assert ["kv", "mamba"] == [entry.pool.name for entry in without.pools]
    assert ["kv", "mamba"] == [entry.pool.name for entry in with_draft.pools]
    apart = counted("qwen3-next-80b-a3b", draft=True, profile="by_kind")
    assert "draft" == apart.pools[-1].pool.name
    assert without.slopes[HIT].per_token * 13 / 12 == with_draft.slopes[HIT].per_token


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("deepseek-v4-flash", {"page_tokens": 64}, "256"),
        ("qwen3-next-80b-a3b", {"layout": "layer_first"}, "layer_first"),
        ("llama-3.1-8b", {"layout": "layer_first"}, "layer_first"),
        ("llama-3.1-8b", {"tp": 3}, "cannot be split"),
        ("llama-3.1-8b", {"profile": "by_kind", "key_scheme": "sglang", "kv_dtype": "fp8-scaled"}, "no key"),
        ("llama-3.1-8b", {"kv_dtype": "fp8-scaled"}, "no scale per token"),
        ("kitchen-sink", {"key_scheme": "sglang"}, "no engine serves"),
    ],
)
def test_what_the_engine_refuses_is_refused(name: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        counted(name, **options)


def test_thousands_of_ranks_are_counted_once_a_kind() -> None:
    found = counted("qwen3-235b-a22b", tp=1024)
    assert 1024 == found.pools[0].shards
    assert 256 == found.pools[0].copies
