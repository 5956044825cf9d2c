"""Everything that ``roundtrip`` proves, in order; the result is one record."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from hicache_bench import __version__
from hicache_bench.engine.metrics import MetricsSink
from hicache_bench.errors import InputError, MemoryBudgetError
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.records.proof import Proof, RoundtripRecord
from hicache_bench.records.schema import Check
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.units import GIB, MIB, format_size
from hicache_bench.workflows.cluster import Member, members_of
from hicache_bench.workflows.environment import describe_environment, library_versions
from hicache_bench.workflows.memory import MEMORY_SHARE, available_memory_bytes
from hicache_bench.workflows.meter import Meter, Progress
from hicache_bench.workflows.rank import equal
from hicache_bench.workflows.roundtrip.byte_controls import byte_controls
from hicache_bench.workflows.roundtrip.byte_proofs import ByteJob, BytePlan, Tally, plan_bytes
from hicache_bench.workflows.roundtrip.findings import BREAKDOWNS, breakdown, findings
from hicache_bench.workflows.roundtrip.isolation import STORE_BYTES, isolation_proofs
from hicache_bench.workflows.roundtrip.reader import reader_proof
from hicache_bench.workflows.roundtrip.rule_controls import rule_controls
from hicache_bench.workflows.roundtrip.rule_proofs import rule_proofs
from hicache_bench.workflows.stores import OpenStore, check_store, open_store
from hicache_bench.workflows.variant import Variant

ONE_PRESET_BYTES = GIB
SEVERAL_PRESETS_BYTES = 256 * MIB
"""Memory that the host pools and the store of one length may take, if nothing is asked for."""

LARGE_STATE_BYTES = GIB
"""The same for a model among several of which not even a few pages fit: one state alone can be 300 MB."""

MAX_PAGES = 1 << 24
"""Of one length: a billion tokens in pages of 64."""

RULE_STORE_BYTES = 16 * MIB
FAULT_STORE_BYTES = 256 * MIB
"""Room for the small models that faults and random requests are tried on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundtripOptions:
    """What ``roundtrip`` was asked for.

    ``lengths`` are pages; None stands for those around the seam between batches. ``seed`` None is 0, or a
    fresh one on a joined cluster, which may hold what an earlier run left. ``faults`` are names of the
    catalogues, or ``all``; ``injections`` so many random ones. ``checksum`` puts a digest beside each object.
    ``metrics`` gets what moves through the store that was asked for, what was broken on purpose included.
    """

    presets: tuple[Variant, ...] = ()
    store: str = "local"
    master: str | None = None
    master_http_port: int | None = None
    segment_bytes: int | None = None
    lengths: tuple[int, ...] | None = None
    policies: tuple[TransferPolicy, ...] = tuple(TransferPolicy)
    batch_pages: int | None = None
    memory_bytes: int | None = None
    seed: int | None = None
    numerics: bool = False
    faults: tuple[str, ...] = ()
    injections: int = 0
    soak_seconds: float = 0.0
    checksum: bool = False
    command: tuple[str, ...] = ()
    metrics: MetricsSink | None = None

    @property
    def breaks_things(self) -> bool:
        """Whether anything is asked for that needs no preset."""
        return bool(self.faults or self.injections or self.soak_seconds)


def roundtrip(options: RoundtripOptions, progress: Progress) -> RoundtripRecord:
    """Prove what was asked for, controls included, and return the record.

    Raises:
        InputError: options that contradict each other, or too little memory.
        ConfigError: a deployment that the engine refuses or that the arithmetic has no reference for, or
            pools that cannot be stored.
        StoreError: the store cannot be opened, does not keep what is saved, or does not deliver it.
    """
    _check(options)
    seed = options.seed
    if seed is None:
        seed = int.from_bytes(os.urandom(4), "little") if options.master else 0
    proofs: list[Proof] = []
    plans = [_plan_or_finding(options, variant, proofs) for variant in options.presets]
    settings: dict[str, str | int | float] = {}
    if options.presets:
        proofs += byte_controls(seed, progress)
        proofs += _rule_proofs(seed, progress)
    meter = Meter(progress, [plan.stored_bytes if plan else 0 for plan in plans])
    for variant, plan in zip(options.presets, plans, strict=True):
        meter(f"{variant.spec.name}: opening the {options.store} store")
        with _opened(options, max(plan.stored_bytes if plan else 0, STORE_BYTES)) as opened:
            settings = settings or opened.settings
            proofs += _preset_proofs(options, variant, plan, opened, seed, meter)
        meter.finish()
    if options.breaks_things:
        with _opened(replace(options, checksum=False), FAULT_STORE_BYTES) as opened:
            settings = settings or opened.settings
            proofs += _fault_proofs(options, opened.backend, seed, progress)
    proofs += _real_fault_proofs(options, seed, progress)
    return RoundtripRecord(
        status="ok" if all(proof.passed for proof in proofs) else "failed",
        created_utc=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        command=options.command,
        tool_version=__version__,
        libraries=library_versions(with_mooncake=options.store == "mooncake"),
        environment=describe_environment(),
        seed=seed,
        store=options.store,
        store_settings=settings,
        presets={variant.spec.name: variant.spec.digest for variant in options.presets},
        proofs=tuple(proofs),
    )


def _check(options: RoundtripOptions) -> None:
    check_store(
        options.store, options.master, options.segment_bytes, master_http_port=options.master_http_port
    )
    if options.store == "count":
        raise InputError(
            "--store count moves no bytes, and there is nothing to compare; use local or mooncake"
        )
    if not options.presets and not options.breaks_things:
        raise InputError("nothing to prove; give --preset NAME or --preset all, or --faults, or --soak")
    if options.numerics:
        _check_numerics(options)
    for name, numbers in (("--lengths", options.lengths), ("--batch-pages", (options.batch_pages,))):
        for number in numbers or ():
            if number is not None and not 1 <= number <= MAX_PAGES:
                raise InputError(f"{name} {number} is not a number of pages; give 1 to {MAX_PAGES:,}")
    if not options.presets:
        _check_effect(options)
    if options.faults:
        # Imported here, as below: most runs break nothing, and need none of it.
        from hicache_bench.workflows.roundtrip.fault_catalogue import chosen_cases

        names, real = _split_faults(options.faults)
        if real and options.store != "mooncake":
            raise InputError(f"the fault {real[0]!r} needs real processes; give --store mooncake with it")
        if names:
            chosen_cases(names)


def _check_effect(options: RoundtripOptions) -> None:
    """Without a preset: nothing was asked for that only a preset's prefixes have."""
    given = {
        "--lengths": options.lengths is not None,
        "--batch-pages": options.batch_pages is not None,
        "--memory": options.memory_bytes is not None,
        "--policy": options.policies != tuple(TransferPolicy),
    }
    idle = [name for name, is_given in given.items() if is_given]
    if idle:
        raise InputError(
            f"{', '.join(idle)} without --preset: faults are tried on models of their own; name a preset, or "
            "leave it out"
        )


def _check_numerics(options: RoundtripOptions) -> None:
    from hicache_bench.workflows.roundtrip.numeric_model import NumericModel

    if not options.presets:
        raise InputError("--numerics computes a model; name one with --preset")
    for variant in options.presets:
        NumericModel(variant, seed=0)


def _split_faults(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those that any store can be tried on, and those that need the real one. ``all`` is both."""
    from hicache_bench.workflows.roundtrip.real_faults import REAL_FAULTS

    real = [name for name in names if name in REAL_FAULTS]
    return [name for name in names if name not in REAL_FAULTS], real


@contextmanager
def _opened(options: RoundtripOptions, stored_bytes: int) -> Iterator[OpenStore]:
    """The store that was asked for, with a digest beside each object if that was."""
    with open_store(
        options.store,
        stored_bytes=stored_bytes,
        master=options.master,
        master_http_port=options.master_http_port,
        segment_bytes=options.segment_bytes,
        metrics=options.metrics,
    ) as opened:
        if not options.checksum:
            yield opened
            return
        from hicache_bench.store.checksum import ChecksumStore
        from hicache_bench.workflows.roundtrip.faults import checksum_digest

        checked = ChecksumStore(opened.backend, checksum_digest())
        try:
            yield replace(opened, backend=checked, settings={**opened.settings, **checked.settings})
        finally:
            checked.detach()


def _rule_proofs(seed: int, progress: Progress) -> tuple[Proof, ...]:
    """The rules of every model, on a small one and in a store of its own."""
    with open_store("local", stored_bytes=RULE_STORE_BYTES) as opened:
        return (
            *rule_controls(opened.backend, seed, progress),
            *rule_proofs(opened.backend, seed, progress),
        )


def _preset_proofs(
    options: RoundtripOptions,
    variant: Variant,
    plan: BytePlan | None,
    opened: OpenStore,
    seed: int,
    progress: Progress,
) -> list[Proof]:
    proofs: list[Proof] = []
    if plan is not None:
        job = ByteJob(
            variant=variant,
            plan=plan,
            store=opened.backend,
            policies=options.policies,
            seed=seed,
            progress=progress,
        )
        proofs += _byte_proofs(job, opened, checksum=options.checksum)
    proofs += isolation_proofs(variant, opened.backend, options.policies, seed, progress)
    if options.numerics:
        from hicache_bench.workflows.roundtrip.numerics import numeric_proofs

        # A local store is opened for it, and sized for it; another one is the store that was asked for.
        store = opened.backend if options.store == "mooncake" else None
        proofs += numeric_proofs(variant, seed, progress, store=store)
    return proofs


def _fault_proofs(
    options: RoundtripOptions, store: KVStoreBackend, seed: int, progress: Progress
) -> list[Proof]:
    from hicache_bench.workflows.roundtrip.faults import fault_proofs
    from hicache_bench.workflows.roundtrip.soak import injection_proofs, soak_proofs

    proofs: list[Proof] = []
    names, _ = _split_faults(options.faults)
    if names:
        proofs += fault_proofs(names, store, seed=seed, checksum=options.checksum, progress=progress)
    if options.injections:
        proofs += injection_proofs(
            options.injections, store, seed=seed, checksum=options.checksum, progress=progress
        )
    if options.soak_seconds:
        proofs += soak_proofs(
            options.soak_seconds, store, seed=seed, checksum=options.checksum, progress=progress
        )
    return proofs


def _real_fault_proofs(options: RoundtripOptions, seed: int, progress: Progress) -> tuple[Proof, ...]:
    """On masters and clients of their own, each in processes that can be killed."""
    if options.store != "mooncake" or not options.faults:
        return ()
    from hicache_bench.workflows.roundtrip.real_faults import real_fault_proofs

    _, real = _split_faults(options.faults)
    return real_fault_proofs(("all",) if "all" in options.faults else real, seed, progress)


def _plan_or_finding(options: RoundtripOptions, variant: Variant, proofs: list[Proof]) -> BytePlan | None:
    """The plan; None where the engine breaks at it, and a failed proof among ``proofs`` says how."""
    try:
        return _plan(options, variant)
    except InputError:
        raise
    except BREAKDOWNS as error:
        name = variant.spec.name
        proofs.append(Proof(section="bytes", name="any length", subject=name, checks=(breakdown(error),)))
        return None


def _plan(options: RoundtripOptions, variant: Variant) -> BytePlan:
    """Lengths of one preset, in the first of the memory budgets that they fit in."""
    members = members_of(variant)
    *smaller, largest = _memory_budgets(options)
    for memory_bytes in smaller:
        with suppress(MemoryBudgetError):
            return _planned(options, members, memory_bytes)
    try:
        return _planned(options, members, largest)
    except MemoryBudgetError as error:
        raise MemoryBudgetError(f"{variant.spec.name}: {error}") from error


def _planned(options: RoundtripOptions, members: Sequence[Member], memory_bytes: int) -> BytePlan:
    return plan_bytes(
        members, lengths=options.lengths, batch_pages=options.batch_pages, memory_bytes=memory_bytes
    )


def _memory_budgets(options: RoundtripOptions) -> tuple[int, ...]:
    available = int(available_memory_bytes() * MEMORY_SHARE)
    if options.memory_bytes is None:
        several = len(options.presets) > 1
        defaults = (SEVERAL_PRESETS_BYTES, LARGE_STATE_BYTES) if several else (ONE_PRESET_BYTES,)
        return tuple(min(default, available) for default in defaults)
    if options.memory_bytes > available:
        raise MemoryBudgetError(
            f"--memory {format_size(options.memory_bytes)} is more than the {format_size(available)} that "
            f"this machine can give ({MEMORY_SHARE:.0%} of what is available); ask for less"
        )
    return (options.memory_bytes,)


def _byte_proofs(job: ByteJob, opened: OpenStore, *, checksum: bool) -> list[Proof]:
    """One proof a length; the longest is read by another process too, where one can join the store."""
    proofs = []
    for cluster in job.plan.clusters:
        tally = Tally()
        length = job.length_job(cluster, tally)
        proof = job.claim(cluster)
        more: list[Check] = []
        readers: list[Proof] = []
        with findings(more):
            try:
                proof = job.prove(cluster, length, tally)
                if opened.master is not None and cluster is job.plan.clusters[-1]:
                    job.progress(f"{job.variant.spec.name}: a second process reads")
                    pages = int(proof.figures["pages"])
                    readers.append(reader_proof(job, pages, master=opened.master, checksum=checksum))
            finally:
                remaining = length.remove()
                more.append(equal("objects of it that stay in the store", "0", str(remaining)))
        proofs += [replace(proof, checks=(*proof.checks, *more)), *readers]
    return proofs
