from __future__ import annotations

import pytest

from hicache_bench.records.schema import RunRecord
from hicache_bench.report.plots.index_union import draw_index_union, unions_of
from tests.report.plots.drawn import drawn, legend_texts, line, overflowing, points_of, tags
from tests.workflows.runs import cached_run

TOKENS = 128 << 10


def runs(*queries: int) -> list[RunRecord]:
    return [cached_run("kitchen-sink", TOKENS, page_tokens=16, num_queries=number) for number in queries]


def test_the_line_is_what_the_ledger_says() -> None:
    records = runs(2, 1)
    figure = drawn(draw_index_union, *records)
    (label,) = legend_texts(figure)
    assert "kitchen-sink, mla, 128k tokens, pages of 16" == label
    points = dict(line(figure.axes[0], label))
    assert [1, 2] == list(points)
    for record in records:
        selective = record.results[0].ranks[0].policies[-1]
        (account,) = (account for account in selective.pools if account.pool == "mla")
        percent = 100 * account.read.pages / account.total.pages
        assert percent == pytest.approx(points[record.queries])
    assert points[1] < points[2] < 100
    assert {"modeled", "assumed"} == set(tags(figure))
    assert overflowing(figure) == []


def test_where_all_was_read_the_mark_is_hollow() -> None:
    unions = list(unions_of(runs(1, 50)))
    assert [True, False] == [union.narrowed for union in unions]
    hollow = drawn(draw_index_union, *runs(1, 50)).axes[0].lines[1]
    assert [(50, 100)] == points_of(hollow)


def test_runs_without_queries_or_index_give_nothing() -> None:
    assert list(unions_of([cached_run("kitchen-sink", 8192), cached_run("qwen3-32b", 8192)])) == []
