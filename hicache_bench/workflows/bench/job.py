"""What a process of a bench is told: one model, one store, its part in the run. Plain data, sent as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hicache_bench.config.load import load_model
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.workflows.variant import Variant, VariantOptions, apply_options

COPY, SAVE, LOOKUP, RESTORE, CALL = "copy", "save", "lookup", "restore", "call"
"""What a process can be told to measure; see :class:`~hicache_bench.records.bench.Series`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreJob:
    """How a process opens the store.

    ``capacity_bytes`` is the arena of ``local``, or the segment that this process adds to a cluster.
    ``master`` is None for ``local``. ``is_joined`` tells a cluster that goes on from a private one; the HTTP
    server of its master is at ``master_http_port`` of the same host.
    """

    name: str
    capacity_bytes: int
    master: str | None = None
    is_joined: bool = False
    master_http_port: int | None = None
    protocol: str = "tcp"
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The part of one process.

    ``client`` is its number; None for the process that only writes the shared prefix. ``ranks`` are those
    whose pools it holds, by position. ``shared_seed`` makes the tokens of the prefix that all read,
    ``own_seed`` those of the one that this client saves. A process ``is_alone`` on a private store may clear
    it. Python processes rebuild the model from ``preset`` and ``variant``.
    """

    preset: str
    variant: VariantOptions
    tokens: int
    save_policy: str
    batch_pages: int
    store: StoreJob
    client: int | None
    ranks: tuple[int, ...]
    shared_seed: int
    own_seed: int
    is_alone: bool

    def load_variant(self) -> Variant:
        """The model as this run has it."""
        return apply_options(load_model(self.preset), self.variant)

    def load_save_policy(self) -> SavePolicy:
        """What a save keeps."""
        return SavePolicy.parse(self.save_policy)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Job:
        """The job that :meth:`to_dict` wrote."""
        fields = {**data, "ranks": tuple(data["ranks"])}
        fields["variant"] = VariantOptions(**data["variant"])
        fields["store"] = StoreJob(**data["store"])
        return cls(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One series to take: ``operation`` of ``pool`` (None: all) under ``policy``.

    ``pids`` are the processes of the run that are at work meanwhile: those that take it, and the writer.
    """

    operation: str
    repeat: int | None
    min_seconds: float
    policy: TransferPolicy | None = None
    pool: str | None = None
    concurrent: int = 1
    by_the_clock: bool = False
    pids: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """``restore selective of kv``."""
        parts = [self.operation, self.policy.value if self.policy else ""]
        parts += [f"of {self.pool}"] if self.pool else []
        parts += [f"by {self.concurrent} clients"] if self.concurrent > 1 else []
        return " ".join(filter(None, parts))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "policy": self.policy.value if self.policy else None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Task:
        """The task that :meth:`to_dict` wrote."""
        policy = data["policy"]
        fields = {**data, "pids": tuple(data["pids"])}
        return cls(**{**fields, "policy": TransferPolicy(policy) if policy else None})
