"""Linear recurrences over tokens: a decayed sum, a gated delta rule, a selective scan, a short convolution.

Each takes the state before its tokens and gives that after them. Sums of a chunk are matrix products, which
the tests hold to the recurrences token by token.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hicache_bench.numerics.dtypes import Floats

_SUM_CHUNK = 64
# exp(-decay) within a chunk must stay far from overflow.
_DELTA_CHUNK = 16


def decayed_sum(
    queries: Floats, keys: Floats, values: Floats, log_decay: Floats, state: Floats
) -> tuple[Floats, Floats]:
    """``S_t = exp(a_t) S_(t-1) + v_t k_t^T``, ``o_t = S_t q_t``: lightning attention, and Mamba-2.

    Shapes: queries and keys ``(tokens, heads, k)``, values ``(tokens, heads, v)``, log_decay
    ``(tokens, heads)``, state ``(heads, v, k)``. Source: Mamba-2 (arXiv 2405.21060), §6, the chunked form.
    """
    outputs = np.empty_like(values)
    for chunk in _chunks(len(values), _SUM_CHUNK):
        q, k, v = (part[chunk].transpose(1, 0, 2) for part in (queries, keys, values))
        total = np.cumsum(log_decay[chunk], axis=0).T
        since = _causal(total[:, :, None] - total[:, None, :])
        scores = (q @ k.transpose(0, 2, 1)) * since
        out = scores @ v + np.exp(total)[..., None] * (q @ state.transpose(0, 2, 1))
        outputs[chunk] = out.transpose(1, 0, 2)
        left = np.exp(total[:, -1:] - total)[..., None]
        state = np.exp(total[:, -1])[:, None, None] * state + (v * left).transpose(0, 2, 1) @ k
    return outputs, state


def gated_delta(
    queries: Floats, keys: Floats, values: Floats, log_decay: Floats, beta: Floats, state: Floats
) -> tuple[Floats, Floats]:
    """``S' = S_(t-1) diag(exp a_t)``, ``S_t = S' + beta_t (v_t - S' k_t) k_t^T``, ``o_t = S_t q_t``.

    Shapes: as :func:`decayed_sum`, but log_decay is ``(tokens, heads, k)`` (KDA), or ``(tokens, heads, 1)``
    where all channels of a head decay alike (GDN); beta is ``(tokens, heads)``. Source: Gated DeltaNet (arXiv
    2412.06464) and Kimi Linear (arXiv 2510.26692), the chunked forms.
    """
    outputs = np.empty_like(values)
    for chunk in _chunks(len(values), _DELTA_CHUNK):
        q, k, v, a = (part[chunk].transpose(1, 0, 2) for part in (queries, keys, values, log_decay))
        strength = beta[chunk].T[..., None]
        total = np.cumsum(a, axis=1)
        grown, shrunk = k * np.exp(total), k * np.exp(-total)
        overlap = (grown @ shrunk.transpose(0, 2, 1)) * strength
        written = strength * (v - grown @ state.transpose(0, 2, 1))
        # Forward substitution: each token writes what those before it in the chunk have not written.
        for row in range(1, written.shape[1]):
            written[:, row] -= (overlap[:, row, None, :row] @ written[:, :row])[:, 0]
        asked = q * np.exp(total)
        out = asked @ state.transpose(0, 2, 1) + np.tril(asked @ shrunk.transpose(0, 2, 1)) @ written
        outputs[chunk] = out.transpose(1, 0, 2)
        left = k * np.exp(total[:, -1:] - total)
        state = state * np.exp(total[:, -1])[:, None, :] + written.transpose(0, 2, 1) @ left
    return outputs, state


def selective_scan(
    steps: Floats, inputs: Floats, b: Floats, c: Floats, rates: Floats, state: Floats
) -> tuple[Floats, Floats]:
    """``h_t = exp(dt_t A) h_(t-1) + dt_t x_t b_t^T``, ``o_t = h_t c_t``, channel by channel: Mamba-1.

    Shapes: steps and inputs ``(tokens, channels)``, b and c ``(tokens, n)``, rates (A, negative) and state
    ``(channels, n)``. Source: Mamba (arXiv 2312.00752), algorithm 2.
    """
    outputs = np.empty_like(inputs)
    for token, step in enumerate(steps):
        state = np.exp(step[:, None] * rates) * state + np.outer(step * inputs[token], b[token])
        outputs[token] = state @ c[token]
    return outputs, state


def short_conv(inputs: Floats, kernel: Floats, history: Floats) -> tuple[Floats, Floats]:
    """Causal convolution of each channel: ``o_t = sum_j kernel_j x_(t-k+1+j)``.

    Shapes: inputs ``(tokens, channels)``, kernel ``(k, channels)``, history ``(k - 1, channels)``: the inputs
    just before.
    """
    padded = np.concatenate([history, inputs])
    outputs = padded[: len(inputs)] * kernel[0]
    for offset in range(1, len(kernel)):
        outputs += padded[offset : offset + len(inputs)] * kernel[offset]
    return outputs, padded[len(inputs) :]


def _chunks(num_tokens: int, size: int) -> Iterator[slice]:
    return (slice(first, first + size) for first in range(0, num_tokens, size))


def _causal(log_decay: Floats) -> Floats:
    """``exp`` of the lower triangle, 0 above it."""
    length = log_decay.shape[-1]
    return np.exp(np.where(np.tri(length, dtype=np.bool_), log_decay, np.float32(-np.inf)))
