"""Simulations that several tests make."""

from __future__ import annotations

from typing import Any

from hicache_bench.config.load import load_model
from hicache_bench.cost.prefetch import PrefetchOptions
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.records.simulation import PolicyTime, SimulationRecord
from hicache_bench.workflows.simulate.points import Axes, SimulateOptions
from hicache_bench.workflows.simulate.recorded import RecordedRun
from hicache_bench.workflows.simulate.simulate import simulate
from tests.workflows.runs import quiet

OPTIONS = {"variant", "policies", "with_break_even", "command"}


def simulated(source: str | RecordedRun, **given: Any) -> list[SimulationRecord]:
    """Every point; a value that is no tuple is an axis of one."""
    prefetch = PrefetchOptions(
        **{
            name: given.pop(f"prefetch_{name}")
            for name in ("policy", "profile")
            if f"prefetch_{name}" in given
        }
    )
    options = {name: given.pop(name) for name in OPTIONS & set(given)}
    if isinstance(given.get("save_policy"), str):
        given["save_policy"] = SavePolicy.parse(given["save_policy"])
    axes = {"link": "rdma-8x400g", "system": "h200", "prefix_tokens": 8192, **given}
    return list(
        simulate(
            SimulateOptions(
                source=load_model(source) if isinstance(source, str) else source,
                axes=Axes(
                    **{name: value if isinstance(value, tuple) else (value,) for name, value in axes.items()}
                ),
                prefetch=prefetch,
                **options,
            ),
            quiet,
        )
    )


def one(source: str | RecordedRun, **given: Any) -> SimulationRecord:
    """The only point."""
    (record,) = simulated(source, **given)
    return record


def policy(record: SimulationRecord, name: str) -> PolicyTime:
    """One policy of a point."""
    (found,) = (time for time in record.policies if time.policy == name)
    return found
