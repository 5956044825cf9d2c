"""What each recurrent attention projects from its tokens, and how its state mixes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hicache_bench.models.spec import (
    GatedDelta,
    KimiDelta,
    Lightning,
    Mamba1,
    Mamba2,
    RecurrentAttention,
    ShortConv,
)
from hicache_bench.numerics.blocks import Weights, normalized, sigmoid, silu, softplus
from hicache_bench.numerics.dtypes import Floats
from hicache_bench.numerics.linear import decayed_sum, gated_delta, selective_scan

_SLOWEST, _FASTEST = 1 / 256, 1 / 8
"""Range of decay rates: states remember between a few and a few hundred tokens."""


@dataclass(frozen=True, slots=True)
class Projected:
    """What a convolution takes in (or, without one, the kernel itself), and the gates beside it."""

    conv: Floats
    gates: tuple[Floats, ...]


class Kernel(Protocol):
    """``temporal_shape`` is empty-sized where there is no temporal state; ``conv_kernel`` 0: no convolution.

    ``token_first`` is the order of a stored convolution state: ``(k - 1, channels)`` or its transpose.
    """

    @property
    def temporal_shape(self) -> tuple[int, ...]: ...
    @property
    def conv_kernel(self) -> int: ...
    @property
    def conv_channels(self) -> int: ...
    @property
    def token_first(self) -> bool: ...
    @property
    def out_dim(self) -> int: ...

    def project(self, hidden: Floats) -> Projected:
        """Of each token alone."""

    def mix(self, projected: Projected, conv: Floats, temporal: Floats) -> tuple[Floats, Floats]:
        """Outputs and the state after them, from what left the convolution and the state before."""


def kernel_of(attention: RecurrentAttention, weights: Weights, width: int) -> Kernel:
    """The kernel of ``attention``, with seeded weights."""
    match attention:
        case GatedDelta():
            return _Delta(
                weights,
                width,
                key_heads=attention.key_heads,
                value_heads=attention.value_heads,
                key_dim=attention.key_dim,
                value_dim=attention.value_dim,
                conv_kernel=attention.conv_kernel,
                by_channel=False,
            )
        case KimiDelta(heads=heads, head_dim=dim):
            return _Delta(
                weights,
                width,
                key_heads=heads,
                value_heads=heads,
                key_dim=dim,
                value_dim=dim,
                conv_kernel=attention.conv_kernel,
                by_channel=True,
            )
        case Mamba1():
            return _Selective(attention, weights, width)
        case Mamba2():
            return _StateSpace(attention, weights, width)
        case Lightning():
            return _Lightning(attention, weights, width)
        case ShortConv():
            return _GatedConv(attention, weights, width)


class _Delta:
    """GDN and KDA: q, k and v leave one convolution; decay is one number a head (GDN) or a channel (KDA)."""

    def __init__(
        self,
        weights: Weights,
        width: int,
        *,
        key_heads: int,
        value_heads: int,
        key_dim: int,
        value_dim: int,
        conv_kernel: int,
        by_channel: bool,
    ) -> None:
        self._key_heads, self._value_heads, self._key_dim = key_heads, value_heads, key_dim
        self._by_channel = by_channel
        self.temporal_shape = (value_heads, value_dim, key_dim)
        self.conv_kernel = conv_kernel
        self.conv_channels = 2 * key_heads * key_dim + value_heads * value_dim
        self.token_first = by_channel
        self.out_dim = value_heads * value_dim
        channels = key_dim if by_channel else 1
        self._inputs = weights.matrix("qkv", width, self.conv_channels)
        self._gate = weights.matrix("decay", width, value_heads * channels)
        self._beta = weights.matrix("beta", width, value_heads)
        self._rates = weights.uniform("rates", _SLOWEST, _FASTEST, value_heads, channels)

    def project(self, hidden: Floats) -> Projected:
        return Projected(hidden @ self._inputs, (hidden @ self._gate, hidden @ self._beta))

    def mix(self, projected: Projected, conv: Floats, temporal: Floats) -> tuple[Floats, Floats]:
        gate, beta = projected.gates
        keys_end = 2 * self._key_heads * self._key_dim
        active = silu(conv)
        queries, keys = np.split(active[:, :keys_end].reshape(len(conv), -1, self._key_dim), 2, axis=1)
        values = active[:, keys_end:].reshape(len(conv), self._value_heads, -1)
        repeats = self._value_heads // self._key_heads
        # Unit vectors; queries are scaled by the head once more, as in softmax attention.
        scale = np.float32(np.sqrt(self._key_dim))
        queries = np.repeat(normalized(queries) / (scale * scale), repeats, axis=1)
        keys = np.repeat(normalized(keys) / scale, repeats, axis=1)
        log_decay = -softplus(gate).reshape(len(conv), self._value_heads, -1) * self._rates
        out, temporal = gated_delta(queries, keys, values, log_decay, sigmoid(beta), temporal)
        return out.reshape(len(conv), -1), temporal


class _StateSpace:
    """Mamba-2: x, B and C leave one convolution; heads of a group share B and C."""

    def __init__(self, attention: Mamba2, weights: Weights, width: int) -> None:
        self._attention = attention
        heads, groups, state = attention.heads, attention.groups, attention.state_dim
        self.temporal_shape = (heads, attention.head_dim, state)
        self.conv_kernel = attention.conv_kernel
        self.out_dim = heads * attention.head_dim
        self.conv_channels = self.out_dim + 2 * groups * state
        self.token_first = False
        self._inputs = weights.matrix("xbc", width, self.conv_channels)
        self._steps = weights.matrix("dt", width, heads)
        self._rates = weights.uniform("rates", _SLOWEST, _FASTEST, heads)
        self._skip = weights.normal("skip", heads)

    def project(self, hidden: Floats) -> Projected:
        return Projected(hidden @ self._inputs, (softplus(hidden @ self._steps),))

    def mix(self, projected: Projected, conv: Floats, temporal: Floats) -> tuple[Floats, Floats]:
        (steps,) = projected.gates
        attention = self._attention
        active = silu(conv)
        x = active[:, : self.out_dim].reshape(len(conv), attention.heads, -1)
        shared = active[:, self.out_dim :].reshape(len(conv), 2 * attention.groups, -1)
        shared = shared / np.float32(np.sqrt(attention.state_dim))
        b, c = np.split(np.repeat(shared, attention.heads // attention.groups, axis=1), 2, axis=1)
        out, temporal = decayed_sum(c, b, x * steps[..., None], -steps * self._rates, temporal)
        return (out + self._skip[:, None] * x).reshape(len(conv), -1), temporal


class _Selective:
    """Mamba-1: x leaves the convolution, and gives the step, B and C of its own token."""

    def __init__(self, attention: Mamba1, weights: Weights, width: int) -> None:
        inner, self._state_dim = attention.inner_dim, attention.state_dim
        # As in a deployed state, whose middle axis of 1 changes no byte.
        self.temporal_shape = (inner, self._state_dim)
        self.conv_kernel = attention.conv_kernel
        self.conv_channels = inner
        self.token_first = False
        self.out_dim = inner
        rank = max(1, inner // 32)
        self._inputs = weights.matrix("x", width, inner)
        self._parameters = weights.matrix("dbc", inner, rank + 2 * self._state_dim)
        self._steps = weights.matrix("dt", rank, inner)
        self._rates = -weights.uniform("rates", _SLOWEST, _FASTEST, inner, self._state_dim)
        self._skip = weights.normal("skip", inner)

    def project(self, hidden: Floats) -> Projected:
        return Projected(hidden @ self._inputs, ())

    def mix(self, projected: Projected, conv: Floats, temporal: Floats) -> tuple[Floats, Floats]:  # noqa: ARG002
        x = silu(conv)
        parameters = x @ self._parameters
        rank = parameters.shape[1] - 2 * self._state_dim
        b, c = np.split(parameters[:, rank:], 2, axis=1)
        steps = softplus(np.matmul(parameters[:, :rank], self._steps, dtype=np.float32))
        out, temporal = selective_scan(steps, x, b, c, self._rates, temporal)
        return out + self._skip * x, temporal


class _Lightning:
    """Lightning attention: no convolution; each head decays at its own constant rate.

    Source of the rates: transformers 5.24 ``MiniMaxLightningAttention`` (those of ALiBi).
    """

    conv_kernel = 0
    token_first = False

    def __init__(self, attention: Lightning, weights: Weights, width: int) -> None:
        heads, dim = attention.heads, attention.head_dim
        self._dim = dim
        self.temporal_shape = (heads, dim, dim)
        self.conv_channels = 0
        self.out_dim = heads * dim
        self._inputs = weights.matrix("qkv", width, 3 * heads * dim)
        self._rates = (2.0 ** (-8 / heads * np.arange(1, heads + 1))).astype(np.float32)

    def project(self, hidden: Floats) -> Projected:
        return Projected(hidden @ self._inputs, ())

    def mix(self, projected: Projected, conv: Floats, temporal: Floats) -> tuple[Floats, Floats]:  # noqa: ARG002
        active = silu(conv).reshape(len(conv), -1, self._dim)
        queries, keys, values = np.split(active, 3, axis=1)
        log_decay = np.broadcast_to(-self._rates, (len(conv), len(self._rates)))
        queries = queries / np.float32(self._dim)
        out, temporal = decayed_sum(queries, keys, values, log_decay, temporal)
        return out.reshape(len(conv), -1), temporal


class _GatedConv:
    """A short convolution between two gates, and no other state (LFM2)."""

    token_first = False
    temporal_shape = (0,)

    def __init__(self, attention: ShortConv, weights: Weights, width: int) -> None:
        self.conv_kernel = attention.conv_kernel
        self.conv_channels = self.out_dim = attention.channels
        self._inputs = weights.matrix("bcx", width, 3 * attention.channels)

    def project(self, hidden: Floats) -> Projected:
        before, after, x = np.split(hidden @ self._inputs, 3, axis=1)
        return Projected(before * x, (after,))

    def mix(self, projected: Projected, conv: Floats, temporal: Floats) -> tuple[Floats, Floats]:
        return projected.gates[0] * conv, temporal
