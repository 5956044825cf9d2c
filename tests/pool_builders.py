"""Small pools for tests of planning, keys and engine: one byte count per unit, any policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from hicache_bench.planning.policy import BoolVector
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.names import AttentionType


def pool(name: str, attention: AttentionType, *, page_tokens: int = 16, **fields: Any) -> KVPoolDescriptor:
    if attention is not AttentionType.LOGICAL:
        fields.setdefault("components", (Component("page", 1, 1, 64),))
    return KVPoolDescriptor(name=name, attention=attention, page_tokens=page_tokens, **fields)


def window_pool(
    name: str, window: int, *, engine_window: int | None = None, **fields: Any
) -> KVPoolDescriptor:
    return pool(
        name,
        AttentionType.SWA,
        window_tokens=window,
        engine_window_tokens=window if engine_window is None else engine_window,
        **fields,
    )


def flags(num_units: int, *present: int) -> BoolVector:
    """One flag per unit, true for those named."""
    found = np.zeros(num_units, dtype=np.bool_)
    found[list(present)] = True
    return found


def endpoints(num_units: int, *ends: int) -> BoolVector:
    """Presence of a one-unit trailing pool that makes exactly these endpoints legal."""
    return flags(num_units, *(end - 1 for end in ends))
