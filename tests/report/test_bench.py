"""A bench record, as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from hicache_bench.records.bench import BenchRecord, Loss
from hicache_bench.records.schema import Check
from hicache_bench.report.bench import render_bench
from tests.workflows.bench.series import made_record, made_series

EXPECTED = Path(__file__).parents[1] / "golden" / "bench.txt"


def text_of(record: BenchRecord) -> str:
    console = Console(width=80, color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        console.print(render_bench(record))
    return "\n".join(line.rstrip() for line in capture.get().split("\n"))


def full_record() -> BenchRecord:
    size = 64 << 20
    steady = [0.010 + 1e-5 * (index % 7) for index in range(120)]
    starts = [0.01 * index for index in range(120)]
    pool = "deepseek_v4_c4_indexer_state"
    call = made_series(
        operation="call", pool=pool, num_bytes=1 << 16, objects=1, seconds=[0.002], starts=[0],
        store_seconds=[0.0002], busy_processors=None,
    )  # fmt: skip
    series = [
        made_series(operation="copy", policy=None, num_bytes=size, seconds=steady, starts=starts),
        made_series(operation="save", policy=None, num_bytes=size, verify_seconds=None),
        made_series(operation="lookup", policy=None, num_bytes=0, objects=98_304, seconds=[0.0009] * 20),
        made_series(operation="lookup", policy="hit_policy", num_bytes=0, objects=48, seconds=[0.9, 0.1]),
        made_series(policy="hit_policy", num_bytes=size, seconds=steady, starts=starts, busy_processors=1.9),
        made_series(policy="hit_policy", num_bytes=size, concurrent=2, client=0),
        made_series(policy="hit_policy", num_bytes=size, concurrent=2, client=1, seconds=[0.11, 0.1, 0.1]),
        made_series(pool=pool, num_bytes=size, objects=1024, store_seconds=[0.1]),
        call,
        made_series(pool="kv", num_bytes=1 << 20, objects=16),
    ]
    return made_record(
        series,
        clients=2,
        losses=(
            Loss(client=1, doing="restore dense", reason="client 1 ended with SIGKILL", seconds=2.5),
            Loss(client=None, doing="save", reason="writer said nothing for 100 s", seconds=100.0),
        ),
        checks=(
            Check(
                "cold: keys of the prefix in the store before it is saved", "0 of 16", "0 of 16", passed=True
            ),
            Check(
                "warm: keys of the prefix in the store before it is read", "16 of 16", "16 of 16", passed=True
            ),
            Check("restore dense: restored pages that differ", "none", "1: kv:3", passed=False),
        ),
        warnings=("3.5 processes wanted the 2 processors before the run began",),
    )


def test_everything_is_told_in_80_columns() -> None:
    text = text_of(full_record())
    assert max(map(len, text.split("\n"))) <= 80
    assert "…" not in text
    assert EXPECTED.read_text() == text


def test_the_longest_figures_leave_every_heading_whole() -> None:
    long = [0.8999] * 9
    series = [
        made_series(operation="copy", policy=None, num_bytes=64 << 20),
        made_series(
            policy="hit_policy",
            num_bytes=64 << 30,
            seconds=[2.6997] * 9,
            store_seconds=long,
            key_seconds=long,
            verify_seconds=0.8999,
        ),
        made_series(operation="lookup", policy=None, num_bytes=0, objects=98_304, seconds=[0.0009] * 20),
    ]
    text = text_of(made_record(series))
    rates = text[text.index("rates, and") : text.index("checks passed")].splitlines()
    assert "operation GB/s copy k obj/s keys calls engine (apart)" == " ".join(rates[2].split())
    assert "of building store verify" == " ".join(rates[1].split())
    assert "109,227" in text
    assert ("…" in text, max(map(len, rates)) <= 80) == (False, True)


def test_a_percentile_without_samples_is_not_told() -> None:
    few = made_record([made_series(operation="copy", policy=None), made_series(seconds=[0.1] * 19)])
    row = next(line for line in text_of(few).split("\n") if line.startswith("restore dense"))
    assert 3 == row.count("-")


def test_one_process_has_no_table_of_clients() -> None:
    text = text_of(made_record([made_series(operation="copy", policy=None), made_series()]))
    assert "at once" not in text
    assert "one process writes and reads" in text
    assert "0 of 0 checks passed" in text


@pytest.mark.parametrize(
    ("busy", "own", "is_said"), [(1.9, 1.7, True), (1.2, 1.1, False), (None, 1.0, False), (1.9, None, False)]
)
def test_why_more_clients_bring_nothing(busy: float | None, own: float | None, is_said: bool) -> None:
    parts = [
        made_series(operation="copy", policy=None),
        made_series(busy_processors=busy, own_processors=own),
        made_series(concurrent=2, client=0),
        made_series(concurrent=2, client=1),
    ]
    text = " ".join(text_of(made_record(parts, clients=2)).split())
    words = "1.9 of 2 CPUs are busy, 1.7 of them with this client and its writer; more clients have nothing"
    assert is_said == (words in text)
