"""How far a right continuation may be from the whole prompt computed at once.

Both round what they cache alike, so that only the order of sums differs; but a value next to the middle
between two numbers of a dtype is then rounded the other way, and moves by a whole step. One such element
among many reaches an output far below the step: a layer adds at most the step given here, measured with
:func:`reduced` models of every kind at prefixes of 1 to 8 pages.
"""

from __future__ import annotations

from hicache_bench.models.spec import (
    GatedDelta,
    KimiDelta,
    Lightning,
    Mamba1,
    Mamba2,
    ModelSpec,
    ShortConv,
    SparseIndex,
)

_EXACT = 2.0**-15
"""float32 sums alone. Measured: at most 1.3e-6 a layer."""

_CACHED = {"fp32": _EXACT, "bf16": 2.0**-8, "fp16": 2.0**-8}
"""Rows, and inputs of a convolution. Measured: at most 1.1e-3 a layer."""

_CACHED_FP8 = 2.0**-7
"""fp8 rows with or without scales. Measured: at most 1.2e-3 a layer."""

_STATE = {"fp32": _EXACT, "bf16": 2.0**-6, "fp16": 2.0**-6}
"""A state that is narrower than float32 is rounded once more, at the endpoint alone, as a whole. Measured: at
most 6.6e-3 a layer."""

_RECURRENT = (GatedDelta, KimiDelta, Lightning, Mamba1, Mamba2, ShortConv)


def tolerance(spec: ModelSpec) -> float:
    """The largest difference of an output element that a right restore of ``spec`` may show.

    Outputs are of the size of the inputs (a root mean square of 1) and grow by one such vector a layer.
    """
    kinds = [type(attention) for attention in spec.attentions.values()]
    steps = [_EXACT]
    if any(kind in _RECURRENT for kind in kinds):
        steps += [_CACHED.get(spec.conv_dtype, _CACHED_FP8), _STATE.get(spec.state_dtype, _CACHED_FP8)]
    # An index is exact: see ``sparse``.
    if any(kind is not SparseIndex and kind not in _RECURRENT for kind in kinds):
        steps.append(_CACHED.get(spec.kv_dtype, _CACHED_FP8))
    return max(steps) * len(spec.layers)
