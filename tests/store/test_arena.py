"""The extent allocator against a model that marks every byte."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hicache_bench.errors import StoreContractError
from hicache_bench.store.arena import ExtentAllocator

CAPACITY_BYTES = 256


def holes(taken: list[bool]) -> list[tuple[int, int]]:
    """``(start, num_bytes)`` of every run of bytes that are not taken."""
    found: list[tuple[int, int]] = []
    for position, is_taken in enumerate(taken):
        if is_taken:
            continue
        if position and not taken[position - 1]:
            start, num_bytes = found[-1]
            found[-1] = start, num_bytes + 1
        else:
            found.append((position, 1))
    return found


class ArenaMachine(RuleBasedStateMachine):
    """Allocates and releases at random; the model is one flag a byte."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = ExtentAllocator(CAPACITY_BYTES)
        self.taken = [False] * CAPACITY_BYTES
        self.allocations: list[tuple[int, int]] = []

    @rule(num_bytes=st.integers(1, CAPACITY_BYTES + 1))
    def allocate(self, num_bytes: int) -> None:
        fitting = [start for start, size in holes(self.taken) if size >= num_bytes]
        start = self.arena.allocate(num_bytes)
        assert (fitting[0] if fitting else None) == start
        if start is not None:
            assert not any(self.taken[start : start + num_bytes])
            self.taken[start : start + num_bytes] = [True] * num_bytes
            self.allocations.append((start, num_bytes))

    @precondition(lambda self: self.allocations)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.allocations) - 1))
        start, num_bytes = self.allocations.pop(index)
        self.arena.release(start, num_bytes)
        self.taken[start : start + num_bytes] = [False] * num_bytes

    @rule(start=st.integers(-2, CAPACITY_BYTES + 2), num_bytes=st.integers(-1, CAPACITY_BYTES))
    def release_what_is_free(self, start: int, num_bytes: int) -> None:
        inside = range(max(start, 0), min(start + num_bytes, CAPACITY_BYTES))
        if len(inside) == num_bytes > 0 and all(self.taken[at] for at in inside):
            return
        with pytest.raises(StoreContractError):
            self.arena.release(start, num_bytes)

    @invariant()
    def holes_are_those_of_the_model(self) -> None:
        # Equal lists mean: sorted, no overlap, no leak, and neighbours merged.
        assert holes(self.taken) == self.arena.free_extents
        assert self.taken.count(False) == self.arena.free_bytes
        assert self.taken.count(True) == self.arena.used_bytes


TestArena = ArenaMachine.TestCase
TestArena.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_arena_fills_from_the_bottom() -> None:
    arena = ExtentAllocator(100)
    assert [0, 30, 60, None, 90, None] == [arena.allocate(num_bytes) for num_bytes in (30, 30, 30, 11, 10, 1)]
    assert (100, 100, 0, []) == (arena.capacity_bytes, arena.used_bytes, arena.free_bytes, arena.free_extents)


def test_exact_hole_is_taken_whole() -> None:
    arena = ExtentAllocator(100)
    starts = [arena.allocate(20) for _ in range(5)]
    assert [0, 20, 40, 60, 80] == starts
    arena.release(40, 20)
    arena.release(0, 20)
    assert 0 == arena.allocate(15)
    assert 40 == arena.allocate(20)
    assert [(15, 5)] == arena.free_extents


def test_release_merges_on_both_sides() -> None:
    arena = ExtentAllocator(100)
    for _ in range(4):
        arena.allocate(25)
    arena.release(0, 25)
    arena.release(50, 25)
    assert [(0, 25), (50, 25)] == arena.free_extents
    arena.release(25, 25)
    assert [(0, 75)] == arena.free_extents
    arena.release(75, 25)
    assert [(0, 100)] == arena.free_extents


def test_free_bytes_can_be_too_scattered() -> None:
    arena = ExtentAllocator(100)
    for _ in range(4):
        arena.allocate(25)
    arena.release(0, 25)
    arena.release(50, 25)
    assert 50 == arena.free_bytes
    assert arena.allocate(26) is None
