from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from hicache_bench.report.replay import capacity_text, render_replay, tidy_rows
from hicache_bench.units import GIB, TIB
from tests.report.replays import TIMES, small_record
from tests.trace.traces import trace_of


def shown(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_every_table_fits_80_columns_and_cuts_nothing() -> None:
    text = shown(render_replay(small_record("deepseek-v4-flash", times=TIMES)))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for part in ("deepseek_v4_c4_indexer_state", "hit_policy", "save B: state=every:4096,window=trailing:+2"):
        assert part in text


def test_every_rate_stands_below_its_definition_and_every_figure_has_a_tag() -> None:
    text = " ".join(shown(render_replay(small_record(times=TIMES))).split())
    assert "hits [counted]: the longest prefix of whole pages that is legal in every pool" in text
    assert "traffic [counted]; GB/s that reads need [modeled]" in text
    assert "milliseconds to the first token [modeled]: 8 ranks on node, L3 over wire; 2 equal" in text
    for part in ("a millisecond a token", "prefetch timeout 1 s (old)", "queued for 500.0 ms", "a guess"):
        assert part in text
    assert "64 MiB dense A 250 250 250 250 250 500 2" in text
    assert "recompute 1,500 1,500 2,048" in text
    assert "[modeled]: " not in " ".join(shown(render_replay(small_record())).split())
    trace = " ".join(shown(render_replay(small_record(hit_definition="trace"))).split())
    assert "hits [counted]: the longest prefix of blocks" in trace


def test_a_queue_is_told_where_there_is_one() -> None:
    record = small_record(times=TIMES)
    assert record.timing is not None
    at_once = replace(record, timing=replace(record.timing, queue_seconds=0.0, concurrency=1))
    text = " ".join(shown(render_replay(at_once)).split())
    assert "8 ranks on node, L3 over wire" in text
    assert "queued" not in text
    assert "equal requests" not in text


def test_a_ubiquitous_block_has_columns_where_there_is_one() -> None:
    assert "beyond 1st" in shown(render_replay(small_record()))
    apart = trace_of((1024, [0, 1]), (1024, [2, 3]), (1024, [0, 1]))
    assert "beyond 1st" not in shown(render_replay(small_record(trace=apart)))


def test_a_part_that_is_measured_and_limits_are_told() -> None:
    text = shown(
        render_replay(small_record(measure="last:50%", threshold_tokens=256, host_capacity_tokens=1024))
    )
    assert "measured: the last 2 requests (50 %)" in text
    assert "limits: host_capacity_tokens 1,024, threshold_tokens 256" in text


def test_evictions_are_told_apart() -> None:
    text = shown(render_replay(small_record(eviction="lru,fifo", policy="selective")))
    assert "64 MiB lru" in text
    assert "64 MiB fifo" in text


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(None, "inf"), (TIB, "1 TiB"), (3 * GIB, "3 GiB"), (10**9, "953.7 MiB")]
)
def test_capacities_are_shown_as_they_are_given(num_bytes: int | None, text: str) -> None:
    assert text == capacity_text(num_bytes)


def test_tidy_rows_have_one_value_a_column() -> None:
    record = small_record(times=TIMES)
    rows = tidy_rows([record, replace(small_record(), point=2)])
    assert len(rows) == 2 * len(record.results)
    assert len({tuple(row) for row in rows}) == 1
    assert all(isinstance(value, int | float | str | None) for row in rows for value in row.values())
    assert (64 << 20, None) == (rows[0]["capacity_bytes"], rows[-1]["capacity_bytes"])
    assert record.results[0].summary.tokens.hit == rows[0]["hit_tokens"]
    assert (0.25, 0.5, 2) == tuple(
        rows[0][name] for name in ("ttft_no_overlap_p99", "ttft_high_mean", "cut_requests")
    )
    assert (2, None) == (rows[-1]["point"], rows[-1]["ttft_no_overlap_p99"])
