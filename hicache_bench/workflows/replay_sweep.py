"""``simulate --trace``: one trace, and every combination of what else the options list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hicache_bench.config.schema import ModelPreset
from hicache_bench.records.replay import ReplayRecord
from hicache_bench.trace.replay import Limits
from hicache_bench.workflows.meter import Meter, Progress
from hicache_bench.workflows.replay import replay_trace
from hicache_bench.workflows.replay_options import ReplayArguments, ReplayOptions, TimeModel, parse_replay
from hicache_bench.workflows.sweep import combinations, num_combinations
from hicache_bench.workflows.variant import Variant, VariantOptions, apply_options

if TYPE_CHECKING:
    from hicache_bench.cost.prefetch import PrefetchOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPoint:
    """One combination. Without a link and a system no seconds are modelled, and ``tp`` None is one rank.

    ``threshold_tokens`` None is nothing, or what the prefetch profile has where seconds are modelled.
    """

    tp: int | None
    pp: int
    dcp: int
    tp_lcm: int | None
    page_tokens: int | None
    local_tokens: int
    host_capacity_tokens: int | None
    threshold_tokens: int | None
    link: str | None
    system: str | None
    hidden_size: int | None
    active_parameters: float | None
    concurrency: int
    queue_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAxes:
    """The values of each field of a :class:`ReplayPoint`, at least one each; the last one varies fastest."""

    tp: tuple[int | None, ...] = (None,)
    pp: tuple[int, ...] = (1,)
    dcp: tuple[int, ...] = (1,)
    tp_lcm: tuple[int | None, ...] = (None,)
    page_tokens: tuple[int | None, ...] = (None,)
    local_tokens: tuple[int, ...] = (0,)
    host_capacity_tokens: tuple[int | None, ...] = (None,)
    threshold_tokens: tuple[int | None, ...] = (None,)
    link: tuple[str | None, ...] = (None,)
    system: tuple[str | None, ...] = (None,)
    hidden_size: tuple[int | None, ...] = (None,)
    active_parameters: tuple[float | None, ...] = (None,)
    concurrency: tuple[int, ...] = (1,)
    queue_seconds: tuple[float, ...] = (0.0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """What ``simulate --trace`` was asked for.

    ``arguments`` hold what all points share, the trace among it. ``prefetch`` says how requests prefetch,
    where seconds are modelled; its queue is that of each point.
    """

    source: ModelPreset
    arguments: ReplayArguments
    axes: ReplayAxes
    variant: VariantOptions = field(default_factory=VariantOptions)
    prefetch: PrefetchOptions | None = None
    command: tuple[str, ...] = ()


def replay_sweep(options: SweepOptions, progress: Progress) -> Iterator[ReplayRecord]:
    """Replay every point, in order; the trace is read once.

    Raises:
        InputError: an option that is not among those allowed, a trace that cannot be used.
        ConfigError: a deployment that the engine refuses, pools that cannot be stored or followed.
    """
    total = num_combinations(options.axes)
    parsed: ReplayOptions | None = None
    meter = Meter(progress, [1.0] * total)
    for number, values in enumerate(combinations(options.axes), 1):
        point = ReplayPoint(**values)
        variant, times = _served(options, point)
        if parsed is None:
            parsed = parse_replay(variant, options.arguments, command=options.command)
        threshold = point.threshold_tokens
        if threshold is None:
            threshold = 0 if times is None else times.threshold_tokens
        asked = replace(
            parsed,
            variant=variant,
            times=times,
            limits=Limits(
                local_tokens=point.local_tokens,
                host_capacity_tokens=point.host_capacity_tokens,
                threshold_tokens=threshold,
            ),
        )
        yield replace(replay_trace(asked, meter, meter.within), point=number, points=total)
        meter.finish()


def _served(options: SweepOptions, point: ReplayPoint) -> tuple[Variant, TimeModel | None]:
    changed = replace(
        options.variant,
        tp=point.tp or 1,
        pp=point.pp,
        dcp=point.dcp,
        tp_lcm=point.tp_lcm,
        page_tokens=point.page_tokens,
    )
    if options.prefetch is None or point.link is None or point.system is None:
        return apply_options(options.source, changed), None
    # Imported here: the cost model and the engine whose calls it asks for are half of a short replay's time.
    from hicache_bench.workflows.replay_times import TimingOptions, timed_variant

    timing = TimingOptions(
        link=point.link,
        system=point.system,
        concurrency=point.concurrency,
        prefetch=replace(options.prefetch, queue_seconds=point.queue_seconds),
        hidden_size=point.hidden_size,
        active_parameters=point.active_parameters,
    )
    return timed_variant(options.source, changed, timing, tp=point.tp)
