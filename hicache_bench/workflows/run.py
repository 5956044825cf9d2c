"""The main job, for every length asked for; the result is one record."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from hicache_bench import __version__
from hicache_bench.errors import InputError, MemoryBudgetError
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.records.schema import SCHEMA_VERSION, LengthResult, RunRecord
from hicache_bench.units import format_size, format_tokens
from hicache_bench.workflows.accounts import deployment_dict, preset_dict, secret_digest
from hicache_bench.workflows.cluster import ClusterLayout, lay_out_ranks, members_of, pool_records, sharing_of
from hicache_bench.workflows.environment import describe_environment, library_versions
from hicache_bench.workflows.length import LengthJob
from hicache_bench.workflows.memory import available_memory_bytes
from hicache_bench.workflows.rank import Progress, Setting
from hicache_bench.workflows.stores import arena_bytes, check_store, open_store
from hicache_bench.workflows.variant import Variant

MEMORY_SHARE = 0.85
"""Part of the available memory that a run may take; the rest is for the interpreter and the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What ``run`` was asked for. ``num_queries`` 0 reads every block, as a prefill may need."""

    variant: Variant
    token_lengths: tuple[int, ...]
    save_policy: SavePolicy = field(default_factory=SavePolicy)
    local_prefix_tokens: int = 0
    store: str = "local"
    master: str | None = None
    segment_bytes: int | None = None
    num_queries: int = 0
    repeat: int = 3
    memory_bytes: int | None = None
    command: tuple[str, ...] = ()


def run(options: RunOptions, progress: Progress) -> RunRecord:
    """Do the job for every length, on every rank, and return the record.

    A length that does not fit in memory is counted on a store of sizes instead of moved.

    Raises:
        InputError: options that contradict each other, a prefix shorter than a page, too little memory.
        ConfigError: a deployment that the engine refuses, or pools that cannot be stored.
        StoreError: the store cannot be opened, or does not keep what is saved.
    """
    check_store(options.store, options.master, options.segment_bytes)
    variant = options.variant
    _check_queries(options)
    members = members_of(variant)
    lengths = dict.fromkeys(options.token_lengths)  # a length that is named twice is run once
    clusters = [lay_out_ranks(members, tokens, options.save_policy) for tokens in lengths]
    budget = _memory_budget(options.memory_bytes) if options.store != "count" else 0
    # A joined cluster may hold objects of an earlier run; fresh tokens make fresh keys.
    token_seed = int.from_bytes(os.urandom(4), "little") if options.master else 0
    results = [_run_length(options, cluster, token_seed, budget, progress) for cluster in clusters]
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
    available = int(available_memory_bytes() * MEMORY_SHARE)
    if asked_bytes is not None and asked_bytes > available:
        raise MemoryBudgetError(
            f"--memory {format_size(asked_bytes)} is more than the {format_size(available)} that this "
            f"machine can give ({MEMORY_SHARE:.0%} of what is available); ask for less"
        )
    return available if asked_bytes is None else asked_bytes


def _run_length(
    options: RunOptions, cluster: ClusterLayout, token_seed: int, budget_bytes: int, progress: Progress
) -> LengthResult:
    """Move, or count, one length."""
    needed = cluster.host_bytes + _store_bytes(options, cluster)
    name, reason = options.store, None
    if name == "count":
        needed, reason = 0, "the count store moves nothing"
    elif needed > budget_bytes:
        name = "count"
        reason = f"needs {format_size(needed)} of memory, and {format_size(budget_bytes)} may be taken"
    progress(f"{format_tokens(cluster.num_tokens)} tokens: opening the {name} store")
    master = options.master if name == options.store else None
    with open_store(
        name,
        stored_bytes=cluster.stored_bytes,
        master=master,
        segment_bytes=options.segment_bytes if name == options.store else None,
    ) as opened:
        job = LengthJob(
            cluster=cluster,
            setting=Setting(
                keys=options.variant.keys,
                chain_seed=options.variant.chain_seed,
                store=opened.backend,
                save_policy=options.save_policy,
                local_prefix_tokens=options.local_prefix_tokens,
                num_queries=options.num_queries,
                repeat=options.repeat,
                token_seed=token_seed,
                progress=progress,
            ),
            memory_bytes=needed,
            evidence_reason=reason,
            store_settings=opened.settings,
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


def _store_bytes(options: RunOptions, cluster: ClusterLayout) -> int:
    """Memory that the store itself takes of this machine."""
    if options.store == "mooncake" and options.segment_bytes is not None:
        return options.segment_bytes
    return 0 if options.master is not None else arena_bytes(cluster.stored_bytes)
