"""Blocks that an index selects: computed from scores, never assumed.

A decode step selects ``top_k`` rows a layer; a prefill suffix of ``q`` queries selects a union that grows
with ``q`` towards everything. An object holds one unit of *all* layers, so a unit is needed when any query
of any layer selects any row of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from hicache_bench.links.bandwidth import BandwidthModel
from hicache_bench.planning.policy import BoolVector


def select_units(
    layer_scores: Iterable[npt.NDArray[np.floating[Any]]], *, top_k: int, rows_per_unit: int, num_units: int
) -> BoolVector:
    """Union of the units that any query of any layer selects.

    Each item of ``layer_scores`` has shape ``(queries, rows)``, one row per index key of the prefix. A prefix
    with at most ``top_k`` rows is selected as a whole.
    """
    selected = np.zeros(num_units, dtype=np.bool_)
    for scores in layer_scores:
        if scores.shape[1] <= top_k:
            return np.ones(num_units, dtype=np.bool_)
        rows = np.argpartition(scores, -top_k, axis=1)[:, -top_k:]
        selected[rows // rows_per_unit] = True
        if selected.all():
            break
    return selected


def dense_is_cheaper(
    link: BandwidthModel, *, selected_bytes: int, selected_objects: int, all_bytes: int, all_objects: int
) -> bool:
    """Whether one batch of everything beats a second round of scattered reads on ``link``.

    The selection costs a call of its own, since the index must arrive first; everything could have come with
    it in the first call.
    """
    scattered = link.seconds(selected_bytes, num_objects=selected_objects, num_calls=1)
    return link.seconds(all_bytes, num_objects=all_objects, num_calls=0) <= scattered
