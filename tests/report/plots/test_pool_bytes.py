from __future__ import annotations

import pytest

from hicache_bench.report.plots.pool_bytes import draw_pool_bytes, read_bytes
from hicache_bench.units import GIB
from tests.report.plots.drawn import (
    DARK,
    bar_lengths,
    caption,
    drawn,
    legend_texts,
    overflowing,
    tags,
    texts,
    ticks,
)
from tests.workflows.runs import cached_run

K, M = 1 << 10, 1 << 20


@pytest.mark.parametrize("preset", ["deepseek-v4-pro", "kitchen-sink", "jamba-1.5-mini", "llama-4-scout"])
def test_bars_are_the_bytes_of_the_record(preset: str) -> None:
    record = cached_run(preset, M)
    figure = drawn(draw_pool_bytes, record)
    left, right = figure.axes
    assert left.get_xlabel() in ("bytes read (GiB)", "bytes read (TiB)")
    unit = GIB if "GiB" in left.get_xlabel() else 1024 * GIB
    (result,) = record.results
    pools = [pool.name for pool in record.pools if pool.decision != "skip"]
    assert list(bar_lengths(left)) == pools == legend_texts(figure)
    for row, (policy, total) in enumerate(zip(ticks(left)[1], result.policies, strict=True)):
        assert policy == total.policy
        assert total.read.num_bytes == pytest.approx(
            sum(lengths[row] for lengths in bar_lengths(left).values()) * unit
        )
        assert 100 == pytest.approx(sum(lengths[row] for lengths in bar_lengths(right).values()))
    assert overflowing(figure) == []


def test_each_length_has_its_panel_and_its_tag() -> None:
    figure = drawn(draw_pool_bytes, cached_run("deepseek-v4-flash", 8 * K, M))
    titles = [axes.get_title(loc="left") for axes in figure.axes[::2]]
    assert ["8k tokens [counted]", "1M tokens [counted]"] == titles
    assert ["279.5 MiB", "38.24 MiB  (-86.3%)", "38.24 MiB  (-86.3%)"] == texts(figure.axes[0])
    assert ["counted"] == list(tags(figure))


def test_the_caption_says_what_the_bytes_depend_on() -> None:
    record = cached_run("qwen3-next-80b-a3b", 8 * K, save_policy="state=all")
    text = caption(drawn(draw_pool_bytes, record))
    for part in ("sglang-0.5.23", "64 tokens a page", "state=all", record.preset_digest[:8]):
        assert part in text


def test_a_local_prefix_is_said() -> None:
    text = caption(drawn(draw_pool_bytes, cached_run("qwen3-32b", 8 * K, local_prefix_tokens=4 * K)))
    assert "a local prefix of 4k tokens" in text
    assert "dense reads all that is stored and not local, hit_policy" in text
    assert "local" not in caption(drawn(draw_pool_bytes, cached_run("qwen3-32b", 8 * K)))


def test_bytes_of_all_ranks_are_added() -> None:
    record = cached_run("qwen3-next-80b-a3b", 8 * K, tp=2)
    (result,) = record.results
    read = read_bytes(result)
    assert [sum(by_pool.values()) for by_pool in read.values()] == [
        policy.read.num_bytes for policy in result.policies
    ]
    assert "all 2 ranks together" in caption(drawn(draw_pool_bytes, record))


def test_a_record_that_reads_nothing_is_drawn() -> None:
    record = cached_run("qwen3-32b", 8 * K, local_prefix_tokens=8 * K)
    figure = drawn(draw_pool_bytes, record, theme=DARK)
    assert "0 B" in texts(figure.axes[0])
