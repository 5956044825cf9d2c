"""What a record says: one run, complete enough to be compared, gated and drawn without running again.

Format history, newest first. The field order is the order on disk.

=======  ==========  =============================================================
version  date        change
=======  ==========  =============================================================
1        2026-11-29  first: ``run``
=======  ==========  =============================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

SCHEMA_VERSION = 1


class Evidence(str, Enum):
    """How a figure was come by.

    ``measured``: observed in this run; ``counted``: from geometry and plan, not moved; ``modeled``: computed
    from those and cited constants; ``assumed``: a constant with its source.
    """

    MEASURED = "measured"
    COUNTED = "counted"
    MODELED = "modeled"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was verified: what was expected, what was found."""

    name: str
    expected: str
    actual: str
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Pages (units of the pool), objects and bytes."""

    pages: int
    objects: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRecord:
    """A pool of the resolved preset; ``selected_by`` names the index that may choose its blocks."""

    name: str
    attention: str
    decision: str
    hit_policy: str
    dtype: str
    layout: str
    sharding: str
    unit_pages: int
    unit_bytes: int
    object_bytes: Mapping[str, int]
    window_tokens: int | None
    engine_window_tokens: int | None
    selected_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPool:
    """What a save wrote of one pool; ``existing`` objects were there before and were not written."""

    pool: str
    written: Amount
    existing: Amount
    failed: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAccount:
    """The ledger of one pool: ``total = read + skipped + missed + failed``; ``wasted`` is part of ``read``.

    ``needed`` is what the policy's own rule asks for at the planned endpoint.
    """

    pool: str
    total: Amount
    needed: Amount
    read: Amount
    skipped: Mapping[str, Amount]
    missed: Amount
    failed: Amount
    wasted: Amount
    degraded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """One policy's restore of one length.

    ``seconds`` are raw samples, empty where nothing was moved; ``selection_seconds``, which they leave out,
    are those that scoring an index took here.
    """

    policy: str
    hit_tokens: int
    fulfilled_tokens: int
    used_tokens: int
    unused_tokens: Mapping[str, int]
    read: Amount
    pools: tuple[PoolAccount, ...]
    seconds: tuple[float, ...]
    store_seconds: tuple[float, ...]
    selection_seconds: tuple[float, ...]
    store_calls: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthResult:
    """Everything about one prefix length.

    ``evidence`` says whether its bytes were moved or counted, ``evidence_reason`` why they were not moved.
    """

    tokens: int
    pages: int
    evidence: str
    evidence_reason: str | None
    store: str
    store_settings: Mapping[str, str | int | float]
    memory_bytes: int
    saved: tuple[SavedPool, ...]
    save_seconds: float | None
    lookup_seconds: float | None
    lookup_keys: int
    lookup_calls: int
    stored: Amount
    policies: tuple[PolicyResult, ...]
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One ``run``. Holds no host name, user name or absolute path.

    ``store`` is the one asked for; a length that was counted instead of moved names its own.
    """

    schema_version: int
    kind: str
    status: str
    created_utc: str
    command: tuple[str, ...]
    tool_version: str
    libraries: Mapping[str, str]
    environment: Mapping[str, str | int]
    preset: Mapping[str, Any]
    preset_digest: str
    profile: str
    key_scheme: str
    namespace: str | None
    token_seed: int
    save_policy: str
    local_prefix_tokens: int
    queries: int
    store: str
    pools: tuple[PoolRecord, ...]
    results: tuple[LengthResult, ...]

    @property
    def failed_checks(self) -> tuple[Check, ...]:
        """The checks that did not pass, over all lengths."""
        return tuple(check for result in self.results for check in result.checks if not check.passed)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in field order."""
        return asdict(self)
