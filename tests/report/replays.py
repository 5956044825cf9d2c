"""Records of replays that take a moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hicache_bench.config.load import load_model
from hicache_bench.records.replay import ReplayRecord
from hicache_bench.trace.format import Trace
from hicache_bench.workflows.replay import replay_trace
from hicache_bench.workflows.replay_options import ReplayArguments, parse_replay
from hicache_bench.workflows.variant import VariantOptions, apply_options
from tests.trace.traces import trace_of

SHARED = trace_of((1500, [0, 1, 2]), (1500, [0, 1, 3]), (1024, [0, 4]), (2048, [0, 1, 2, 5]))


def small_record(
    preset: str = "deepseek-v3", *, trace: Trace = SHARED, ttft: Any = None, **arguments: Any
) -> ReplayRecord:
    variant = apply_options(load_model(preset), VariantOptions())
    asked = ReplayArguments(**{"trace": "multi-turn", "capacity": "64MiB,inf", **arguments})
    return replay_trace(replace(parse_replay(variant, asked, ttft=ttft), trace=trace), lambda _: None)
