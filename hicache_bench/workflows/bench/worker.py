"""What one process of a bench does on its own store client: write the shared prefix, take series, tidy up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from hicache_bench.engine.prefix import Prefix
from hicache_bench.engine.reports import Lookup, RestoreReport
from hicache_bench.errors import InputError, StoreError
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.joined import joined_settings
from hicache_bench.workflows.bench.job import CALL, COPY, LOOKUP, SAVE, Job, StoreJob, Task
from hicache_bench.workflows.bench.sampling import Effort, Samples, Subject, take, warm_up
from hicache_bench.workflows.bench.side import (
    ClientLostError,
    HostSet,
    RankSide,
    only_pool,
    without_keys,
)
from hicache_bench.workflows.bench.timed import StopWatch, TimedKeys, TimedStore
from hicache_bench.workflows.cluster import members_of, remove_prefixes
from hicache_bench.workflows.prefix import lay_out

Note = Callable[[str], None]


@contextmanager
def open_job_store(job: StoreJob) -> Iterator[KVStoreBackend]:
    """The store of a process, closed when the block ends.

    Raises:
        StoreUnavailableError: no wheel, a missing system library, no master, no device.
        MemoryBudgetError: the segment cannot be allocated.
    """
    # Imported here: a process needs one of them.
    if job.name == "local":
        from hicache_bench.store.local import LocalKVStore

        with LocalKVStore(job.capacity_bytes) as local:
            yield local
        return
    from hicache_bench.store.client import address_towards, open_mooncake

    assert job.master is not None
    with open_mooncake(
        job.master,
        segment_bytes=job.capacity_bytes,
        local_hostname=address_towards(job.master),
        protocol=job.protocol,
        device=job.device,
    ) as store:
        yield store


@dataclass(slots=True)
class Measured:
    """A series as a process reports it; the fields are those of a record's ``Series``."""

    samples: Samples = field(default_factory=Samples)
    objects: int = 0
    num_bytes: int = 0
    verify_seconds: float | None = None
    mismatched: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        samples = self.samples
        return {
            "objects": self.objects,
            "num_bytes": self.num_bytes,
            "store_calls": samples.store_calls,
            "warmups": samples.warmups,
            "starts": samples.starts,
            "seconds": samples.seconds,
            "key_seconds": samples.key_seconds,
            "store_seconds": samples.store_seconds,
            "busy_processors": samples.busy_processors,
            "own_processors": samples.own_processors,
            "verify_seconds": self.verify_seconds,
            "mismatched": self.mismatched,
        }


class Worker:
    """One process's part. Host pools are made when first needed; ``close`` gives them and the store back.

    ``wait_for_start`` is called between the warm-ups and the samples of a series; it returns the moment (of
    the monotonic clock) at which the samples begin. ``owned_seeds`` are those of the prefixes that this
    process alone has written.
    """

    def __init__(self, job: Job, note: Note, wait_for_start: Callable[[], float] = time.monotonic) -> None:
        self.job = job
        self._note = note
        self._wait_for_start = wait_for_start
        self._key_watch, self._store_watch = StopWatch(), StopWatch()
        self._stack = ExitStack()
        self._hosts: dict[str, HostSet] = {}
        self.owned_seeds: set[int] = set()
        self.store = TimedStore(self._stack.enter_context(open_job_store(job.store)), self._store_watch)
        variant, policy = job.load_variant(), job.load_save_policy()
        self._keys = TimedKeys(variant.keys, self._key_watch)
        members = members_of(variant)
        self.sides = [
            RankSide(
                members[rank],
                lay_out(members[rank].registry, job.tokens, policy),
                self._keys,
                self.store,
                save_policy=policy,
                batch_pages=job.batch_pages,
                chain_seed=variant.chain_seed,
            )
            for rank in job.ranks
        ]

    def close(self) -> None:
        """Unregister the host pools, then close the store."""
        self._stack.close()

    def describe_cluster(self) -> Mapping[str, str | int | float]:
        """What can be known of the cluster that this process joined."""
        assert self.job.store.master is not None
        return joined_settings(self.store, self.job.store.master, http_port=self.job.store.master_http_port)

    def save_shared(self) -> Mapping[str, int]:
        """Write the prefix that everyone reads, on every rank; objects written, and those that existed."""
        written = existing = 0
        for side in self.sides:
            self._note("saving the prefix")
            with self._filled(side, self.job.shared_seed) as hosts:
                report = side.save(hosts, side.prefix(self.job.shared_seed))
            written += sum(part.objects for part in report.written.values())
            existing += sum(part.objects for part in report.existing.values())
        if not existing:
            self.owned_seeds.add(self.job.shared_seed)
        return {"written": written, "existing": existing}

    def ask(self, seed: int) -> Mapping[str, int]:
        """What the store holds of the prefix of ``seed``, over all ranks of this process."""
        found = [side.ask(side.prefix(seed)) for side in self.sides]
        return {"asked": sum(part.asked for part in found), "held": sum(part.held for part in found)}

    def remove(self, seeds: list[int]) -> Mapping[str, int]:
        """Take the prefixes of these seeds out of the store; how many objects may still be there."""
        self._note("removing what was saved")
        parts = [(side.layout.pools, side.prefix(seed)) for seed in seeds for side in self.sides]
        return {"remaining": remove_prefixes(parts, self._keys, self.store)}

    def measure(self, task: Task) -> Measured:
        """Take one series on the first rank of this process.

        Raises:
            ClientLostError: this client cannot go on.
            StoreError: the store is full, or has lost what was saved.
        """
        takes = {COPY: self._copy, SAVE: self._save, LOOKUP: self._look_up}
        measure = takes.get(task.operation, self._restore)
        try:
            return measure(self.sides[0], task)
        except MemoryError as error:
            raise InputError("too little memory for the host pools; use fewer tokens or clients") from error

    def _take(self, task: Task, subject: Subject, measured: Measured) -> None:
        effort = Effort(repeat=task.repeat, min_seconds=task.min_seconds, concurrent=task.by_the_clock)
        origin = self._wait_for_start()
        take(
            subject,
            measured.samples,
            effort,
            origin=origin,
            pids=task.pids,
            note=lambda step: self._note(f"{task.label}: {step}"),
        )

    def _subject(self, action: Callable[[], object], **around: Callable[[], object]) -> Subject:
        return Subject(action=action, key_watch=self._key_watch, store_watch=self._store_watch, **around)

    def _copy(self, side: RankSide, task: Task) -> Measured:
        source, target = self._source(side), self._target(side)
        counts = side.layout.num_slots
        measured = Measured(
            objects=sum(counts[pool.name] * len(pool.stored_components) for pool in side.layout.pools),
            num_bytes=side.layout.stored_bytes,
        )
        subject = self._subject(lambda: target.copy_from(source))
        warm_up(subject, measured.samples)
        self._take(task, subject, measured)
        return measured

    def _save(self, side: RankSide, task: Task) -> Measured:
        """Each sample saves into a store that was just asked, and holds none of the keys."""
        source = self._source(side)
        prefix = side.prefix(self.job.own_seed)
        measured = Measured()
        self.owned_seeds.add(self.job.own_seed)

        def clear() -> None:
            if side.ask(prefix).held:
                self._clear(side, prefix)
            if held := side.ask(prefix).held:
                raise StoreError(
                    f"the store still holds {held} keys after they were removed: it is not cold; use a store "
                    "of your own (leave --master out)"
                )

        def save() -> None:
            report = side.save(source, without_keys(prefix))
            measured.objects = sum(part.objects for part in report.written.values())
            measured.num_bytes = sum(part.num_bytes for part in report.written.values())

        subject = self._subject(save, before=clear)
        warm_up(subject, measured.samples)
        self._take(task, subject, measured)
        self._clear(side, prefix)
        return measured

    def _clear(self, side: RankSide, prefix: Prefix) -> None:
        if self.job.is_alone:
            self.store.remove_all(force=True)
        elif remaining := side.remove(prefix):
            raise ClientLostError(f"up to {remaining} objects could not be removed")

    def _look_up(self, side: RankSide, task: Task) -> Measured:
        """The lookup that decides the endpoint of a policy; without one, of every key."""
        controller = self._target(side).controller
        prefix = side.prefix(self.job.shared_seed)
        measured = Measured()

        def look_up() -> None:
            fresh = without_keys(prefix)
            if task.policy is None:
                lookup = controller.lookup(fresh)
                side.check_lookup(lookup)
            else:
                lookup = controller.lookup_endpoint(fresh, task.policy)
                side.check_endpoint(lookup, controller.resolve(lookup, task.policy).hit_pages)
            measured.objects = lookup.keys_asked

        subject = self._subject(look_up)
        warm_up(subject, measured.samples)
        self._take(task, subject, measured)
        return measured

    def _restore(self, side: RankSide, task: Task) -> Measured:
        """Plan and restore into poisoned pools; every byte is compared before and after the samples."""
        target = self._target(side)
        controller = target.controller
        prefix = side.prefix(self.job.shared_seed)
        lookup: Lookup = controller.lookup(prefix)
        side.check_lookup(lookup)
        policy = task.policy or TransferPolicy.DENSE
        measured = Measured()
        reports: list[RestoreReport] = []

        def restore() -> None:
            plan = controller.plan(lookup, policy)
            if task.pool is not None:
                plan = only_pool(plan, task.pool, first_unit=task.operation == CALL)
            reports[:] = [controller.restore(without_keys(prefix), plan)]

        def check() -> None:
            side.check_restore(reports[0], reports[0].plan)

        subject = self._subject(restore, after=check)
        target.poison()
        warm_up(subject, measured.samples)
        measured.mismatched += side.mismatched(target, reports[0], self.job.shared_seed)
        self._take(task, subject, measured)
        target.poison()
        restore()
        check()
        started = time.perf_counter()
        measured.mismatched += side.mismatched(target, reports[0], self.job.shared_seed)
        measured.verify_seconds = time.perf_counter() - started
        read = reports[0].ledger.read
        measured.objects, measured.num_bytes = read.objects, read.num_bytes
        return measured

    @contextmanager
    def _filled(self, side: RankSide, seed: int) -> Iterator[HostSet]:
        """Host pools with the bytes of ``seed``: those that are there, or others while they are needed."""
        if side is self.sides[0] and seed == self.job.own_seed and "source" in self._hosts:
            yield self._hosts["source"]
        else:
            with side.filled(seed) as hosts:
                yield hosts

    def _source(self, side: RankSide) -> HostSet:
        if "source" not in self._hosts:
            self._note("filling host pools")
            self._hosts["source"] = self._stack.enter_context(side.filled(self.job.own_seed))
        return self._hosts["source"]

    def _target(self, side: RankSide) -> HostSet:
        if "target" not in self._hosts:
            self._hosts["target"] = self._stack.enter_context(side.empty())
        return self._hosts["target"]
