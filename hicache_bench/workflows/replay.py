"""A trace against a tier: every capacity under every policy and save policy; the result is one record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

from hicache_bench import __version__
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.planning.resolve import alignment_warning
from hicache_bench.pools.names import AttentionType, HitPolicy
from hicache_bench.pools.registry import PoolDescriptorRegistry
from hicache_bench.records.replay import ReplayRecord, ReplayResult, TimingBasis
from hicache_bench.records.schema import Evidence
from hicache_bench.trace.columns import Counts
from hicache_bench.trace.eviction import open_tier
from hicache_bench.trace.metrics import ReplaySummary, first_measured, summarize, ubiquitous_pages
from hicache_bench.trace.paths import OutputSave, PagePaths, page_paths
from hicache_bench.trace.replay import Limits, Replay, Replayer, can_use_stack, from_stack, local_pages
from hicache_bench.trace.stack import StackDistances, stack_distances
from hicache_bench.trace.streams import Stream, TierPool, streams_of, tier_pools
from hicache_bench.trace.tier import Eviction
from hicache_bench.units import format_size
from hicache_bench.workflows.environment import describe_environment, library_versions
from hicache_bench.workflows.identity import deployment_dict, preset_dict
from hicache_bench.workflows.meter import Progress, Share
from hicache_bench.workflows.replay_options import ReplayOptions, TimeModel
from hicache_bench.workflows.traces import trace_record

NO_OUTPUTS = "decode KV is not modelled: the trace has no output_hash_ids to follow it by"
OUTPUTS_LEFT_OUT = "decode KV is not modelled; the trace has its ids: --include-output all, or attention"
EVIDENCE = {
    "hits and bytes": Evidence.COUNTED.value,
    "bandwidth": Evidence.MODELED.value,
    "ttft": Evidence.MODELED.value,
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is run at each capacity."""

    policy: TransferPolicy
    save: SavePolicy


def replay_trace(options: ReplayOptions, progress: Progress, share: Share | None = None) -> ReplayRecord:
    """Replay ``options.trace`` for every capacity, eviction, policy and save policy.

    ``share`` is told, after each of them, how much is done.

    Raises:
        InputError: blocks that are no whole number of pages, outputs without ids, too many pages.
        ConfigError: a deployment that the engine refuses, or pools that cannot be stored or followed.
    """
    variant, trace = options.variant, options.trace
    for pools in variant.pools.values():
        registry = PoolDescriptorRegistry()
        for pool in pools:
            registry.add(pool)
        registry.check()
    pools_stored = tier_pools(variant.pools.values())
    progress("building the tree of prefixes")
    paths = page_paths(trace, variant.page_tokens, definition=options.definition, outputs=options.outputs)
    first = first_measured(len(trace), options.measured_percent)
    ubiquitous = ubiquitous_pages(trace, paths)
    runner = _Runner(options, paths, pools_stored, first, ubiquitous)
    results = runner.run_all(scenarios(options, pools_stored), progress, share)
    return ReplayRecord(
        created_utc=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        command=options.command,
        tool_version=__version__,
        libraries=library_versions(with_mooncake=False),
        environment=describe_environment(),
        preset=preset_dict(variant.spec),
        preset_digest=variant.spec.digest,
        profile=variant.profile,
        deployment=deployment_dict(variant.deployment),
        page_tokens=paths.page_tokens,
        trace=trace_record(trace, paths),
        hit_definition=options.definition.value,
        hit_definition_text=options.definition.text,
        outputs=options.outputs.value,
        measured_percent=options.measured_percent,
        measured_requests=len(trace) - first,
        limits=asdict(options.limits),
        timing=None if options.times is None else options.times.timing,
        timing_basis=None if options.times is None else _basis(options.times, paths, options.limits, first),
        evidence=EVIDENCE,
        notes=_notes(options, pools_stored, paths.input_tokens[first:]),
        results=results,
    )


def _basis(times: TimeModel, paths: PagePaths, limits: Limits, first: int) -> TimingBasis:
    local_tokens = paths.tokens_at(local_pages(paths, limits))
    return times.basis(paths.input_tokens[first:], local_tokens[first:])


def scenarios(options: ReplayOptions, pools: tuple[TierPool, ...]) -> tuple[Scenario, ...]:
    """Every policy with every save policy.

    Where no save policy is asked for: the default with every policy, then ``selective`` with windows as short
    as a trace allows. That is one block more than the last endpoint needs, since ids do not tell how much of
    a partial last block two prompts share.
    """
    if options.save_policies:
        return tuple(Scenario(policy, save) for save in options.save_policies for policy in options.policies)
    found = [Scenario(policy, SavePolicy()) for policy in options.policies]
    windows = any(
        member.pool.hit_policy is HitPolicy.TRAILING_PAGES
        and member.pool.attention is not AttentionType.RECURRENT
        for member in pools
    )
    if windows and TransferPolicy.SELECTIVE in options.policies:
        extra = options.trace.block_tokens // options.variant.page_tokens
        found.append(Scenario(TransferPolicy.SELECTIVE, SavePolicy(window_extra_pages=extra)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Outcome:
    summary: ReplaySummary
    method: str
    evicts: bool


class _Runner:
    """Runs what is asked for; what touches the tier alike is run once."""

    def __init__(
        self,
        options: ReplayOptions,
        paths: PagePaths,
        pools: tuple[TierPool, ...],
        first: int,
        ubiquitous: Counts,
    ) -> None:
        self._options = options
        self._times = options.times
        self._paths = paths
        self._pools = pools
        self._first = first
        self._ubiquitous = ubiquitous
        self._max_pages = int(paths.lengths.max(initial=0))
        self._distances: StackDistances | None = None
        self._known: dict[object, _Outcome] = {}
        self._roomy: dict[object, _Outcome] = {}

    def run_all(
        self, asked: Sequence[Scenario], progress: Progress, share: Share | None
    ) -> tuple[ReplayResult, ...]:
        """Small capacities first: what evicts nothing is the same with any more room."""
        options = self._options
        points = [
            (capacity, eviction, scenario)
            for capacity in options.capacities
            for eviction in options.evictions
            for scenario in asked
        ]
        rising = sorted(points, key=lambda point: math.inf if point[0] is None else point[0])
        found: dict[tuple[int | None, Eviction, Scenario], ReplayResult] = {}
        for point in rising:
            found[point] = self._run(*point, progress)
            if share is not None:
                share(len(found) / len(points))
        return tuple(found[point] for point in points)

    def _run(
        self, capacity: int | None, eviction: Eviction, scenario: Scenario, progress: Progress
    ) -> ReplayResult:
        streams = streams_of(
            self._pools,
            scenario.policy,
            scenario.save,
            self._max_pages,
            outputs=self._options.outputs,
            merge_dense=eviction is not Eviction.FIFO and not self._options.limits.local_tokens,
        )
        reads_all = scenario.policy is TransferPolicy.DENSE and len(streams) > 1
        alike = scenario.save, reads_all, tuple(stream.behaviour for stream in streams)
        outcome = (
            self._roomy.get(alike)
            or self._known.get((alike, capacity, eviction))
            or self._outcome(capacity, eviction, scenario, streams, progress)
        )
        self._known[alike, capacity, eviction] = outcome
        if not outcome.evicts:
            self._roomy[alike] = outcome
        return ReplayResult(
            capacity_bytes=capacity,
            eviction=eviction.value,
            policy=scenario.policy.value,
            save_policy=str(scenario.save),
            method=outcome.method,
            summary=outcome.summary,
        )

    def _outcome(
        self,
        capacity: int | None,
        eviction: Eviction,
        scenario: Scenario,
        streams: tuple[Stream, ...],
        progress: Progress,
    ) -> _Outcome:
        size = "no bound" if capacity is None else format_size(capacity)
        progress(f"{size}, {eviction}, {scenario.policy}, {scenario.save}")
        replay, method = self._replay(capacity, eviction, scenario, streams)
        summary = summarize(
            self._options.trace,
            self._paths,
            replay,
            self._first,
            ubiquitous=self._ubiquitous,
            ttft=None if self._times is None else self._times.ttft(scenario.policy),
        )
        return _Outcome(summary, method, bool(replay.evicted.any()))

    def _replay(
        self, capacity: int | None, eviction: Eviction, scenario: Scenario, streams: tuple[Stream, ...]
    ) -> tuple[Replay, str]:
        options = self._options
        # Without a bound nothing is evicted, and all three are one.
        if can_use_stack(streams) and (capacity is None or eviction is Eviction.LRU):
            if self._distances is None:
                self._distances = stack_distances(self._paths)
            replay = from_stack(self._paths, streams[0], self._distances, capacity, options.limits)
            return replay, "stack"
        replayer = Replayer(
            self._paths,
            streams,
            scenario.policy,
            scenario.save,
            outputs=options.outputs,
            limits=options.limits,
        )
        tier = open_tier(eviction if capacity is not None else Eviction.LRU, self._paths, streams, capacity)
        return replayer.run(tier), "simulated"


def _notes(options: ReplayOptions, pools: tuple[TierPool, ...], prompt_tokens: Counts) -> tuple[str, ...]:
    notes = []
    if options.outputs is OutputSave.NONE:
        notes.append(NO_OUTPUTS if options.trace.outputs is None else OUTPUTS_LEFT_OUT)
    longest = int(options.trace.input_tokens.max())
    warning = alignment_warning([member.pool for member in pools], longest)
    if warning is not None:
        notes.append(warning)
    if options.trace.skipped:
        notes.append(
            f"{options.trace.skipped:,} lines break a rule and were left out, the first: "
            f"{options.trace.first_problem}"
        )
    if options.times is not None:
        notes += options.times.notes(prompt_tokens)
    return tuple(notes)
