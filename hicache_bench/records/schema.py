"""What a record says: one run, complete enough to be compared, gated and drawn without running again.

Format history, newest first. The field order is the order on disk.

=======  ==========  =============================================================
version  date        change
=======  ==========  =============================================================
1        2026-11-29  first: ``run``, over every rank of a deployment
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
    """A pool as ``ranks`` have it alike; ``selected_by`` names the index that may choose its blocks.

    A unit has ``unit_objects`` on one rank: more than one of a name where the heads are cut into several.
    """

    name: str
    attention: str
    decision: str
    hit_policy: str
    dtype: str
    layout: str
    sharding: str
    unit_pages: int
    unit_bytes: int
    unit_objects: int
    object_bytes: Mapping[str, int]
    window_tokens: int | None
    engine_window_tokens: int | None
    selected_by: str | None
    ranks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingRecord:
    """How the ranks of a cluster share the pool of one name, over all pipeline stages.

    ``ranks`` hold it as ``shards`` sets of objects, each stored once. ``copies`` are the bytes stored over
    those of the pool without parallel ranks: above 1 where fewer ``kv_heads`` than ranks are replicated.
    """

    pool: str
    ranks: int
    shards: int
    copies: float
    kv_heads: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPool:
    """What a save wrote of one pool; ``existing`` objects were there before and were not written.

    They were written by a rank before this one, or by an earlier run.
    """

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
    """One policy's restore of one length on one rank.

    ``evidence`` says whether it was moved or counted: in a length that is counted, what fits may be moved all
    the same. ``endpoint_keys`` and ``endpoint_calls`` are what a lookup asks that looks for this endpoint
    alone. ``seconds`` are raw samples, empty where nothing was moved; ``selection_seconds``, which they leave
    out, are those that scoring an index took here.
    """

    policy: str
    evidence: str
    hit_tokens: int
    fulfilled_tokens: int
    used_tokens: int
    unused_tokens: Mapping[str, int]
    endpoint_keys: int
    endpoint_calls: int
    read: Amount
    pools: tuple[PoolAccount, ...]
    seconds: tuple[float, ...]
    store_seconds: tuple[float, ...]
    selection_seconds: tuple[float, ...]
    store_calls: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTotal:
    """One policy over all ranks: they restore one endpoint, and ``read`` is their sum."""

    policy: str
    hit_tokens: int
    used_tokens: int
    read: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """One rank's save, lookup and restores. Seconds are None where nothing was moved."""

    rank: str
    saved: tuple[SavedPool, ...]
    save_seconds: float | None
    lookup_seconds: float | None
    lookup_keys: int
    lookup_calls: int
    policies: tuple[PolicyResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthResult:
    """Everything about one prefix length.

    ``evidence`` says whether its bytes were moved or counted, ``evidence_reason`` why they were not, or how
    they were in spite of little memory.
    ``stored`` and ``policies`` are those of the cluster: what ranks share is stored once, and read by each.
    """

    tokens: int
    pages: int
    evidence: str
    evidence_reason: str | None
    store: str
    store_settings: Mapping[str, str | int | float]
    memory_bytes: int
    stored: Amount
    policies: tuple[PolicyTotal, ...]
    ranks: tuple[RankResult, ...]
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One ``run``. Holds no host name, user name, absolute path or salt.

    ``store`` is the one asked for; a length that was counted instead of moved names its own. ``adapter`` and
    ``salt`` are 16 hex digits of their sha256: enough to tell two apart. ``deployment`` has
    the sizes of the parallel groups, the host layout and whether draft layers are served. ``model_name`` and
    ``extra_backend_tag`` are parts of SGLang's keys.
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
    deployment: Mapping[str, int | str | bool | None]
    key_scheme: str
    namespace: str | None
    model_name: str | None
    extra_backend_tag: str | None
    adapter: str | None
    salt: str | None
    token_seed: int
    save_policy: str
    local_prefix_tokens: int
    queries: int
    store: str
    pools: tuple[PoolRecord, ...]
    sharing: tuple[SharingRecord, ...]
    results: tuple[LengthResult, ...]

    @property
    def failed_checks(self) -> tuple[Check, ...]:
        """The checks that did not pass, over all lengths."""
        return tuple(check for result in self.results for check in result.checks if not check.passed)

    @property
    def subject(self) -> str:
        """Preset and digest."""
        return f"{self.preset['name']}-{self.preset_digest[:8]}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in field order."""
        return asdict(self)
