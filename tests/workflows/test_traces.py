from __future__ import annotations

from pathlib import Path

import pytest

from hicache_bench.errors import InputError
from hicache_bench.trace.format import OnError
from hicache_bench.workflows.traces import open_trace, parse_blocks, trace_figures
from tests.trace.traces import CONVERSATION, needs_conversation, trace_of


@needs_conversation
def test_figures_of_the_conversation_trace() -> None:
    figures = trace_figures(open_trace(CONVERSATION), parse_blocks("1k,10k,30k,50k,100k,all"))
    assert ["4.45%", "21.16%", "32.57%", "35.46%", "36.37%", "36.64%"] == [
        f"{row.hit_blocks / figures.blocks:.2%}" for row in figures.hits
    ]
    assert "37.36%" == f"{figures.hits[-1].hit_tokens / figures.tokens:.2%}"
    assert (182_790, 512, False) == (
        figures.trace.distinct_blocks,
        figures.trace.ubiquitous_tokens,
        figures.trace.has_outputs,
    )


@needs_conversation
def test_the_last_half_of_the_conversation_trace() -> None:
    figures = trace_figures(open_trace(CONVERSATION), (None,), measured_percent=50)
    assert (27_038_068, 67_915_607) == (figures.hits[0].hit_tokens, figures.tokens)


def test_a_shipped_trace_is_found_by_its_name() -> None:
    assert 300 == len(open_trace("multi-turn"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("multiturn", "did you mean 'multi-turn'?"),
        ("zzz", "shipped: multi-turn; to read one of your own, give its path"),
        ("folder/multi-turn", "no trace is named 'folder/multi-turn'"),
        ("gone.jsonl", "cannot read trace 'gone.jsonl'"),
    ],
)
def test_a_trace_that_is_not_there(name: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        open_trace(name)
    assert message in str(refused.value)


def test_options_of_reading_are_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 70, "output_length": 0, "hash_ids": [1, 2]}\nx\n')
    trace = open_trace(path, block_tokens=64, on_error=OnError.SKIP)
    assert (64, 1) == (trace.block_tokens, trace.skipped)


def test_figures_of_one_moment_have_no_rate_to_divide_by() -> None:
    figures = trace_figures(trace_of((100, [1])), (1, None))
    assert (0.0, 0) == (figures.duration_seconds, figures.hits[-1].hit_blocks)


def test_numbers_of_blocks_are_read() -> None:
    assert (1, 10_000, None) == parse_blocks("1, 10k,all,1")


@pytest.mark.parametrize("text", ["", "0", "k", "1M", "-5", "1.5k", "nan", str(1 << 63)])
def test_what_is_no_number_of_blocks(text: str) -> None:
    with pytest.raises(InputError, match="--blocks"):
        parse_blocks(text)
