"""``bench``: start the processes, prove the state of the store, take every series, write down what broke."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from hicache_bench import __version__
from hicache_bench.errors import MemoryBudgetError, StoreError, StoreUnavailableError
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.records.bench import BenchRecord, Loss, Series
from hicache_bench.records.schema import Check
from hicache_bench.units import format_size
from hicache_bench.workflows.bench.analysis import compare_clients, link_points, summarise
from hicache_bench.workflows.bench.fleet import MASTER_SECONDS, Fleet, FleetPlan
from hicache_bench.workflows.bench.job import CALL, COPY, LOOKUP, RESTORE, SAVE, Job, StoreJob, Task
from hicache_bench.workflows.bench.options import BenchOptions
from hicache_bench.workflows.bench.peer import Peer, PeerLostError
from hicache_bench.workflows.cluster import ClusterLayout, lay_out_ranks, members_of
from hicache_bench.workflows.environment import describe_environment, library_versions
from hicache_bench.workflows.identity import deployment_dict, preset_dict
from hicache_bench.workflows.memory import MEMORY_SHARE, usable_memory_bytes
from hicache_bench.workflows.meter import Meter, Progress
from hicache_bench.workflows.rank import equal, none_of
from hicache_bench.workflows.stores import arena_bytes

MAX_LOSSES = 3
"""A run that loses more of its processes than this ends: what it would measure is not the store."""

_START_DELAY_SECONDS = 0.2
_RETRY_SECONDS = 1.0
_MIN_POOL_SECONDS = 0.2
_COPY_SECONDS = 1.0
"""The machine's own limit is steadier than a store: more samples tell nothing new."""


def bench(options: BenchOptions, progress: Progress) -> BenchRecord:
    """Measure, and return the record.

    Raises:
        InputError: options that contradict each other, a prefix shorter than a page, too little memory.
        StoreError: the store cannot be opened, does not keep what is saved, or breaks again and again.
    """
    options.check()
    members = members_of(options.variant)
    used = range(min(len(members), max(1, options.clients)))
    cluster = lay_out_ranks([members[rank] for rank in used], options.num_tokens, options.save_policy)
    capacity = _capacity_bytes(options, cluster)
    memory = _memory_bytes(options, cluster, capacity)
    _check_memory(memory)
    plan = FleetPlan(
        model=Job(
            preset=options.preset,
            variant=options.variant.options,
            tokens=options.num_tokens,
            save_policy=str(options.save_policy),
            batch_pages=options.batch_pages,
            store=StoreJob(
                name=options.store,
                capacity_bytes=capacity,
                master_http_port=options.master_http_port,
                protocol=options.protocol,
                device=options.device,
            ),
            client=None,
            ranks=(0,),
            shared_seed=0,
            own_seed=0,
            is_alone=False,
        ),
        num_clients=options.clients,
        num_ranks=len(members),
        master=options.master,
    )
    load_average = os.getloadavg()[0]
    fleet = Fleet(plan, _seeds(options), progress, options.silence_seconds)
    measuring = _Measuring(options, cluster, fleet)
    try:
        measuring.run()
        farewell = fleet.leave()
    finally:
        fleet.end()
    warnings = [*farewell]
    if load_average > (os.cpu_count() or 1):
        warnings.append(
            f"{load_average:.1f} processes wanted the {os.cpu_count()} processors before the run began"
        )
    series = tuple(measuring.series)
    variant = options.variant
    checks = tuple(measuring.checks)
    return BenchRecord(
        status="ok" if all(check.passed for check in checks) else "failed",
        created_utc=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        command=options.command,
        tool_version=__version__,
        libraries=library_versions(with_mooncake=options.store == "mooncake"),
        environment=describe_environment(),
        load_average=round(load_average, 2),
        preset=preset_dict(variant.spec),
        preset_digest=variant.spec.digest,
        profile=variant.profile,
        deployment=deployment_dict(variant.deployment),
        key_scheme=variant.keys.scheme,
        namespace=variant.keys.namespace if isinstance(variant.keys, NamespacedKeyBuilder) else None,
        save_policy=str(options.save_policy),
        tokens=options.num_tokens,
        pages=options.num_tokens // variant.page_tokens,
        batch_pages=options.batch_pages,
        store=options.store,
        store_settings=fleet.settings,
        state="warm" if options.is_warm else "cold",
        clients=options.clients,
        memory_bytes=memory,
        stored_bytes=cluster.stored_bytes,
        stored_objects=measuring.stored_objects,
        series=series,
        together=compare_clients(series),
        link_points=link_points(series) if options.store == "mooncake" else (),
        losses=tuple(measuring.losses),
        checks=checks,
        warnings=tuple(warnings),
    )


def _seeds(options: BenchOptions) -> Callable[[], int]:
    """Tokens that no store has: in a cluster that others use, other ones each time."""
    if options.master is None or options.is_warm:
        return lambda: 0
    return lambda: int.from_bytes(os.urandom(3), "little") << 8


def _capacity_bytes(options: BenchOptions, cluster: ClusterLayout) -> int:
    if options.segment_bytes is not None:
        return options.segment_bytes
    if options.master is not None:
        return 0
    copies = 1 + (options.clients if SAVE in options.chosen_operations else 0)
    return arena_bytes(copies * sum(layout.stored_bytes for layout in cluster.layouts))


def _memory_bytes(options: BenchOptions, cluster: ClusterLayout, capacity_bytes: int) -> int:
    """A source and a target for each client, a source for a writer of its own, and the segment."""
    sets = 2 * options.clients + 1 if options.clients else 2
    return sets * cluster.host_bytes + capacity_bytes


def _check_memory(needed: int) -> None:
    available = usable_memory_bytes()
    if needed > available:
        raise MemoryBudgetError(
            f"this needs {format_size(needed)} of memory, and this machine can give {format_size(available)} "
            f"({MEMORY_SHARE:.0%} of what is available); use fewer --tokens or --clients"
        )


@dataclass(slots=True)
class _Measuring:
    """The series of one run, and what was checked and lost on the way."""

    options: BenchOptions
    cluster: ClusterLayout
    fleet: Fleet
    series: list[Series] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    stored_objects: int = 0
    _is_saved: bool = False
    _has_started: bool = False
    _was_up: bool = False
    _lost_at: float = -math.inf

    def run(self) -> None:
        """Take every series."""
        tasks = self._tasks()
        self.fleet.progress = meter = Meter(self.fleet.progress, [task.min_seconds for task in tasks])
        for task in tasks:
            self._is_saved = task.operation not in (COPY, SAVE)
            self._keep_going(task)
            meter.finish()

    def _tasks(self) -> list[Task]:
        """Alone, then together; by the clock where clients are compared, so that all of them end at once."""
        options = self.options
        counts = sorted({1, max(1, options.clients)})
        under: dict[str, tuple[TransferPolicy | None, ...]] = {
            SAVE: (None,),
            LOOKUP: (None, *options.policies),
            RESTORE: options.policies,
        }
        found = [
            (COPY, None),
            *((name, policy) for name in options.chosen_operations for policy in under[name]),
        ]
        tasks = [
            Task(
                operation=operation,
                policy=policy,
                repeat=options.repeat,
                min_seconds=min(options.chosen_seconds, _COPY_SECONDS if operation == COPY else math.inf),
                concurrent=count,
                by_the_clock=bool(options.clients),
            )
            for operation, policy in found
            for count in counts
        ]
        return tasks + (self._pool_tasks() if RESTORE in options.chosen_operations else [])

    def _pool_tasks(self) -> list[Task]:
        options, layout = self.options, self.cluster.layouts[0]
        names = [pool.name for pool in layout.pools if layout.num_slots[pool.name]]
        seconds = max(_MIN_POOL_SECONDS, options.chosen_seconds / len(names) / 2)
        return [
            Task(
                operation=operation,
                policy=TransferPolicy.DENSE,
                pool=name,
                repeat=options.repeat,
                min_seconds=seconds,
            )
            for name in names
            for operation in (RESTORE, CALL)
        ]

    def _keep_going(self, task: Task) -> None:
        """Take a series; if a process is lost, replace all, bring the store back, and take it again."""
        while True:
            started = time.monotonic()
            try:
                self._make_ready()
                self._measure(task)
                return
            except PeerLostError as lost:
                seconds = time.monotonic() - started
                reason = str(lost) + self.fleet.casualties(lost.client)
                self.losses.append(
                    Loss(client=lost.client, doing=task.label, reason=reason, seconds=round(seconds, 3))
                )
                self.fleet.end()
                if not self._was_up:
                    raise StoreUnavailableError(str(lost)) from lost
                self._has_started = False
                if len(self.losses) > MAX_LOSSES:
                    raise StoreError(
                        f"{len(self.losses)} times in one run a process was lost and replaced; the "
                        f"last one: {lost}. See that the master and the owners of segments run"
                    ) from lost
                self.fleet.progress(f"{lost}; replacing it")
                self.fleet.wait_for_master()
                self._lost_at = time.monotonic()
            except StoreError as problem:
                # The owners of a cluster's segments find a master that was started anew some seconds later.
                if self.options.master is None or time.monotonic() - self._lost_at > MASTER_SECONDS:
                    raise
                self.fleet.end()
                self._has_started = False
                self.fleet.progress(f"{problem}; something was just lost, so once more")
                time.sleep(_RETRY_SECONDS)

    def _make_ready(self) -> None:
        """Processes are there, and the store is proven to be in the state that the next series needs."""
        fleet = self.fleet
        if not self._has_started:
            fleet.start()
            self.stored_objects = 0
            self._has_started = self._was_up = True
            if not self.options.is_warm:
                self._prove("cold: keys of the prefix in the store before it is saved", held=False)
        if self._is_saved and not self.stored_objects:
            self.stored_objects = fleet.save_shared()
            self._prove("warm: keys of the prefix in the store before it is read", held=True)

    def _prove(self, name: str, *, held: bool) -> None:
        found = self.fleet.writer.ask({"do": "ask", "seed": self.fleet.seed})
        asked = found["asked"]
        check = equal(name, f"{asked if held else 0} of {asked}", f"{found['held']} of {asked}")
        self.checks = [other for other in self.checks if other.name != name] + [check]
        if not check.passed:
            raise StoreError(f"the store is not in the state that is measured; {name}: {check.actual}")

    def _measure(self, task: Task) -> None:
        self.fleet.progress(f"{task.label}: warming up")
        peers = self.fleet.clients[: task.concurrent]
        at_work = dict.fromkeys(peer.pid for peer in (self.fleet.writer, *peers))
        task = replace(task, pids=tuple(at_work))
        for peer in peers:
            peer.say({"do": "measure", "task": task.to_dict()})
        for peer in peers:
            peer.hear("ready")
        start = time.monotonic() + (_START_DELAY_SECONDS if len(peers) > 1 else 0.0)
        for peer in peers:
            peer.say({"start": start})
        self._add(task, peers, [peer.hear("done") for peer in peers])

    def _add(self, task: Task, peers: Sequence[Peer], found: Sequence[dict[str, Any]]) -> None:
        ranks = self.fleet.plan.client_ranks()
        for peer, measured in zip(peers, found, strict=True):
            mismatched = measured.pop("mismatched")
            client = peer.client or 0
            if task.operation in (RESTORE, CALL):
                who = f", client {client}" if self.options.clients else ""
                self.checks.append(
                    none_of(f"{task.label}{who}: restored pages that differ from the saved ones", mismatched)
                )
            self.series.append(_series(task, client, str(self.cluster.members[ranks[client]].rank), measured))


def _series(task: Task, client: int, rank: str, measured: dict[str, Any]) -> Series:
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in measured.items()
    }
    return Series(
        operation=task.operation,
        policy=task.policy.value if task.policy else None,
        pool=task.pool,
        client=client,
        concurrent=task.concurrent,
        rank=rank,
        summary=summarise(plain["seconds"], num_bytes=plain["num_bytes"], objects=plain["objects"]),
        **plain,
    )
