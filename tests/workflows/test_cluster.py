"""Runs over every rank: what is written once, what each rank reads, what the cluster holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.config.load import load_model
from hicache_bench.models.spec import ChunkedAttention, FullAttention, SlidingWindow
from hicache_bench.planning.footprint import distinct_pools
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.records.schema import RunRecord, SharingRecord
from hicache_bench.workflows.cluster import lay_out_ranks, members_of, shard_keys
from hicache_bench.workflows.stores import arena_bytes
from hicache_bench.workflows.variant import VariantOptions, apply_options
from tests.workflows.runs import cached_run, only_length, policy_of, read_bytes, run_now

K = 1024
BOTH_SCHEMES = pytest.mark.parametrize("key_scheme", ["namespaced", "sglang"])
MIXED = [
    "deepseek-v3", "deepseek-v3.2", "deepseek-v4-flash", "gpt-oss-120b", "kimi-linear-48b-a3b",
    "llama-3.1-8b", "llama-4-scout", "qwen3-235b-a22b", "qwen3-next-80b-a3b",
]  # fmt: skip


def sharing(record: RunRecord, name: str = "kv") -> SharingRecord:
    (found,) = (shared for shared in record.sharing if shared.pool == name)
    assert found.ranks == sum(len(pool.ranks) for pool in record.pools if pool.name == name)
    return found


def written_by(record: RunRecord, pool: str = "kv") -> dict[str, int]:
    """Objects of a pool that each rank wrote."""
    return {
        rank.rank: saved.written.objects
        for rank in only_length(record).ranks
        for saved in rank.saved
        if saved.pool == pool
    }


@BOTH_SCHEMES
@pytest.mark.parametrize(
    "sizes", [{"tp": 8}, {"tp": 4, "pp": 2}, {"cp": "4:replicated"}, {"tp": 16}], ids=str
)
@pytest.mark.parametrize("preset", MIXED)
def test_shards_that_differ_have_other_keys_and_those_that_do_not_the_same(preset, sizes, key_scheme) -> None:
    """`presets show` counts by shard, `run` by key: they must agree."""
    variant = apply_options(load_model(preset), VariantOptions(key_scheme=key_scheme, **sizes))
    by_shard = [pool for pool in distinct_pools(variant.pools.values()) if not pool.is_logical]
    by_key = {(pool.name, shard_keys(variant.keys, pool)) for pool in by_shard}
    owned = [
        (pool.name, shard_keys(variant.keys, pool)) for member in members_of(variant) for pool in member.owned
    ]
    assert len(by_shard) == len(by_key) == len(owned)
    assert by_key == set(owned)


@settings(max_examples=25, deadline=None)
@given(
    preset=st.sampled_from(MIXED),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2]),
    key_scheme=st.sampled_from(["namespaced", "sglang"]),
)
def test_ranks_sum_to_the_cluster(preset: str, tp: int, pp: int, key_scheme: str) -> None:
    """The oracle is the same model on one rank, and how often TP repeats each pool there."""
    spec = load_model(preset).spec
    heads = {
        attention.kv_heads
        for attention in spec.attentions.values()
        if isinstance(attention, (FullAttention, SlidingWindow, ChunkedAttention))
    }
    repeats = max(1, tp // heads.pop()) if heads else 1
    alone = cached_run(preset, 8 * K)
    record = cached_run(preset, 8 * K, tp=tp, pp=pp, key_scheme=key_scheme)
    result = only_length(record)
    assert () == record.failed_checks
    assert tp * pp == len(result.ranks) == sharing(record, alone.sharing[0].pool).ranks
    sharded = {pool.name: pool.sharding == "sharded" for pool in alone.pools}
    state = {pool.name for pool in alone.pools if pool.attention == "recurrent"}

    def times(pool: str, replicated: int) -> int:
        return replicated if not sharded[pool] else 1 if pool in state else repeats

    for index, total in enumerate(result.policies):
        by_rank = [rank.policies[index] for rank in result.ranks]
        assert {8 * K} == {policy.used_tokens for policy in by_rank}
        assert total.read.num_bytes == sum(policy.read.num_bytes for policy in by_rank)
        assert total.read.objects == sum(policy.read.objects for policy in by_rank)
        expected = policy_of(alone, total.policy).pools
        assert total.read.num_bytes == sum(
            pool.read.num_bytes * times(pool.pool, replicated=tp) for pool in expected
        )
    stored = policy_of(alone, "dense").pools
    assert result.stored.num_bytes == sum(
        pool.total.num_bytes * times(pool.pool, replicated=1) for pool in stored
    )


@pytest.mark.parametrize("tp", [4, 8])
def test_kv_heads_below_the_ranks_are_stored_more_than_once(tp: int) -> None:
    """Mooncake's own benchmark stores 12.62 GB of Qwen3-235B at TP 8 and 32,768 tokens."""
    record = cached_run("qwen3-235b-a22b", 32 * K, tp=tp)
    stored = only_length(record).stored.num_bytes
    assert tp // 4 * 192_512 * 32 * K == stored == only_length(record).policies[0].read.num_bytes
    assert SharingRecord(pool="kv", ranks=tp, shards=tp, copies=tp / 4, kv_heads=4) == sharing(record)
    if tp == 8:
        assert "12.62" == f"{stored / 1e9:.2f}"


@BOTH_SCHEMES
def test_what_is_replicated_is_written_once_and_read_by_all(key_scheme: str) -> None:
    record = cached_run("deepseek-v3", 8 * K, tp=8, key_scheme=key_scheme)
    one = 70_272 * 8 * K
    assert (one, (8 * one, 8 * one, 8 * one)) == (only_length(record).stored.num_bytes, read_bytes(record))
    assert {"tp0": 128, **{f"tp{rank}": 0 for rank in range(1, 8)}} == written_by(record)
    for rank in only_length(record).ranks[1:]:
        assert {128} == {saved.existing.objects for saved in rank.saved}
    assert SharingRecord(pool="kv", ranks=8, shards=1, copies=1, kv_heads=None) == sharing(record)


@BOTH_SCHEMES
def test_an_mla_model_with_states_shares_one_and_shards_the_other(key_scheme: str) -> None:
    record = cached_run("kimi-linear-48b-a3b", 8 * K, tp=2, key_scheme=key_scheme)
    assert {"tp0": 128, "tp1": 0} == written_by(record)
    # Two states (of tokens 4,096 and 8,192), each of a temporal and a conv object.
    assert {"tp0": 4, "tp1": 4} == written_by(record, "mamba")
    assert (1, 2) == (sharing(record).shards, sharing(record, "mamba").shards)
    assert 128 + 8 == only_length(record).stored.objects
    assert 516_096 * 128 + 43_417_600 * 2 == only_length(record).stored.num_bytes


@BOTH_SCHEMES
def test_pipeline_stages_never_share_a_key(key_scheme: str) -> None:
    record = cached_run("deepseek-v3", 8 * K, tp=8, pp=2, key_scheme=key_scheme)
    assert (16, 2) == (sharing(record).ranks, sharing(record).shards)
    assert 2 * 128 == only_length(record).stored.objects
    assert {"tp0 pp0", "tp0 pp1"} == {rank for rank, objects in written_by(record).items() if objects}
    # 61 layers: 30 and 31.
    assert [30 * 1152, 31 * 1152] == [pool.unit_bytes // 64 for pool in record.pools]
    assert [8, 8] == [len(pool.ranks) for pool in record.pools]


def test_context_parallel_ranks_share_or_shard_as_they_are_told() -> None:
    sharded, copied = (
        cached_run("deepseek-v3", 8 * K, cp=f"8:{kind}", profile="by_kind")
        for kind in ("sharded", "replicated")
    )
    assert (8, 8) == (sharing(sharded).shards, sum(map(bool, written_by(sharded).values())))
    assert (8 * 128, 8) == (only_length(sharded).stored.objects, sharing(sharded).ranks)
    assert {"cp0": 128, **{f"cp{rank}": 0 for rank in range(1, 8)}} == written_by(copied)
    assert (1, 128) == (sharing(copied).shards, only_length(copied).stored.objects)
    whole = 70_272 * 8 * K
    assert [whole, whole] == [only_length(record).stored.num_bytes for record in (sharded, copied)]
    # Shares add up to the whole; copies are read whole by each.
    assert [whole, 8 * whole] == [read_bytes(record)[0] for record in (sharded, copied)]


@BOTH_SCHEMES
def test_decode_context_ranks_have_longer_pages_and_their_part_of_each(key_scheme: str) -> None:
    record = cached_run("deepseek-v3", 8 * K, tp=4, dcp=2, key_scheme=key_scheme)
    result = only_length(record)
    assert (64, 2, 1) == (result.pages, sharing(record).shards, sharing(record).copies)
    assert 70_272 * 8 * K == result.stored.num_bytes
    assert {"tp0 dcp0", "tp1 dcp1"} == {rank for rank, objects in written_by(record).items() if objects}
    assert () == record.failed_checks


@pytest.mark.parametrize("profile", ["sglang-0.5.23", "by_kind"])
def test_draft_layers_are_saved_and_restored_on_the_last_stage(profile: str) -> None:
    without, record = (
        cached_run("deepseek-v3", 8 * K, tp=2, pp=2, profile=profile, draft=draft) for draft in (False, True)
    )
    if profile == "by_kind":
        assert (2, 1) == (sharing(record, "draft").ranks, sharing(record, "draft").shards)
    else:
        assert ["kv"] == [shared.pool for shared in record.sharing]
    draft_bytes = 8 * K * 1152
    assert only_length(without).stored.num_bytes + draft_bytes == only_length(record).stored.num_bytes
    assert read_bytes(without)[0] + 2 * draft_bytes == read_bytes(record)[0]
    assert {8 * K} == {policy.used_tokens for policy in only_length(record).policies}
    assert record.deployment["draft"]


@settings(max_examples=25, deadline=None)
@given(
    preset=st.sampled_from(["kitchen-sink", *MIXED]),
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2]),
    cp=st.sampled_from(["1", "2:replicated", "2:sharded"]),
)
def test_two_ranks_share_every_object_of_a_pool_or_none(preset: str, tp: int, pp: int, cp: str) -> None:
    """And what no rank before has is what the store must have room for."""
    if preset == "deepseek-v4-flash" and cp.endswith("sharded"):
        cp = "2:replicated"
    variant = apply_options(load_model(preset), VariantOptions(tp=tp, pp=pp, cp=cp, profile="by_kind"))
    members = members_of(variant)
    shards: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for member in members:
        for pool in member.registry.registered:
            shard = shard_keys(variant.keys, pool)
            for affixes, component in zip(shard, pool.stored_components, strict=True):
                assert shard == shards.setdefault(affixes, shard)
                assert component.object_bytes == sizes.setdefault(affixes, component.object_bytes)
    cluster = lay_out_ranks(members, 512, SavePolicy(window_extra_pages=None))
    owned = {
        affixes for member in members for pool in member.owned for affixes in shard_keys(variant.keys, pool)
    }
    assert owned == set(sizes)
    assert cluster.stored_bytes == sum(
        layout.num_slots[pool.name] * pool.unit_bytes
        for member, layout in zip(cluster.members, cluster.layouts, strict=True)
        for pool in member.owned
    )


@pytest.mark.parametrize(
    ("preset", "options"),
    [
        ("deepseek-v3", {"tp": 8}),
        ("llama-3.1-8b", {"tp": 2}),
        ("qwen3-next-80b-a3b", {"tp": 4}),
        ("kitchen-sink", {"tp": 4, "pp": 2}),
    ],
)
def test_memory_is_that_of_the_largest_rank_and_of_each_shard_once(preset: str, options: dict) -> None:
    record = run_now(preset, 2 * K, store="local", memory_bytes=1, **options)
    (result,) = record.results
    assert ("counted", "count") == (result.evidence, result.store)
    largest = max(
        sum(saved.written.num_bytes + saved.existing.num_bytes for saved in rank.saved)
        for rank in result.ranks
    )
    frames = result.memory_bytes - largest - arena_bytes(result.stored.num_bytes)
    # Guard zones and alignment of the host buffers, a few pages for each component.
    assert 0 < frames < 2**20
