from __future__ import annotations

from math import log10

import pytest

from hicache_bench.report.plots.break_even import draw_break_even
from tests.report.plots.drawn import caption, drawn, overflowing, tags, texts, ticks
from tests.workflows.simulate.rig import simulated

PREFIXES = (1024, 8192, 131072)


def test_cells_are_the_speed_ups_of_the_record() -> None:
    records = simulated("deepseek-v4-flash", prefix_tokens=PREFIXES, with_break_even=True)
    figure = drawn(draw_break_even, *records)
    dense, selective = figure.axes
    for axes, index in ((dense, 0), (selective, 2)):
        found = [float(text) for text in texts(axes)]
        expected = [times for record in records for times in record.break_even[index].speed_up.values()]
        assert expected == pytest.approx(found, rel=0.06, abs=0.006)
    assert "dense: recomputing" in dense.get_title(loc="left")
    assert "hit_policy, selective: recomputing" in selective.get_title(loc="left")
    assert ["1", "2.5", "5", "10", "25", "50", "100", "200", "400"] == ticks(dense)[0]
    assert ["1k", "8k", "128k"] == ticks(dense)[1]
    assert overflowing(figure) == []


def test_the_line_is_the_break_even_bandwidth() -> None:
    records = simulated("deepseek-v3", prefix_tokens=PREFIXES, with_break_even=True)
    solid, dotted = drawn(draw_break_even, *records).axes[0].lines
    for drawn_line, attribute in ((solid, "no_overlap"), (dotted, "full_overlap")):
        rates = [getattr(record.break_even[2], attribute) for record in records]
        assert [log10(rate) for rate in rates] == pytest.approx(drawn_line.get_xdata())


def test_a_policy_that_never_pays_has_no_line() -> None:
    records = simulated(
        "llama-3.1-8b", prefix_tokens=(256, 512), link="s3", system="b200", with_break_even=True
    )
    assert [None, None] == [record.break_even[0].no_overlap for record in records]
    figure = drawn(draw_break_even, *records)
    assert list(figure.axes[0].lines) == []


def test_the_caption_has_the_tags_and_the_sources() -> None:
    records = simulated("deepseek-v3", prefix_tokens=PREFIXES, with_break_even=True)
    figure = drawn(draw_break_even, *records)
    assert {"modeled", "counted", "assumed"} <= set(tags(figure))
    text = "".join(caption(figure).split())
    assert all("".join(constant.source.split()) in text for constant in records[0].constants)
