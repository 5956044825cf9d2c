"""The processes of a bench and their master: started together, replaced together, gone together.

A client that was poisoned, a dead segment owner and a lost master leave traces in each other (a stale
segment, a queue that never drains), so whatever broke, all of them are replaced.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hicache_bench.errors import StoreError, StoreUnavailableError
from hicache_bench.store.client import probe, require_mooncake
from hicache_bench.store.master import ManagedMaster
from hicache_bench.workflows.bench.job import Job, StoreJob
from hicache_bench.workflows.bench.peer import LEAVE_SECONDS, Peer
from hicache_bench.workflows.meter import Progress

_CASUALTY_SECONDS = 0.5
"""A store's answer shows a death before the dead process is reaped: the master's guard needs a moment."""

_POLL_SECONDS = 0.02

MASTER_SECONDS = 15.0
"""How long the master of a joined cluster may take to come back once it was there."""

_MASTER_POLL_SECONDS = 0.5

Seeds = Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What to start.

    ``model`` is a job that every other one is made from. ``num_clients`` 0 is one process that writes and
    reads; else a writer, which owns the segment, and that many clients without one. ``num_ranks`` are shared
    out to clients in turn. ``master`` joins a cluster; without it, ``mooncake`` gets a private one.
    """

    model: Job
    num_clients: int
    num_ranks: int
    master: str | None

    @property
    def is_joined(self) -> bool:
        """Whether the cluster goes on after this run."""
        return self.master is not None

    def client_ranks(self) -> list[int]:
        """The rank of each client."""
        return [client % self.num_ranks for client in range(max(1, self.num_clients))]

    def jobs(self, store: StoreJob, shared_seed: int) -> list[Job]:
        """The writer's job first."""
        ranks = self.client_ranks()
        base = replace(self.model, store=store, shared_seed=shared_seed, own_seed=shared_seed)
        if not self.num_clients:
            return [replace(base, client=0, ranks=(0,), is_alone=not self.is_joined)]
        writer = replace(base, client=None, ranks=tuple(dict.fromkeys(ranks)), is_alone=False)
        bare = replace(store, capacity_bytes=0)
        return [
            writer,
            *(
                replace(
                    base, store=bare, client=client, ranks=(rank,), own_seed=shared_seed + 1 + client,
                    is_alone=False,
                )
                for client, rank in enumerate(ranks)
            ),
        ]  # fmt: skip


@dataclass(slots=True)
class Fleet:
    """Running processes; ``new_seed`` gives tokens that nothing in the store has."""

    plan: FleetPlan
    new_seed: Seeds
    progress: Progress
    silence_seconds: float
    settings: dict[str, str | int | float] = field(default_factory=dict)
    seed: int = 0
    _master: ManagedMaster | None = None
    _peers: list[Peer] = field(default_factory=list)
    _owned_seeds: list[int] = field(default_factory=list)

    @property
    def writer(self) -> Peer:
        """The process that holds the segment."""
        return self._peers[0]

    @property
    def clients(self) -> list[Peer]:
        """The processes that measure."""
        return self._peers if not self.plan.num_clients else self._peers[1:]

    def start(self) -> None:
        """Start the master and every process.

        Raises:
            PeerLostError: a process could not join.
            StoreUnavailableError: no wheel, a missing system library, no master.
        """
        store = self.plan.model.store
        self.seed = self.new_seed()
        if store.name == "mooncake":
            if self.plan.master is None:
                require_mooncake()
                self.progress("starting a private master")
                self._master = ManagedMaster()
            address = self._master.address if self._master else self.plan.master
            store = replace(store, master=address, is_joined=self.plan.is_joined)
        for job in self.plan.jobs(store, self.seed):
            self._peers.append(Peer(job, self.progress, silence_seconds=self.silence_seconds))
        found = [peer.hear("settings") for peer in self._peers]
        if self.settings:  # as they were when the run began: what broke since is no setting
            return
        if self.plan.is_joined:
            self.progress("asking the master of the cluster about it")
            cluster = self.writer.ask({"do": "cluster"})
        else:
            cluster = self._master.settings if self._master else {}
        self.settings = {**cluster, **found[0]}

    def wait_for_master(self) -> None:
        """Give the master of a joined cluster time to come back, before everything is started anew.

        Raises:
            StoreUnavailableError: it did not.
        """
        if self.plan.master is None:
            return
        started = time.monotonic()
        while True:
            try:
                probe(self.plan.master)
                return
            except StoreUnavailableError as gone:
                waited = time.monotonic() - started
                if waited >= MASTER_SECONDS:
                    raise StoreUnavailableError(
                        f"the master of the cluster was lost, and did not come back in {waited:.0f} s: {gone}"
                    ) from gone
            self.progress(f"the master is gone: waiting for it, {waited:.0f} s of at most {MASTER_SECONDS:g}")
            time.sleep(_MASTER_POLL_SECONDS)

    def casualties(self, noticed_by: int | None) -> str:
        """Who else has gone when a process was found lost: the one that notices need not be the cause."""
        deadline = time.monotonic() + _CASUALTY_SECONDS
        while not (gone := self._gone(noticed_by)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return "".join(f"; {words}" for words in gone)

    def _gone(self, noticed_by: int | None) -> list[str]:
        gone = [
            f"{peer.name} ended with {peer.killed_by}"
            for peer in self._peers
            if peer.killed_by and peer.client != noticed_by
        ]
        if self._master is not None and not self._master.is_running:
            gone.append("the private master has ended")
        return gone

    def save_shared(self) -> int:
        """Write the prefix that all read; how many of its objects are in the store now.

        What was there before is somebody else's, and stays when we leave.
        """
        saved = self.writer.ask({"do": "save"})
        if not saved["existing"]:
            self._owned_seeds.append(self.seed)
        total: int = saved["written"] + saved["existing"]
        return total

    def leave(self) -> tuple[str, ...]:
        """End everything; a cluster that goes on is left in order: objects, clients, writer.

        Returns warnings about what may be left there. Everything is measured by now: nothing that goes wrong
        here is an error.
        """
        warnings: list[str] = []
        if self.plan.is_joined:
            try:
                remaining = self.writer.ask({"do": "remove", "seeds": self._owned_seeds})["remaining"]
                if remaining:
                    warnings.append(
                        f"up to {remaining} objects of this run could not be removed from the cluster"
                    )
                # The one that holds the segment goes last.
                for peers in (self._peers[1:], self._peers[:1]):
                    for peer in peers:
                        peer.say({"do": "leave"})
                    for peer in peers:
                        peer.wait_until_left()
            except StoreError as problem:
                warnings.append(f"objects of this run may be left in the cluster: {problem}")
        self.end()
        return tuple(warnings)

    def end(self) -> None:
        """End every process without a farewell, or with a short one from a cluster that goes on."""
        for peer in self._peers:
            peer.hang_up()
        while self._peers:
            self._peers.pop().end(LEAVE_SECONDS if self.plan.is_joined else 0.0)
        self._stop_master()

    def _stop_master(self) -> None:
        if self._master is not None:
            self._master.stop()
            self._master = None
