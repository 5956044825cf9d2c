from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.errors import InputError
from hicache_bench.models.spec import CompressedAttention, ModelSpec
from hicache_bench.numerics.blocks import normalized, rotated
from hicache_bench.numerics.cache import Prompt
from hicache_bench.numerics.compressed import HEADS
from tests.numerics.rig import V4, Rig

C4, C128 = ("latents", "c4"), ("latents", "c128")


def only(*layers: tuple[str, ...]) -> ModelSpec:
    used = {name for names in layers for name in names}
    return replace(
        V4, layers=layers, attentions={name: kind for name, kind in V4.attentions.items() if name in used}
    )


def compressed_of(rig: Rig) -> Any:
    return rig.part()._compressed


@pytest.mark.parametrize("layer", [C4, C128], ids=["c4", "c128"])
@given(seed=st.integers(0, 1000), num_tokens=st.integers(1, 300))
@settings(max_examples=8)
def test_a_row_pools_its_own_group_and_with_overlap_the_one_before(
    layer: tuple[str, ...], seed: int, num_tokens: int
) -> None:
    """Oracle: one group and one dim at a time, from the tokens themselves."""
    rig = Rig(only(layer), num_tokens, seed=seed)
    compressor = compressed_of(rig)._compressor
    prompt = Prompt(rig.caches())
    compressor.append(rig.inputs, 0, prompt)
    ratio, overlap = compressor._ratio, compressor._overlap
    projected = rig.inputs.astype(float) @ compressor._project
    values, gates = np.split(projected, 2, axis=1)
    num_rows = num_tokens // ratio
    for row in {0, num_rows // 2, num_rows - 1} if num_rows else ():
        members = [(row * ratio + i, 512 if overlap else 0, i) for i in range(ratio)]
        if overlap:
            members = [(token, half, ratio + i) for token, half, i in members]
            members += [((row - 1) * ratio + i, 0, i) for i in range(ratio) if row > 0]
        tokens, halves, places = (np.array(column) for column in zip(*members, strict=True))
        dims = halves[:, None] + np.arange(512)
        scores = gates[tokens[:, None], dims] + compressor._bias[places]
        weights = np.exp(scores) / np.exp(scores).sum(axis=0)
        pooled = normalized((weights * values[tokens[:, None], dims]).sum(axis=0))
        pooled[448:] = rotated(pooled[None, 448:], np.array([row * ratio]))[0]
        found = compressor.read(prompt, np.array([row]))[0]
        np.testing.assert_allclose(found[:448], pooled[:448], atol=0.02, rtol=1 / 16)
        np.testing.assert_allclose(found[448:], pooled[448:], atol=0.02)
        # Quantisation errors have no direction: the mean error must be far smaller than the step.
        assert abs(np.mean(found - pooled)) < 0.01


@pytest.mark.parametrize("layer", [C4, C128], ids=["c4", "c128"])
@given(cuts=st.lists(st.integers(1, 299), max_size=6, unique=True))
@settings(max_examples=10)
def test_rows_are_the_same_bytes_however_the_tokens_come(layer: tuple[str, ...], cuts: list[int]) -> None:
    rig = Rig(only(layer), 300)
    compressor = compressed_of(rig)._compressor
    once, pieces = Prompt(rig.caches()), Prompt(rig.caches())
    compressor.append(rig.inputs, 0, once)
    edges = [0, *sorted(cuts), 300]
    for first, stop in pairwise(edges):
        compressor.append(rig.inputs[first:stop], first, pieces)
    rows = np.arange(300 // compressor._ratio)
    np.testing.assert_array_equal(compressor.read(once, rows), compressor.read(pieces, rows))
    if compressor._overlap:
        ring = compressor._ring_pool
        pages = np.array([0])
        np.testing.assert_array_equal(
            once.caches[ring].read_pages("page", 0, pages), pieces.caches[ring].read_pages("page", 0, pages)
        )


def test_a_query_reads_its_window_and_the_groups_that_are_complete() -> None:
    """Oracle: a softmax in float64 over the rows of both caches."""
    rig = Rig(only(C128), 300)
    part = rig.part()
    prompt = Prompt(rig.caches())
    hidden = normalized(rig.inputs)
    found = part.forward(hidden, rig.inputs, 0, prompt)
    latents = part._rows.read(prompt.caches["swa"], 0, np.arange(300)).astype(float)
    pooled = compressed_of(rig).read(prompt, np.arange(2)).astype(float)
    for token in (0, 127, 128, 254, 255, 299):
        rows = [*latents[max(0, token - 127) : token + 1], *pooled[: (token + 1) // 128]]
        query = normalized((hidden[token] @ part._query).reshape(HEADS, 512))
        query[:, 448:] = rotated(query[None, :, 448:], np.array([token]))[0]
        scores = query @ np.array(rows).T / np.sqrt(512)
        weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        mixed = weights @ np.array(rows)
        mixed[:, 448:] = rotated(mixed[None, :, 448:].astype(np.float32), np.array([token]), back=True)[0]
        np.testing.assert_allclose(found[token], mixed.ravel() @ part._out, atol=1e-4)


def test_without_its_ring_the_first_new_group_is_nan() -> None:
    rig = Rig(only(C4), 520)
    saved = rig.prefix(2)
    assert np.isfinite(rig.continued(saved, 2)).all()
    for ring in ("deepseek_v4_c4_state", "deepseek_v4_c4_indexer_state"):
        assert np.isnan(rig.continued(saved, 2, without={ring: [1]})).any()
        np.testing.assert_array_equal(rig.continued(saved, 2), rig.continued(saved, 2, without={ring: [0]}))


def test_the_ring_of_the_neighbour_endpoint_gives_other_numbers() -> None:
    rig = Rig(only(C4), 520)
    saved = rig.prefix(2)
    right = rig.continued(saved, 2)
    array = saved["deepseek_v4_c4_state"]._arrays["page"]
    array[1] = array[0]
    wrong = rig.continued(saved, 2)
    assert np.isfinite(wrong).all()
    assert np.abs(wrong - right).max() > 0.02


def test_a_pending_group_without_a_ring_lives_on_the_device_alone() -> None:
    rig = Rig(only(C128), 300)
    saved = rig.prefix(1)
    with pytest.raises(InputError, match="no state of 'deepseek_v4_c128_state' at token 300"):
        rig.model.forward(rig.inputs[:1], 300, Prompt(saved))


def test_an_index_picks_among_the_rows() -> None:
    few = replace(
        only(C4),
        attentions={
            "latents": V4.attentions["latents"],
            "c4": CompressedAttention(ratio=4, nope_dim=448, rope_dim=64, index_head_dim=128, index_top_k=16),
        },
    )
    rig = Rig(few, 1028)
    saved = rig.prefix(4)
    selected = rig.model.selected_units(rig.inputs[1024:], 1024, Prompt(rig.restored(saved, {})))
    unread = np.flatnonzero(~selected["deepseek_v4_c4"]).tolist()
    assert 0 < len(unread) < 4
    whole = rig.continued(saved, 4)
    assert np.isfinite(whole).all()
    np.testing.assert_array_equal(whole, rig.continued(saved, 4, without={"deepseek_v4_c4": unread}))
