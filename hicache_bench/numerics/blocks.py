"""What every reference is built of: seeded weights, norms, rotary positions, attention over gathered keys."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from hicache_bench.numerics.cache import IntArray, Prompt
from hicache_bench.numerics.dtypes import Floats

Mask = npt.NDArray[np.bool_]
_Float = TypeVar("_Float", bound=np.floating[Any])
QUERY_BLOCK = 256
"""Queries that attend at once: bounds the memory of scores, and of keys that a window gathers."""

_ROPE_BASE = 10000.0
_OWN_SHARE = 0.1


class Part(Protocol):
    """One attention of one layer. It appends what its tokens cache, and reads only what it admits."""

    def forward(self, hidden: Floats, inputs: Floats, start: int, prompt: Prompt) -> Floats:
        """Outputs of tokens ``start...`` of shape ``(tokens, width)``, given everything before in the caches.

        ``hidden`` is what the layers before made of these tokens, ``inputs`` the tokens themselves, of the
        same shape: the keys and queries of an index come from ``inputs`` (see ``sparse``).
        """


class Weights:
    """Seeded matrices, the same for the same seed and label whatever else is drawn."""

    def __init__(self, seed: int, label: str) -> None:
        self._seed = seed
        self._label = label

    def within(self, name: str) -> Weights:
        """Other matrices, for a part of the same layer."""
        return Weights(self._seed, f"{self._label}/{name}")

    def matrix(self, name: str, rows: int, columns: int) -> Floats:
        """Normal values of variance ``1 / rows``: what is multiplied by it keeps its size."""
        return self.normal(name, rows, columns) / np.float32(np.sqrt(rows))

    def topical_matrix(self, name: str, rows: int, columns: int) -> npt.NDArray[np.float64]:
        """A matrix for inputs whose first half is their topic: the second half hardly counts.

        An index that ranks by topic selects tokens that lie together, as one does in real prompts.
        """
        matrix = self.matrix(name, rows, columns).astype(np.float64)
        matrix[rows // 2 :] *= _OWN_SHARE
        return matrix

    def normal(self, name: str, *shape: int) -> Floats:
        """Standard normal values."""
        return self._generator(name).standard_normal(shape, dtype=np.float32)

    def uniform(self, name: str, low: float, high: float, *shape: int) -> Floats:
        """Uniform values of ``[low, high)``."""
        return self._generator(name).uniform(low, high, shape).astype(np.float32)

    def _generator(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self._seed, zlib.crc32(f"{self._label}/{name}".encode())])


def normalized(values: npt.NDArray[_Float]) -> npt.NDArray[_Float]:
    """Each vector of the last axis with a root mean square of 1."""
    squares = np.mean(values * values, axis=-1, keepdims=True)
    scaled: npt.NDArray[_Float] = values / np.sqrt(squares + values.dtype.type(1e-6))
    return scaled


def sigmoid(values: Floats) -> Floats:
    """The logistic function, without overflow."""
    halved: Floats = np.tanh(np.float32(0.5) * values)
    return np.float32(0.5) * halved + np.float32(0.5)


def silu(values: Floats) -> Floats:
    """``x * sigmoid(x)``."""
    return values * sigmoid(values)


def softplus(values: Floats) -> Floats:
    """``log(1 + exp(x))``."""
    positive: Floats = np.logaddexp(np.float32(0), values)
    return positive


def rotated(values: Floats, positions: IntArray, *, back: bool = False) -> Floats:
    """Rotary position embedding over the last axis; the first axis is that of ``positions``.

    The first and the second half of the axis are the two coordinates that turn. ``back`` undoes it.
    """
    half = values.shape[-1] // 2
    angles = np.multiply.outer(positions, _ROPE_BASE ** (-np.arange(half) / half))
    shape = (len(positions), *(1,) * (values.ndim - 2), half)
    cosines = np.cos(angles).astype(np.float32).reshape(shape)
    sines = np.sin(-angles if back else angles).astype(np.float32).reshape(shape)
    first, second = values[..., :half], values[..., half:]
    return np.concatenate([first * cosines - second * sines, second * cosines + first * sines], axis=-1)


def query_blocks(num_queries: int) -> Iterator[slice]:
    """The queries of a forward, a block at a time."""
    return (slice(first, first + QUERY_BLOCK) for first in range(0, num_queries, QUERY_BLOCK))


def attend(queries: Floats, keys: Floats, values: Floats, admitted: Mask) -> Floats:
    """Softmax attention of ``(q, heads, d)`` over ``(n, kv_heads, d)`` keys; heads are a multiple of theirs.

    ``admitted`` has shape ``(q, n)``. Keys that no query admits are dropped before anything is multiplied, so
    that a NaN among them cannot spread. A query that admits nothing gets zeros.
    """
    columns = np.flatnonzero(admitted.any(axis=0))
    num_queries, heads, dim = queries.shape
    mixed = np.zeros((num_queries, heads, values.shape[-1]), dtype=np.float32)
    if not len(columns):
        return mixed
    if len(columns) < len(keys):
        keys, values, admitted = keys[columns], values[columns], admitted[:, columns]
    group = heads // keys.shape[1]
    hidden = np.repeat(~admitted, group, axis=0)
    # A head at a time: its scores stay in a cache of the processor.
    for head in range(keys.shape[1]):
        own = slice(head * group, (head + 1) * group)
        scores = queries[:, own].reshape(-1, dim) @ keys[:, head].T
        scores /= np.float32(np.sqrt(dim))
        scores[hidden] = -np.inf
        peaks = scores.max(axis=1, keepdims=True)
        scores -= np.where(np.isneginf(peaks), np.float32(0), peaks)
        np.exp(scores, out=scores)
        totals = scores.sum(axis=1, keepdims=True)
        totals[totals == 0] = 1
        mixed[:, own] = (scores @ values[:, head] / totals).reshape(num_queries, group, -1)
    return mixed
