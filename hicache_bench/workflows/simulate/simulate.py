"""Every point of a sweep, modelled; one record each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import TypeVar

from hicache_bench import __version__
from hicache_bench.config.deployments import load_compute, load_link, load_system
from hicache_bench.config.schema import ModelPreset
from hicache_bench.cost.compute import Compute, compute_model
from hicache_bench.cost.flops import FlopsModel, flops_model
from hicache_bench.cost.prefetch import PrefetchOptions
from hicache_bench.cost.ttft import Scene
from hicache_bench.cost.volumes import RankRead
from hicache_bench.errors import ConfigError, InputError
from hicache_bench.links.constant import Constant, Edge
from hicache_bench.links.link import Link
from hicache_bench.links.system import System
from hicache_bench.models.compute import ComputeDims
from hicache_bench.models.spec import ModelSpec
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.records.schema import Evidence
from hicache_bench.records.simulation import ConstantRecord, SimulationRecord
from hicache_bench.workflows.accounts import deployment_dict, preset_dict
from hicache_bench.workflows.environment import describe_environment, library_versions
from hicache_bench.workflows.rank import Progress
from hicache_bench.workflows.simulate.points import Point, SimulateOptions
from hicache_bench.workflows.simulate.recorded import RecordedRun
from hicache_bench.workflows.simulate.served import PrefixRequest, Served
from hicache_bench.workflows.simulate.times import Corners, break_evens, policy_times, recompute_span
from hicache_bench.workflows.variant import apply_options

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def simulate(options: SimulateOptions, progress: Progress) -> Iterator[SimulationRecord]:
    """Model every point, in order.

    Raises:
        InputError: a prefix shorter than a page, a length that the record of ``--from`` does not have.
        ConfigError: a deployment that the engine refuses, or neither a fit nor dimensions for its compute.
    """
    axes = options.axes
    axes.check_number()
    axes.check()
    simulator = _Simulator(options)
    total = len(axes)
    for number, point in enumerate(axes.points(), 1):
        progress(f"point {number:,} of {total:,} ({number / total:.0%})")
        yield replace(simulator.run(point), point=number, points=total)


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
            threshold_tokens=options.prefetch_profile.threshold_tokens,
        )
        reads = {policy: self._read(served, recorded, request, policy) for policy in options.policies}
        dims = _dims(served.spec, point)
        num_ranks = served.deployment.num_workers

        def scene(edge: Edge) -> Scene:
            at_edge = system.at_edge(edge)
            return Scene(
                link=link.at_edge(edge),
                system=at_edge,
                compute=compute_model(at_edge, served.spec, dims, gpus=num_ranks),
                num_ranks=num_ranks,
                num_layers=served.layers_of_a_rank,
                prompt_tokens=request.prompt_tokens,
                local_tokens=point.local_tokens,
                prefetch=PrefetchOptions(
                    policy=options.prefetch_policy,
                    profile=options.prefetch_profile,
                    queue_seconds=point.queue_seconds,
                ),
                concurrency=point.concurrency,
            )

        corners = Corners(value=scene(Edge.VALUE), quick=scene(Edge.QUICK), slow=scene(Edge.SLOW))
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
            ranks=num_ranks,
            nodes=corners.value.num_nodes,
            prefix_tokens=point.prefix_tokens,
            suffix_tokens=point.suffix_tokens,
            local_prefix_tokens=point.local_tokens,
            concurrency=point.concurrency,
            queue_seconds=point.queue_seconds,
            host_capacity_tokens=point.host_capacity_tokens,
            prefetch_policy=options.prefetch_policy.value,
            prefetch_profile=options.prefetch_profile.name,
            prefetch_timeout=options.prefetch_profile.formula,
            threshold_tokens=options.prefetch_profile.threshold_tokens,
            compute=corners.value.compute.note,
            constants=_constants(link, system, corners.value.compute),
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
        return _once(self._served, key, lambda _: self._serve(point, system))

    def _serve(self, point: Point, system: System) -> Served:
        source = self._options.source
        assert not isinstance(source, RecordedRun)
        if point.tp is not None:
            return Served.of(apply_options(source, self._options.variant_of(point, point.tp)))
        fit = system.prefill.get(source.name)
        return self._most_ranks(source, point, fit.gpus if fit else system.gpus)

    def _most_ranks(self, source: ModelPreset, point: Point, tp: int) -> Served:
        """On ``tp`` ranks, or half as many if the model cannot be spread so far, and so on."""
        served = Served.of(apply_options(source, self._options.variant_of(point, tp)))
        try:
            assert served.stages
        except ConfigError:
            if tp == 1:
                raise
            return self._most_ranks(source, point, tp // 2)
        return served

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


def _dims(spec: ModelSpec, point: Point) -> ComputeDims | None:
    """The shipped dimensions, or those that the command line gives."""
    known = load_compute().get(spec.name)
    if point.hidden_size is None:
        if point.active_parameters is not None and known is None:
            raise InputError("--active-parameters needs the width of the model too; give --hidden-size")
        if known is None or point.active_parameters is None:
            return known
        return replace(known, active_parameters=point.active_parameters, source="--active-parameters")
    return ComputeDims(
        hidden_size=point.hidden_size,
        active_parameters=point.active_parameters,
        source="--hidden-size" + ("" if point.active_parameters is None else ", --active-parameters"),
    )


def _flops(spec: ModelSpec, dims: ComputeDims | None) -> FlopsModel | None:
    return None if dims is None else flops_model(spec, dims)


def _constants(link: Link, system: System, compute: Compute) -> tuple[ConstantRecord, ...]:
    owned: list[tuple[str, Constant]] = [
        *((link.name, constant) for constant in link.constants),
        *((system.name, constant) for constant in (system.h2d, system.h2d_node)),
        *((system.name, constant) for constant in compute.constants),
    ]
    return tuple(
        ConstantRecord(
            of=owner,
            name=constant.name,
            value=constant.value,
            low=constant.band[0],
            high=constant.band[1],
            unit=constant.unit,
            source=constant.source,
            evidence=(
                Evidence.MEASURED if link.is_measured and constant in link.constants else Evidence.ASSUMED
            ).value,
        )
        for owner, constant in owned
    )
