from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.numerics.blocks import Weights, attend, normalized, rotated

SEEDS = st.integers(0, 2**20)


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


@given(seed=SEEDS, queries=st.integers(1, 9), keys=st.integers(1, 17), heads=st.integers(1, 3))
def test_attention_is_a_softmax_over_the_admitted_keys(
    seed: int, queries: int, keys: int, heads: int
) -> None:
    """Oracle: one query and one head at a time, in float64, over a list of keys."""
    q, k, v = draw(seed, queries, 2 * heads, 8), draw(seed + 1, keys, heads, 8), draw(seed, keys, heads, 5)
    admitted = np.random.default_rng(seed).random((queries, keys)) < 0.5
    found = attend(q, k, v, admitted)
    for query in range(queries):
        rows = [row for row in range(keys) if admitted[query, row]]
        for head in range(2 * heads):
            scores = [float(q[query, head] @ k[row, head // 2]) / np.sqrt(8) for row in rows]
            weights = np.exp(scores) / np.exp(scores).sum()
            expected = sum((w * v[row, head // 2] for w, row in zip(weights, rows, strict=True)), np.zeros(5))
            np.testing.assert_allclose(found[query, head], expected, atol=1e-5)


@given(seed=SEEDS, keys=st.integers(2, 20))
def test_a_nan_that_no_query_admits_changes_no_bit(seed: int, keys: int) -> None:
    q, k, v = draw(seed, 3, 2, 8), draw(seed + 1, keys, 2, 8), draw(seed, keys, 2, 5)
    admitted = np.tile(np.random.default_rng(seed).random(keys) < 0.5, (3, 1))
    clean = attend(q, k, v, admitted)
    k[~admitted[0]], v[~admitted[0]] = np.nan, np.nan
    np.testing.assert_array_equal(clean, attend(q, k, v, admitted))


def test_an_admitted_nan_shows() -> None:
    q, k, v = draw(0, 1, 1, 8), draw(1, 4, 1, 8), draw(0, 4, 1, 5)
    for poisoned in (k, v):
        kept = poisoned[2].copy()
        poisoned[2] = np.nan
        assert np.isnan(attend(q, k, v, np.ones((1, 4), dtype=np.bool_))).any()
        poisoned[2] = kept


@given(seed=SEEDS, shift=st.integers(0, 5000), distance=st.integers(0, 50))
def test_products_of_turned_vectors_depend_on_distance_alone(seed: int, shift: int, distance: int) -> None:
    a, b = draw(seed, 1, 16), draw(seed + 1, 1, 16)

    def product(first: int, second: int) -> float:
        return float((rotated(a, np.array([first])) @ rotated(b, np.array([second])).T).item())

    assert abs(product(shift, shift + distance) - product(0, distance)) < 1e-3
    np.testing.assert_allclose(
        a, rotated(rotated(a, np.array([shift])), np.array([shift]), back=True), atol=1e-5
    )


def test_turning_moves_a_vector() -> None:
    a = draw(0, 1, 16)
    assert np.abs(rotated(a, np.array([1])) - a).max() > 0.1
    np.testing.assert_array_equal(a, rotated(a, np.array([0])))


def test_weights_depend_on_seed_and_label_and_on_nothing_else() -> None:
    first = Weights(1, "a").matrix("x", 4, 4)
    other = Weights(1, "a")
    other.normal("something else", 7)
    np.testing.assert_array_equal(first, other.matrix("x", 4, 4))
    for different in (
        Weights(2, "a").matrix("x", 4, 4),
        Weights(1, "b").matrix("x", 4, 4),
        Weights(1, "a").matrix("y", 4, 4),
    ):
        assert not np.array_equal(first, different)


def test_a_normalized_vector_has_size_one() -> None:
    sizes = np.sqrt(np.mean(normalized(draw(3, 5, 64) * 40) ** 2, axis=-1))
    np.testing.assert_allclose(sizes, 1, atol=1e-4)
