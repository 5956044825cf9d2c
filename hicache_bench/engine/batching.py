"""Which objects travel together: the batches of a transfer, and the store calls that a batch is cut into.

The transfer engine and the cost model ask the same functions, so that a modelled call is one that is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hicache_bench.planning.policy import IntVector


def page_batches(ends: Sequence[IntVector], batch_pages: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """The units of each batch: per pool, the first and one past the last, as positions in its work.

    ``ends`` are the pages in which each pool's units end, rising. A batch has at most ``batch_pages`` of the
    pages in which any unit ends; a pool without a unit there has an empty part.
    """
    first_pages = _distinct(ends)[::batch_pages]
    # One search over all batches: each one for itself would convert the pool's ends to its own integers.
    cuts = [[*np.searchsorted(part, first_pages).tolist(), len(part)] for part in ends]
    for batch in range(len(first_pages)):
        yield tuple((cut[batch], cut[batch + 1]) for cut in cuts)


def call_spans(num_objects: int, max_objects: int) -> list[slice]:
    """Cut the objects of a batch so that no call has more than a store takes at once."""
    return [
        slice(start, min(start + max_objects, num_objects)) for start in range(0, num_objects, max_objects)
    ]


def _distinct(ends: Sequence[IntVector]) -> IntVector:
    """The pages in which any unit ends, each once, rising."""
    marks = np.zeros(max((int(part[-1]) for part in ends if len(part)), default=0) + 1, dtype=np.bool_)
    for part in ends:
        marks[part] = True
    return np.flatnonzero(marks)
