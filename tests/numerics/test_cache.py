from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import InputError
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.numerics.cache import NO_SLOT, PagedCache, Prompt
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.names import AttentionType, Layout
from tests.pool_builders import pool

ROWS = pool("kv", AttentionType.FULL, page_tokens=4, components=(Component("k", 2, 4, 6, heads=2),))
STATES = pool("mamba", AttentionType.RECURRENT, page_tokens=4, components=(Component("temporal", 2, 1, 8),))


def rows(start: int, count: int) -> np.ndarray:
    return np.arange(start * 6, (start + count) * 6).astype(np.uint8).reshape(count, 2, 3)


@given(start=st.integers(0, 11), count=st.integers(1, 12))
def test_rows_are_read_where_they_were_written(start: int, count: int) -> None:
    cache = PagedCache.in_memory(ROWS, 6)
    cache.write_rows("k", 1, start, rows(start, count))
    np.testing.assert_array_equal(
        rows(start, count), cache.read_rows("k", 1, np.arange(start, start + count))
    )
    assert (cache.read_rows("k", 0, np.arange(24)) == 0xFF).all()
    others = np.setdiff1d(np.arange(24), np.arange(start, start + count))
    assert (cache.read_rows("k", 1, others) == 0xFF).all()


@pytest.mark.parametrize("layout", [Layout.PAGE_FIRST, Layout.PAGE_FIRST_DIRECT, Layout.PAGE_HEAD])
def test_a_host_pool_of_any_layout_is_read_through_its_slots(layout: Layout) -> None:
    described = pool("kv", AttentionType.FULL, page_tokens=4, components=ROWS.components, layout=layout)
    host = HostPool(described, 3)
    host.poison()
    cache = PagedCache(described, [host.view(0)], np.array([2, NO_SLOT, 0]))
    cache.write_rows("k", 0, 2, rows(2, 2))
    cache.write_rows("k", 0, 8, rows(8, 4))
    np.testing.assert_array_equal(rows(2, 2), host.view(0)[2, 0, 2:4])
    np.testing.assert_array_equal(rows(8, 4), host.view(0)[0, 0])
    assert (cache.read_rows("k", 0, np.arange(4, 8)) == 0xFF).all()
    assert host.guards_intact()


def test_a_page_without_a_slot_reads_as_poison_and_cannot_be_written() -> None:
    cache = PagedCache.in_memory(STATES, 4, kept=[1])
    content = np.arange(8, dtype=np.uint8)
    cache.write_page("temporal", 0, 1, content)
    found = cache.read_pages("temporal", 0, np.array([0, 1, 2, 9]))
    np.testing.assert_array_equal(content, found[1])
    assert (np.delete(found, 1, axis=0) == 0xFF).all()
    assert [False, True, False, False] == [cache.holds(page) for page in (0, 1, 2, 9)]
    with pytest.raises(InputError, match="no slot for a page that is written; give it more than 4 pages"):
        cache.write_page("temporal", 0, 2, content)


def test_no_slot_at_all_reads_as_poison() -> None:
    cache = PagedCache.in_memory(STATES, 4, kept=[])
    assert (cache.read_pages("temporal", 0, np.array([3])) == 0xFF).all()


def test_a_copy_is_its_own_and_has_room() -> None:
    cache = PagedCache.in_memory(ROWS, 2, kept=[1])
    cache.write_rows("k", 0, 4, rows(4, 4))
    copied = cache.copy(5)
    copied.write_rows("k", 0, 16, rows(16, 4))
    np.testing.assert_array_equal(rows(4, 4), copied.read_rows("k", 0, np.arange(4, 8)))
    copied.overwrite(1)
    assert (copied.read_rows("k", 0, np.arange(4, 8)) == 0xFF).all()
    np.testing.assert_array_equal(rows(4, 4), cache.read_rows("k", 0, np.arange(4, 8)))


def test_arrays_of_another_pool_are_refused() -> None:
    with pytest.raises(InputError, match=r"components of \(layer, row, head\) \[\(2, 4, 2\)\]"):
        PagedCache(ROWS, [np.zeros((1, 2, 4, 1, 6), dtype=np.uint8)], np.array([0]))


def test_a_state_is_fresh_running_or_restored() -> None:
    cache = PagedCache.in_memory(STATES, 4)
    prompt = Prompt({"mamba": cache})

    def state(start: int, of: Prompt = prompt) -> object:
        return of.state("mamba", 0, start, fresh="fresh", load=lambda _cache, page: f"page {page}")

    assert "fresh" == state(0)
    assert "page 1" == state(8)
    prompt.keep("mamba", 0, 9, "running")
    assert "running" == state(9)
    assert "page 1" == state(8)
    ahead = prompt.fork()
    ahead.keep("mamba", 0, 10, "ahead")
    assert ("ahead", "running") == (state(10, ahead), state(9))
    with pytest.raises(InputError, match="no state of 'mamba' at token 10; continue from the end of a page"):
        state(10)
