from __future__ import annotations

import json
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

from hicache_bench.config.deployments import load_compute
from hicache_bench.cost.prefetch import PREFETCH_PROFILES, PrefetchPolicy
from hicache_bench.errors import ConfigError, InputError
from hicache_bench.records.io import load_record, write_record
from hicache_bench.workflows.simulate.points import Axes
from tests.workflows.runs import PRESETS
from tests.workflows.simulate.rig import one, policy, simulated

MAIN = PREFETCH_PROFILES["sglang-main"]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_times(preset: str) -> None:
    record = one(preset, system="h100")
    assert [time.policy for time in record.policies] == ["dense", "hit_policy", "selective"]
    for time in record.policies:
        assert 0 < time.ttft.low <= time.ttft.full_overlap <= time.ttft.no_overlap <= time.ttft.high
        assert time.num_bytes > 0
        assert not time.is_cut
        assert 8192 == time.used_tokens
        assert time.speed_up_over_recompute == pytest.approx(
            record.recompute.no_overlap / time.ttft.no_overlap
        )
    assert policy(record, "selective").num_bytes <= policy(record, "dense").num_bytes


def test_a_record_survives_the_disk(tmp_path: Path) -> None:
    record = one("gpt-oss-120b", with_break_even=True, link="s3")
    path = write_record(record, tmp_path)
    assert json.loads(json.dumps(record.to_dict())) == json.loads(json.dumps(load_record(path).to_dict()))


def test_the_plan_is_that_of_the_fits_gpus() -> None:
    assert [2, 8] == [one(name).ranks for name in ("gpt-oss-120b", "deepseek-v3")]
    assert 8 == one("deepseek-v3", system="a800").ranks


def test_a_model_that_cannot_be_spread_gets_fewer_ranks() -> None:
    assert 4 == one("kitchen-sink", system="a800").ranks  # its four state heads


def test_ranks_of_replicated_latents_each_read_them_all() -> None:
    one_rank, eight = simulated("deepseek-v3", tp=(1, 8))
    assert 8 * one_rank.policies[0].num_bytes == eight.policies[0].num_bytes
    assert one_rank.policies[0].rank_bytes == eight.policies[0].rank_bytes
    assert one_rank.policies[0].read_seconds < eight.policies[0].read_seconds


def test_sharded_heads_are_shared_out() -> None:
    one_rank, eight = simulated("llama-3.1-8b", tp=(1, 8), system="h100")
    assert one_rank.policies[0].num_bytes == eight.policies[0].num_bytes
    assert "taken to scale evenly to 8 GPUs" in eight.compute


def test_concurrent_requests_share_the_link() -> None:
    alone, shared = simulated("llama-3.1-70b", concurrency=(1, 4), system="h100", link="efa-p5")
    moving = [record.policies[0].read_seconds - 2 * 5e-4 for record in (alone, shared)]
    assert 1 == len({record.policies[0].rank_calls for record in (alone, shared)})
    assert 3.9 < moving[1] / moving[0] < 4.3


def test_small_objects_are_slow() -> None:
    """V4's compressed pools have objects of 33 kB: far from what EFA moves at its best."""
    record = one("deepseek-v4-flash", link="efa-p5en", system="h200", prefix_tokens=131072)
    time = policy(record, "selective")
    rate = time.num_bytes / time.read_seconds
    assert rate < 0.9 * 213e9


def test_a_timeout_cuts_and_says_what_is_left() -> None:
    record = one("llama-3.1-70b", system="h100", link="tcp-25gbe", prefix_tokens=131072, concurrency=4)
    time = policy(record, "dense")
    assert time.is_cut
    assert (33.0, time.landed_calls * 8192) == (time.timeout_seconds, time.used_tokens)
    assert {"timeout": 131072 - time.used_tokens} == time.unused_tokens
    assert (131072, time.used_tokens) == (time.hit_tokens, time.fulfilled_tokens)
    needed = time.uncut_bytes_per_second
    assert needed is not None
    assert 2.5e9 < needed < 10e9


def test_a_cut_hybrid_keeps_nothing_in_0_5_23() -> None:
    given: dict[str, Any] = {"link": "tcp-25gbe", "prefix_tokens": 131072, "concurrency": 24}
    old = one("gpt-oss-120b", **given)
    new = one("gpt-oss-120b", prefetch_profile=MAIN, **given)
    assert [0, 0] == [policy(old, name).used_tokens for name in ("dense", "selective")]
    assert policy(old, "dense").wasted_bytes > 0
    assert policy(new, "dense").used_tokens > 0
    assert 0 == policy(new, "selective").used_tokens


def test_best_effort_without_a_queue_recomputes() -> None:
    record = one("deepseek-v3", prefetch_policy=PrefetchPolicy.BEST_EFFORT)
    time = policy(record, "dense")
    assert (0, {"best_effort": 8192}) == (time.used_tokens, time.unused_tokens)
    assert time.ttft.no_overlap == pytest.approx(record.recompute.no_overlap)


def test_host_capacity_is_a_reason_of_its_own() -> None:  # cases E13
    record = one("llama-3.1-8b", prefix_tokens=16010, page_tokens=1, host_capacity_tokens=2551, tp=1)
    time = policy(record, "selective")
    assert (16010, 2551, 2551) == (time.hit_tokens, time.fulfilled_tokens, time.used_tokens)
    assert {"host_capacity": 13459} == time.unused_tokens


def test_a_hybrids_shorter_endpoint_is_a_legal_one() -> None:  # cases E13
    record = one("qwen3-next-80b-a3b", prefix_tokens=16384, host_capacity_tokens=6000)
    # States are kept every 4,096 tokens.
    assert {4096} == {time.used_tokens for time in record.policies}


def test_a_short_hit_is_recomputed() -> None:  # cases E63
    record = one("llama-3.1-8b", prefix_tokens=192)
    time = policy(record, "dense")
    assert (0, 0, {"below_threshold": 192}) == (time.num_bytes, time.used_tokens, time.unused_tokens)


def test_what_is_local_is_neither_read_nor_computed() -> None:
    record = one("llama-3.1-70b", prefix_tokens=16384, local_tokens=8192, system="h100")
    whole = one("llama-3.1-70b", prefix_tokens=16384, system="h100")
    assert 2 * policy(record, "dense").num_bytes == policy(whole, "dense").num_bytes
    assert record.recompute.no_overlap < whole.recompute.no_overlap
    assert 16384 == policy(record, "dense").used_tokens


def test_flops_are_the_fallback_and_it_says_so() -> None:
    assert "no fit of this model" in one("qwen3-32b").compute
    assert "fit of 4 lengths" in one("deepseek-v3").compute


def test_a_model_of_ones_own_needs_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hicache_bench.workflows.simulate.scenes.load_compute", dict)
    with pytest.raises(ConfigError, match="give --hidden-size"):
        one("qwen3-32b")
    with pytest.raises(InputError, match="give --hidden-size"):
        one("qwen3-32b", active_parameters=3e10)
    dims = load_compute()["qwen3-32b"]
    monkeypatch.undo()
    given = one("qwen3-32b", hidden_size=dims.hidden_size, active_parameters=dims.active_parameters)
    assert one("qwen3-32b").recompute == given.recompute


def test_more_active_parameters_take_longer() -> None:
    few, many = simulated("qwen3-32b", active_parameters=(3e9, 3e10))
    assert few.recompute.no_overlap < many.recompute.no_overlap


def test_a_length_that_the_fit_did_not_see_is_noted() -> None:
    inside, outside = simulated("deepseek-v4-flash", prefix_tokens=(16384, 131072))
    assert ((), 1) == (inside.notes, len(outside.notes))
    assert "8,192 to 32,768 tokens, and 131,584 lie outside" in outside.notes[0]


def test_every_constant_is_in_the_record_with_its_source() -> None:
    record = one("llama-3.1-70b", system="h800")
    names = {(constant.of, constant.name) for constant in record.constants}
    assert {
        ("rdma-8x400g", "line rate"),
        ("h800", "host to one GPU"),
        ("h800", "peak of a GPU, bf16"),
    } <= names
    assert all(constant.source and constant.evidence == "assumed" for constant in record.constants)
    assert all(constant.low <= constant.value <= constant.high for constant in record.constants)


def test_what_was_fitted_to_samples_is_modeled_and_what_the_file_lacks_is_assumed(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_text(
        '{"kind": "bench", "store": "mooncake", "link_points": '
        '[{"object_bytes": 65536, "bytes_per_second": 3e9, "op_seconds": 1e-4}]}'
    )
    record = one("llama-3.1-8b", link=f"measured:{path}")
    tags = {
        constant.name: constant.evidence for constant in record.constants if constant.of == "measured:b.json"
    }
    assert ("modeled", "assumed") == (tags.pop("store call"), tags.pop("existence query"))
    assert {"modeled", "assumed"} == set(tags.values())
    assert "measured:b.json" == record.link


# --- break-even -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("system", "expected"), [("a800", 5.86), ("h800", 18.6)])
def test_the_papers_break_even(system: str, expected: float) -> None:
    record = one("llama-3.1-70b", system=system, with_break_even=True)
    for entry in record.break_even:
        assert entry.at_peak is not None
        assert expected == pytest.approx(entry.at_peak / 1e9, abs=0.05)


def test_the_map_crosses_one_at_the_break_even() -> None:
    record = one("deepseek-v3", with_break_even=True, prefix_tokens=32768)
    for entry in record.break_even:
        assert entry.no_overlap is not None
        assert all((float(rate) >= entry.no_overlap) == (up >= 1) for rate, up in entry.speed_up.items())


def test_a_break_even_is_for_those_who_ask() -> None:
    assert () == one("llama-3.1-8b").break_even
    assert one("llama-3.1-8b", with_break_even=True).break_even


def test_never_is_no_number() -> None:
    record = one("llama-3.1-8b", with_break_even=True, link="s3", system="b200", prefix_tokens=256)
    assert {None} == {entry.no_overlap for entry in record.break_even}
    assert all(isfinite(up) for entry in record.break_even for up in entry.speed_up.values())


# --- sweeps -----------------------------------------------------------------------------------------------


def test_a_sweep_is_the_product_and_the_prefix_varies_fastest() -> None:
    records = simulated(
        "llama-3.1-8b", concurrency=(1, 2), suffix_tokens=(64, 64), prefix_tokens=(1024, 2048)
    )
    assert [(1, 1024), (1, 2048), (2, 1024), (2, 2048)] == [
        (record.concurrency, record.prefix_tokens) for record in records
    ]
    assert [(1, 4), (2, 4), (3, 4), (4, 4)] == [(record.point, record.points) for record in records]
    assert 4 == len({record.subject for record in records})
    assert records[1].policies == one("llama-3.1-8b", suffix_tokens=64, prefix_tokens=2048).policies


AXES = Axes(link=("s3",), system=("h200",), prefix_tokens=(1024,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"suffix_tokens": (0,)}, "--suffix 0 is too small; allowed: at least 1"),
        ({"concurrency": (0,)}, "--concurrency 0"),
        ({"local_tokens": (2048,)}, "--local-prefix 2,048 is longer than --prefix 1,024"),
    ],
)
def test_values_that_no_request_has_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(AXES, **changes).check()
