"""Registered ranges: found by address, never overlapping."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import StoreError
from hicache_bench.store.registration import NO_RANGE, RegisteredMemory

NUM_BYTES = 64
MEMORY = np.zeros(NUM_BYTES, dtype=np.uint8)
BASE = int(MEMORY.ctypes.data)


@given(ranges=st.lists(st.tuples(st.integers(0, NUM_BYTES - 1), st.integers(1, NUM_BYTES)), max_size=12))
def test_ranges_are_those_of_a_model_that_marks_every_byte(ranges: list[tuple[int, int]]) -> None:
    memory = RegisteredMemory()
    owners: dict[int, tuple[int, int]] = {}
    for start, num_bytes in ranges:
        bytes_asked = range(start, min(start + num_bytes, NUM_BYTES))
        if any(at in owners for at in bytes_asked):
            with pytest.raises(StoreError, match="overlaps"):
                memory.add(BASE + start, len(bytes_asked))
        else:
            memory.add(BASE + start, len(bytes_asked))
            owners.update(dict.fromkeys(bytes_asked, (BASE + start, BASE + bytes_asked.stop)))
    for at in range(-1, NUM_BYTES + 1):
        found = memory.find(BASE + at)
        assert owners.get(at, (0, 0)) == (found.start, found.end)


def test_view_is_the_memory_itself() -> None:
    memory = RegisteredMemory()
    memory.add(BASE + 8, 16)
    view = memory.find(BASE + 10).view
    view[2] = 77
    assert (77, 16) == (MEMORY[10], len(view))
    MEMORY[10] = 0


def test_discarded_range_is_gone_and_can_come_back() -> None:
    memory = RegisteredMemory()
    starts = [BASE, BASE + 20, BASE + 40]
    for start in starts:
        memory.add(start, 20)
    assert all(first + 20 == second for first, second in pairwise(starts))
    memory.discard(BASE + 20)
    assert NO_RANGE is memory.find(BASE + 20)
    assert NO_RANGE is memory.find(BASE + 39)
    assert [BASE, BASE + 40] == [memory.find(BASE + 19).start, memory.find(BASE + 40).start]
    memory.add(BASE + 20, 20)
    assert BASE + 20 == memory.find(BASE + 39).start


@pytest.mark.parametrize("address", [BASE - 1, BASE + 1, BASE + 20], ids=["before", "within", "behind"])
def test_only_a_start_can_be_discarded(address: int) -> None:
    memory = RegisteredMemory()
    memory.add(BASE, 20)
    with pytest.raises(StoreError, match="no registered buffer starts"):
        memory.discard(address)
    assert BASE == memory.find(BASE).start


@pytest.mark.parametrize(
    ("address", "num_bytes"),
    [(0, 10), (-8, 10), (BASE, 0), (BASE, -1)],
    ids=["null", "negative", "no bytes", "negative bytes"],
)
def test_what_is_no_buffer_is_refused(address: int, num_bytes: int) -> None:
    with pytest.raises(StoreError, match="at least one byte"):
        RegisteredMemory().add(address, num_bytes)


def test_clear_forgets_everything() -> None:
    memory = RegisteredMemory()
    memory.add(BASE, 20)
    memory.clear()
    assert NO_RANGE is memory.find(BASE)
