from __future__ import annotations

import numpy as np

from hicache_bench.models.spec import Mamba2
from hicache_bench.numerics.blocks import Weights
from hicache_bench.numerics.kernels import _StateSpace


def test_a_mamba2_state_decays_by_its_step_and_heads_share_the_b_and_c_of_their_group() -> None:
    """Oracle: the paper's recurrence, a head and a token at a time, from what left the convolution."""
    attention = Mamba2(heads=4, head_dim=3, state_dim=5, groups=2, conv_kernel=4)
    kernel = _StateSpace(attention, Weights(1, "layer"), 8)
    hidden, conv = (np.random.default_rng(i).standard_normal((20, n)) for i, n in ((0, 8), (1, 32)))
    projected = kernel.project(hidden.astype(np.float32))
    out, after = kernel.mix(projected, conv.astype(np.float32), np.zeros((4, 3, 5), dtype=np.float32))
    steps = np.log1p(np.exp(hidden @ kernel._steps))
    active = conv / (1 + np.exp(-conv))
    x, shared = active[:, :12].reshape(20, 4, 3), active[:, 12:].reshape(20, 2, 2, 5) / np.sqrt(5)
    for head in range(4):
        state = np.zeros((3, 5))
        for token in range(20):
            b, c = shared[token, :, head // 2]
            step = steps[token, head]
            state = np.exp(-step * kernel._rates[head]) * state + step * np.outer(x[token, head], b)
            expected = state @ c + kernel._skip[head] * x[token, head]
            np.testing.assert_allclose(out[token, 3 * head : 3 * head + 3], expected, atol=1e-5)
        np.testing.assert_allclose(after[head], state, atol=1e-5)
