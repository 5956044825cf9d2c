from __future__ import annotations

from dataclasses import replace

from hicache_bench.records.schema import Check
from hicache_bench.report.run_list import render_runs
from tests.report.outputs import plain
from tests.workflows.runs import PRESETS, cached_run


def test_a_row_for_each_preset_and_length() -> None:
    text = plain(render_runs([cached_run("kitchen-sink", 1024, 2048), cached_run("llama-4-scout", 8192)]))
    lines = [line.split() for line in text.splitlines()]
    assert ["2k"] == [line[0] for line in lines if line[:1] == ["2k"]]  # its preset is named once, above
    (scout,) = (line for line in lines if line[:1] == ["llama-4-scout"])
    assert ["-75.0%", "-75.0%"] == scout[-2:]
    assert "bytes read by all ranks [counted]" in text


def test_what_was_moved_and_what_was_counted_stand_apart() -> None:
    text = plain(
        render_runs([cached_run("kitchen-sink", 1024), cached_run("kitchen-sink", 1024, store="local")])
    )
    assert text.index("[measured]") < text.index("[counted]")


def test_the_longest_names_fit() -> None:
    longest = sorted(PRESETS, key=len)[-2:]
    text = plain(render_runs([cached_run(name, 131072) for name in longest]))
    assert max(map(len, text.splitlines())) <= 80
    assert all(name in text for name in longest)


def test_failed_checks_are_printed() -> None:
    record = cached_run("kitchen-sink", 1024)
    (result,) = record.results
    bad = replace(result, checks=(Check("bytes", "1", "2", passed=False),))
    text = plain(render_runs([record, replace(record, results=(bad,))]))
    assert "FAILED kitchen-sink, bytes: expected 1, found 2" in text
    assert f"2 presets: {len(result.checks)} of {len(result.checks) + 1} checks passed" in text
