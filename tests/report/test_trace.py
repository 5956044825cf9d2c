from __future__ import annotations

from dataclasses import replace

from hicache_bench.report.trace import render_trace
from hicache_bench.workflows.traces import open_trace, trace_figures
from tests.report.replays import SHARED
from tests.report.test_replay import shown


def test_a_trace_is_shown_with_the_definition_of_its_rates() -> None:
    text = shown(render_trace(trace_figures(open_trace("multi-turn"), (100, None), measured_percent=50)))
    assert max(map(len, text.splitlines())) <= 80
    assert "300 requests" in text
    flat = " ".join(text.split())
    assert "hits of the last 50 % of the requests under LRU [counted]: the longest prefix of blocks" in flat


def test_what_a_trace_lacks_or_lost_is_told() -> None:
    damaged = replace(SHARED, skipped=2, first_problem="t.jsonl:3: not JSON")
    text = " ".join(shown(render_trace(trace_figures(damaged, (None,)))).split())
    assert "no output_hash_ids: decode KV cannot be followed" in text
    assert "2 lines left out, the first: t.jsonl:3: not JSON" in text
    assert "nearly all prompts begin with one block of 512 tokens" in text
