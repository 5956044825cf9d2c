"""One prefix length: save it, forget it, find it, restore it under each policy, check every byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from hicache_bench.engine.controller import HybridKVController, remove_prefix
from hicache_bench.engine.prefix import Prefix
from hicache_bench.engine.reports import Lookup, RestoreReport, SaveReport
from hicache_bench.engine.transfer import Transfer
from hicache_bench.errors import StoreError
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.planning.ledger import volume
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.planning.resolve import alignment_pages, alignment_warning
from hicache_bench.pools.keys import KeyBuilder
from hicache_bench.pools.registry import PoolDescriptorRegistry
from hicache_bench.records.schema import Check, Evidence, LengthResult, PolicyResult
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.units import format_tokens
from hicache_bench.workflows.accounts import policy_result, saved_pools, stored_amount
from hicache_bench.workflows.prefix import FixtureBytes, PrefixLayout, prompt_prefix
from hicache_bench.workflows.selection import IndexScorer

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthJob:
    """What a run does with one prefix length on an open store.

    ``evidence_reason`` says why the bytes are counted and not moved, where they are.
    """

    layout: PrefixLayout
    registry: PoolDescriptorRegistry
    keys: KeyBuilder
    store: KVStoreBackend
    save_policy: SavePolicy
    local_prefix_tokens: int
    num_queries: int
    repeat: int
    token_seed: int
    memory_bytes: int
    evidence_reason: str | None
    store_settings: Mapping[str, str | int | float]
    progress: Progress

    def run(self) -> LengthResult:
        """Do it.

        Raises:
            StoreError: the store does not keep what is saved.
        """
        prefix = prompt_prefix(self.layout, token_seed=self.token_seed)
        fixture = FixtureBytes(self.layout, self.token_seed)
        saved = self._save(prefix, fixture)
        host_pools = self.layout.host_pools(backed=self._moves)
        with self._controller(host_pools) as controller:
            lookup = controller.lookup(prefix)
            self._check_lookup(lookup)
            restorer = _Restorer(self, fixture, host_pools, controller, lookup)
            policies = tuple(restorer.restore(policy) for policy in TransferPolicy)
        warning = alignment_warning(self.layout.pools, self.layout.num_tokens)
        return LengthResult(
            tokens=self.layout.num_tokens,
            pages=prefix.num_pages,
            evidence=(Evidence.MEASURED if self._moves else Evidence.COUNTED).value,
            evidence_reason=self.evidence_reason,
            store=self.store.capabilities.name,
            store_settings=self.store_settings,
            memory_bytes=self.memory_bytes,
            saved=saved_pools(saved),
            save_seconds=saved.seconds if self._moves else None,
            lookup_seconds=lookup.seconds if self._moves else None,
            lookup_keys=lookup.keys_asked,
            lookup_calls=lookup.calls,
            stored=stored_amount(saved),
            policies=policies,
            checks=(self._unsaved_check(lookup), *restorer.checks),
            warnings=(warning,) if warning else (),
        )

    def remove(self) -> int:
        """Take what was saved out of a store that goes on; return how many objects may still be there."""
        self.progress("removing what was saved from the cluster")
        prefix = prompt_prefix(self.layout, token_seed=self.token_seed)
        return remove_prefix(self.layout.pools, self.keys, self.store, prefix)

    @property
    def label(self) -> str:
        """The length, as messages name it."""
        return f"{format_tokens(self.layout.num_tokens)} tokens"

    @property
    def _moves(self) -> bool:
        return self.store.capabilities.moves_bytes

    def _save(self, prefix: Prefix, fixture: FixtureBytes) -> SaveReport:
        """Save from host pools that are gone afterwards: a restore can only come from the store."""
        self.progress(f"{self.label}: filling and saving")
        host_pools = self.layout.host_pools(backed=self._moves)
        if self._moves:
            fixture.fill(host_pools)
        with self._controller(host_pools) as controller:
            saved = controller.save(prefix, self.save_policy)
        if not saved.complete:
            raise StoreError(
                f"the store took the first {saved.stored_pages} of {prefix.num_pages} pages whole, and the "
                f"save ended there; {_causes(saved.transfer)}"
            )
        return saved

    def _check_lookup(self, lookup: Lookup) -> None:
        """A store that cannot answer, or has lost what it took a moment ago, has nothing to be measured."""
        if lookup.errors:
            raise StoreError(f"the store could not say whether it holds {lookup.errors} keys; {_UNREACHABLE}")
        lost = self._differing(lookup, saved=True)
        if lost:
            raise StoreError(
                f"the store has lost {len(lost)} pages since they were saved ({', '.join(lost[:5])}); "
                "give it more room, or a longer lease"
            )

    def _unsaved_check(self, lookup: Lookup) -> Check:
        return _none_of(
            f"{self.label}: pages found that were never saved", self._differing(lookup, saved=False)
        )

    def _differing(self, lookup: Lookup, *, saved: bool) -> list[str]:
        """``pool:unit`` of the units that are (not) ``saved``, and that the lookup says otherwise of."""
        return [
            f"{pool.name}:{unit}"
            for pool in self.layout.pools
            for unit in np.flatnonzero(
                (self.layout.is_kept(pool) == saved) & (lookup.presence[pool.name] != saved)
            ).tolist()
        ]

    @contextmanager
    def _controller(self, host_pools: dict[str, HostPool]) -> Iterator[HybridKVController]:
        controller = HybridKVController(self.registry, host_pools, self.keys, self.store)
        try:
            yield controller
        finally:
            controller.close()


@dataclass(frozen=True, slots=True)
class _Restorer:
    """Restores into one set of host pools, and what it checked while doing so."""

    job: LengthJob
    fixture: FixtureBytes
    host_pools: dict[str, HostPool]
    controller: HybridKVController
    lookup: Lookup
    checks: list[Check] = field(default_factory=list)

    def restore(self, policy: TransferPolicy) -> PolicyResult:
        """Restore under ``policy`` as often as asked, each time into poisoned pools; once if only counted."""
        job = self.job
        moves = job.store.capabilities.moves_bytes
        plan = self.controller.plan(self.lookup, policy, local_tokens=job.local_prefix_tokens)
        scorer = IndexScorer(
            job.layout,
            self.fixture.patterns,
            num_queries=job.num_queries,
            seed=job.token_seed,
            local_tokens=job.local_prefix_tokens,
        )
        reports: list[RestoreReport] = []
        for sample in range(job.repeat if moves else 1):
            job.progress(f"{job.label}: restoring {policy}, sample {sample + 1}")
            if moves:
                for host_pool in self.host_pools.values():
                    host_pool.poison()
            bytes_before = job.store.stats.get_bytes
            report = self.controller.restore(
                self.lookup.prefix, plan, selector=scorer if job.num_queries else None
            )
            reports.append(report)
            self._check_delivered(report)
            self._check_restore(report, job.store.stats.get_bytes - bytes_before)
        return policy_result(reports, scorer.notes, measured=moves)

    def _usable_tokens(self) -> int:
        """What a prefix that was saved whole must give back: all of it, but for the pools' own alignment."""
        layout = self.job.layout
        aligned = alignment_pages(layout.pools) * layout.pools[0].page_tokens
        return layout.num_tokens // aligned * aligned

    def _unbalanced(self, report: RestoreReport) -> list[str]:
        counts = self.job.layout.num_slots
        pools = {pool.name: pool for pool in self.job.layout.pools}
        return [
            account.pool
            for account in report.ledger.pools
            if account.total != volume(pools[account.pool], counts[account.pool])
        ]

    def _check_delivered(self, report: RestoreReport) -> None:
        accounts = report.ledger.pools
        lost = sum(account.missed.objects + account.failed.objects for account in accounts)
        if lost:
            raise StoreError(
                f"{report.ledger.policy} at {self.job.label}: the store did not deliver {lost} objects that "
                f"it promised; {_causes(report.transfer)}"
            )

    def _check_restore(self, report: RestoreReport, store_bytes: int) -> None:
        label = f"{report.ledger.policy} at {self.job.label}"
        planned = sum(len(item.units) for item in report.plan.pools)
        arrived = sum(len(units) for units in report.arrived.values())
        self.checks.extend(
            (
                _check(
                    f"{label}: bytes by the store's own count",
                    str(report.ledger.read.num_bytes),
                    str(store_bytes),
                ),
                _check(f"{label}: pages that arrived", str(planned), str(arrived)),
                _check(f"{label}: tokens used", str(self._usable_tokens()), str(report.ledger.used_tokens)),
                _none_of(f"{label}: pools whose account is not what was saved", self._unbalanced(report)),
            )
        )
        if not self.job.store.capabilities.moves_bytes:
            return
        mismatched = self.fixture.mismatched(self.host_pools, report.arrived)
        disturbed = self.fixture.disturbed(self.host_pools, report.arrived)
        broken = [name for name, host_pool in self.host_pools.items() if not host_pool.guards_intact()]
        self.checks.extend(
            (
                _none_of(f"{label}: restored pages that differ from the saved ones", mismatched),
                _none_of(f"{label}: skipped pages without their poison", disturbed),
                _none_of(f"{label}: guard zones that were written to", broken),
            )
        )


_UNREACHABLE = "see that its master is running and reachable"


def _causes(transfer: Transfer) -> str:
    """What the store answered, and what to do about it."""
    answers = Counter(str(result) for results in transfer.results.values() for result in results)
    bad = {answer: count for answer, count in answers.items() if answer not in ("ok", "exists")}
    told = ", ".join(f"{count} x {answer}" for answer, count in sorted(bad.items()))
    if "miss" in bad:
        return f"its answers: {told}. It has evicted them: give it more room, or a longer lease"
    if "no_space" in bad:
        room = "--segment, or a segment in the cluster"
        return f"its answers: {told}. Give it more room ({room}), or use fewer tokens"
    return f"its answers: {told}. {_UNREACHABLE.capitalize()}"


def _check(name: str, expected: str, actual: str) -> Check:
    return Check(name, expected, actual, expected == actual)


def _none_of(name: str, found: list[str]) -> Check:
    return _check(name, "none", f"{len(found)}: {', '.join(found[:5])}" if found else "none")
