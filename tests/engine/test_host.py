from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.engine import host
from hicache_bench.engine.host import as_pieces, buffer_ranges, has_pieces, page_buffers, slices_per_key
from hicache_bench.errors import LayoutError


class Tensor:
    """What is duck-typed of a torch tensor."""

    nbytes = 96

    def data_ptr(self) -> int:
        return 4096


class FakeHostPool:
    """Answers ``pieces`` buffers for each page and remembers what it was asked."""

    layout = "page_first"

    def __init__(self, page_size: int, pieces: int, buffers: Any = None) -> None:
        self.page_size = page_size
        self.kv_buffer = buffers
        self.asked: list[int] = []
        self._pieces = pieces

    def get_page_buffer_meta(self, indices: npt.NDArray[np.integer[Any]]) -> tuple[list[int], list[int]]:
        self.asked += indices.tolist()
        pages = indices[:: self.page_size] // self.page_size
        addresses = [int(page) * 1000 + piece for page in pages for piece in range(self._pieces)]
        return addresses, [10 + piece for _ in pages for piece in range(self._pieces)]


def test_ranges_of_a_tensor_an_array_or_several() -> None:
    array = np.zeros(24, dtype=np.uint16)
    one, several = Tensor(), (Tensor(), array)
    assert [(4096, 96)] == buffer_ranges(FakeHostPool(1, 1, one))
    assert [(array.ctypes.data, 48)] == buffer_ranges(FakeHostPool(1, 1, array))
    expected = [(4096, 96), (array.ctypes.data, 48)]
    assert expected == buffer_ranges(FakeHostPool(1, 1, several))
    assert expected == buffer_ranges(FakeHostPool(1, 1, list(several)))


def test_a_host_pool_is_asked_for_every_token_slot_of_a_page() -> None:
    host_pool = FakeHostPool(3, 1)
    page_buffers(host_pool, np.array([4, 0], dtype=np.int32), 1)
    assert [12, 13, 14, 0, 1, 2] == host_pool.asked


@given(
    slots=st.lists(st.integers(0, 40), min_size=1, max_size=30)
    | st.integers(0, 9).map(lambda first: list(range(first, first + 25))),
    page_size=st.integers(1, 5),
    indices_at_once=st.integers(1, 40),
)
def test_any_slots_are_asked_for_in_their_order_whatever_is_asked_at_once(
    slots: list[int], page_size: int, indices_at_once: int
) -> None:
    host_pool = FakeHostPool(page_size, 1)
    with patch.object(host, "_INDICES_AT_ONCE", indices_at_once):
        addresses, sizes = page_buffers(host_pool, np.array(slots), 1)
    assert [slot * page_size + token for slot in slots for token in range(page_size)] == host_pool.asked
    assert ([slot * 1000 for slot in slots], [10] * len(slots)) == (addresses, sizes)


def test_a_slot_beyond_32_bits_of_tokens_does_not_wrap() -> None:
    host_pool = FakeHostPool(256, 1)
    slot = 1 << 24  # times 256 is 2**32
    page_buffers(host_pool, np.array([slot], dtype=np.int32), 1)
    assert slot * 256 == host_pool.asked[0]


def test_one_buffer_a_key_is_a_flat_request() -> None:
    assert ([2000, 2001, 0, 1], [10, 11, 10, 11]) == page_buffers(FakeHostPool(2, 2), np.array([2, 0]), 2)


def test_more_buffers_than_keys_are_grouped_page_by_page() -> None:
    addresses, sizes = page_buffers(FakeHostPool(2, 4), np.array([2, 0]), 2)
    assert [[2000, 2001], [2002, 2003], [0, 1], [2, 3]] == addresses
    assert [[10, 11], [12, 13]] * 2 == sizes


def test_buffers_that_keys_cannot_share_are_refused() -> None:
    with pytest.raises(LayoutError, match="3 buffers"):
        page_buffers(FakeHostPool(1, 3), np.array([0]), 2)


def test_no_pages_ask_nothing() -> None:
    host_pool = FakeHostPool(1, 1)
    assert ([], []) == page_buffers(host_pool, np.empty(0, dtype=np.int64), 1)
    assert [] == host_pool.asked


def test_the_two_forms_of_a_request() -> None:
    assert not has_pieces([])
    assert not has_pieces([1, 2])
    assert has_pieces([[1], [2]])
    assert [[1], [2]] == as_pieces([1, 2])
    assert [[1, 2], [3]] == as_pieces([[1, 2], [3]])
    assert [1, 1] == slices_per_key([5, 6])
    assert [2, 1] == slices_per_key([[5, 6], [7]])
