from __future__ import annotations

import pytest

from hicache_bench.report.plots.throughput import draw_throughput, pool_series
from tests.report.plots.drawn import caption, drawn, legend_texts, line, overflowing, points_of, tags
from tests.workflows.bench.series import made_record, made_series

SECONDS = (0.010, 0.011, 0.012, 0.020)
RESTORE = made_series(pool="kv", num_bytes=1 << 20, objects=16, seconds=SECONDS, starts=(0.0,) * 4)
CALL = made_series(operation="call", pool="kv", num_bytes=1 << 16, objects=1, seconds=(0.002,), starts=(0.0,))
COPY = made_series(operation="copy", policy=None, num_bytes=1 << 20, seconds=(0.001,), starts=(0.0,))


def test_every_sample_is_drawn_at_the_size_of_its_objects() -> None:
    figure = drawn(draw_throughput, made_record([RESTORE, CALL, COPY]))
    (axes,) = figure.axes
    samples = points_of(axes.lines[0])
    assert [2**20 / seconds / 1e9 for seconds in SECONDS] == pytest.approx([rate for _, rate in samples])
    assert all(size == pytest.approx(1 << 16, rel=0.06) for size, _ in samples)
    ((size, middle),) = line(axes, "kv")
    assert (1 << 16, 2**20 / 0.0115 / 1e9) == pytest.approx((size, middle))
    assert overflowing(figure) == []


def test_the_machine_has_its_limit_and_the_figure_its_tag() -> None:
    figure = drawn(draw_throughput, made_record([RESTORE, COPY]))
    assert "numpy copy, 1.05 GB/s" in legend_texts(figure)
    assert ["measured"] == list(tags(figure))
    assert "95 % bootstrap interval" in caption(figure)


def test_without_a_copy_there_is_no_limit() -> None:
    assert not any("copy" in text for text in legend_texts(drawn(draw_throughput, made_record([RESTORE]))))


def test_only_single_pools_of_a_client_alone_are_shown() -> None:
    others = [
        made_series(num_bytes=1 << 20),
        made_series(pool="kv", concurrent=2),
        made_series(operation="lookup", pool="kv"),
    ]
    assert [RESTORE] == pool_series(made_record([*others, RESTORE]))
