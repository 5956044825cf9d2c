"""Every point of a sweep, modelled; one record each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import TypeVar

from hicache_bench import __version__
from hicache_bench.config.deployments import load_link, load_system
from hicache_bench.config.schema import ModelPreset
from hicache_bench.cost.flops import FlopsModel, flops_model
from hicache_bench.cost.volumes import RankRead
from hicache_bench.links.link import Link
from hicache_bench.links.system import System
from hicache_bench.models.compute import ComputeDims
from hicache_bench.models.spec import ModelSpec
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.records.schema import Evidence
from hicache_bench.records.simulation import SimulationRecord
from hicache_bench.units import format_tokens
from hicache_bench.workflows.environment import describe_environment, library_versions
from hicache_bench.workflows.identity import deployment_dict, preset_dict
from hicache_bench.workflows.meter import Meter, Progress
from hicache_bench.workflows.simulate.points import Point, SimulateOptions
from hicache_bench.workflows.simulate.recorded import RecordedRun
from hicache_bench.workflows.simulate.scenes import constants_of, corners_of, dims_of, variant_on
from hicache_bench.workflows.simulate.served import PrefixRequest, Served
from hicache_bench.workflows.simulate.times import break_evens, policy_times, recompute_span
from hicache_bench.workflows.sweep import num_combinations

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def simulate(options: SimulateOptions, progress: Progress) -> Iterator[SimulationRecord]:
    """Model every point, in order.

    Raises:
        InputError: a prefix shorter than a page, a length that the record of ``--from`` does not have.
        ConfigError: a deployment that the engine refuses, or neither a fit nor dimensions for its compute.
    """
    axes = options.axes
    total = num_combinations(axes)
    axes.check()
    simulator = _Simulator(options)
    meter = Meter(progress, [1.0] * total)
    for number, point in enumerate(axes.points(), 1):
        meter(f"prefix {format_tokens(point.prefix_tokens)}, link {point.link}, system {point.system}")
        yield replace(simulator.run(point), point=number, points=total)
        meter.finish()


class _Simulator:
    """What points share is made once: files, pools, plans."""

    def __init__(self, options: SimulateOptions) -> None:
        self._options = options
        self._links: dict[str, Link] = {}
        self._systems: dict[str, System] = {}
        self._served: dict[object, Served] = {}
        self._reads: dict[object, tuple[RankRead, ...]] = {}

    def run(self, point: Point) -> SimulationRecord:
        """Model one point."""
        options = self._options
        link = _once(self._links, point.link, load_link)
        system = _once(self._systems, point.system, load_system)
        served = self._served_at(point, system)
        recorded = options.source if isinstance(options.source, RecordedRun) else None
        request = PrefixRequest(
            prefix_tokens=point.prefix_tokens,
            suffix_tokens=point.suffix_tokens,
            save_policy=point.save_policy,
            local_tokens=point.local_tokens,
            host_capacity_tokens=point.host_capacity_tokens,
            threshold_tokens=options.prefetch.profile.threshold_tokens,
        )
        reads = {policy: self._read(served, recorded, request, policy) for policy in options.policies}
        dims = dims_of(served.spec, hidden_size=point.hidden_size, active_parameters=point.active_parameters)
        corners = corners_of(
            link,
            system,
            served,
            dims,
            prompt_tokens=request.prompt_tokens,
            local_tokens=point.local_tokens,
            prefetch=replace(options.prefetch, queue_seconds=point.queue_seconds),
            concurrency=point.concurrency,
        )
        fit = system.prefill.get(served.spec.name)
        outside = fit.outside(request.prompt_tokens) if fit else None
        return SimulationRecord(
            created_utc=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            command=options.command,
            tool_version=__version__,
            libraries=library_versions(with_mooncake=False),
            environment=describe_environment(),
            preset=preset_dict(served.spec),
            preset_digest=served.spec.digest,
            profile=served.profile,
            deployment=deployment_dict(served.deployment),
            save_policy=str(point.save_policy),
            volumes=f"record {recorded.name}" if recorded else "plan",
            volumes_evidence=(recorded.evidence(point.prefix_tokens) if recorded else Evidence.COUNTED.value),
            link=link.name,
            system=system.name,
            ranks=served.deployment.num_workers,
            nodes=corners.value.num_nodes,
            prefix_tokens=point.prefix_tokens,
            suffix_tokens=point.suffix_tokens,
            local_prefix_tokens=point.local_tokens,
            concurrency=point.concurrency,
            queue_seconds=point.queue_seconds,
            host_capacity_tokens=point.host_capacity_tokens,
            prefetch_policy=options.prefetch.policy.value,
            prefetch_profile=options.prefetch.profile.name,
            prefetch_timeout=options.prefetch.profile.formula,
            threshold_tokens=options.prefetch.profile.threshold_tokens,
            compute=corners.value.compute.note,
            constants=constants_of(link, system, corners.value.compute),
            recompute=recompute_span(corners),
            policies=policy_times(reads, corners),
            break_even=(
                break_evens(reads, corners.value, _flops(served.spec, dims), system)
                if options.with_break_even
                else ()
            ),
            notes=tuple(note for note in (served.warning(point.prefix_tokens), outside) if note),
        )

    def _served_at(self, point: Point, system: System) -> Served:
        source = self._options.source
        if isinstance(source, RecordedRun):
            return source.served
        key = (system.name, point.tp, point.pp, point.dcp, point.tp_lcm, point.page_tokens)
        return _once(self._served, key, lambda _: self._serve(source, point, system))

    def _serve(self, source: ModelPreset, point: Point, system: System) -> Served:
        options = self._options
        return Served.of(variant_on(source, system, point.tp, lambda tp: options.variant_of(point, tp)))

    def _read(
        self,
        served: Served,
        recorded: RecordedRun | None,
        request: PrefixRequest,
        policy: TransferPolicy,
    ) -> tuple[RankRead, ...]:
        key = (id(served), request, policy)
        return _once(self._reads, key, lambda _: (recorded or served).reads(request, policy))


def _once(known: dict[_Key, _Value], key: _Key, make: Callable[[_Key], _Value]) -> _Value:
    if key not in known:
        known[key] = make(key)
    return known[key]


def _flops(spec: ModelSpec, dims: ComputeDims | None) -> FlopsModel | None:
    return None if dims is None else flops_model(spec, dims)
