"""Batches in one shape: spelling, admission, picking and splitting."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import StoreContractError
from hicache_bench.store.object_batch import ObjectBatch, is_valid_key, valid_key_indices
from hicache_bench.store.registration import RegisteredMemory

WIDTHS = st.lists(st.integers(1, 7), max_size=40)


def scattered(widths: list[int]) -> ObjectBatch:
    keys = [f"key-{index}" for index in range(len(widths))]
    starts = [[100 * index + piece for piece in range(width)] for index, width in enumerate(widths)]
    return ObjectBatch.of(keys, starts, [[index + 1] * width for index, width in enumerate(widths)])


class TestSpelling:
    def test_plain_lists_are_taken_as_they_are(self) -> None:
        starts, sizes = [10, 20], [1, 2]
        batch = ObjectBatch.of(["a", "b"], starts, sizes)
        assert not batch.scattered
        assert starts is batch.addresses
        assert [1, 2] == batch.totals

    def test_one_buffer_each_is_flattened(self) -> None:
        batch = ObjectBatch.of(["a", "b"], [[10], (20,)], [[1], (2,)])
        assert ([10, 20], [1, 2], False) == (batch.addresses, batch.sizes, batch.scattered)

    def test_one_object_of_many_buffers_scatters_all(self) -> None:
        batch = ObjectBatch.of(["a", "b"], [[10], [20, 30]], [[1], [2, 3]])
        assert batch.scattered
        assert [1, 5] == batch.totals
        assert [1, 2] == batch.widths

    def test_arrays_become_integers(self) -> None:
        starts, sizes = np.array([2**63 - 1], dtype=np.uint64), np.array([1], dtype=np.int64)
        batch = ObjectBatch.of(["a"], starts, sizes)  # type: ignore[arg-type]
        assert 2**63 == batch.addresses[0] + batch.sizes[0]

    def test_object_without_buffers_stays(self) -> None:
        assert [0, 1] == ObjectBatch.of(["a", "b"], [[], [5]], [[], [1]]).widths

    def test_lengths_must_match(self) -> None:
        with pytest.raises(StoreContractError, match="2 keys, 1 addresses and 2 sizes"):
            ObjectBatch.of(["a", "b"], [1], [1, 2])
        with pytest.raises(StoreContractError, match="one size for each address"):
            ObjectBatch.of(["a"], [[1, 2]], [[1]])


class TestKeys:
    @pytest.mark.parametrize(
        ("expected", "key"), [(True, "a"), (True, "é\x00"), (False, ""), (False, "\ud800")]
    )
    def test_validity(self, expected: bool, key: str) -> None:
        assert expected is is_valid_key(key)

    @given(st.lists(st.one_of(st.text(max_size=3), st.sampled_from(["", "\ud800", "a\udfff"]))))
    def test_batch_agrees_with_each_key(self, keys: list[str]) -> None:
        expected = [index for index, key in enumerate(keys) if is_valid_key(key)]
        assert expected == list(valid_key_indices(keys))


class TestAdmission:
    @given(
        ranges=st.lists(
            st.tuples(st.integers(0, 9), st.integers(1, 40)), max_size=4, unique_by=lambda r: r[0]
        ),
        buffers=st.lists(st.tuples(st.integers(-5, 420), st.integers(-1, 45)), min_size=1, max_size=8),
        as_pieces=st.booleans(),
    )
    def test_agrees_with_the_definition(
        self, ranges: list[tuple[int, int]], buffers: list[tuple[int, int]], as_pieces: bool
    ) -> None:
        arena = np.zeros(512, dtype=np.uint8)
        base = int(arena.ctypes.data)
        memory = RegisteredMemory()
        for slot, num_bytes in ranges:
            memory.add(base + 40 * slot, num_bytes)

        def fits(start: int, num_bytes: int) -> bool:
            return num_bytes > 0 and any(
                40 * slot <= start and start + num_bytes <= 40 * slot + length for slot, length in ranges
            )

        if as_pieces:
            batch = ObjectBatch.of(
                ["all", "first"],
                [[base + start for start, _ in buffers], [base + buffers[0][0]]],
                [[num_bytes for _, num_bytes in buffers], [buffers[0][1]]],
            )
            expected = [all(fits(*buffer) for buffer in buffers), fits(*buffers[0])]
        else:
            keys = [f"key-{index}" for index in range(len(buffers))]
            batch = ObjectBatch.of(
                keys, [base + start for start, _ in buffers], [num_bytes for _, num_bytes in buffers]
            )
            expected = [fits(*buffer) for buffer in buffers]
        admitted = batch.admitted(memory, max_slices=64)
        assert [index for index, fit in enumerate(expected) if fit] == list(admitted)


class TestRounds:
    @given(st.lists(st.sampled_from("abcd"), max_size=20))
    def test_each_object_is_in_one_round_and_no_key_twice(self, keys: list[str]) -> None:
        batch = ObjectBatch.of(keys, list(range(len(keys))), list(range(len(keys))))
        rounds = batch.distinct_rounds()
        assert list(range(len(keys))) == sorted(position for positions in rounds for position in positions)
        for positions in rounds:
            assert list(positions) == sorted(positions)
            assert len(positions) == len({keys[position] for position in positions})
        assert max([1, *map(keys.count, keys)]) == len(rounds)


class TestSplitting:
    @given(WIDTHS, st.integers(7, 20))
    def test_parts_are_the_batch(self, widths: list[int], max_slices: int) -> None:
        batch = scattered(widths)
        parts = list(batch.split(max_slices))
        assert list(batch.keys) == [key for part in parts for key in part.keys]
        assert list(batch.sizes) == [size for part in parts for size in part.sizes]
        assert batch.totals == [total for part in parts for total in part.totals]
        assert all(0 < len(part) for part in parts)
        assert all(sum(part.widths) <= max_slices for part in parts if part.scattered)

    @given(WIDTHS, st.integers(7, 20))
    def test_parts_are_as_few_as_can_be(self, widths: list[int], max_slices: int) -> None:
        parts = list(scattered(widths).split(max_slices))
        for part, following in pairwise(parts):
            first_of_following = following.widths[0] if following.scattered else 1
            assert max_slices < (sum(part.widths) or len(part)) + first_of_following

    def test_whole_batch_is_not_copied(self) -> None:
        for batch in (scattered([2, 3]), scattered([1, 1])):
            assert [batch] == [part for part in batch.split(5) if part is batch]
            assert batch is batch.pick(range(2))
