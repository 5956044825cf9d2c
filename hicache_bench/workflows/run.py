"""The main job, for every length asked for; the result is one record."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from hicache_bench import __version__
from hicache_bench.errors import InputError, MemoryBudgetError
from hicache_bench.planning.footprint import distinct_pools, total_footprint
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.records.schema import SCHEMA_VERSION, LengthResult, RunRecord
from hicache_bench.units import format_size, format_tokens
from hicache_bench.workflows.accounts import secret_digest
from hicache_bench.workflows.cluster import Member, members_of, pool_records, sharing_of
from hicache_bench.workflows.environment import describe_environment, library_versions
from hicache_bench.workflows.identity import deployment_dict, preset_dict
from hicache_bench.workflows.length import LengthJob
from hicache_bench.workflows.memory import MEMORY_SHARE, usable_memory_bytes
from hicache_bench.workflows.meter import Progress, Share
from hicache_bench.workflows.rank import Setting
from hicache_bench.workflows.stores import arena_bytes, check_store, open_store
from hicache_bench.workflows.variant import Variant
from hicache_bench.workflows.ways import Way, combined, ways

if TYPE_CHECKING:
    from hicache_bench.engine.metrics import MetricsSink


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What ``run`` was asked for. ``num_queries`` 0 reads every block, as a prefill may need.

    ``metrics`` gets what is moved, and nothing of what is only counted; None costs nothing.
    """

    variant: Variant
    token_lengths: tuple[int, ...]
    save_policy: SavePolicy = field(default_factory=SavePolicy)
    local_prefix_tokens: int = 0
    store: str = "local"
    master: str | None = None
    master_http_port: int | None = None
    segment_bytes: int | None = None
    num_queries: int = 0
    repeat: int = 3
    memory_bytes: int | None = None
    command: tuple[str, ...] = ()
    metrics: MetricsSink | None = None


def work_of(options: RunOptions) -> dict[int, int]:
    """How much each length is beside the others: bytes that are stored, or pages where they are counted."""
    variant = options.variant
    lengths = dict.fromkeys(options.token_lengths)  # a length that is named twice is run once
    if options.store == "count":
        return {tokens: tokens // variant.page_tokens for tokens in lengths}
    pools = distinct_pools(variant.pools.values())
    return {tokens: total_footprint(pools, tokens, options.save_policy).stored for tokens in lengths}


def run(
    options: RunOptions, progress: Progress, note: Progress | None = None, share: Share | None = None
) -> RunRecord:
    """Do the job for every length, on every rank, and return the record.

    ``note`` gets what a user should know before a length starts: the memory that it takes in little memory.
    ``share`` is told, after each length, how much of the work is done.

    A length that does not fit in memory is moved through a ring of host pages, or in part, or counted on a
    store of sizes.

    Raises:
        InputError: options that contradict each other, a prefix shorter than a page, too little memory.
        ConfigError: a deployment that the engine refuses, or pools that cannot be stored.
        StoreError: the store cannot be opened, or does not keep what is saved.
    """
    check_store(
        options.store, options.master, options.segment_bytes, master_http_port=options.master_http_port
    )
    variant = options.variant
    _check_queries(options)
    members = members_of(variant)
    budget = _memory_budget(options.memory_bytes) if options.store != "count" else 0
    # A joined cluster may hold objects of an earlier run; fresh tokens make fresh keys.
    token_seed = int.from_bytes(os.urandom(4), "little") if options.master else 0
    results: list[LengthResult] = []
    work, done = work_of(options), 0
    for tokens, part in work.items():
        results.append(_run_length(options, members, tokens, token_seed, budget, progress, note or progress))
        done += part
        if share is not None:
            share(done / sum(work.values()))
    keys, asked = variant.keys, variant.options
    return RunRecord(
        schema_version=SCHEMA_VERSION,
        kind="run",
        status="ok" if all(check.passed for result in results for check in result.checks) else "failed",
        created_utc=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        command=options.command,
        tool_version=__version__,
        libraries=library_versions(with_mooncake=options.store == "mooncake"),
        environment=describe_environment(),
        preset=preset_dict(variant.spec),
        preset_digest=variant.spec.digest,
        profile=variant.profile,
        deployment=deployment_dict(variant.deployment),
        key_scheme=keys.scheme,
        namespace=keys.namespace if isinstance(keys, NamespacedKeyBuilder) else None,
        model_name=asked.model_name,
        extra_backend_tag=asked.extra_backend_tag,
        adapter=secret_digest(asked.adapter),
        salt=secret_digest(asked.salt),
        token_seed=token_seed,
        save_policy=str(options.save_policy),
        local_prefix_tokens=options.local_prefix_tokens,
        queries=options.num_queries,
        store=options.store,
        pools=pool_records(members),
        sharing=sharing_of(variant, members),
        results=tuple(results),
    )


def _check_queries(options: RunOptions) -> None:
    deployment = options.variant.deployment
    if options.num_queries and (deployment.cp_sharded or deployment.dcp_size > 1):
        raise InputError(
            "--queries scores an index that is whole on every rank, and here ranks share out the tokens of a "
            "page; leave --queries out, or use --cp N:replicated and --dcp 1"
        )


def _memory_budget(asked_bytes: int | None) -> int:
    available = usable_memory_bytes()
    if asked_bytes is not None and asked_bytes > available:
        raise MemoryBudgetError(
            f"--memory {format_size(asked_bytes)} is more than the {format_size(available)} that this "
            f"machine can give ({MEMORY_SHARE:.0%} of what is available); ask for less"
        )
    return available if asked_bytes is None else asked_bytes


def _run_length(
    options: RunOptions,
    members: Sequence[Member],
    num_tokens: int,
    token_seed: int,
    budget_bytes: int,
    progress: Progress,
    note: Progress,
) -> LengthResult:
    """Move one length in the fullest way that fits into memory, or count it."""

    def take(way: Way, store: str, memory_bytes: int, reason: str | None) -> LengthResult:
        return _take(options, way, store, memory_bytes, reason, token_seed, progress)

    found = list(
        ways(
            members,
            num_tokens,
            options.save_policy,
            store_bytes=partial(_store_bytes, options),
            whole_only=options.num_queries > 0,
        )
    )
    whole = found[0]
    if options.store == "count":
        return take(whole, "count", 0, "the count store moves nothing")
    way = next((way for way in found if way.memory_bytes <= budget_bytes), None)
    if way is whole:
        return take(whole, options.store, whole.memory_bytes, None)
    needs = f"needs {format_size(whole.memory_bytes)} of memory, and {format_size(budget_bytes)} may be taken"
    if way is None:
        return take(whole, "count", whole.memory_bytes, needs)
    note(f"{format_tokens(num_tokens)} tokens: {way.describe()}")
    reason = f"{needs}; moved with {way.describe()}"
    if way.moves_all:
        return take(way, options.store, way.memory_bytes, reason)
    counted = take(whole, "count", whole.memory_bytes, reason)
    return combined(counted, take(way, options.store, way.memory_bytes, None))


def _take(
    options: RunOptions,
    way: Way,
    store: str,
    memory_bytes: int,
    reason: str | None,
    token_seed: int,
    progress: Progress,
) -> LengthResult:
    """Move, or count, what ``way`` names on an open ``store``."""
    cluster = way.cluster
    progress(f"{format_tokens(cluster.num_tokens)} tokens: opening the {store} store")
    asked = store == options.store
    master = options.master if asked else None
    with open_store(
        store,
        stored_bytes=cluster.stored_bytes,
        master=master,
        master_http_port=options.master_http_port,
        segment_bytes=options.segment_bytes if asked else None,
        metrics=options.metrics,
    ) as opened:
        job = LengthJob(
            cluster=cluster,
            setting=Setting(
                keys=options.variant.keys,
                chain_seed=options.variant.chain_seed,
                store=opened.backend,
                save_policy=way.save_policy,
                local_prefix_tokens=options.local_prefix_tokens,
                num_queries=options.num_queries,
                repeat=options.repeat,
                token_seed=token_seed,
                progress=progress,
            ),
            memory_bytes=memory_bytes,
            evidence_reason=reason,
            store_settings=opened.settings,
            policies=way.policies,
        )
        remaining = 0
        try:
            result = job.run()
        finally:
            if master is not None:
                remaining = job.remove()
        if not remaining:
            return result
        warning = f"up to {remaining} objects of this run could not be removed from the cluster"
        return replace(result, warnings=(*result.warnings, warning))


def _store_bytes(options: RunOptions, stored_bytes: int) -> int:
    """Memory that the store itself takes of this machine to hold ``stored_bytes``."""
    if options.store == "mooncake" and options.segment_bytes is not None:
        return options.segment_bytes
    return 0 if options.master is not None else arena_bytes(stored_bytes)
