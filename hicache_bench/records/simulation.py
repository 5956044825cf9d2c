"""What ``simulate`` modelled for one point: times, the bytes below them, every constant with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hicache_bench.records.schema import SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantRecord:
    """A cited number of a link, a system or a model; ``low`` and ``high`` are the band of an estimate."""

    of: str
    name: str
    value: float
    low: float
    high: float
    unit: str
    source: str
    evidence: str = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Seconds at four corners.

    ``full_overlap`` and ``no_overlap`` at the constants' values; ``low`` with full overlap and every constant
    at the quick end of its band, ``high`` with none and every one at the slow end.
    """

    full_overlap: float
    no_overlap: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTime:
    """Time to first token under one policy. Seconds; ``[modeled]`` all of them.

    ``hit`` was promised by the lookup, ``fulfilled`` is the endpoint that is whole with what landed, ``used``
    where the model resumes; ``unused_tokens`` says why the rest of the hit is not used. Bytes, objects and
    calls are those of the engine's plan. ``read_seconds`` is L3 to L2 until the prefetch ended, ``h2d`` L2 to
    L1. ``uncut_bytes_per_second`` is the rate over a node's link with which the prefetch would not have been
    cut; None where it was not, or where no rate would do.
    """

    policy: str
    hit_tokens: int
    fulfilled_tokens: int
    used_tokens: int
    unused_tokens: Mapping[str, int]
    num_bytes: int
    objects: int
    rank_bytes: int
    rank_calls: int
    landed_calls: int
    landed_pages: int
    wasted_bytes: int
    lookup_keys: int
    is_cut: bool
    timeout_seconds: float | None
    finish_seconds: float
    lookup_seconds: float
    read_seconds: float
    h2d_seconds: float
    compute_seconds: float
    ttft: Span
    speed_up_over_recompute: float
    speed_up_over_dense: float | None
    uncut_bytes_per_second: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEvenTime:
    """The break-even of one policy, in bytes per second of a node's link; None where no rate is enough.

    ``at_peak`` is equation 2 of Mooncake's FAST'25 paper on this plan's bytes: peak FLOPS and nothing but
    bytes; None without a count of FLOPs. ``speed_up`` has the speed-up over recomputing by bandwidth, with no
    overlap and no timeout.
    """

    policy: str
    node_bytes: int
    full_overlap: float | None
    no_overlap: float | None
    at_peak: float | None
    speed_up: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRecord:
    """One point of a ``simulate``: one combination of its options. Holds no host name and no absolute path.

    ``volumes`` says where the bytes come from: the plan, or a record of ``run`` that agrees with it, by
    ``volumes_evidence`` counted or measured. ``point`` of ``points`` is its place in a sweep.
    """

    kind: str = "simulate"
    status: str = "ok"
    created_utc: str
    command: tuple[str, ...]
    tool_version: str
    libraries: Mapping[str, str]
    environment: Mapping[str, str | int]
    preset: Mapping[str, Any]
    preset_digest: str
    profile: str
    deployment: Mapping[str, int | str | bool | None]
    save_policy: str
    volumes: str
    volumes_evidence: str
    link: str
    system: str
    ranks: int
    nodes: int
    prefix_tokens: int
    suffix_tokens: int
    local_prefix_tokens: int
    concurrency: int
    queue_seconds: float
    host_capacity_tokens: int | None
    prefetch_policy: str
    prefetch_profile: str
    prefetch_timeout: str
    threshold_tokens: int
    compute: str
    constants: tuple[ConstantRecord, ...]
    recompute: Span
    policies: tuple[PolicyTime, ...]
    break_even: tuple[BreakEvenTime, ...]
    notes: tuple[str, ...]
    point: int = 1
    points: int = 1
    schema_version: int = SCHEMA_VERSION

    @property
    def subject(self) -> str:
        """``simulate``, preset and digest, and the place in a sweep."""
        return point_subject("simulate", self.preset, self.preset_digest, self.point, self.points)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in field order."""
        return asdict(self)


def point_subject(kind: str, preset: Mapping[str, Any], digest: str, point: int, points: int) -> str:
    """The kind, preset and digest of a record, and its place among ``points`` if there are several."""
    name = f"{kind}-{preset['name']}-{digest[:8]}"
    return name if points == 1 else f"{name}-{point:0{len(str(points))}d}of{points}"
