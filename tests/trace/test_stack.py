from __future__ import annotations

from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.trace.format import Trace
from hicache_bench.trace.paths import HitDefinition, page_paths
from hicache_bench.trace.stack import stack_distances
from tests.trace.traces import drawn_traces, trace_of


@settings(max_examples=80, deadline=None)
@given(trace=drawn_traces(most_requests=30), capacity=st.integers(1, 40))
def test_held_pages_are_those_of_a_plain_lru(trace: Trace, capacity: int) -> None:
    """Hits are counted first, then pages are touched from the last to the first."""
    paths = page_paths(trace, 32, definition=HitDefinition.TRACE)
    cache: OrderedDict[int, None] = OrderedDict()
    expected = []
    for request in range(len(paths)):
        path = paths.of(request).tolist()
        held = [page in cache for page in path]
        expected.append(held.index(False) if False in held else len(held))
        for page in reversed(path):
            cache[page] = None
            cache.move_to_end(page)
            if len(cache) > capacity:
                cache.popitem(last=False)
    assert expected == stack_distances(paths).held_pages(capacity).tolist()


def test_the_height_of_the_stack_is_the_number_of_distinct_pages() -> None:
    trace = trace_of((1024, [0, 1]), (1024, [0, 2]), (512, [3]), (1024, [0, 1]))
    assert [2, 3, 4, 4] == stack_distances(page_paths(trace, 512)).distinct.tolist()
