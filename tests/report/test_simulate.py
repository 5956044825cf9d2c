from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console, RenderableType

from hicache_bench.cost.prefetch import PREFETCH_PROFILES, PrefetchPolicy
from hicache_bench.records.simulation import SimulationRecord
from hicache_bench.report.simulate import MAX_POINTS_SHOWN, milliseconds, ratio, render_simulation
from hicache_bench.report.simulate_break_even import gigabytes
from hicache_bench.report.simulate_constants import constant_lines, quantity, render_constants
from hicache_bench.report.simulate_csv import rows_of
from tests.workflows.runs import PRESETS
from tests.workflows.simulate.rig import one, simulated


def text_of(part: RenderableType) -> str:
    file = StringIO()
    console = Console(file=file, width=80, color_system=None)
    console.print(part)
    return file.getvalue()


def unwrapped(records: list[SimulationRecord]) -> str:
    return " ".join(text_of(render_simulation(records)).split())


@pytest.mark.parametrize("preset", PRESETS)
def test_tables_of_every_preset_fit(preset: str) -> None:
    records = simulated(
        preset,
        prefix_tokens=(1024, 131072),
        link="tcp-25gbe",
        prefetch_profile=PREFETCH_PROFILES["sglang-main"],
    )
    text = text_of(render_simulation(records))
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "…" not in text


def test_a_break_even_fits_and_policies_of_equal_times_share_a_map() -> None:
    text = text_of(
        render_simulation(simulated("deepseek-v3", with_break_even=True, prefix_tokens=(1024, 32768)))
    )
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "dense, hit_policy, selective: speed-up" in text
    assert 1 == text.count("speed-up over recomputing")


def test_never_is_a_word() -> None:
    record = one("llama-3.1-8b", with_break_even=True, link="s3", system="b200", prefix_tokens=256)
    assert "never never" in unwrapped([record])


def test_every_figure_has_its_tag_and_every_constant_its_source() -> None:
    record = one("gpt-oss-120b")
    text = unwrapped([record])
    for tag in ("[modeled]", "[counted]", "[assumed]"):
        assert tag in text
    for constant in record.constants:
        assert " ".join(constant.source.split()) in text


def test_a_constant_is_tagged_if_it_is_not_assumed() -> None:
    record = one("gpt-oss-120b")
    constants = tuple(replace(constant, evidence="modeled") for constant in record.constants)
    assert "[modeled] " in text_of(render_constants([replace(record, constants=constants)]))
    assumed = text_of(render_constants([record]))
    assert "[modeled]" not in assumed
    assert "constants, with their bands, [assumed] if not said otherwise\n" in assumed


def test_constants_are_lines_of_a_caption_too() -> None:
    lines = constant_lines([one("gpt-oss-120b", link="s3")])
    assert "s3: line rate 12.5 GB/s: 100 Gb/s NIC" == lines[0]
    assert all(line.partition(": ")[0] in ("s3", "h200") for line in lines)


def test_a_constant_is_listed_once_over_all_points() -> None:
    records = simulated("gpt-oss-120b", prefix_tokens=(1024, 8192), link=("s3", "nvme-gen4"))
    text = unwrapped(records)
    assert 1 == text.count("host to one GPU")
    assert 2 == text.count("line rate ")


def test_notes_and_limits_are_told() -> None:
    record = one(
        "deepseek-v4-flash",
        prefix_tokens=131072,
        queue_seconds=0.5,
        host_capacity_tokens=65536,
        local_tokens=1024,
    )
    text = unwrapped([record])
    for part in (
        "warning: the prefill fit saw", "queued for 500.0 ms", "host memory for 65,536 tokens",
        "local prefix of 1k tokens", "(host capacity)",
    ):  # fmt: skip
        assert part in text


@pytest.mark.parametrize("policy", PrefetchPolicy)
def test_a_timeout_is_told_of_the_policy_that_has_one(policy: PrefetchPolicy) -> None:
    record = one("gpt-oss-120b", prefetch_policy=policy)
    timeout = f" {record.prefetch_timeout}" if policy is PrefetchPolicy.TIMEOUT else ""
    assert f"tokens on, {policy.value}{timeout} ({record.prefetch_profile})" in unwrapped([record])


def test_bands_are_those_of_every_policy() -> None:
    record = one("gpt-oss-120b")
    recompute, dense, hit_policy, selective = (
        f"{milliseconds(span.low)} to {milliseconds(span.high)}"
        for span in (record.recompute, *(policy.ttft for policy in record.policies))
    )
    assert hit_policy == selective
    assert (
        f"bands: recompute {recompute}; dense {dense}; hit_policy, selective {selective} Full overlap"
    ) in unwrapped([record])


def test_a_long_sweep_is_cut_and_says_so() -> None:
    records = simulated(
        "llama-3.1-8b", suffix_tokens=tuple(range(1, MAX_POINTS_SHOWN + 3)), prefix_tokens=1024
    )
    assert "2 more points: see the table file" in unwrapped(records)


def test_a_row_has_every_figure_of_its_policy() -> None:
    record = one("gpt-oss-120b", with_break_even=True)
    recompute, dense, *_ = rows_of([record])
    assert ("recompute", None) == (recompute["policy"], recompute["num_bytes"])
    assert (record.recompute.no_overlap, record.policies[0].ttft.high) == (
        recompute["ttft_no_overlap"],
        dense["ttft_high"],
    )
    assert record.break_even[0].at_peak == dense["break_even_at_peak"]
    assert list(recompute) == list(dense)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (milliseconds(0.000123), "0.12"),
        (milliseconds(0.0123), "12.3"),
        (milliseconds(1.2345), "1,234"),
        (ratio(None), "-"),
        (ratio(1.234), "1.23x"),
        (ratio(12.34), "12.3x"),
        (ratio(1234.0), "1,234x"),
        (gigabytes(5.859e9), "5.86"),
        (gigabytes(18.57e9), "18.6"),
        (gigabytes(123e9), "123"),
        (quantity(87e9, "B/s"), "87 GB/s"),
        (quantity(989e12, "FLOP/s"), "989 TFLOP/s"),
        (quantity(5e-4, "s"), "500 µs"),
        (quantity(0.03, "s"), "30 ms"),
        (quantity(0.0, "s"), "0 s"),
        (quantity(3.5e-5, "s/token"), "35 µs/token"),
        (quantity(1.0, ""), "1"),
    ],
)
def test_figures_are_written_as_people_read_them(found: str, text: str) -> None:
    assert text == found
