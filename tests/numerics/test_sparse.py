from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.numerics.cache import Prompt
from hicache_bench.numerics.sparse import INDEX_HEADS, top_rows
from tests.numerics.rig import Rig, model_spec

SEEDS = st.integers(0, 2**20)


@given(
    seed=SEEDS,
    queries=st.integers(1, 8),
    num_rows=st.integers(1, 20),
    top_k=st.integers(1, 12),
    ties=st.booleans(),
)
def test_top_rows_are_the_first_of_a_stable_sort(
    seed: int, queries: int, num_rows: int, top_k: int, ties: bool
) -> None:
    """Oracle: sort each query's rows by falling score, the older first among equals."""
    generator = np.random.default_rng(seed)
    scores = (
        generator.integers(0, 3, (queries, num_rows)).astype(float)
        if ties
        else generator.random((queries, num_rows))
    )
    ends = generator.integers(0, num_rows + 1, queries)
    found = top_rows(lambda block: scores[block], ends, top_k)
    for query in range(queries):
        order = sorted(range(ends[query]), key=lambda row: (-scores[query, row], row))
        assert sorted(order[:top_k]) == np.flatnonzero(found.admitted[query]).tolist()
    assert (found.taint == 0).all()


def test_a_score_that_is_nan_taints_the_queries_that_could_rank_it_and_no_other() -> None:
    scores = np.arange(12, dtype=float).reshape(3, 4)
    scores[:, 2] = np.nan
    found = top_rows(lambda block: scores[block], np.array([2, 3, 4]), 2)
    assert [False, True, True] == np.isnan(found.taint).tolist()


def index_of(rig: Rig) -> Any:
    return rig.part()._selector


@given(seed=SEEDS, num_tokens=st.integers(1, 60))
@settings(max_examples=25)
def test_tokens_are_selected_by_weighted_relu_products(seed: int, num_tokens: int) -> None:
    """Oracle: the score of each pair of tokens by itself, from the keys in the cache."""
    rig = Rig(model_spec(("mla", "index")), num_tokens, seed=seed)
    caches = rig.caches()
    selector = index_of(rig)
    found = selector.select(rig.inputs, 0, Prompt(caches))
    keys = selector._keys._rows.read(caches["indexer"], 0, np.arange(num_tokens)).astype(float)
    scorer = selector._keys._scores
    for token in {0, num_tokens // 2, num_tokens - 1}:
        x = rig.inputs[token].astype(float)
        query, weights = (x @ scorer._query).reshape(INDEX_HEADS, -1), np.log1p(np.exp(x @ scorer._weight))
        scores = [
            sum(weights[head] * max(0.0, float(query[head] @ keys[row])) for head in range(INDEX_HEADS))
            for row in range(token + 1)
        ]
        best = sorted(range(token + 1), key=lambda row: -scores[row])[:16]
        assert sorted(best) == np.flatnonzero(found.admitted[token]).tolist()


@given(seed=SEEDS, num_tokens=st.integers(1, 60))
@settings(max_examples=25)
def test_blocks_are_selected_by_their_best_token_and_the_own_block_always(seed: int, num_tokens: int) -> None:
    rig = Rig(model_spec(("full", "blocks")), num_tokens, seed=seed)
    caches = rig.caches()
    selector = index_of(rig)
    found = selector.select(rig.inputs, 0, Prompt(caches))
    keys = selector._keys._rows.read(caches["indexer"], 0, np.arange(num_tokens))
    scores = selector._keys._scores(rig.inputs, keys)
    for token in range(num_tokens):
        own = token // 8
        best = {block: max(scores[token, block * 8 : min(token + 1, block * 8 + 8)]) for block in range(own)}
        chosen = [own, *sorted(best, key=lambda block: -best[block])[:2]]
        expected = [row for row in range(token + 1) if row // 8 in chosen]
        assert expected == np.flatnonzero(found.admitted[token]).tolist()


@pytest.mark.parametrize("layer", [("mla", "index"), ("full", "blocks")])
@given(cut=st.integers(1, 59))
@settings(max_examples=15)
def test_a_selection_is_the_same_at_once_and_in_pieces(layer: tuple[str, ...], cut: int) -> None:
    rig = Rig(model_spec(layer), 60)
    once = index_of(rig).select(rig.inputs, 0, Prompt(rig.caches())).admitted
    prompt = Prompt(rig.caches())
    first = index_of(rig).select(rig.inputs[:cut], 0, prompt).admitted
    second = index_of(rig).select(rig.inputs[cut:], cut, prompt).admitted
    np.testing.assert_array_equal(once[:cut, :cut], first)
    np.testing.assert_array_equal(once[cut:], second)


@given(seed=SEEDS)
@settings(max_examples=10)
def test_queries_read_nothing_that_was_not_selected(seed: int) -> None:
    """Poison in every K/V row that no query selects changes no bit; poison in one that is selected shows."""
    rig = Rig(model_spec(("mla", "index")), 100, seed=seed)
    saved = rig.prefix(12)
    selected = rig.model.selected_units(rig.inputs[96:], 96, Prompt(rig.restored(saved, {})))["kv"]
    whole = rig.continued(saved, 12)
    unread = np.flatnonzero(~selected).tolist()
    np.testing.assert_array_equal(whole, rig.continued(saved, 12, without={"kv": unread}))
    assert np.isfinite(whole).all()
    for page in np.flatnonzero(selected).tolist():
        assert np.isnan(rig.continued(saved, 12, without={"kv": [page]})).any()


def test_prompts_that_stay_with_a_topic_select_few_pages() -> None:
    rig = Rig(model_spec(("mla", "index")), 260)
    saved = rig.prefix(32)
    selected = rig.model.selected_units(rig.inputs[256:], 256, Prompt(saved))["kv"]
    assert 1 <= selected.sum() <= 16


def test_a_missing_index_page_shows_even_in_the_block_that_is_always_read() -> None:
    rig = Rig(model_spec(("full",), ("full", "blocks"), page_tokens=4), 6)
    saved = rig.prefix(1)
    assert np.isfinite(rig.continued(saved, 1)).all()
    assert np.isnan(rig.continued(saved, 1, without={"indexer": [0]})).all()


def test_a_layer_without_an_index_reads_what_the_last_one_before_it_selected() -> None:
    rig = Rig(model_spec(("mla", "index"), ("mla",), ("mla", "index"), ("mla",)), 260)
    saved = rig.prefix(32)
    selected = rig.model.selected_units(rig.inputs[256:], 256, Prompt(rig.restored(saved, {})))["kv"]
    assert 1 <= selected.sum() <= 16
    owners = [rig.part(layer)._selector for layer in range(4)]
    assert owners[0] is owners[1] is not owners[2] is owners[3]
