"""From what the engine reports to what a record says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from hicache_bench.engine.lookup import EndpointSearch
from hicache_bench.engine.reports import RestoreReport, SaveReport
from hicache_bench.planning.ledger import PoolLedger, Volume, volume
from hicache_bench.planning.plan import PoolPlan
from hicache_bench.planning.policy import TransferPolicy, first_needed_at
from hicache_bench.planning.resolve import num_units
from hicache_bench.records.schema import (
    Amount,
    Evidence,
    PolicyResult,
    PolicyTotal,
    PoolAccount,
    RankResult,
    SavedPool,
)


def amount(of: Volume) -> Amount:
    """A volume, in a record's words."""
    return Amount(pages=of.units, objects=of.objects, num_bytes=of.num_bytes)


def secret_digest(text: str | None) -> str | None:
    """The first 16 hex digits of the sha256 of a text that a record must not hold; None for None."""
    return None if text is None else hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def policy_totals(ranks: Sequence[RankResult]) -> tuple[PolicyTotal, ...]:
    """Each policy over all ranks."""
    return tuple(
        PolicyTotal(
            policy=policies[0].policy,
            hit_tokens=min(policy.hit_tokens for policy in policies),
            used_tokens=min(policy.used_tokens for policy in policies),
            read=Amount(
                pages=sum(policy.read.pages for policy in policies),
                objects=sum(policy.read.objects for policy in policies),
                num_bytes=sum(policy.read.num_bytes for policy in policies),
            ),
        )
        for policies in zip(*(rank.policies for rank in ranks), strict=True)
    )


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


def policy_result(
    reports: Sequence[RestoreReport], notes: Iterable[str], search: EndpointSearch, *, measured: bool
) -> PolicyResult:
    """The samples of one policy; their accounts agree, so that of the last one stands for all.

    ``search`` is that of a lookup which looks for the policy's endpoint alone.
    """
    report = reports[-1]
    ledger = report.ledger
    return PolicyResult(
        policy=ledger.policy.value,
        evidence=(Evidence.MEASURED if measured else Evidence.COUNTED).value,
        hit_tokens=ledger.hit_tokens,
        fulfilled_tokens=ledger.fulfilled_tokens,
        used_tokens=ledger.used_tokens,
        unused_tokens={reason.value: tokens for reason, tokens in ledger.unused_tokens.items()},
        endpoint_keys=search.keys_asked,
        endpoint_calls=search.calls,
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
