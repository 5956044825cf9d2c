"""What a replay of a trace came to: each capacity under each policy and save policy, with its definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hicache_bench.records.schema import SCHEMA_VERSION
from hicache_bench.records.simulation import ConstantRecord, point_subject
from hicache_bench.trace.metrics import ReplaySummary


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecord:
    """The trace: ``digest`` is of its requests, whatever file holds them.

    ``skipped_lines`` broke a rule and were left out, ``first_problem`` is what was wrong with the first.
    ``ubiquitous_tokens`` is the length of a first block that nearly all requests begin with; 0 if none is.
    """

    name: str
    digest: str
    requests: int
    input_tokens: int
    block_tokens: int
    block_references: int
    distinct_blocks: int
    has_outputs: bool
    skipped_lines: int
    first_problem: str | None
    ubiquitous_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """One capacity (None: no bound) under one eviction, policy and save policy.

    ``method`` is ``stack`` where one pass gave every capacity, else ``simulated``.
    """

    capacity_bytes: int | None
    eviction: str
    policy: str
    save_policy: str
    method: str
    summary: ReplaySummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What was asked for of the time to first token: where requests run, and how they prefetch."""

    link: str
    system: str
    concurrency: int
    queue_seconds: float
    prefetch_policy: str
    prefetch_profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingBasis:
    """What modelled seconds rest on; ``recompute_seconds`` are those without a tier, as in a summary."""

    ranks: int
    nodes: int
    prefetch_timeout: str
    compute: str
    constants: tuple[ConstantRecord, ...]
    recompute_seconds: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRecord:
    """One replay, of one point of a sweep. Holds no host name, user name, absolute path or salt.

    Bytes and hits are ``counted``; seconds and bytes per second are ``modeled``, on the trace's own clock.
    ``timing`` and ``timing_basis`` are None where no link was asked for: then there are no seconds.
    """

    kind: str = "replay"
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
    page_tokens: int
    trace: TraceRecord
    hit_definition: str
    hit_definition_text: str
    outputs: str
    measured_percent: int
    measured_requests: int
    limits: Mapping[str, int | None]
    timing: Timing | None
    timing_basis: TimingBasis | None
    evidence: Mapping[str, str]
    notes: tuple[str, ...]
    results: tuple[ReplayResult, ...]
    point: int = 1
    points: int = 1
    schema_version: int = SCHEMA_VERSION

    @property
    def subject(self) -> str:
        """``replay``, preset and digest, and the place in a sweep."""
        return point_subject("replay", self.preset, self.preset_digest, self.point, self.points)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in field order."""
        return asdict(self)
