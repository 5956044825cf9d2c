"""Records of replays that take a moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hicache_bench.config.load import load_model
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.records.replay import ReplayRecord, Timing, TimingBasis
from hicache_bench.records.simulation import ConstantRecord
from hicache_bench.trace.columns import Counts
from hicache_bench.trace.format import Trace
from hicache_bench.trace.metrics import MeasuredReads, ModeledTimes, TtftModel, percentiles
from hicache_bench.trace.replay import Limits
from hicache_bench.workflows.replay import replay_trace
from hicache_bench.workflows.replay_options import ReplayArguments, TimeModel, parse_replay
from hicache_bench.workflows.variant import VariantOptions, apply_options
from tests.trace.traces import trace_of

SHARED = trace_of((1500, [0, 1, 2]), (1500, [0, 1, 3]), (1024, [0, 4]), (2048, [0, 1, 2, 5]))


LIMITS = {"local_tokens", "host_capacity_tokens", "threshold_tokens"}


class FixedTimes:
    """Every first token after a quarter of a second, 0.5 s at worst; every second read is cut."""

    timing = Timing(
        link="wire",
        system="node",
        concurrency=2,
        queue_seconds=0.5,
        prefetch_policy="timeout",
        prefetch_profile="old",
    )
    threshold_tokens = 0

    def ttft(self, policy: TransferPolicy) -> TtftModel:
        assert isinstance(policy, TransferPolicy)
        return self._times

    def basis(self, prompt_tokens: Counts, local_tokens: Counts) -> TimingBasis:
        computed = percentiles((prompt_tokens - local_tokens) / 1e3)
        constant = ConstantRecord(
            of="wire", name="line rate", value=1e9, low=1e9, high=2e9, unit="B/s", source="a guess"
        )
        return TimingBasis(
            ranks=8,
            nodes=1,
            prefetch_timeout="1 s",
            compute="a millisecond a token",
            constants=(constant,),
            recompute_seconds=dict.fromkeys(ENDS, computed),
        )

    def notes(self, prompt_tokens: Counts) -> tuple[str, ...]:
        return (f"{len(prompt_tokens)} prompts",)

    def _times(self, reads: MeasuredReads) -> ModeledTimes:
        seconds = np.full(len(reads.prompt_tokens), 0.25)
        return ModeledTimes(
            seconds={end: seconds * (2 if end == "high" else 1) for end in ENDS},
            is_cut=np.arange(len(seconds)) % 2 > 0,
        )


ENDS = ("full_overlap", "no_overlap", "low", "high")
TIMES = FixedTimes()


def small_record(
    preset: str = "deepseek-v3", *, trace: Trace = SHARED, times: TimeModel | None = None, **arguments: Any
) -> ReplayRecord:
    """A replay; a limit is an argument too."""
    variant = apply_options(load_model(preset), VariantOptions())
    limits = Limits(**{name: arguments.pop(name) for name in LIMITS & set(arguments)})
    asked = ReplayArguments(**{"trace": "multi-turn", "capacity": "64MiB,inf", **arguments})
    options = replace(parse_replay(variant, asked), trace=trace, times=times, limits=limits)
    return replay_trace(options, lambda _: None)
