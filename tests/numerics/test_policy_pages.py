"""What planning says an endpoint needs is what the arithmetic reads: no page less, and no page more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.models.engine_profile import BY_KIND, SGLANG
from hicache_bench.models.spec import ChunkedAttention, SlidingWindow
from hicache_bench.numerics.cache import Prompt
from hicache_bench.planning.policy import TransferPolicy, first_needed_at
from tests.numerics.rig import MODELS, V4, Rig, model_spec

MAX_END = 9
SUFFIX_TOKENS = 6


def check_needed_pages(rig: Rig, end: int) -> None:
    saved = rig.prefix(end)
    start = end * rig.page_tokens
    whole = rig.continued(saved, end)
    assert np.isfinite(whole).all()
    selected = rig.model.selected_units(rig.inputs[start:], start, Prompt(rig.restored(saved, {})))
    needed = {
        name: [
            page
            for page in range(first_needed_at(pool, TransferPolicy.SELECTIVE, end), end)
            if name not in selected or selected[name][page]
        ]
        for name, pool in rig.pools.items()
    }
    spared = {name: sorted({*range(rig.num_pages)} - {*pages}) for name, pages in needed.items()}
    np.testing.assert_array_equal(whole, rig.continued(saved, end, without=spared))
    for name, pages in needed.items():
        for page in pages:
            assert np.isnan(rig.continued(saved, end, without={name: [page]})).any(), (name, page)


@pytest.mark.parametrize("name", MODELS)
@given(end=st.integers(1, MAX_END), page_tokens=st.sampled_from([4, 8]))
@settings(max_examples=6)
def test_needed_pages_are_read_and_others_are_not(name: str, end: int, page_tokens: int) -> None:
    spec = replace(MODELS[name], page_tokens=page_tokens)
    check_needed_pages(Rig(spec, end * page_tokens + SUFFIX_TOKENS), end)


@given(window=st.integers(1, 50), page_tokens=st.integers(1, 9), end=st.integers(1, MAX_END))
@settings(max_examples=40)
def test_a_window_of_any_size_over_pages_of_any_size(window: int, page_tokens: int, end: int) -> None:
    attentions = {"window": SlidingWindow(kv_heads=1, head_dim=8, window=window)}
    spec = model_spec(("window",), page_tokens=page_tokens, attentions=attentions)
    check_needed_pages(Rig(spec, end * page_tokens + SUFFIX_TOKENS), end)


@given(chunk=st.integers(1, 50), page_tokens=st.integers(1, 9), end=st.integers(1, MAX_END))
@settings(max_examples=40)
def test_a_chunk_of_any_size_over_pages_of_any_size(chunk: int, page_tokens: int, end: int) -> None:
    attentions = {"chunk": ChunkedAttention(kv_heads=1, head_dim=8, chunk=chunk)}
    spec = model_spec(("chunk",), page_tokens=page_tokens, attentions=attentions)
    check_needed_pages(Rig(spec, end * page_tokens + SUFFIX_TOKENS), end)


@pytest.mark.parametrize("end", [1, 2])
def test_needed_pages_of_compressed_pools(end: int) -> None:
    check_needed_pages(Rig(V4, end * 256 + SUFFIX_TOKENS), end)


def test_windows_that_an_engine_keeps_in_the_pool_of_full_layers_are_needed_whole() -> None:
    spec = model_spec(("window",), ("full",), architecture="Gemma3ForConditionalGeneration")
    rig = Rig(spec, 9 * 8 + SUFFIX_TOKENS, profile=SGLANG)
    assert ["kv"] == list(rig.pools)
    check_needed_pages(rig, 9)
    assert ["kv", "swa"] == list(Rig(spec, 8, profile=BY_KIND).pools)
