"""Blocks that seeded queries select from a restored index.

Index keys are the fixture's own bytes, read as fp8 (e4m3) with unit scale; queries are seeded, one a layer
and query token, and a score is their product. Real prompts select with more locality than such keys do, so
the union found here is an upper figure for one with the same number of queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hicache_bench.engine.host import HostPool as EngineHostPool
from hicache_bench.errors import ConfigError
from hicache_bench.fixtures.fill import PagePattern
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.links.bandwidth import BandwidthModel
from hicache_bench.planning.policy import BoolVector
from hicache_bench.planning.sparse import dense_is_cheaper, select_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.workflows.prefix import PrefixLayout

SELECTION_LINK = BandwidthModel(bytes_per_second=87e9, op_seconds=0.5e-3)
"""The link on which scattered reads are weighed against one batch. Assumed: RoCE 4x200G, 87 GB/s (Mooncake,
FAST'25 §5.4.1); 0.5 ms a call, the lower end for RDMA in llm-d-inference-sim's latency profiles."""

_SCALE_GROUP = 128
_SCORE_BYTES = 64 << 20


class IndexScorer:
    """A unit selector for a controller; ``notes`` say what it selected and where it fell back.

    ``patterns`` stand in for the index's bytes where the host pools have no memory, and for the first
    ``local_tokens``, which an engine holds already and a run does not read.
    """

    def __init__(
        self,
        layout: PrefixLayout,
        patterns: Mapping[str, PagePattern],
        *,
        num_queries: int,
        seed: int,
        local_tokens: int = 0,
        link: BandwidthModel = SELECTION_LINK,
    ) -> None:
        self._layout = layout
        self._patterns = patterns
        self._num_queries = num_queries
        self._seed = seed
        self._local_tokens = min(local_tokens, layout.num_tokens)
        self._link = link
        self.notes: list[str] = []

    def __call__(self, pool: KVPoolDescriptor, index_pool: EngineHostPool) -> BoolVector:
        """One flag per unit of ``pool``: some query of some layer selects a row in it.

        Raises:
            ConfigError: an index pool that is not one of the fixture's.
        """
        if not isinstance(index_pool, HostPool) or pool.selection is None:
            raise ConfigError(f"pool {pool.name!r} has no index among the fixture's host pools")
        slots = self._layout.slots[pool.name]
        num_units = len(slots)
        rows_per_unit = pool.unit_tokens // pool.selection.group_tokens
        selected = select_units(
            self._layer_scores(index_pool, rows_per_unit),
            top_k=pool.selection.top_k,
            rows_per_unit=rows_per_unit,
            num_units=num_units,
        )
        local = self._local_tokens // pool.unit_tokens
        count, num_blocks = int(selected[local:].sum()), num_units - local
        queries = "1 query selects" if self._num_queries == 1 else f"{self._num_queries} queries select"
        found = f"{pool.name}: {queries} {count} of {num_blocks} blocks"
        if not num_blocks:
            self.notes.append(f"{pool.name}: every block is local, none is selected")
            return selected
        if dense_is_cheaper(
            self._link,
            selected_bytes=count * pool.unit_bytes,
            selected_objects=count,
            all_bytes=num_blocks * pool.unit_bytes,
            all_objects=num_blocks,
        ):
            self.notes.append(
                f"{found} [modeled: seeded queries]; one batch of all is cheaper on the link [assumed], "
                "so all were read"
            )
            return np.ones(num_units, dtype=np.bool_)
        self.notes.append(f"{found} [modeled: seeded queries]")
        return selected

    def _layer_scores(self, index: HostPool, rows_per_unit: int) -> Iterator[npt.NDArray[np.float32]]:
        component = index.pool.stored_components[0]
        bytes_per_row = component.row_bytes // rows_per_unit
        # A row is head_dim fp8 bytes, then 4 bytes of scale for each 128 of them; keys precede scales.
        head_dim = bytes_per_row * _SCALE_GROUP // (_SCALE_GROUP + 4)
        if head_dim % _SCALE_GROUP:
            raise ConfigError(f"index rows of {bytes_per_row} bytes cannot be scored; only fp8 keys can")
        slots = self._layout.slots[index.pool.name]
        pattern = self._patterns[index.pool.name]
        unread = range(self._local_tokens // index.pool.unit_tokens if index.backed else len(slots))
        for layer in range(component.num_layers):
            pages = np.empty((len(slots), component.row_bytes), dtype=np.uint8)
            if unread:
                pages[: len(unread)] = pattern.layer_bytes(0, layer, unread)
            if index.backed:
                pages[len(unread) :] = index.view(0)[slots[len(unread) :], layer, 0, 0]
            keys = _E4M3[pages[:, : rows_per_unit * head_dim].reshape(-1, head_dim)]
            generator = np.random.default_rng([self._seed, layer])
            # Queries only add to a union, so they may come a few at a time: scores stay within a bound.
            step = max(1, _SCORE_BYTES // (4 * len(keys)))
            for first in range(0, self._num_queries, step):
                count = min(step, self._num_queries - first)
                yield generator.standard_normal((count, head_dim), dtype=np.float32) @ keys.T


def _e4m3_values() -> npt.NDArray[np.float32]:
    """Value of each fp8 e4m3fn byte; the two NaN codes count as 0."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    magnitude: npt.NDArray[Any] = np.where(
        exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    )
    magnitude[(code & 0x7F) == 0x7F] = 0.0
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.float32)


_E4M3 = _e4m3_values()
