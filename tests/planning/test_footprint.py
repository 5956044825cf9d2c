from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.config.load import load_model
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.engine_profile import cluster_pools, pools_of
from hicache_bench.planning.footprint import (
    NOTHING,
    Footprint,
    distinct_pools,
    footprint,
    slope,
    total_footprint,
    trailing_most,
)
from hicache_bench.planning.plan import build_plan
from hicache_bench.planning.policy import SavePolicy, TransferPolicy, first_needed
from hicache_bench.planning.resolve import resolve
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.names import AttentionType, Sharding
from tests.pool_builders import pool, window_pool

HIT, SELECTIVE = TransferPolicy.HIT_POLICY, TransferPolicy.SELECTIVE
SAVES = ("state=every:4096,window=all", "state=last,window=trailing:+0", "state=all,window=trailing:+3")


def trailing_pools(page_tokens: int, window: int) -> list[KVPoolDescriptor]:
    return [
        window_pool("swa", window, engine_window=window - (window > 1), page_tokens=page_tokens),
        pool("chunked", AttentionType.CHUNKED, page_tokens=page_tokens, window_tokens=window),
        pool("mamba", AttentionType.RECURRENT, page_tokens=page_tokens),
        pool("state", AttentionType.COMPRESSOR_STATE, page_tokens=page_tokens),
    ]


@given(
    page_tokens=st.integers(1, 40),
    window=st.integers(1, 200),
    num_tokens=st.integers(0, 3000),
    save=st.sampled_from(SAVES),
)
def test_a_plan_that_finds_everything_reads_the_same(
    page_tokens: int, window: int, num_tokens: int, save: str
) -> None:
    policy_of_save = SavePolicy.parse(save)
    pools = [pool("kv", AttentionType.FULL, page_tokens=page_tokens), *trailing_pools(page_tokens, window)]
    pages = num_tokens // page_tokens
    presence = {entry.name: policy_of_save.saved_units(entry, pages) for entry in pools}
    counted = {entry.name: footprint(entry, num_tokens, policy_of_save) for entry in pools}
    for policy in TransferPolicy:
        plan = build_plan(pools, presence, resolve(pools, presence, policy, pages), policy)
        assert pages == plan.endpoint_pages
        for planned in plan.pools:
            found = counted[planned.pool.name]
            by_policy = {HIT: found.hit_policy, SELECTIVE: found.selective}
            assert planned.read_bytes == by_policy.get(policy, found.stored)


@given(page_tokens=st.integers(1, 24), window=st.integers(1, 100))
def test_fixed_bytes_are_the_most_that_any_endpoint_needs(page_tokens: int, window: int) -> None:
    # Past two windows a chunk has stood at every distance from a page that it can have.
    ends = np.arange(2 * window + 2, 2 * window + 2 + 2 * window * page_tokens, dtype=np.int64)
    for entry in trailing_pools(page_tokens, window):
        for policy in (HIT, SELECTIVE):
            most = int((ends - first_needed(entry, policy, ends)).max())
            assert most == trailing_most(entry, policy), (entry.name, policy)
            assert slope([entry], policy).fixed == most * entry.unit_bytes


@given(page_tokens=st.integers(1, 24), pages=st.integers(0, 300))
def test_without_windows_the_two_numbers_are_the_bytes(page_tokens: int, pages: int) -> None:
    pools = [
        pool("kv", AttentionType.MLA, page_tokens=page_tokens),
        pool("mamba", AttentionType.RECURRENT, page_tokens=page_tokens),
    ]
    found = total_footprint(pools, pages * page_tokens, SavePolicy())
    for policy, needed in ((HIT, found.hit_policy), (SELECTIVE, found.selective)):
        numbers = slope(pools, policy)
        expected = pages * page_tokens * numbers.per_token + (numbers.fixed if pages else 0)
        assert expected == needed


def test_per_token_is_exact() -> None:
    assert slope([pool("kv", AttentionType.FULL, page_tokens=48)], HIT).per_token == Fraction(64, 48)


def test_what_is_shorter_than_a_page_is_nothing_and_so_is_an_anchor() -> None:
    logical = pool("kv", AttentionType.LOGICAL)
    assert NOTHING == footprint(logical, 1 << 20, SavePolicy())
    assert NOTHING == total_footprint(trailing_pools(16, 64), 15, SavePolicy())
    assert Footprint(stored=64, hit_policy=64, selective=64) == footprint(
        pool("kv", AttentionType.FULL), 31, SavePolicy()
    )


def test_a_last_incomplete_page_is_not_counted() -> None:
    kv = pool("kv", AttentionType.FULL, page_tokens=16)
    assert footprint(kv, 160, SavePolicy()) == footprint(kv, 175, SavePolicy())
    assert footprint(kv, 160, SavePolicy()) != footprint(kv, 176, SavePolicy())


def on(rank: int, size: int, name: str, **fields: Any) -> KVPoolDescriptor:
    return pool(name, AttentionType.FULL, rank=Rank(tp_rank=rank, tp_size=size), **fields)


def test_a_replicated_pool_is_stored_once_and_a_sharded_one_once_a_shard() -> None:
    ranks = [[on(rank, 4, "kv"), on(rank, 4, "heads", sharding=Sharding.SHARDED)] for rank in range(4)]
    found = distinct_pools(ranks)
    assert ["kv", *["heads"] * 4] == [entry.name for entry in found]
    assert [0, 0, 1, 2, 3] == [entry.rank.tp_rank for entry in found]
    assert 5 * 64 == total_footprint(found, 16, SavePolicy()).stored


@pytest.mark.parametrize("tp_size", [1, 2, 4, 8])
def test_shards_of_a_model_are_the_whole_of_it(tp_size: int) -> None:
    preset = load_model("kimi-linear-48b-a3b")
    ranks = cluster_pools(preset.spec, profile=preset.profile, deployment=Deployment(tp_size=tp_size))
    alone = total_footprint(pools_of(preset.spec, profile=preset.profile), 32768, SavePolicy())
    assert alone == total_footprint(distinct_pools(ranks.values()), 32768, SavePolicy())
