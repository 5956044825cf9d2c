from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hicache_bench.errors import ConfigError
from hicache_bench.links.bandwidth import BandwidthModel
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.pools.descriptor import IndexSelection
from hicache_bench.pools.geometry import Component, index_components
from hicache_bench.pools.names import AttentionType
from hicache_bench.workflows.prefix import FixtureBytes, PrefixLayout, build_registry, lay_out
from hicache_bench.workflows.selection import _E4M3, IndexScorer
from tests.engine.rig import PAGE_TOKENS, small
from tests.workflows.runs import cached_run, only_length, policy_of, read_bytes

INDEX = small(
    "indexer",
    AttentionType.SPARSE_INDEX,
    *index_components(num_layers=2, index_head_dim=128, page_tokens=PAGE_TOKENS),
)
BLOCKS = small(
    "kv",
    AttentionType.MLA,
    Component("k", 2, PAGE_TOKENS, 64),
    selection=IndexSelection(index_pool="indexer", top_k=3),
)
NUM_PAGES = 40
FREE_SEEKS = BandwidthModel(bytes_per_second=1e9)


@pytest.fixture(scope="module")
def layout() -> PrefixLayout:
    return lay_out(build_registry([BLOCKS, INDEX]), NUM_PAGES * PAGE_TOKENS, SavePolicy())


@pytest.fixture(scope="module")
def fixture(layout: PrefixLayout) -> FixtureBytes:
    return FixtureBytes(layout, seed=0)


def scorer(layout: PrefixLayout, fixture: FixtureBytes, num_queries: int, **options: object) -> IndexScorer:
    chosen: dict[str, object] = {"link": FREE_SEEKS, "seed": 0, **options}
    return IndexScorer(layout, fixture.patterns, num_queries=num_queries, **chosen)  # type: ignore[arg-type]


def e4m3(code: int) -> float:
    """One fp8 e4m3fn byte, from its definition: bias 7, no infinities, two NaN codes."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return 0.0
    return sign * ((8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0**-9)


def test_index_keys_are_read_as_fp8() -> None:
    assert [e4m3(code) for code in range(256)] == _E4M3.tolist()
    # 1.0, the largest number, the smallest, and minus two, spelled out.
    assert [1.0, 448.0, 2.0**-9, -2.0] == [float(_E4M3[code]) for code in (0x38, 0x7E, 0x01, 0xC0)]


def blocks_by_hand(fixture: FixtureBytes, num_queries: int, top_k: int) -> set[int]:
    """The same selection, one score at a time."""
    chosen: set[int] = set()
    for layer in range(2):
        pages = fixture.patterns["indexer"].layer_bytes(0, layer, range(NUM_PAGES))
        queries = np.random.default_rng([0, layer]).standard_normal((num_queries, 128), dtype=np.float32)
        for query in queries:
            scores = {}
            for page, content in enumerate(pages):
                for row in range(PAGE_TOKENS):  # keys precede the scales of a page
                    key = np.array([e4m3(code) for code in content[row * 128 : (row + 1) * 128].tolist()])
                    scores[page * PAGE_TOKENS + row] = float(query @ key)
            best = sorted(scores, key=lambda token: scores[token], reverse=True)[:top_k]
            chosen.update(token // PAGE_TOKENS for token in best)
    return chosen


@pytest.mark.parametrize("num_queries", [1, 3])
@pytest.mark.parametrize("backed", [True, False])
def test_what_is_selected_follows_from_the_bytes_of_the_index(
    layout: PrefixLayout, fixture: FixtureBytes, num_queries: int, backed: bool
) -> None:
    host_pools = layout.host_pools(backed=backed)
    if backed:
        fixture.fill(host_pools)
    selected = scorer(layout, fixture, num_queries)(BLOCKS, host_pools["indexer"])
    expected = blocks_by_hand(fixture, num_queries, top_k=3)
    assert sorted(expected) == np.flatnonzero(selected).tolist()
    assert len(expected) < NUM_PAGES


def test_the_index_that_was_restored_decides(layout: PrefixLayout, fixture: FixtureBytes) -> None:
    host_pools = layout.host_pools(backed=True)
    fixture.fill(host_pools)
    right = scorer(layout, fixture, 1)(BLOCKS, host_pools["indexer"])
    FixtureBytes(layout, seed=1).fill(host_pools)
    assert right.tolist() != scorer(layout, fixture, 1)(BLOCKS, host_pools["indexer"]).tolist()


def test_the_union_grows_with_the_queries(layout: PrefixLayout, fixture: FixtureBytes) -> None:
    index = layout.host_pools(backed=False)["indexer"]
    counts = [int(scorer(layout, fixture, queries)(BLOCKS, index).sum()) for queries in (1, 2, 4, 1024)]
    assert counts == sorted(set(counts))
    assert NUM_PAGES == counts[-1]


def test_a_local_part_of_the_index_counts_though_it_is_not_read(
    layout: PrefixLayout, fixture: FixtureBytes
) -> None:
    """An engine has it in memory; a run leaves it poisoned."""
    host_pools = layout.host_pools(backed=True)
    fixture.fill(host_pools)
    whole = scorer(layout, fixture, 2)(BLOCKS, host_pools["indexer"])
    host_pools["indexer"].view(0)[layout.slots["indexer"][:10]] = 0xFF
    local = scorer(layout, fixture, 2, local_tokens=10 * PAGE_TOKENS)
    assert whole.tolist() == local(BLOCKS, host_pools["indexer"]).tolist()
    assert [
        f"kv: 2 queries select {int(whole[10:].sum())} of 30 blocks [modeled: seeded queries]"
    ] == local.notes


def test_everything_is_read_where_that_is_cheaper(layout: PrefixLayout, fixture: FixtureBytes) -> None:
    index = layout.host_pools(backed=False)["indexer"]
    slow_to_ask = scorer(layout, fixture, 1, link=BandwidthModel(bytes_per_second=1e9, op_seconds=10))
    assert NUM_PAGES == slow_to_ask(BLOCKS, index).sum()
    (note,) = slow_to_ask.notes
    assert note.endswith("one batch of all is cheaper on the link [assumed], so all were read")
    assert f" of {NUM_PAGES} blocks" in note


def test_an_index_that_is_not_the_fixtures_is_refused(layout: PrefixLayout, fixture: FixtureBytes) -> None:
    index = layout.host_pools(backed=False)["indexer"]
    with pytest.raises(ConfigError, match="'kv' has no index"):
        scorer(layout, fixture, 1)(replace(BLOCKS, selection=None), index)


def test_a_run_with_queries_says_what_was_selected() -> None:
    few, many = (cached_run("kitchen-sink", 128 * 1024, num_queries=queries) for queries in (1, 8))
    (note,) = policy_of(few, "selective").notes
    assert note.startswith("mla: 1 query selects 1")
    assert "cheaper" not in note
    assert () == policy_of(few, "dense").notes
    (note,) = policy_of(many, "selective").notes
    assert note.startswith("mla: 8 queries select 2048 of 2048 blocks [modeled: seeded queries]; one batch")
    assert read_bytes(few)[2] < read_bytes(many)[2] == read_bytes(few)[1]
    (account,) = [pool for pool in policy_of(few, "selective").pools if pool.pool == "mla"]
    left_out = account.skipped["not_selected"].num_bytes
    assert read_bytes(many)[2] - read_bytes(few)[2] == left_out
    assert only_length(few).stored == only_length(many).stored
    assert 128 * 1024 == policy_of(few, "selective").used_tokens


@pytest.mark.parametrize("preset", ["deepseek-v3.2", "deepseek-v4-flash"])
def test_a_short_prefix_of_a_sparse_model_is_needed_as_a_whole(preset: str) -> None:
    with_queries, without = (cached_run(preset, 8192, num_queries=queries) for queries in (1, 0))
    assert read_bytes(without) == read_bytes(with_queries)
    notes = policy_of(with_queries, "selective").notes
    assert notes
    assert all("so all were read" in note for note in notes)
    assert () == policy_of(without, "selective").notes


@pytest.mark.parametrize("local_prefix", [0, 4096])
def test_a_selection_is_moved_as_it_is_counted(local_prefix: int) -> None:
    moved, counted = (
        cached_run("deepseek-v3.2", 4096 + 2048, store=store, num_queries=1, local_prefix_tokens=local_prefix)
        for store in ("local", "count")
    )
    assert read_bytes(moved) == read_bytes(counted)
    assert policy_of(moved, "selective").notes == policy_of(counted, "selective").notes
    assert ((), ()) == (moved.failed_checks, counted.failed_checks)
