from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hicache_bench.report.plots.first_token import by_prefix, draw_first_token, policies_alike
from tests.report.plots.drawn import caption, drawn, legend_texts, line, overflowing, tags, ticks
from tests.workflows.simulate.rig import simulated

PREFIXES = (1024, 8192, 131072)
CUT = "cut: not all had landed"


def test_lines_are_the_times_of_the_record() -> None:
    records = simulated("deepseek-v4-flash", prefix_tokens=PREFIXES, link="tcp-100gbe")
    figure = drawn(draw_first_token, *reversed(records))
    (axes,) = figure.axes
    expected = {
        "recompute everything": [record.recompute.no_overlap for record in records],
        "dense": [record.policies[0].ttft.no_overlap for record in records],
        "hit_policy, selective": [record.policies[2].ttft.no_overlap for record in records],
    }
    for label, seconds in expected.items():
        assert list(zip(PREFIXES, seconds, strict=True)) == line(axes, label)
    assert list(expected) == legend_texts(figure)
    assert ["1k", "8k", "128k"] == ticks(axes)[0]
    assert overflowing(figure) == []


def test_the_band_reaches_from_full_overlap_to_none_and_over_the_constants() -> None:
    records = simulated("deepseek-v3", prefix_tokens=PREFIXES)
    figure = drawn(draw_first_token, *records)
    _, light, dark = figure.axes[0].collections
    for band, low, high in ((light, "low", "high"), (dark, "full_overlap", "no_overlap")):
        (path,) = band.get_paths()
        heights = np.asarray(path.vertices)[:, 1]
        spans = [record.policies[2].ttft for record in records]
        assert min(getattr(span, low) for span in spans) == pytest.approx(heights.min())
        assert max(getattr(span, high) for span in spans) == pytest.approx(heights.max())


def test_a_cut_is_marked_and_so_is_the_timeout() -> None:
    records = simulated("deepseek-v4-flash", prefix_tokens=PREFIXES, link="tcp-25gbe", concurrency=8)
    cuts = [
        (record.prefix_tokens, time.ttft.no_overlap)
        for record in records
        for time in record.policies
        if time.is_cut
    ]
    assert cuts
    figure = drawn(draw_first_token, *records)
    assert cuts == line(figure.axes[0], CUT)
    timeouts = [(record.prefix_tokens, record.policies[0].timeout_seconds) for record in records]
    assert timeouts == line(figure.axes[0], "timeout of the prefetch")


def test_without_a_cut_nothing_is_marked() -> None:
    records = simulated("qwen3-32b", prefix_tokens=PREFIXES)
    assert CUT not in legend_texts(drawn(draw_first_token, *records))


def test_the_caption_has_the_tags_and_every_constant_with_its_source() -> None:
    records = simulated("gpt-oss-120b", prefix_tokens=PREFIXES, link="s3")
    figure = drawn(draw_first_token, *records)
    assert {"modeled", "counted", "assumed"} <= set(tags(figure))
    text = "".join(caption(figure).split())
    for constant in records[0].constants:
        assert "".join(constant.source.split()) in text


def test_one_record_a_length_the_last_one_given() -> None:
    first, second = simulated("qwen3-32b", prefix_tokens=(8192, 1024))
    again = replace(first, concurrency=7)
    assert [second, again] == by_prefix([first, second, again])


def test_policies_are_together_only_if_they_agree_everywhere() -> None:
    assert {0: [0, 1], 2: [2]} == policies_alike([["a", "a", "a"], ["b", "b", "c"]])
