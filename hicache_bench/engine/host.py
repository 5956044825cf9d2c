"""What the engine needs of a host pool: SGLang's surface, duck-typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hicache_bench.errors import LayoutError
from hicache_bench.planning.policy import IntVector
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.layout import check_same, group_buffers
from hicache_bench.store.base import Buffers

_INDICES_AT_ONCE = 1 << 16  # half a MiB


class HostPool(Protocol):
    """A host-side pool: SGLang's ``HostKVCache`` classes, or a fixture.

    ``kv_buffer`` is a tensor or array, a sequence of them, or None for a logical pool. ``page_size`` counts
    the token slots of one page (1 for a state pool). The ``indices`` given to ``get_page_buffer_meta`` are
    the caller's, who writes others into them after the call.
    """

    @property
    def kv_buffer(self) -> Any: ...

    @property
    def layout(self) -> str: ...

    @property
    def page_size(self) -> int: ...

    def get_page_buffer_meta(self, indices: npt.NDArray[np.integer[Any]]) -> tuple[list[int], list[int]]: ...


def buffer_ranges(host_pool: HostPool) -> list[tuple[int, int]]:
    """``(address, bytes)`` of each buffer of a physical pool."""
    buffers = host_pool.kv_buffer
    if not isinstance(buffers, (list, tuple)):
        buffers = [buffers]
    return [(_address(buffer), int(buffer.nbytes)) for buffer in buffers]


def _address(buffer: Any) -> int:
    return int(buffer.data_ptr() if hasattr(buffer, "data_ptr") else buffer.ctypes.data)


def _plain(numbers: Sequence[int]) -> list[int]:
    """Python integers: an engine may give numpy's, which a native store does not take."""
    if isinstance(numbers, list) and (not numbers or type(numbers[0]) is int):
        return numbers
    return [int(number) for number in numbers]


def page_buffers(host_pool: HostPool, slots: IntVector, keys_per_page: int) -> tuple[Buffers, Buffers]:
    """Addresses and sizes of the pages in ``slots``, one entry per key.

    An entry is a number where every key has one buffer, else a list of them (a page scattered over layers).

    Raises:
        LayoutError: the pool gives a number of buffers that its keys cannot share.
    """
    if not len(slots):
        return [], []
    addresses: list[int] = []
    sizes: list[int] = []
    page_size = host_pool.page_size
    starts = slots.astype(np.int64) * page_size
    # An index for each token of each page. Those of a few pages stay in the processor's cache, and in one
    # array: the system would have to hand over fresh memory for each of this size.
    step = max(1, _INDICES_AT_ONCE // page_size)
    rows = starts[:step, None] + np.arange(page_size)
    for start in range(0, len(slots), step):
        some = rows[: len(slots) - start]
        shift = starts[start : start + step] - some[:, 0]
        # Slots mostly follow one another, and one number for all is added in a quarter of the time.
        some += shift[0] if (shift == shift[0]).all() else shift[:, None]
        some_addresses, some_sizes = host_pool.get_page_buffer_meta(some.ravel())
        addresses += _plain(some_addresses)
        sizes += _plain(some_sizes)
    num_keys = len(slots) * keys_per_page
    if len(addresses) == num_keys == len(sizes):
        return addresses, sizes
    return group_buffers(addresses, sizes, num_keys)


def check_host_pool(pool: KVPoolDescriptor, host_pool: HostPool) -> None:
    """Refuse a host pool whose pages are not those that the descriptor, and so the keys, speak of.

    Raises:
        LayoutError: another layout, or another number of bytes in a page.
    """
    check_same(pool.name, pool.layout, host_pool.layout)
    components = pool.stored_components
    _, sizes = page_buffers(host_pool, np.zeros(1, dtype=np.int64), len(components))
    found = [size if isinstance(size, int) else sum(size) for size in sizes]
    expected = [component.object_bytes for component in components]
    if found != expected:
        raise LayoutError(
            f"pool {pool.name!r} is described with objects of {expected} bytes, and its host pool has {found}"
        )


def has_pieces(sizes: Buffers) -> bool:
    """Whether a request is in multi-buffer form; it never mixes the two."""
    return len(sizes) > 0 and not isinstance(sizes[0], int)


def as_pieces(buffers: Buffers) -> Buffers:
    """The multi-buffer form of a request."""
    return buffers if has_pieces(buffers) else [[buffer] for buffer in buffers]  # type: ignore[list-item]


def slices_per_key(sizes: Buffers) -> list[int]:
    """Buffers of each key: what a store has in flight for it."""
    return [1 if isinstance(size, int) else len(size) for size in sizes]
