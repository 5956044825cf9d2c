from __future__ import annotations

import numpy as np
import pytest

from hicache_bench.errors import InputError
from hicache_bench.trace.format import read_trace
from hicache_bench.trace.paths import HitDefinition, OutputSave, page_paths
from hicache_bench.trace.stack import stack_distances
from tests.trace.traces import CONVERSATION, needs_conversation, plain_prompts, trace_of


@needs_conversation
@pytest.mark.parametrize("page_tokens", [512, 256, 64])
def test_conversation_trace_without_bounds(page_tokens: int) -> None:
    paths = page_paths(read_trace(CONVERSATION), page_tokens, definition=HitDefinition.TRACE)
    seen = paths.seen_pages()
    assert 0.3736 == pytest.approx(paths.tokens_at(seen).sum() / paths.input_tokens.sum(), abs=5e-5)
    assert 27_038_068 == paths.tokens_at(seen)[6015:].sum()
    assert 67_915_607 == paths.input_tokens[6015:].sum()
    if page_tokens == 512:
        assert 0.3664 == pytest.approx(seen.sum() / paths.starts[-1], abs=5e-5)


@needs_conversation
def test_conversation_trace_under_lru() -> None:
    paths = page_paths(read_trace(CONVERSATION), 512, definition=HitDefinition.TRACE)
    distances = stack_distances(paths)
    rates = [
        f"{distances.held_pages(blocks).sum() / paths.starts[-1]:.2%}"
        for blocks in (1_000, 10_000, 30_000, 50_000, 100_000)
    ]
    assert ["4.45%", "21.16%", "32.57%", "35.46%", "36.37%"] == rates


@pytest.mark.parametrize("definition", HitDefinition, ids=str)
def test_e87_a_partial_block_is_shared_by_the_same_partial_only(definition: HitDefinition) -> None:
    trace = trace_of((2752, range(708, 714)), (2754, [*range(708, 713), 1469]))
    paths = page_paths(trace, 64, definition=definition)
    hit = np.minimum(paths.seen_pages(), paths.matchable)
    assert 2560 == paths.tokens_at(hit)[1]


def test_e87_whole_blocks_that_two_prompts_share() -> None:
    trace = trace_of((14_624, range(29)), (15_151, [*range(28), 90, 91]))
    paths = page_paths(trace, 512)
    assert 14_336 == paths.tokens_at(paths.seen_pages())[1]


def test_one_id_with_two_lengths_is_two_blocks() -> None:
    paths = page_paths(trace_of((100, [0]), (512, [0]), (100, [0])), 4, definition=HitDefinition.TRACE)
    assert [0, 0, 25] == paths.seen_pages().tolist()


def test_an_id_behind_another_prefix_is_another_block() -> None:
    paths = page_paths(trace_of((1024, [1, 9]), (1024, [2, 9]), (1024, [1, 9])), 512)
    assert [0, 0, 2] == paths.seen_pages().tolist()


def test_ids_that_differ_in_their_upper_half_are_two_blocks() -> None:
    paths = page_paths(trace_of((512, [1]), (512, [2**32 + 1])), 512)
    assert [0, 0] == paths.seen_pages().tolist()


def test_what_may_hit_leaves_a_token_to_recompute_or_not() -> None:
    trace = plain_prompts(511, 512, 513, 1100)
    engine = page_paths(trace, 64)
    assert [7, 8, 8, 17] == engine.prompt_pages.tolist()
    assert [7, 7, 8, 17] == engine.matchable.tolist()
    whole = page_paths(trace, 64, definition=HitDefinition.TRACE)
    assert [8, 8, 9, 18] == whole.matchable.tolist() == whole.prompt_pages.tolist()
    assert [511, 512, 513, 1100] == whole.tokens_at(whole.matchable).tolist()


def test_generated_tokens_lie_under_the_ids_of_the_blocks_that_they_complete() -> None:
    trace = trace_of((600, [0, 1]), (1800, [0, 5, 6, 7]), outputs=[(1000, [5, 6, 8]), (0, [7])])
    paths = page_paths(trace, 128, outputs=OutputSave.ALL)
    assert [12, 14] == paths.lengths.tolist()
    assert [4, 12] == paths.matchable.tolist()
    assert [0, 12] == paths.seen_pages().tolist()


def test_previous_and_following_requests_are_those_that_have_the_page() -> None:
    paths = page_paths(trace_of((1024, [0, 1]), (512, [2]), (1024, [0, 3]), (512, [0])), 512)
    assert [-1, -1, -1, 0, -1, 2] == paths.previous.tolist()
    assert [2, 4, 4, 3, 4, 4] == paths.following.tolist()


def test_a_block_is_a_whole_number_of_pages() -> None:
    assert 8 == page_paths(plain_prompts(513), 64).matchable[0]
    with pytest.raises(InputError, match="no whole number of pages of 96"):
        page_paths(plain_prompts(513), 96)


def test_outputs_need_ids() -> None:
    with pytest.raises(InputError, match="no output_hash_ids"):
        page_paths(plain_prompts(513), 64, outputs=OutputSave.ALL)


def test_too_many_pages_are_refused_before_memory_is_taken() -> None:
    trace = trace_of(*((1 << 20, [number]) for number in range(200)), block_tokens=1 << 20)
    with pytest.raises(InputError, match="give a larger --page-tokens"):
        page_paths(trace, 1)
