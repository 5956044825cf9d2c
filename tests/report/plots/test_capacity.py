from __future__ import annotations

import pytest

from hicache_bench.records.replay import ReplayRecord
from hicache_bench.report.plots.capacity import alike, by_scenario, draw_capacity, scenario_text
from tests.report.plots.drawn import bar_heights, caption, drawn, legend_texts, line, overflowing, tags, ticks
from tests.report.replays import small_record


@pytest.fixture(scope="module")
def record() -> ReplayRecord:
    return small_record("deepseek-v4-flash", capacity="inf,64MiB,32MiB")


def test_rates_are_those_of_the_record_smallest_capacity_first(record: ReplayRecord) -> None:
    figure = drawn(draw_capacity, record)
    rates = figure.axes[0]
    assert ["32 MiB", "64 MiB", "no bound"] == ticks(rates)[0]
    for (save, eviction, policy), series in by_scenario(record).items():
        expected = [
            100 * result.summary.tokens.hit_rate
            for capacity in (32 << 20, 64 << 20, None)
            for result in record.results
            if (result.capacity_bytes, result.save_policy, result.eviction, result.policy)
            == (capacity, save, eviction, policy)
        ]
        assert len(series) == 3
        (label,) = (text for text in legend_texts(figure) if policy in text and text.endswith(save))
        assert expected == pytest.approx([rate for _, rate in line(rates, label)])
    assert overflowing(figure) == []


def test_shares_are_those_of_the_resident_bytes(record: ReplayRecord) -> None:
    figure = drawn(draw_capacity, record)
    first = next(iter(by_scenario(record).values()))
    heights = bar_heights(figure.axes[1])
    for position, result in enumerate(first.values()):
        total = sum(pool.resident_bytes for pool in result.summary.pools)
        for pool in result.summary.pools:
            assert 100 * pool.resident_bytes / total == pytest.approx(heights[pool.pool][position])


def test_the_hit_is_defined_where_it_is_shown(record: ReplayRecord) -> None:
    figure = drawn(draw_capacity, record)
    assert record.hit_definition_text in " ".join(caption(figure).split())
    assert "counted" in tags(figure)


def test_scenarios_of_equal_figures_are_one_line() -> None:
    record = small_record("deepseek-v3")
    scenarios = by_scenario(record)
    assert 3 == len(scenarios)
    (names,) = alike(scenarios, lambda _: ()).values()
    assert "dense, hit_policy, selective; lru; saved state=every:4096,window=all" == scenario_text(names)
    assert 1 == len(drawn(draw_capacity, record).axes[0].lines)


def test_an_empty_tier_is_drawn() -> None:
    record = small_record("deepseek-v3", capacity="1KiB")
    figure = drawn(draw_capacity, record)
    assert [0.0] == bar_heights(figure.axes[1])["kv"]
