"""The points of a sweep: every combination of the values that the options of ``simulate`` list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hicache_bench.config.schema import ModelPreset
from hicache_bench.cost.prefetch import PrefetchOptions
from hicache_bench.errors import InputError
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.workflows.simulate.recorded import RecordedRun
from hicache_bench.workflows.sweep import combinations
from hicache_bench.workflows.variant import VariantOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One combination. None is the default: enough host memory, the parallel size of the prefill fit."""

    link: str
    system: str
    prefix_tokens: int
    suffix_tokens: int
    concurrency: int = 1
    queue_seconds: float = 0.0
    host_capacity_tokens: int | None = None
    local_tokens: int = 0
    save_policy: SavePolicy = field(default_factory=SavePolicy)
    tp: int | None = None
    pp: int = 1
    dcp: int = 1
    tp_lcm: int | None = None
    page_tokens: int | None = None
    hidden_size: int | None = None
    active_parameters: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The values of each field of a :class:`Point`, at least one each; the last one varies fastest."""

    link: tuple[str, ...]
    system: tuple[str, ...]
    tp: tuple[int | None, ...] = (None,)
    pp: tuple[int, ...] = (1,)
    dcp: tuple[int, ...] = (1,)
    tp_lcm: tuple[int | None, ...] = (None,)
    page_tokens: tuple[int | None, ...] = (None,)
    hidden_size: tuple[int | None, ...] = (None,)
    active_parameters: tuple[float | None, ...] = (None,)
    save_policy: tuple[SavePolicy, ...] = (SavePolicy(),)
    local_tokens: tuple[int, ...] = (0,)
    host_capacity_tokens: tuple[int | None, ...] = (None,)
    concurrency: tuple[int, ...] = (1,)
    queue_seconds: tuple[float, ...] = (0.0,)
    suffix_tokens: tuple[int, ...] = (512,)
    prefix_tokens: tuple[int, ...]

    def points(self) -> Iterator[Point]:
        """Every combination, each once; a value that is listed twice is taken once."""
        for values in combinations(self):
            yield Point(**values)

    def check(self) -> None:
        """Refuse values that no request can have.

        Raises:
            InputError: such a value.
        """
        for option, values, least in (
            ("--suffix", self.suffix_tokens, 1),
            ("--concurrency", self.concurrency, 1),
            ("--prefix", self.prefix_tokens, 1),
            ("--hidden-size", self.hidden_size, 1),
        ):
            for value in values:
                if value is not None and value < least:
                    raise InputError(f"{option} {value} is too small; allowed: at least {least}")
        for point in self.points():
            if point.local_tokens > point.prefix_tokens:
                raise InputError(
                    f"--local-prefix {point.local_tokens:,} is longer than --prefix "
                    f"{point.prefix_tokens:,}; nothing would be left to read"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """What ``simulate`` was asked for.

    ``source`` is the preset, or the record of a run whose volumes are taken. ``variant`` changes a preset;
    what a sweep
    varies of it, and the queue before a prefetch, are in ``axes``.
    """

    source: ModelPreset | RecordedRun
    axes: Axes
    variant: VariantOptions = field(default_factory=VariantOptions)
    policies: tuple[TransferPolicy, ...] = tuple(TransferPolicy)
    prefetch: PrefetchOptions = field(default_factory=PrefetchOptions)
    with_break_even: bool = False
    command: tuple[str, ...] = ()

    def variant_of(self, point: Point, tp: int) -> VariantOptions:
        """The options of the preset at one point, on ``tp`` tensor-parallel ranks."""
        return replace(
            self.variant,
            tp=tp,
            pp=point.pp,
            dcp=point.dcp,
            tp_lcm=point.tp_lcm,
            page_tokens=point.page_tokens,
        )
