from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.errors import LayoutError
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.layout import (
    STORABLE_LAYOUTS,
    canonical_view,
    check_storable,
    group_buffers,
    page_segments,
    resolve,
)
from hicache_bench.pools.names import IoBackend, Layout

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "sglang-0.5.23.json").read_text())

COMPONENTS = st.builds(
    lambda num_layers, rows, heads, head_bytes: Component("k", num_layers, rows, heads * head_bytes, heads),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 6),
)


def offsets_buffer(component: Component, num_slots: int) -> np.ndarray:
    """A buffer in which each element is its own offset, so that no two bytes can be confused."""
    return np.arange(component.object_bytes * num_slots, dtype=np.int64)


@pytest.mark.parametrize(
    ("layout", "io", "expected"),
    [
        (Layout.LAYER_FIRST, IoBackend.KERNEL, Layout.PAGE_FIRST),
        (Layout.LAYER_FIRST, IoBackend.DIRECT, Layout.PAGE_FIRST_DIRECT),
        (Layout.PAGE_FIRST, IoBackend.DIRECT, Layout.PAGE_FIRST),
        (Layout.PAGE_FIRST_DIRECT, IoBackend.KERNEL, Layout.PAGE_FIRST_DIRECT),
        (Layout.PAGE_HEAD, IoBackend.KERNEL, Layout.PAGE_HEAD),
    ],
)
def test_layer_first_is_resolved_by_io(layout, io, expected):
    assert expected is resolve(layout, io)


def test_what_resolve_gives_can_be_stored():
    assert set(Layout) - {Layout.LAYER_FIRST} == STORABLE_LAYOUTS
    for layout in Layout:
        for io in IoBackend:
            check_storable("kv", resolve(layout, io))


def test_layer_first_is_refused_with_the_layouts_to_use():
    with pytest.raises(LayoutError, match=r"'kv'.*layer_first.*page_first,.*page_first_direct with direct"):
        check_storable("kv", Layout.LAYER_FIRST)


@settings(deadline=None)
@given(component=COMPONENTS, layout=st.sampled_from(Layout), num_slots=st.integers(1, 4), data=st.data())
def test_segments_of_a_page_are_exactly_its_bytes(component, layout, num_slots, data):
    slot = data.draw(st.integers(0, num_slots - 1))
    buffer = offsets_buffer(component, num_slots)

    segments = page_segments(component, layout, slot, num_slots)
    covered = np.concatenate([buffer[offset : offset + size] for offset, size in segments])

    page = canonical_view(buffer, component, layout, num_slots)[slot]
    assert component.object_bytes == covered.size == len(set(covered.tolist()))
    assert set(page.ravel().tolist()) == set(covered.tolist())
    assert (component.num_layers if layout is Layout.LAYER_FIRST else 1) == len(segments)


@settings(deadline=None)
@given(component=COMPONENTS, layout=st.sampled_from(Layout), num_slots=st.integers(1, 4))
def test_the_canonical_view_names_every_byte_once_and_copies_none(component, layout, num_slots):
    buffer = offsets_buffer(component, num_slots)
    view = canonical_view(buffer, component, layout, num_slots)

    head_bytes = component.row_bytes // component.heads
    assert (num_slots, component.num_layers, component.rows, component.heads, head_bytes) == view.shape
    assert buffer.tolist() == sorted(view.ravel().tolist())
    assert np.shares_memory(buffer, view)
    # Bytes of one head are next to each other in every layout.
    assert (view[..., 1:] - view[..., :-1] == 1).all()


@settings(deadline=None)
@given(component=COMPONENTS, one=st.sampled_from(Layout), other=st.sampled_from(Layout))
def test_a_page_means_the_same_in_every_layout(component, one, other):
    num_slots = 3
    source = offsets_buffer(component, num_slots)
    target = np.zeros_like(source)
    canonical_view(target, component, other, num_slots)[:] = canonical_view(source, component, one, num_slots)
    assert (
        canonical_view(source, component, one, num_slots)
        == canonical_view(target, component, other, num_slots)
    ).all()
    assert (one is other) <= bool((source == target).all())


@pytest.mark.parametrize(
    ("layout", "strides"),
    [
        # Elements from one slot, layer, row, head to the next: 2 slots, 3 layers, 4 rows, 5 heads of 6 bytes.
        (Layout.LAYER_FIRST, (120, 240, 30, 6)),
        (Layout.PAGE_FIRST, (360, 30, 90, 6)),
        (Layout.PAGE_FIRST_DIRECT, (360, 120, 30, 6)),
        (Layout.PAGE_HEAD, (360, 6, 18, 72)),
    ],
)
def test_order_of_axes(layout, strides):
    view = canonical_view(
        offsets_buffer(Component("k", 3, 4, 30, 5), 2), Component("k", 3, 4, 30, 5), layout, 2
    )
    steps = (view[1, 0, 0, 0, 0], view[0, 1, 0, 0, 0], view[0, 0, 1, 0, 0], view[0, 0, 0, 1, 0])
    assert strides == tuple(int(step) for step in steps)


def test_buffers_are_shared_out_as_sglang_does():
    """Golden: two pages of three layers in layer_first; one key a page, three buffers of 192 bytes each."""
    golden = GOLDEN["key_misc"]["MLA layer_first multi-buffer"]
    component = Component("k", num_layers=3, rows=8, row_bytes=24)
    segments = [
        segment
        for slot in range(len(golden["keys"]))
        for segment in page_segments(component, Layout.LAYER_FIRST, slot, num_slots=4)
    ]

    addresses, sizes = group_buffers(
        [1000 + offset for offset, _ in segments], [size for _, size in segments], len(golden["keys"])
    )

    assert golden["buffers_per_key"] == [len(buffers) for buffers in addresses]
    assert golden["sizes0"] == sizes[0] == sizes[1]
    assert [[1000, 1768, 2536], [1192, 1960, 2728]] == addresses


@pytest.mark.parametrize(
    ("num_addresses", "num_sizes", "num_keys"), [(5, 5, 2), (4, 3, 2), (4, 4, 0), (4, 4, -1)]
)
def test_buffers_that_cannot_be_shared_out_are_refused(num_addresses, num_sizes, num_keys):
    with pytest.raises(LayoutError, match=rf"{num_addresses} buffers.*{num_sizes} sizes.*{num_keys} keys"):
        group_buffers([0] * num_addresses, [1] * num_sizes, num_keys)
