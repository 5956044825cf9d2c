from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.config.load import load_model
from hicache_bench.errors import ConfigError
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.names import AttentionType
from hicache_bench.workflows.page_map import ABSENT, READ, NoiseQueries, PageMap, page_map
from hicache_bench.workflows.variant import VariantOptions, apply_options
from tests.workflows.runs import cached_run, only_length


def pools_of(preset: str, **changes: int) -> tuple[KVPoolDescriptor, ...]:
    (pools,) = apply_options(load_model(preset), VariantOptions(**changes)).pools.values()  # type: ignore[arg-type]
    return pools


@pytest.mark.parametrize(
    "preset",
    [
        "deepseek-v4-flash",
        "gpt-oss-20b",
        "kitchen-sink",
        "llama-4-scout",
        "qwen3-next-80b-a3b",
    ],
)
@pytest.mark.parametrize("save", ["state=every:4096,window=all", "state=last,window=trailing:+3"])
def test_a_map_says_page_by_page_what_the_ledger_of_a_run_says_in_sum(preset: str, save: str) -> None:
    tokens = 16 << 10
    pools = pools_of(preset)
    found = page_map(pools, tokens // pools[0].page_tokens, SavePolicy.parse(save))
    (rank,) = only_length(cached_run(preset, tokens, save_policy=save)).ranks
    maps = {pool.pool.name: pool for pool in found.pools}
    for index, policy in enumerate(rank.policies):
        assert policy.used_tokens == found.endpoint_pages * found.page_tokens
        for account in policy.pools:
            pool_map = maps[account.pool]
            states = Counter(pool_map.rows[index].states)
            del states[ABSENT]
            assert policy.policy == pool_map.rows[index].label
            assert states.pop(READ, 0) == account.read.pages
            assert states == {reason: amount.pages for reason, amount in account.skipped.items()}
            assert account.total.pages == sum(pool_map.stored)


@given(
    window=st.integers(1, 400),
    page_tokens=st.integers(1, 64),
    num_pages=st.integers(1, 24),
    chunked=st.booleans(),
)
def test_pages_that_must_exist_hold_the_tokens_that_attention_reads(
    window: int, page_tokens: int, num_pages: int, chunked: bool
) -> None:
    pool = KVPoolDescriptor(
        name="swa",
        attention=AttentionType.CHUNKED if chunked else AttentionType.SWA,
        page_tokens=page_tokens,
        components=(Component(name="k", num_layers=1, rows=1, row_bytes=64),),
        window_tokens=window,
    )
    (found,) = page_map([pool], num_pages, SavePolicy()).pools
    query = num_pages * page_tokens
    seen = [
        token
        for token in range(query)
        if (token // window == query // window if chunked else query - token < window)
    ]
    pages = {token // page_tokens for token in seen}
    assert [page in pages for page in range(num_pages)] == list(found.needed)


def states(found: PageMap, pool: str, policy: str) -> tuple[str, ...]:
    (rows,) = (one.rows for one in found.pools if one.pool.name == pool)
    (row,) = (row for row in rows if row.label == policy)
    return row.states


def test_a_prompt_that_diverges_falls_back_to_the_last_state() -> None:
    pools = pools_of("qwen3-next-80b-a3b", page_tokens=256)
    found = page_map(pools, 16, SavePolicy.parse("state=every:1024"), shared_pages=14)
    assert 12 == found.endpoint_pages
    assert (READ,) * 12 + ("beyond_endpoint",) * 2 + (ABSENT,) * 2 == states(found, "kv", "selective")
    mamba = states(found, "mamba", "selective")
    assert {3: "superseded_state", 7: "superseded_state", 11: READ} == {
        unit: state for unit, state in enumerate(mamba) if state != ABSENT
    }


def test_a_window_that_was_not_kept_leaves_nothing_to_resume() -> None:
    found = page_map(pools_of("gpt-oss-20b"), 16, SavePolicy.parse("window=trailing:+4"), shared_pages=6)
    assert 0 == found.endpoint_pages
    assert {ABSENT, "beyond_endpoint"} == set(states(found, "kv", "dense"))


def test_a_logical_pool_has_no_rows() -> None:
    anchor = page_map(pools_of("deepseek-v4-flash"), 4, SavePolicy()).pools[0]
    assert ((), (), ()) == (anchor.stored, anchor.needed, anchor.rows)


def test_more_queries_never_select_less() -> None:
    pools = pools_of("kitchen-sink")
    queries = NoiseQueries(numbers=(1, 2, 8), num_layers=1, seed=3)
    found = page_map(pools, 64, SavePolicy(), queries=queries)
    rows = [
        set_of(states(found, "mla", label)) for label in ("1 query", "2 queries", "8 queries", "selective")
    ]
    assert rows[0] <= rows[1] <= rows[2] <= rows[3] == set(range(64))
    assert found == page_map(pools, 64, SavePolicy(), queries=queries)


def set_of(row: tuple[str, ...]) -> set[int]:
    return {unit for unit, state in enumerate(row) if state == READ}


def test_policies_with_different_endpoints_are_no_one_map() -> None:
    pools = pools_of("llama-4-scout", page_tokens=512)
    with pytest.raises(ConfigError, match="different endpoints"):
        # At the end of a chunk selective needs nothing of it, and the others do.
        page_map(pools, 32, SavePolicy.parse("window=trailing:+0"), shared_pages=16)
