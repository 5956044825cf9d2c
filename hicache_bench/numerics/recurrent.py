"""Recurrent layers: one state that holds all that came before, stored for the ends of pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from hicache_bench.errors import ConfigError
from hicache_bench.models.spec import RecurrentAttention
from hicache_bench.numerics.blocks import Weights
from hicache_bench.numerics.cache import Prompt, RowCache
from hicache_bench.numerics.dtypes import Floats, decode, encode, rounded
from hicache_bench.numerics.kernels import kernel_of
from hicache_bench.numerics.linear import short_conv
from hicache_bench.pools.descriptor import KVPoolDescriptor

_SEGMENT = 256
_TEMPORAL, _CONV = "temporal", "conv_0"


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """What a layer knows of its past: the temporal state, and the last inputs of its convolution.

    ``drift`` is by how much the layer's extra tensors differ from what they should hold; it is added to the
    outputs, so that such a tensor cannot be lost unseen.
    """

    temporal: Floats
    history: Floats
    drift: float = 0.0


class RecurrentReference:
    """A recurrent attention of its real dims; extra tensors, whose use no formula names, hold the position.

    A state is written at the end of each page that the pool has a slot for, in the pool's dtypes. Inputs of a
    convolution are rounded as its state holds them, so that a restored history is the one that was computed.
    """

    def __init__(
        self,
        attention: RecurrentAttention,
        pool: KVPoolDescriptor,
        layer: int,
        weights: Weights,
        width: int,
        *,
        conv_dtype: str,
    ) -> None:
        self._pool = pool.name
        self._layer = layer
        self._kernel = kernel_of(attention, weights, width)
        self._state_dtype = pool.dtype
        self._conv_dtype = conv_dtype
        self._extra = attention.extra
        self._conv_kernel = weights.normal("conv", self._kernel.conv_kernel, self._kernel.conv_channels)
        self._conv_kernel /= np.float32(np.sqrt(max(1, self._kernel.conv_kernel)))
        self._out = weights.matrix("out", self._kernel.out_dim, width)
        self._check(pool)

    def forward(self, hidden: Floats, inputs: Floats, start: int, prompt: Prompt) -> Floats:  # noqa: ARG002
        cache = prompt.caches[self._pool]
        state = prompt.state(self._pool, self._layer, start, fresh=self._fresh(), load=self._load)
        outputs = np.empty((len(hidden), self._kernel.out_dim), dtype=np.float32)
        first = start
        for stop in _stops(start, start + len(hidden), cache):
            segment = slice(first - start, stop - start)
            outputs[segment], state = self._step(hidden[segment], state)
            if stop % cache.page_tokens == 0 and cache.holds(stop // cache.page_tokens - 1):
                self._store(cache, stop // cache.page_tokens - 1, state)
            first = stop
        prompt.keep(self._pool, self._layer, first, state)
        out: Floats = outputs @ self._out
        return out

    def _step(self, hidden: Floats, state: RecurrentState) -> tuple[Floats, RecurrentState]:
        projected = self._kernel.project(hidden)
        history = state.history
        if self._kernel.conv_kernel:
            entering = rounded(projected.conv, self._conv_dtype)
            conv, history = short_conv(entering, self._conv_kernel, history)
        else:
            conv = projected.conv
        out, temporal = self._kernel.mix(projected, conv, state.temporal)
        if state.drift:
            out = out + np.float32(state.drift)
        return out, RecurrentState(temporal, history, state.drift)

    def _fresh(self) -> RecurrentState:
        history = np.zeros((max(0, self._kernel.conv_kernel - 1), self._kernel.conv_channels), np.float32)
        return RecurrentState(np.zeros(self._kernel.temporal_shape, dtype=np.float32), history)

    def _store(self, cache: RowCache, page: int, state: RecurrentState) -> None:
        if state.temporal.size:
            temporal = encode(state.temporal, self._state_dtype)
            cache.write_page(_TEMPORAL, self._layer, page, temporal.ravel())
        if state.history.size:
            history = state.history if self._kernel.token_first else state.history.T
            cache.write_page(_CONV, self._layer, page, encode(history, self._conv_dtype).ravel())
        for tensor in self._extra:
            content = np.full(tensor.shape, _mark(page) + state.drift)
            cache.write_page(tensor.name, self._layer, page, encode(content, tensor.dtype).ravel())

    def _load(self, cache: RowCache, page: int) -> RecurrentState:
        fresh = self._fresh()
        temporal, history = fresh.temporal, fresh.history
        pages = np.array([page])
        if temporal.size:
            raw = cache.read_pages(_TEMPORAL, self._layer, pages)[0]
            temporal = decode(raw, self._state_dtype).reshape(temporal.shape)
        if history.size:
            values = decode(cache.read_pages(_CONV, self._layer, pages)[0], self._conv_dtype)
            token_first = self._kernel.token_first
            history = values.reshape(history.shape) if token_first else values.reshape(history.shape[::-1]).T
        drift = 0.0
        for tensor in self._extra:
            raw = cache.read_pages(tensor.name, self._layer, pages)[0]
            drift += float(np.mean(decode(raw, tensor.dtype) - _mark(page)))
        return RecurrentState(temporal, history, drift)

    def _check(self, pool: KVPoolDescriptor) -> None:
        """The pool must hold this state whole: a shard of it has other shapes."""
        state = self._fresh()
        elements = {_TEMPORAL: state.temporal.size, _CONV: state.history.size}
        elements |= {tensor.name: prod(tensor.shape) for tensor in self._extra}
        dtypes = {_TEMPORAL: self._state_dtype, _CONV: self._conv_dtype}
        dtypes |= {tensor.name: tensor.dtype for tensor in self._extra}
        for component in pool.stored_components:
            wanted = encode(np.zeros(elements[component.name]), dtypes[component.name]).size
            if component.row_bytes != wanted:
                raise ConfigError(
                    f"pool {pool.name!r} holds {component.row_bytes} bytes of {component.name} a layer, and "
                    f"the whole state has {wanted}; numerics run on one rank, without --tp"
                )


def _mark(page: int) -> int:
    """What an extra tensor holds: a number that every dtype has exactly, another for the neighbour page."""
    return page % 16 + 1


def _stops(start: int, stop: int, cache: RowCache) -> Iterator[int]:
    """Where to pause: at the end of every page that keeps a state, and often enough to bound memory."""
    position = start
    while position < stop:
        limit = min(stop, position + _SEGMENT)
        first_page = position // cache.page_tokens
        ends = ((page + 1) * cache.page_tokens for page in range(first_page, limit // cache.page_tokens))
        position = next((end for end in ends if cache.holds(end // cache.page_tokens - 1)), limit)
        yield position
