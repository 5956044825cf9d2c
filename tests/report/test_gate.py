from __future__ import annotations

from functools import partial

import pytest
from rich.console import Console

from hicache_bench.records.gate import Filed, GateReport, gate
from hicache_bench.records.thresholds import DEFAULT_THRESHOLDS, parse_thresholds
from hicache_bench.report.gate import render_gate
from tests.records.changes import Data, changed, counted, reads_the_window, renamed
from tests.records.golden import golden_record
from tests.report.outputs import many, plain


def filed(*changes) -> Filed:
    return Filed(changed(golden_record("run"), *changes))


def text(report: GateReport) -> str:
    return plain(render_gate(report))


def test_records_of_which_the_same_is_to_be_said_share_a_line() -> None:
    four = [filed(renamed(f"model-{index}")) for index in range(4)]
    printed = text(gate(four, four, DEFAULT_THRESHOLDS))
    assert "4 records: pass, 1,792 metrics as in their baselines" in printed
    assert "model-1" not in printed
    fresh = text(gate([], four, DEFAULT_THRESHOLDS))
    assert "4 records: not comparable\n  model-0, model-1, model-2, model-3\n  no baseline" in fresh
    three = text(gate(four[:3], four[:3], DEFAULT_THRESHOLDS))
    assert "model-1, run [measured]: pass" in three


def test_a_long_report_is_cut_and_says_so() -> None:
    def all_worse(record: Data) -> None:
        for pool, account in enumerate(record["results"][0]["ranks"][0]["policies"][0]["pools"]):
            for number, name in enumerate(("total", "needed", "read", "missed", "failed", "wasted")):
                for unit in account[name]:
                    account[name][unit] += pool * 10 + number + 1

    printed = text(gate([filed(counted)], [filed(counted, all_worse)], DEFAULT_THRESHOLDS))
    assert "rows more; --format json has all of them" in printed
    assert printed.count("regressed\n") < 50


def test_what_is_allowed_is_printed() -> None:
    def one_percent(record: Data) -> None:
        for policy in record["results"][0]["policies"]:
            policy["read"]["num_bytes"] += policy["read"]["num_bytes"] // 100

    report = gate([filed()], [filed(one_percent)], parse_thresholds("bytes=1.5%,time=0%"))
    printed = text(report)
    assert "allowed to get worse: bytes 1.5%; all else not at all" in printed
    assert "read bytes: within the 1.5% allowed" in printed
    assert 0 == report.exit_code


def test_what_was_accepted_is_printed() -> None:
    from dataclasses import replace

    report = replace(
        gate([filed()], [filed(reads_the_window)], DEFAULT_THRESHOLDS),
        exit_code=0,
        accepted=("kitchen-sink.json",),
        unchanged=3,
    )
    printed = text(report)
    assert "accepted as baseline: kitchen-sink.json" in printed
    assert "gate: regressed (1 regressed); 1 baseline written, 3 as they were" in printed
    assert "exit code" not in printed


def test_nothing_compared_is_said() -> None:
    assert "gate: regressed (nothing was compared); exit code 1" in text(gate([], [], DEFAULT_THRESHOLDS))


def test_ranks_that_changed_alike_are_named_together() -> None:
    def two_ranks(record: Data, more: int = 0) -> None:
        result = record["results"][0]
        first = result["ranks"][0]
        first["policies"][0]["store_calls"] += more
        result["ranks"] = [{**first, "rank": "tp0"}, {**first, "rank": "tp1"}]

    report = gate([filed(two_ranks)], [filed(partial(two_ranks, more=1))], DEFAULT_THRESHOLDS)
    printed = " ".join(text(report).split())
    assert "8k tokens, rank tp0, dense; also 8k tokens, rank tp1, dense" in printed


@pytest.mark.parametrize("name", ["[red]model[/red]", ":warning: model", "\x1b[31mmodel"])
def test_names_are_not_markup(name: str) -> None:
    report = gate([], [filed(renamed(name))], DEFAULT_THRESHOLDS)
    console = Console(width=200, color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        console.print(render_gate(report))
    assert name.removeprefix("\x1b") in capture.get()


def test_a_new_length_is_a_note() -> None:
    def longer(record: Data) -> None:
        record["results"].append({**record["results"][0], "tokens": 131072})

    printed = text(gate([filed()], [filed(longer)], DEFAULT_THRESHOLDS))
    assert "128k tokens: new, without a baseline" in printed
    assert "gate: pass" in printed


def test_colours_are_for_terminals_only() -> None:
    console = Console(width=80, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(render_gate(many()))
    assert "\x1b[1;31mregressed" in capture.get()
    assert "\x1b" not in text(many())
