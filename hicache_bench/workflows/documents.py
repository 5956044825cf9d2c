"""What the figures of the docs are drawn from, made on the spot: counted bytes, modelled times."""

from __future__ import annotations

from hicache_bench.config.load import load_model
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.records.replay import ReplayRecord
from hicache_bench.records.schema import RunRecord
from hicache_bench.records.simulation import SimulationRecord
from hicache_bench.workflows.meter import Progress
from hicache_bench.workflows.replay import replay_trace
from hicache_bench.workflows.replay_options import UNBOUNDED, ReplayArguments, parse_replay
from hicache_bench.workflows.run import RunOptions, run
from hicache_bench.workflows.simulate.points import Axes, SimulateOptions
from hicache_bench.workflows.simulate.simulate import simulate
from hicache_bench.workflows.variant import VariantOptions, apply_options

LENGTHS = (8 << 10, 128 << 10, 1 << 20)
"""Of the byte chart: what fits on one machine, a long prompt, and the longest."""
QUERIES = (1, 2, 4, 8)
_UNION_TOKENS, _UNION_PAGE = 128 << 10, 16
_CAPACITIES = ("256MiB", "1GiB", "4GiB", "16GiB", UNBOUNDED)
_PREFIXES = tuple(1 << power for power in range(10, 19))


def counted_bytes(progress: Progress) -> tuple[RunRecord, ...]:
    """The main job's model at three lengths."""
    return (_counted("deepseek-v4-flash", VariantOptions(), LENGTHS, 0, progress),)


def counted_unions(progress: Progress) -> tuple[RunRecord, ...]:
    """A model of few layers in small pages, so that the union takes several queries to grow."""
    small = VariantOptions(page_tokens=_UNION_PAGE)
    return tuple(_counted("kitchen-sink", small, (_UNION_TOKENS,), queries, progress) for queries in QUERIES)


def modelled_times(progress: Progress) -> tuple[SimulationRecord, ...]:
    """Eight requests that share a link of 25 Gb/s, so that the timeout cuts what is read under dense."""
    axes = Axes(link=("tcp-25gbe",), system=("h200",), prefix_tokens=_PREFIXES, concurrency=(8,))
    options = SimulateOptions(source=load_model("deepseek-v4-flash"), axes=axes, with_break_even=True)
    return tuple(simulate(options, progress))


def replayed_trace(progress: Progress) -> tuple[ReplayRecord, ...]:
    """The shipped trace against tiers from too small to too large."""
    variant = apply_options(load_model("deepseek-v4-flash"), VariantOptions())
    asked = ReplayArguments(trace="multi-turn", capacity=",".join(_CAPACITIES))
    return (replay_trace(parse_replay(variant, asked), progress),)


def _counted(
    preset: str, changes: VariantOptions, lengths: tuple[int, ...], queries: int, progress: Progress
) -> RunRecord:
    options = RunOptions(
        variant=apply_options(load_model(preset), changes),
        token_lengths=lengths,
        save_policy=SavePolicy(),
        store="count",
        num_queries=queries,
        repeat=1,
    )
    return run(options, progress)
