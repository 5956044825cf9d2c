from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hicache_bench.config.load import load_model
from hicache_bench.cost.prefetch import PREFETCH_PROFILES, PrefetchOptions, PrefetchPolicy
from hicache_bench.errors import ConfigError
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.records.replay import ReplayRecord, ReplayResult
from hicache_bench.trace.format import Trace
from hicache_bench.trace.metrics import MeasuredReads, ModeledTimes, TtftModel
from hicache_bench.trace.replay import Limits
from hicache_bench.workflows.replay import replay_trace
from hicache_bench.workflows.replay_options import ReplayArguments, parse_replay
from hicache_bench.workflows.replay_times import ReplayTimes, TimingOptions, timed_variant
from hicache_bench.workflows.variant import VariantOptions
from tests.trace.traces import trace_of
from tests.workflows.runs import quiet
from tests.workflows.simulate.rig import one, policy

WAIT = PrefetchOptions(policy=PrefetchPolicy.WAIT_COMPLETE)


def timed(
    preset: str, *, trace: Trace | None = None, limits: Limits | None = None, **given: Any
) -> tuple[ReplayRecord, ReplayTimes]:
    """A replay without a bound, and its times; what is given is of the trace's options or of the timing."""
    arguments = {name: given.pop(name) for name in ("policy", "measure") if name in given}
    variant = VariantOptions(pp=given.pop("pp", 1))
    tp = given.pop("tp", None)
    timing = TimingOptions(**{"link": "rdma-4x200g", "system": "h200", "prefetch": WAIT, **given})
    found, times = timed_variant(load_model(preset), variant, timing, tp=tp)
    options = parse_replay(found, ReplayArguments(trace="multi-turn", capacity="inf", **arguments))
    asked = replace(options, times=times, limits=limits or Limits(), trace=trace or options.trace)
    return replay_trace(asked, quiet), times


def no_overlap(result: ReplayResult) -> dict[str, float]:
    assert result.summary.ttft is not None
    return dict(result.summary.ttft.seconds["no_overlap"])


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("deepseek-v4-flash", {}),
        ("deepseek-v3", {"tp": 4}),
        ("qwen3-next-80b-a3b", {"tp": 2, "pp": 2}),
        ("gpt-oss-120b", {"limits": Limits(local_tokens=1024)}),
    ],
    ids=["six pools", "replicated", "states over stages", "behind a local prefix"],
)
def test_what_is_timed_is_what_was_read(
    preset: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, over all requests, ranks and pools, under every policy."""
    moved: list[int] = []
    real = ReplayTimes.ttft

    def spied(times: ReplayTimes, of: TransferPolicy) -> TtftModel:
        def model(asked: MeasuredReads) -> ModeledTimes:
            reads, read_of = times.reads_of(of, asked)
            sizes = [sum(rank.copies * rank.num_bytes for rank in ranks) for ranks in reads]
            moved.append(sum(sizes[index] for index in read_of.tolist()))
            return real(times, of)(asked)

        return model

    monkeypatch.setattr(ReplayTimes, "ttft", spied)
    record, _ = timed(preset, **changes)
    counted = [sum(pool.read_bytes for pool in result.summary.pools) for result in record.results]
    assert set(counted) == set(moved)
    assert min(counted) > 0


@pytest.mark.parametrize("preset", ["deepseek-v4-flash", "deepseek-v3", "gpt-oss-120b", "qwen3-next-80b-a3b"])
@pytest.mark.parametrize("of", TransferPolicy, ids=str)
@pytest.mark.parametrize("link", ["rdma-4x200g", "tcp-25gbe"])
def test_a_hit_takes_as_long_as_simulate_says_of_its_prefix(
    preset: str, of: TransferPolicy, link: str
) -> None:
    """The last of two prompts is the first one, 8k tokens, and 512 more."""
    blocks = list(range(16))
    twice = trace_of((8192, blocks), (8704, [*blocks, 99]), block_tokens=512)
    options = PrefetchOptions(profile=PREFETCH_PROFILES["sglang-main"])
    record, _ = timed(
        preset, trace=twice, measure="last:50%", policy=of.value, link=link, prefetch=options, concurrency=8
    )
    alone = one(
        preset,
        link=link,
        prefix_tokens=8192,
        suffix_tokens=512,
        concurrency=8,
        prefetch_profile=options.profile,
    )
    expected = policy(alone, of.value)
    (result, *_) = record.results
    assert result.summary.ttft is not None
    found = {name: values["p50"] for name, values in result.summary.ttft.seconds.items()}
    # Lookup asks for the keys of the whole prompt, not of its saved part alone.
    for name, seconds in found.items():
        assert getattr(expected.ttft, name) == pytest.approx(seconds, abs=1e-3)
    assert int(expected.is_cut) == result.summary.ttft.cut_requests
    assert record.timing_basis is not None
    recompute = record.timing_basis.recompute_seconds["high"]["mean"]
    assert alone.recompute.high == pytest.approx(recompute)
    assert (alone.ranks, alone.compute) == (record.timing_basis.ranks, record.timing_basis.compute)
    assert alone.constants == record.timing_basis.constants


def test_a_slow_link_is_cut_and_the_rest_computed() -> None:
    quick, _ = timed("gpt-oss-120b", policy="dense")
    strict = PrefetchOptions(policy=PrefetchPolicy.BEST_EFFORT, queue_seconds=1e-3)
    slow, _ = timed("gpt-oss-120b", policy="dense", link="s3", prefetch=strict)
    (patient,), (cut,) = quick.results, slow.results
    assert patient.summary.ttft is not None
    assert cut.summary.ttft is not None
    assert (0, 300) == (patient.summary.ttft.cut_requests, cut.summary.ttft.cut_requests)
    assert patient.summary.tokens == cut.summary.tokens
    assert slow.timing_basis is not None
    computed = slow.timing_basis.recompute_seconds["no_overlap"]
    assert dict(computed) == pytest.approx(no_overlap(cut))
    assert no_overlap(patient)["mean"] < computed["mean"]


def test_the_local_prefix_is_not_computed_again() -> None:
    record, times = timed("deepseek-v3", limits=Limits(local_tokens=2048))
    assert record.timing_basis is not None
    prompts, nothing = np.array([4096, 8192]), np.array([0, 0])
    whole = times.basis(prompts, nothing).recompute_seconds["no_overlap"]["mean"]
    rest = times.basis(prompts, nothing + 2048).recompute_seconds["no_overlap"]["mean"]
    assert rest < whole


def test_prompts_that_the_fit_has_not_seen_are_told() -> None:
    _, fitted = timed("deepseek-v4-flash")
    assert fitted.notes(np.array([8192, 32768])) == ()
    (note,) = fitted.notes(np.array([8191, 9000, 32769]))
    assert "8,192 to 32,768 tokens, and 2 of 3 measured prompts" in note
    _, counted = timed("llama-3.1-8b", system="b200")
    assert counted.notes(np.array([1])) == ()


def test_a_model_that_nobody_timed_is_refused() -> None:
    with pytest.raises(ConfigError, match="no link is named"):
        timed("deepseek-v3", link="rdma")
