"""Where a page's bytes lie inside a host pool, for each layout; and which layouts a store can take.

A host buffer of one component holds ``num_slots`` pages. Its canonical axes are
``(slot, layer, row, head, byte)``; a layout is an order of these axes (SGLang 0.5.23,
``memory_pool_host.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hicache_bench.errors import LayoutError
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.names import IoBackend, Layout

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_SLOT, _LAYER, _ROW, _HEAD, _BYTE = range(5)
_AXES: dict[Layout, tuple[int, ...]] = {
    Layout.LAYER_FIRST: (_LAYER, _SLOT, _ROW, _HEAD, _BYTE),
    Layout.PAGE_FIRST: (_SLOT, _ROW, _LAYER, _HEAD, _BYTE),
    Layout.PAGE_FIRST_DIRECT: (_SLOT, _LAYER, _ROW, _HEAD, _BYTE),
    Layout.PAGE_HEAD: (_SLOT, _HEAD, _ROW, _LAYER, _BYTE),
}
STORABLE_LAYOUTS = frozenset(_AXES) - {Layout.LAYER_FIRST}


def resolve(layout: Layout, io: IoBackend = IoBackend.KERNEL) -> Layout:
    """The layout that an engine really uses with a zero-copy store.

    ``layer_first`` becomes ``page_first`` (kernel I/O) or ``page_first_direct`` (direct I/O), as SGLang does
    for Mooncake; any other layout stays.
    """
    if layout is not Layout.LAYER_FIRST:
        return layout
    return Layout.PAGE_FIRST_DIRECT if io is IoBackend.DIRECT else Layout.PAGE_FIRST


def check_storable(pool_name: str, layout: str) -> None:
    """Refuse a layout whose pages are not contiguous, or that nobody here knows.

    Raises:
        LayoutError: ``layer_first``, naming the layout to use instead; another name, naming those allowed.
    """
    names = sorted(storable.value for storable in STORABLE_LAYOUTS)
    if layout == Layout.LAYER_FIRST.value:
        direct = resolve(Layout.LAYER_FIRST, IoBackend.DIRECT)
        raise LayoutError(
            f"pool {pool_name!r} has layout {layout}, whose pages are scattered over layers; "
            f"use {resolve(Layout.LAYER_FIRST)}, or {direct} with direct I/O"
        )
    if layout not in names:
        raise LayoutError(f"pool {pool_name!r} has layout {layout!r}; a store takes {', '.join(names)}")


def check_same(pool_name: str, described: Layout, found: str) -> None:
    """Refuse a host pool that lies in another layout than its descriptor, and so its keys, speak of.

    Raises:
        LayoutError: such a layout, or one that no store can take.
    """
    check_storable(pool_name, found)
    if found != described.value:
        raise LayoutError(
            f"pool {pool_name!r} is described as {described}, and its host pool is {found}; "
            "its keys would promise bytes in another order"
        )


def canonical_view(
    buffer: npt.NDArray[np.uint8], component: Component, layout: Layout, num_slots: int
) -> npt.NDArray[Any]:
    """View ``buffer`` (flat uint8) as ``(slot, layer, row, head, byte)``, whatever the layout. No copy."""
    sizes = (
        num_slots,
        component.num_layers,
        component.rows,
        component.heads,
        component.row_bytes // component.heads,
    )
    order = _AXES[layout]
    stored = buffer.reshape([sizes[axis] for axis in order])
    return stored.transpose([order.index(axis) for axis in range(5)])


def page_segments(component: Component, layout: Layout, slot: int, num_slots: int) -> list[tuple[int, int]]:
    """``(offset, bytes)`` of every contiguous piece of page ``slot``: one, or one per layer (layer_first)."""
    if layout in STORABLE_LAYOUTS:
        return [(slot * component.object_bytes, component.object_bytes)]
    layer_bytes = component.rows * component.row_bytes
    return [((layer * num_slots + slot) * layer_bytes, layer_bytes) for layer in range(component.num_layers)]


def group_buffers(
    addresses: Sequence[int], sizes: Sequence[int], num_keys: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Gather a flat list of buffers into one list per key, for a multi-buffer request.

    A pool behind a logical anchor keeps one key per page however many buffers the page has; the flat list is
    what SGLang's ``get_page_buffer_meta`` returns.

    Raises:
        LayoutError: the buffers cannot be shared out evenly.
    """
    if len(addresses) != len(sizes) or num_keys <= 0 or len(addresses) % num_keys:
        raise LayoutError(
            f"{len(addresses)} buffers with {len(sizes)} sizes cannot be shared out to {num_keys} keys; "
            "every page needs the same number of buffers"
        )
    step = len(addresses) // num_keys
    starts = range(0, len(addresses), step)
    return [list(addresses[i : i + step]) for i in starts], [list(sizes[i : i + step]) for i in starts]
