"""What ``bench`` was asked for, and what of it cannot be."""

from __future__ import annotations

from dataclasses import dataclass, field

from hicache_bench.engine.transfer import BATCH_PAGES
from hicache_bench.errors import InputError
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.workflows.bench.job import LOOKUP, RESTORE, SAVE
from hicache_bench.workflows.bench.peer import SILENCE_SECONDS
from hicache_bench.workflows.stores import check_store
from hicache_bench.workflows.variant import Variant

OPERATIONS = (SAVE, LOOKUP, RESTORE)
MAX_CLIENTS = 64
DEFAULT_MIN_SECONDS = 2.0
MAX_MIN_SECONDS = 3600.0
"""Of one series, of which there are dozens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What ``bench`` was asked for.

    ``preset`` is the name or path that ``variant`` was made from. ``clients`` 0 is one process that writes
    and reads; else they read, over the network, what another process wrote. ``operations`` None are all that
    the state of the store allows. ``repeat`` samples, or as many as fill ``min_seconds``. The HTTP server of
    a joined ``master`` is looked for at ``master_http_port`` of its host.
    """

    preset: str
    variant: Variant
    num_tokens: int
    save_policy: SavePolicy = field(default_factory=SavePolicy)
    operations: tuple[str, ...] | None = None
    policies: tuple[TransferPolicy, ...] = tuple(TransferPolicy)
    repeat: int | None = None
    min_seconds: float | None = None
    batch_pages: int = BATCH_PAGES
    is_warm: bool = False
    clients: int = 0
    store: str = "local"
    master: str | None = None
    master_http_port: int | None = None
    segment_bytes: int | None = None
    protocol: str = "tcp"
    device: str = ""
    silence_seconds: float = SILENCE_SECONDS
    command: tuple[str, ...] = ()

    @property
    def chosen_operations(self) -> tuple[str, ...]:
        """The operations, in the order in which they are measured."""
        asked = self.operations or tuple(
            operation for operation in OPERATIONS if not (self.is_warm and operation == SAVE)
        )
        return tuple(operation for operation in OPERATIONS if operation in asked)

    @property
    def chosen_seconds(self) -> float:
        """Seconds that the samples of one series fill."""
        return DEFAULT_MIN_SECONDS if self.min_seconds is None else self.min_seconds

    def check(self) -> None:
        """Refuse what cannot be, before anything is started.

        Raises:
            InputError: options that contradict each other.
            StoreUnavailableError: no RDMA device.
        """
        if self.store == "count":
            raise InputError("--store count moves nothing that could be timed; use local or mooncake")
        check_store(self.store, self.master, self.segment_bytes, master_http_port=self.master_http_port)
        for operation in self.operations or ():
            if operation not in OPERATIONS:
                raise InputError(f"operation {operation!r} is unknown; allowed: {', '.join(OPERATIONS)}")
        if self.repeat is not None and self.min_seconds is not None:
            raise InputError("--repeat and --min-time both say how many samples; give one of them")
        if self.chosen_seconds > MAX_MIN_SECONDS:
            raise InputError(
                f"--min-time {self.chosen_seconds:,.0f} s is more than the {MAX_MIN_SECONDS:,.0f} s that a "
                "series may take"
            )
        if self.is_warm and SAVE in (self.operations or ()):
            raise InputError(
                "--warm has everything in the store already, and a put of an existing key writes nothing; "
                "leave save out of --op"
            )
        if not 0 <= self.clients <= MAX_CLIENTS:
            raise InputError(f"--clients {self.clients} is not 1 to {MAX_CLIENTS}")
        if self.store != "mooncake":
            self._check_local()
            return
        from hicache_bench.store.client import check_protocol

        check_protocol(self.protocol, self.device)

    def _check_local(self) -> None:
        if self.clients:
            raise InputError("--store local lives in one process; --clients is for --store mooncake")
        for option, is_given in (("--protocol", self.protocol != "tcp"), ("--device", self.device)):
            if is_given:
                raise InputError(f"{option} is for --store mooncake, not 'local'")
