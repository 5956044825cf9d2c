"""One prefix length: save it, forget it, find it, restore it under each policy, check every byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from hicache_bench.engine.controller import HybridKVController, remove_prefix
from hicache_bench.engine.prefix import Prefix
from hicache_bench.engine.reports import Lookup, RestoreReport, SaveReport
from hicache_bench.errors import StoreError
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.planning.resolve import alignment_warning
from hicache_bench.pools.keys import KeyBuilder
from hicache_bench.pools.registry import PoolDescriptorRegistry
from hicache_bench.records.schema import Check, Evidence, LengthResult, PolicyResult
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.units import format_size, format_tokens
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
            restorer = _Restorer(self, fixture, host_pools, controller, lookup)
            policies = tuple(restorer.restore(policy) for policy in TransferPolicy)
        warning = alignment_warning(self.layout.pools, self.layout.num_tokens)
        return LengthResult(
            tokens=self.layout.num_tokens,
            pages=prefix.num_pages,
            evidence=(Evidence.MEASURED if self._moves else Evidence.COUNTED).value,
            evidence_reason=self.evidence_reason,
            memory_bytes=self.memory_bytes,
            saved=saved_pools(saved),
            save_seconds=saved.seconds if self._moves else None,
            lookup_seconds=lookup.seconds if self._moves else None,
            lookup_keys=lookup.keys_asked,
            lookup_calls=lookup.calls,
            stored=stored_amount(self.layout),
            policies=policies,
            checks=(_presence_check(self.layout, lookup), *restorer.checks),
            warnings=(warning,) if warning else (),
        )

    def remove(self) -> None:
        """Take what was saved out of a store that goes on."""
        self.progress("removing what was saved from the cluster")
        prefix = prompt_prefix(self.layout, token_seed=self.token_seed)
        remove_prefix(self.layout.pools, self.keys, self.store, prefix)

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
            failed = sum(volume.num_bytes for volume in saved.failed.values())
            results = {str(result) for pool in saved.transfer.results.values() for result in pool}
            causes = ", ".join(sorted(results - {"ok", "exists"}))
            raise StoreError(
                f"the store kept {saved.stored_pages} of {prefix.num_pages} pages; {format_size(failed)} "
                f"failed with {causes}. Give it more room (--segment, or a segment in the cluster), or use "
                "fewer tokens"
            )
        return saved

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
            self._check_restore(report, job.store.stats.get_bytes - bytes_before)
        return policy_result(reports, scorer.notes, measured=moves)

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


def _presence_check(layout: PrefixLayout, lookup: Lookup) -> Check:
    wrong = [
        f"{pool.name}:{unit}"
        for pool in layout.pools
        for unit in np.flatnonzero(lookup.presence[pool.name] != (layout.slots[pool.name] >= 0)).tolist()
    ]
    return _none_of(
        f"{format_tokens(layout.num_tokens)} tokens: pages saved and not found, or found unsaved", wrong
    )


def _check(name: str, expected: str, actual: str) -> Check:
    return Check(name, expected, actual, expected == actual)


def _none_of(name: str, found: list[str]) -> Check:
    return _check(name, "none", f"{len(found)}: {', '.join(found[:5])}" if found else "none")
