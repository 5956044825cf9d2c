"""From what the engine reports to what a record says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from hicache_bench.engine.reports import RestoreReport, SaveReport
from hicache_bench.models.spec import ModelSpec
from hicache_bench.planning.ledger import PoolLedger, Volume, total_volume, volume
from hicache_bench.planning.plan import PoolPlan
from hicache_bench.planning.policy import TransferPolicy, first_needed_at
from hicache_bench.planning.resolve import num_units
from hicache_bench.pools.registry import Decision, PoolDescriptorRegistry
from hicache_bench.records.schema import Amount, PolicyResult, PoolAccount, PoolRecord, SavedPool


def amount(of: Volume) -> Amount:
    """A volume, in a record's words."""
    return Amount(pages=of.units, objects=of.objects, num_bytes=of.num_bytes)


def preset_dict(spec: ModelSpec) -> dict[str, Any]:
    """The resolved preset; a layer is written as the names of what it caches, joined by ``+``."""
    return {**asdict(spec), "layers": ["+".join(names) or "none" for names in spec.layers]}


def pool_records(registry: PoolDescriptorRegistry) -> tuple[PoolRecord, ...]:
    """Every pool of the model, logical ones included."""
    return tuple(
        PoolRecord(
            name=str(pool.name),
            attention=pool.attention.value,
            decision=(Decision.SKIP if pool.is_logical else Decision.REGISTER).value,
            hit_policy=pool.hit_policy.value,
            dtype=pool.dtype,
            layout=pool.layout.value,
            sharding=pool.sharding.value,
            unit_pages=pool.unit_pages,
            unit_bytes=pool.unit_bytes,
            object_bytes={component.name: component.object_bytes for component in pool.stored_components},
            window_tokens=pool.window_tokens,
            engine_window_tokens=pool.engine_window_tokens,
            selected_by=pool.selection.index_pool if pool.selection else None,
        )
        for pool in registry
    )


def stored_amount(report: SaveReport) -> Amount:
    """What the store holds of a prefix, by what it answered to the save."""
    return amount(total_volume((*report.written.values(), *report.existing.values())))


def saved_pools(report: SaveReport) -> tuple[SavedPool, ...]:
    """A save, pool by pool."""
    return tuple(
        SavedPool(
            pool=name,
            written=amount(written),
            existing=amount(report.existing[name]),
            failed=amount(report.failed[name]),
        )
        for name, written in report.written.items()
    )


def policy_result(reports: Sequence[RestoreReport], notes: Iterable[str], *, measured: bool) -> PolicyResult:
    """The samples of one policy; their accounts agree, so that of the last one stands for all."""
    report = reports[-1]
    ledger = report.ledger
    return PolicyResult(
        policy=ledger.policy.value,
        hit_tokens=ledger.hit_tokens,
        fulfilled_tokens=ledger.fulfilled_tokens,
        used_tokens=ledger.used_tokens,
        unused_tokens={reason.value: tokens for reason, tokens in ledger.unused_tokens.items()},
        read=amount(ledger.read),
        pools=tuple(
            _account(plan, account, ledger.policy, report)
            for plan, account in zip(report.plan.pools, ledger.pools, strict=True)
        ),
        seconds=tuple(sample.seconds for sample in reports) if measured else (),
        store_seconds=tuple(sample.transfer.store_seconds for sample in reports) if measured else (),
        selection_seconds=tuple(
            sample.selection_seconds for sample in reports if measured and sample.selection_seconds
        ),
        store_calls=report.transfer.calls,
        notes=tuple(dict.fromkeys(notes)),
    )


def _account(
    plan: PoolPlan, account: PoolLedger, policy: TransferPolicy, report: RestoreReport
) -> PoolAccount:
    end = num_units(plan.pool, report.plan.endpoint_pages)
    needed = (
        account.total
        if policy is TransferPolicy.DENSE
        else volume(plan.pool, end - first_needed_at(plan.pool, policy, end))
    )
    return PoolAccount(
        pool=account.pool,
        total=amount(account.total),
        needed=amount(needed),
        read=amount(account.read),
        skipped={reason.value: amount(skipped) for reason, skipped in account.skipped.items()},
        missed=amount(account.missed),
        failed=amount(account.failed),
        wasted=amount(account.wasted),
        degraded=account.degraded,
    )
