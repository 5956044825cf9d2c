"""What a ``bench`` measured: raw samples, what they come to, and what was lost meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hicache_bench.records.schema import SCHEMA_VERSION, Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the ``seconds`` of a series come to; every figure but the rates is in seconds.

    ``low`` and ``high`` are the 95 % bootstrap interval of the median. ``p99_9`` of fewer than 1,000 samples
    says little more than the largest one. The rates are those of the median. ``warnings`` tell why the
    samples may not be trusted.
    """

    samples: int
    median: float
    mad: float
    p50: float
    p95: float
    p99: float
    p99_9: float
    low: float
    high: float
    bytes_per_second: float
    objects_per_second: float
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Samples of one operation by one client.

    ``operation`` is ``copy`` (numpy, source to target: the machine's own limit), ``save``, ``lookup``,
    ``restore`` or ``call`` (a restore of one unit, whose store time is the cost of a call). ``pool`` None is
    all pools together. ``concurrent`` clients were at work at once. ``objects`` and ``num_bytes`` are those
    of one sample; a lookup's objects are the keys that it asked for.

    ``warmups`` came before and count nowhere. ``starts`` are seconds since the first moment at which any of
    the concurrent clients could start. Of each sample, ``key_seconds`` went into building keys and
    ``store_seconds`` into store calls; ``verify_seconds`` (comparing every byte once) is outside all of them.
    Meanwhile ``busy_processors`` of the machine worked, whoever for, and ``own_processors`` of them for the
    clients and the writer that served them. None where the system does not tell.
    """

    operation: str
    policy: str | None
    pool: str | None
    client: int
    concurrent: int
    rank: str
    objects: int
    num_bytes: int
    store_calls: int
    warmups: tuple[float, ...]
    starts: tuple[float, ...]
    seconds: tuple[float, ...]
    key_seconds: tuple[float, ...]
    store_seconds: tuple[float, ...]
    verify_seconds: float | None
    busy_processors: float | None
    own_processors: float | None
    summary: Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Concurrent clients against one alone, in ``unit`` (``bytes`` or ``objects``) a second.

    Rates are over ``window_seconds``, in which every client was at work; a sample that lies partly in it
    counts in part. ``speed_up`` is all of them over the one alone, ``efficiency`` that over their number,
    ``fairness`` Jain's index. ``busy_processors`` and ``own_processors``, those of the series, say why a
    second client may bring nothing.
    """

    operation: str
    policy: str | None
    unit: str
    window_seconds: float
    client_rates: tuple[float, ...]
    rate: float
    busy_processors: float | None
    own_processors: float | None
    alone_rate: float
    alone_busy_processors: float | None
    alone_own_processors: float | None
    speed_up: float
    efficiency: float
    fairness: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Something that broke while ``doing`` was under way; its samples are not in the record.

    ``client`` is the one that noticed, None for the process that wrote the shared prefix; ``reason`` names
    every process that was found killed. ``seconds`` passed from the start of the series until then.
    """

    client: int | None
    doing: str
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPoint:
    """A store as a link: ``op_seconds`` for each call, and bytes at a rate that depends on the object size.

    Fitted to the measured store time of whole batches and of calls for one unit of a pool; ``object_bytes``
    is the mean of its objects.
    """

    object_bytes: int
    bytes_per_second: float
    op_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRecord:
    """One ``bench``. Holds no host name, user name, absolute path or salt.

    ``state`` is ``cold`` (the store was asked, and held none of this run's keys before each save) or ``warm``
    (it held all of them). ``clients`` is 0 where one process wrote and read. ``load_average`` is that of the
    machine when the run began. ``link_points`` is empty for a store that is no link, as ``local``.
    """

    kind: str = "bench"
    schema_version: int = SCHEMA_VERSION
    status: str
    created_utc: str
    command: tuple[str, ...]
    tool_version: str
    libraries: Mapping[str, str]
    environment: Mapping[str, str | int]
    load_average: float
    preset: Mapping[str, Any]
    preset_digest: str
    profile: str
    deployment: Mapping[str, int | str | bool | None]
    key_scheme: str
    namespace: str | None
    save_policy: str
    tokens: int
    pages: int
    batch_pages: int
    store: str
    store_settings: Mapping[str, str | int | float]
    state: str
    clients: int
    memory_bytes: int
    stored_bytes: int
    stored_objects: int
    series: tuple[Series, ...]
    together: tuple[Together, ...]
    link_points: tuple[LinkPoint, ...]
    losses: tuple[Loss, ...]
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]

    @property
    def failed_checks(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def subject(self) -> str:
        """``bench``, the store, the preset and its digest."""
        return f"bench-{self.store}-{self.preset['name']}-{self.preset_digest[:8]}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in field order."""
        return asdict(self)
