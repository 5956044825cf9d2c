"""What a reference reads and writes: the bytes of one pool by token or by page, and what lives on the device.

Nothing is hidden here: a page that was never restored, and one without a slot, reads as poison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from hicache_bench.errors import InputError
from hicache_bench.numerics.dtypes import RawBytes
from hicache_bench.pools.descriptor import KVPoolDescriptor

IntArray = npt.NDArray[np.signedinteger[Any]]
NO_SLOT = -1
POISON = 0xFF
"""Bytes of a page that was never written; as a float of any width they read as NaN."""

_Value = TypeVar("_Value")


class RowCache(Protocol):
    """The bytes of one pool. ``layer`` counts the pool's own layers; pages are those of the prompt."""

    page_tokens: int

    def write_rows(self, component: str, layer: int, start_token: int, rows: RawBytes) -> None:
        """Write one row a token from ``start_token`` on; ``rows`` has shape ``(tokens, heads, bytes)``."""

    def read_rows(self, component: str, layer: int, tokens: IntArray) -> RawBytes:
        """The rows of ``tokens``, of shape ``(tokens, heads, bytes)``."""

    def write_page(self, component: str, layer: int, page: int, content: RawBytes) -> None:
        """Write a layer's one row of ``page``: keys and scales, a ring, or the state at the page's end."""

    def read_pages(self, component: str, layer: int, pages: IntArray) -> RawBytes:
        """What :meth:`write_page` wrote to ``pages``, of shape ``(pages, bytes)``."""

    def holds(self, page: int) -> bool:
        """Whether there is a slot for ``page``: states are written only where one is."""


class PagedCache:
    """A pool over arrays of shape ``(slot, layer, row, head, byte)``, one a stored component.

    ``slots[page]`` is the slot of each page, or :data:`NO_SLOT`. The arrays may be views of a host pool.

    Raises:
        InputError: arrays that are not those of ``pool``.
    """

    def __init__(self, pool: KVPoolDescriptor, arrays: Sequence[RawBytes], slots: IntArray) -> None:
        components = pool.stored_components
        wanted = [(component.num_layers, component.rows, component.heads) for component in components]
        given = [array.shape[1:4] for array in arrays]
        if given != wanted:
            raise InputError(
                f"pool {pool.name!r} has components of (layer, row, head) {wanted}, and was given arrays of "
                f"{given}; give one view a stored component"
            )
        self.pool = pool
        self.page_tokens = pool.unit_tokens
        self.slots = np.asarray(slots, dtype=np.int64)
        self._arrays = dict(zip((component.name for component in components), arrays, strict=True))

    @classmethod
    def in_memory(
        cls, pool: KVPoolDescriptor, num_pages: int, *, kept: Sequence[int] | None = None
    ) -> PagedCache:
        """A poisoned cache of its own; ``kept`` names the pages that have a slot (None: all)."""
        pages = np.arange(num_pages) if kept is None else np.asarray(kept, dtype=np.int64)
        slots = np.full(num_pages, NO_SLOT)
        slots[pages] = np.arange(len(pages))
        arrays = [
            np.full(
                (
                    len(pages),
                    component.num_layers,
                    component.rows,
                    component.heads,
                    component.row_bytes // component.heads,
                ),
                POISON,
                dtype=np.uint8,
            )
            for component in pool.stored_components
        ]
        return cls(pool, arrays, slots)

    def copy(self, num_pages: int) -> PagedCache:
        """A copy with room for ``num_pages``, every page of which has a slot; new ones are poison.

        What a continuation writes then leaves the restored pool as it was.
        """
        copied = PagedCache.in_memory(self.pool, num_pages)
        for page in np.flatnonzero(self.slots[:num_pages] != NO_SLOT):
            for name, array in self._arrays.items():
                copied._arrays[name][page] = array[self.slots[page]]
        return copied

    def write_rows(self, component: str, layer: int, start_token: int, rows: RawBytes) -> None:
        slots, offsets = self._places(np.arange(start_token, start_token + len(rows)))
        self._check_slots(slots)
        self._arrays[component][slots, layer, offsets] = rows

    def read_rows(self, component: str, layer: int, tokens: IntArray) -> RawBytes:
        return self._gather(component, layer, *self._places(tokens))

    def write_page(self, component: str, layer: int, page: int, content: RawBytes) -> None:
        slots = self._slots_of(np.array([page]))
        self._check_slots(slots)
        self._arrays[component][slots[0], layer, 0, 0] = content

    def read_pages(self, component: str, layer: int, pages: IntArray) -> RawBytes:
        slots = self._slots_of(pages)
        return self._gather(component, layer, slots, np.zeros_like(slots))[:, 0]

    def holds(self, page: int) -> bool:
        return bool(self._slots_of(np.array([page]))[0] != NO_SLOT)

    def overwrite(self, page: int, value: int = POISON) -> None:
        """Fill every byte of ``page``; one without a slot stays as it is."""
        for array in self._arrays.values() if self.holds(page) else ():
            array[self.slots[page]] = value

    def _places(self, tokens: IntArray) -> tuple[IntArray, IntArray]:
        return self._slots_of(tokens // self.page_tokens), tokens % self.page_tokens

    def _slots_of(self, pages: IntArray) -> IntArray:
        known = np.minimum(pages, len(self.slots) - 1)
        return np.where(pages < len(self.slots), self.slots[known], NO_SLOT)

    def _check_slots(self, slots: IntArray) -> None:
        if (slots == NO_SLOT).any():
            raise InputError(
                f"pool {self.pool.name!r} has no slot for a page that is written; "
                f"give it more than {len(self.slots)} pages"
            )

    def _gather(self, component: str, layer: int, slots: IntArray, rows: IntArray) -> RawBytes:
        array = self._arrays[component]
        content = np.full((len(slots), *array.shape[3:]), POISON, dtype=np.uint8)
        there = slots != NO_SLOT
        content[there] = array[slots[there], layer, rows[there]]
        return content


@dataclass(slots=True)
class Prompt:
    """One request: its caches by pool name, and the running states that live on the device between forwards.

    A new prompt over restored caches has no running state: it takes the one stored for its endpoint.
    """

    caches: Mapping[str, RowCache]
    running: dict[tuple[str, int], tuple[int, Any]] = field(default_factory=dict)

    def state(
        self, pool: str, layer: int, start: int, *, fresh: _Value, load: Callable[[RowCache, int], _Value]
    ) -> _Value:
        """The running state of one layer before token ``start``: fresh at 0, running, or restored.

        ``load(cache, page)`` reads the state stored at the end of ``page``.

        Raises:
            InputError: no state exists there, since ``start`` is neither the end of a page nor where the
                last forward ended.
        """
        if start == 0:
            return fresh
        position, value = self.running.get((pool, layer), (-1, None))
        if position == start:
            running: _Value = value
            return running
        cache = self.caches.get(pool)
        if cache is None or start % cache.page_tokens:
            raise InputError(
                f"there is no state of {pool!r} at token {start}; continue from the end of a page, or from "
                "where the last forward ended"
            )
        return load(cache, start // cache.page_tokens - 1)

    def keep(self, pool: str, layer: int, position: int, value: Any) -> None:
        """Remember the running state of one layer before token ``position``."""
        self.running[pool, layer] = (position, value)

    def fork(self) -> Prompt:
        """The same caches with running states of its own, for a look ahead."""
        return Prompt(self.caches, dict(self.running))
