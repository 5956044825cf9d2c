"""What is asked of the outputs of a restored prefix; proofs and their controls ask the same."""

from __future__ import annotations

import numpy as np

from hicache_bench.numerics.dtypes import Floats
from hicache_bench.records.schema import Check
from hicache_bench.workflows.rank import equal
from hicache_bench.workflows.roundtrip.numeric_model import Continuation


def largest_difference(outputs: Floats, whole: Floats) -> float:
    """The largest absolute difference; NaN if any output is."""
    return float(np.abs(outputs - whole).max())


def same_bits(name: str, found: Continuation, expected: Continuation) -> Check:
    """A check that two continuations are the same, bit for bit, and that no value is NaN or infinite."""
    differing = int((found.outputs.view(np.uint32) != expected.outputs.view(np.uint32)).sum())
    unknown = int((~np.isfinite(found.outputs)).sum())
    cached = sum(int((found.cached[pool] != content).sum()) for pool, content in expected.cached.items())
    return equal(
        f"{name}: {found.outputs.size:,} values, and the bytes cached with them",
        "0 values and 0 bytes differ, 0 not finite",
        f"{differing} values and {cached} bytes differ, {unknown} not finite",
    )


def agreement(name: str, outputs: Floats, whole: Floats, limit: float) -> Check:
    """A check that outputs are those of the whole prompt, computed without a cache."""
    found = largest_difference(outputs, whole)
    return Check(
        f"{name}: largest difference from the whole prompt",
        f"at most {limit:.3g}",
        f"{found:.3g}",
        # A NaN is not below any limit.
        found <= limit,
    )


def continuation_checks(
    name: str, found: Continuation, dense: Continuation, whole: Floats, limit: float
) -> tuple[Check, ...]:
    """What must hold after a restore: the bits of a dense one, and the outputs of the whole prompt."""
    return (
        same_bits(f"{name} and dense", found, dense),
        agreement(name, found.outputs, whole, limit),
    )
