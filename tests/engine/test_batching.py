from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.engine.batching import call_spans, page_batches

rising = st.sets(st.integers(1, 400), max_size=60).map(lambda ends: np.array(sorted(ends), dtype=np.int64))


@given(st.lists(rising, min_size=1, max_size=4), st.integers(1, 50))
def test_every_unit_is_in_one_batch_and_no_batch_has_too_many_pages(
    ends: list[np.ndarray], batch_pages: int
) -> None:
    batches = list(page_batches(ends, batch_pages))
    for index, part in enumerate(ends):
        spans = [batch[index] for batch in batches]
        assert list(range(len(part))) == [unit for first, stop in spans for unit in range(first, stop)]
    for batch in batches:
        pages = {
            int(end) for part, (first, stop) in zip(ends, batch, strict=True) for end in part[first:stop]
        }
        assert 1 <= len(pages) <= batch_pages
    everything = {int(end) for part in ends for end in part}
    assert -(-len(everything) // batch_pages) == len(batches)


def test_a_pool_without_a_unit_in_a_batch_has_an_empty_part() -> None:
    kv, window = np.arange(1, 7), np.array([6])
    assert [((0, 4), (0, 0)), ((4, 6), (0, 1))] == list(page_batches([kv, window], 4))


def test_nothing_to_move_is_no_batch() -> None:
    assert [] == list(page_batches([], 128))
    assert [] == list(page_batches([np.array([], dtype=np.int64)], 128))


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, []), (1, [1]), (1024, [1024]), (1025, [1024, 1]), (2048, [1024, 1024])]
)
def test_a_batch_is_cut_at_the_limit_of_a_call(count: int, sizes: list[int]) -> None:
    assert sizes == [span.stop - span.start for span in call_spans(count, 1024)]
