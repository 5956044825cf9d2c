"""Oracles: the recurrences as their papers write them, one token and one head at a time, in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.numerics.linear import decayed_sum, gated_delta, selective_scan, short_conv

HEADS, KEY_DIM, VALUE_DIM = 3, 8, 5
TOLERANCE = 2e-5
SEEDS = st.integers(0, 2**20)


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def unit(values: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = values / np.linalg.norm(values, axis=-1, keepdims=True)
    return scaled


@given(seed=SEEDS, length=st.integers(1, 150))
@settings(max_examples=30)
def test_a_decayed_sum_is_its_recurrence(seed: int, length: int) -> None:
    q, k = draw(seed, length, HEADS, KEY_DIM), draw(seed + 1, length, HEADS, KEY_DIM)
    v, state = draw(seed, length, HEADS, VALUE_DIM), draw(seed, HEADS, VALUE_DIM, KEY_DIM)
    decay = -np.abs(draw(seed, length, HEADS))
    out, after = decayed_sum(q, k, v, decay, state)
    for head in range(HEADS):
        current = state[head].astype(np.float64)
        for token in range(length):
            current = np.exp(float(decay[token, head])) * current + np.outer(v[token, head], k[token, head])
            expected = current @ q[token, head]
            np.testing.assert_allclose(out[token, head], expected, atol=2e-4, rtol=1e-4)
        np.testing.assert_allclose(after[head], current, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("channels", [1, KEY_DIM], ids=["gdn", "kda"])
@given(seed=SEEDS, length=st.integers(1, 70))
@settings(max_examples=30)
def test_a_gated_delta_rule_is_its_recurrence(channels: int, seed: int, length: int) -> None:
    q, k = draw(seed, length, HEADS, KEY_DIM), unit(draw(seed + 1, length, HEADS, KEY_DIM))
    v, state = draw(seed, length, HEADS, VALUE_DIM), draw(seed, HEADS, VALUE_DIM, KEY_DIM)
    decay = -np.abs(draw(seed, length, HEADS, channels)) / 4
    beta = 1 / (1 + np.exp(draw(seed, length, HEADS)))
    out, after = gated_delta(q, k, v, decay, beta, state)
    for head in range(HEADS):
        # As transformers' torch_recurrent_gated_delta_rule: memory is (key, value).
        memory = state[head].T.astype(np.float64)
        for token in range(length):
            memory = memory * np.exp(decay[token, head].astype(np.float64))[:, None]
            recalled = k[token, head] @ memory
            memory = memory + np.outer(k[token, head], beta[token, head] * (v[token, head] - recalled))
            np.testing.assert_allclose(out[token, head], q[token, head] @ memory, atol=1e-4, rtol=1e-4)
        np.testing.assert_allclose(after[head].T, memory, atol=1e-4, rtol=1e-4)


def test_a_delta_rule_replaces_what_was_stored_under_a_key() -> None:
    """By hand: without decay and with full strength, the second value under a key takes the first's place."""
    key = np.zeros((2, 1, 4), dtype=np.float32)
    key[..., 2] = 1
    values = np.array([[[5.0, 6.0]], [[7.0, 8.0]]], dtype=np.float32)
    flat = np.zeros((2, 1, 1), dtype=np.float32)
    state = np.zeros((1, 2, 4), dtype=np.float32)
    out, after = gated_delta(key, key, values, flat, np.ones((2, 1), np.float32), state)
    np.testing.assert_array_equal(values, out)
    np.testing.assert_array_equal([[0, 0, 7, 0], [0, 0, 8, 0]], after[0])


@given(seed=SEEDS, length=st.integers(1, 30))
@settings(max_examples=20)
def test_a_selective_scan_is_its_recurrence(seed: int, length: int) -> None:
    channels, size = 6, 4
    steps, x = np.abs(draw(seed, length, channels)), draw(seed + 1, length, channels)
    b, c = draw(seed, length, size), draw(seed + 1, length, size)
    rates, state = -np.abs(draw(seed, channels, size)), draw(seed + 1, channels, size)
    out, after = selective_scan(steps, x, b, c, rates, state)
    for channel in range(channels):
        hidden = state[channel].astype(np.float64)
        for token in range(length):
            step = float(steps[token, channel])
            hidden = np.exp(step * rates[channel]) * hidden + step * x[token, channel] * b[token]
            np.testing.assert_allclose(out[token, channel], hidden @ c[token], atol=TOLERANCE, rtol=1e-4)
        np.testing.assert_allclose(after[channel], hidden, atol=TOLERANCE, rtol=1e-4)


@given(seed=SEEDS, length=st.integers(1, 12), kernel=st.integers(1, 5))
def test_a_short_convolution_is_numpys(seed: int, length: int, kernel: int) -> None:
    x, weights = draw(seed, length, 3), draw(seed, kernel, 3)
    history = draw(seed + 1, kernel - 1, 3)
    out, after = short_conv(x, weights, history)
    padded = np.concatenate([history, x])
    for channel in range(3):
        expected = np.convolve(padded[:, channel], weights[::-1, channel], mode="valid")
        np.testing.assert_allclose(out[:, channel], expected, atol=TOLERANCE)
    np.testing.assert_array_equal(padded[len(padded) - kernel + 1 :], after)
