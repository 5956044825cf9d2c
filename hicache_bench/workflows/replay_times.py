"""Seconds of a replay's requests: their reads as the engine's store calls, modelled as one request's are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from hicache_bench.config.deployments import load_link, load_system
from hicache_bench.config.schema import ModelPreset
from hicache_bench.cost.many import Counts, Landings, ManyTimes, Requests
from hicache_bench.cost.prefetch import PrefetchOptions
from hicache_bench.cost.volumes import RankRead, plan_calls
from hicache_bench.links.link import Link
from hicache_bench.links.system import System
from hicache_bench.planning.plan import PoolPlan, TransferPlan
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.planning.resolve import num_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.records.replay import Timing, TimingBasis
from hicache_bench.trace.metrics import MeasuredReads, ModeledTimes, TtftModel, percentiles
from hicache_bench.workflows.simulate.scenes import constants_of, corners_of, dims_of, variant_on
from hicache_bench.workflows.simulate.served import Served
from hicache_bench.workflows.variant import Variant, VariantOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingOptions:
    """What a modelled time depends on beside the variant; dimensions as in ``simulate`` without a trace."""

    link: str
    system: str
    concurrency: int = 1
    prefetch: PrefetchOptions = field(default_factory=PrefetchOptions)
    hidden_size: int | None = None
    active_parameters: float | None = None


def timed_variant(
    source: ModelPreset, options: VariantOptions, timing: TimingOptions, *, tp: int | None
) -> tuple[Variant, ReplayTimes]:
    """The preset on ``tp`` ranks (None: as many as ``simulate`` takes without a trace), and its times.

    Raises:
        ConfigError: an unknown link or system, a deployment that the engine refuses, or a model whose
            compute no system and no dimensions tell.
    """
    link, system = load_link(timing.link), load_system(timing.system)
    variant = variant_on(source, system, tp, lambda ranks: replace(options, tp=ranks))
    return variant, ReplayTimes(variant, link, system, timing)


class ReplayTimes:
    """Times to first token of one variant, over one link, on one system.

    A replay tells how many units of a pool were read, not which: they are taken as the last ones before the
    endpoint, which is what all policies read but for the states of ``dense``.
    """

    def __init__(self, variant: Variant, link: Link, system: System, options: TimingOptions) -> None:
        self._served = Served.of(variant)
        self._profile = options.prefetch.profile
        self._link, self._system = link, system
        dims = dims_of(
            variant.spec, hidden_size=options.hidden_size, active_parameters=options.active_parameters
        )
        self._corners = corners_of(
            link,
            system,
            self._served,
            dims,
            prompt_tokens=0,
            local_tokens=0,
            prefetch=options.prefetch,
            concurrency=options.concurrency,
        )
        corners = self._corners
        landings = Landings(self._profile)
        self._many = [ManyTimes(scene, landings) for scene in (corners.value, corners.quick, corners.slow)]
        self._reads: dict[tuple[object, ...], tuple[RankRead, ...]] = {}
        self.timing = Timing(
            link=link.name,
            system=system.name,
            concurrency=options.concurrency,
            queue_seconds=options.prefetch.queue_seconds,
            prefetch_policy=options.prefetch.policy.value,
            prefetch_profile=self._profile.name,
        )

    @property
    def threshold_tokens(self) -> int:
        """The least that the prefetch profile reads."""
        return self._profile.threshold_tokens

    def ttft(self, policy: TransferPolicy) -> TtftModel:
        """Times to first token of requests that read under ``policy``."""
        return partial(self._ttft, policy)

    def basis(self, prompt_tokens: Counts, local_tokens: Counts) -> TimingBasis:
        """What the seconds rest on, and those of computing all prompts but their local tokens."""
        corners = self._corners
        value, quick, slow = (
            np.array(
                [
                    scene.prefetch.queue_seconds + scene.compute.seconds(tokens, local)
                    for tokens, local in zip(prompt_tokens.tolist(), local_tokens.tolist(), strict=True)
                ]
            )
            for scene in (corners.value, corners.quick, corners.slow)
        )
        compute = corners.value.compute
        return TimingBasis(
            ranks=corners.value.num_ranks,
            nodes=corners.value.num_nodes,
            prefetch_timeout=self._profile.formula,
            compute=compute.note,
            constants=constants_of(self._link, self._system, compute),
            recompute_seconds={
                "full_overlap": percentiles(value),
                "no_overlap": percentiles(value),
                "low": percentiles(quick),
                "high": percentiles(slow),
            },
        )

    def notes(self, prompt_tokens: Counts) -> tuple[str, ...]:
        """What to know of these prompts: those that are longer or shorter than what the fit saw."""
        fit = self._system.prefill.get(self._served.spec.name)
        if fit is None:
            return ()
        outside = int(((prompt_tokens < fit.min_tokens) | (prompt_tokens > fit.max_tokens)).sum())
        if not outside:
            return ()
        note = (
            f"the prefill fit saw {fit.min_tokens:,} to {fit.max_tokens:,} tokens, and {outside:,} of "
            f"{len(prompt_tokens):,} measured prompts lie outside of it"
        )
        return (note,)

    def _ttft(self, policy: TransferPolicy, asked: MeasuredReads) -> ModeledTimes:
        """The four corners of :class:`hicache_bench.records.simulation.Span`."""
        reads, read_of = self.reads_of(policy, asked)
        requests = Requests(
            prompt_tokens=asked.prompt_tokens,
            lookup_keys=self._lookup_keys(asked.asked_pages),
            read_of=read_of,
            reads=reads,
        )
        value, quick, slow = (many.first_tokens(requests) for many in self._many)
        seconds = {
            "full_overlap": value.full,
            "no_overlap": value.none,
            "low": quick.full,
            "high": slow.none,
        }
        return ModeledTimes(seconds=seconds, is_cut=value.is_cut)

    def reads_of(
        self, policy: TransferPolicy, asked: MeasuredReads
    ) -> tuple[list[tuple[RankRead, ...]], Counts]:
        """The distinct reads, as store calls of each kind of rank, and the index of each request's."""
        names = [[member.pool.name for member in stream.members] for stream in asked.streams]
        table = np.stack([asked.used_pages, asked.local_pages, *asked.units], axis=1)
        distinct, read_of = np.unique(table, axis=0, return_inverse=True)
        reads = []
        for used, local, *counts in distinct.tolist():
            units = {name: count for group, count in zip(names, counts, strict=True) for name in group}
            key = (policy, used, local, *sorted(units.items()))
            if key not in self._reads:
                self._reads[key] = self._read(policy, used, local, units)
            reads.append(self._reads[key])
        return reads, read_of.reshape(-1)

    def _lookup_keys(self, pages: Counts) -> Counts:
        """Keys of whole prompts, on the rank that has the most of them."""
        by_stage = [
            sum(
                (pages // pool.unit_pages * len(pool.stored_components) for pool in pools),
                np.zeros_like(pages),
            )
            for pools, _ in self._served.stages
        ]
        found: Counts = np.max(by_stage, axis=0)
        return found

    def _read(
        self, policy: TransferPolicy, used: int, local: int, units: Mapping[str, int]
    ) -> tuple[RankRead, ...]:
        found = []
        for pools, ranks in self._served.stages:
            plan = TransferPlan(
                policy=policy,
                num_pages=used,
                hit_pages=used,
                endpoint_pages=used,
                local_tokens=local * pools[0].page_tokens,
                pools=tuple(_last_units(pool, used, units.get(pool.name, 0)) for pool in pools),
            )
            found.append(
                RankRead(plan=plan, calls=plan_calls(plan), lookup_keys=0, lookup_calls=0, copies=len(ranks))
            )
        return tuple(found)


def _last_units(pool: KVPoolDescriptor, pages: int, count: int) -> PoolPlan:
    end = num_units(pool, pages)
    return PoolPlan(pool=pool, units=np.arange(end - count, end))
