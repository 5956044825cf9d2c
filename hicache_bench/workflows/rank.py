"""One rank's part in one prefix length: save, look up, restore under each policy, check every byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hicache_bench.engine.controller import HybridKVController, look_up_prefix
from hicache_bench.engine.prefix import Prefix, PrefixKeys
from hicache_bench.engine.reports import Lookup, RestoreReport, SaveReport
from hicache_bench.engine.transfer import BATCH_PAGES, SelectiveTransferEngine, Transfer
from hicache_bench.errors import StoreError
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.planning.ledger import volume
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.planning.resolve import Resolution
from hicache_bench.pools.keys import KeyBuilder
from hicache_bench.records.schema import Check, PolicyResult
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.workflows.accounts import policy_result
from hicache_bench.workflows.cluster import Member
from hicache_bench.workflows.prefix import FixtureBytes, PrefixLayout

if TYPE_CHECKING:
    from hicache_bench.workflows.selection import IndexScorer

Progress = Callable[[str], None]


class Setting(NamedTuple):
    """What a run does on every rank, and the open store that they share."""

    keys: KeyBuilder
    chain_seed: str | None
    store: KVStoreBackend
    save_policy: SavePolicy
    local_prefix_tokens: int
    num_queries: int
    repeat: int
    token_seed: int
    progress: Progress
    batch_pages: int = BATCH_PAGES

    @property
    def moves(self) -> bool:
        """Whether bytes are moved, or only counted."""
        return self.store.capabilities.moves_bytes


class RankJob(NamedTuple):
    """What one rank does. ``label`` is the length, and the rank where there are several, for messages.

    ``usable_tokens`` is what a whole save must give back.
    """

    setting: Setting
    member: Member
    layout: PrefixLayout
    prefix: Prefix
    fixture: FixtureBytes
    label: str
    usable_tokens: int

    def save(self) -> SaveReport:
        """Save from host pools that are gone afterwards: a restore can only come from the store.

        Raises:
            StoreError: the store does not keep what is saved.
        """
        setting = self.setting
        setting.progress(f"{self.label}: filling and saving")
        host_pools = self.layout.host_pools(backed=setting.moves)
        if setting.moves:
            self.fixture.fill(host_pools)
        with self._controller(host_pools) as controller:
            saved = controller.save(self.prefix, setting.save_policy)
        if not saved.complete:
            raise StoreError(
                f"{self.label}: the store took the first {saved.stored_pages} of {self.prefix.num_pages} "
                f"pages whole, and the save ended there; {_causes(saved.transfer)}"
            )
        return saved

    def look_up(self) -> Lookup:
        """Ask for everything. A store that cannot answer, or has lost what it took, cannot be measured.

        Raises:
            StoreError: such a store.
        """
        setting = self.setting
        lookup = look_up_prefix(self.layout.pools, PrefixKeys(setting.keys), setting.store, self.prefix)
        if lookup.errors:
            raise StoreError(
                f"{self.label}: the store could not say whether it holds {lookup.errors} keys; {_UNREACHABLE}"
            )
        lost = self._differing(lookup, saved=True)
        if len(lost) == sum(self.layout.num_slots.values()):
            raise StoreError(
                f"{self.label}: not one of the {len(lost)} pages that were saved is found "
                "(asymmetric_keys): the store has dropped them all, or the reader's keys are not the "
                "writer's; compare both with hicache-bench keys"
            )
        if lost:
            raise StoreError(
                f"{self.label}: the store has lost {len(lost)} pages since they were saved "
                f"({', '.join(lost[:5])}); give it more room, or a longer lease"
            )
        return lookup

    def restore(
        self, lookup: Lookup, endpoints: Mapping[TransferPolicy, Resolution]
    ) -> tuple[tuple[PolicyResult, ...], list[Check]]:
        """Restore the endpoint of all ranks under each policy; the results, and what was checked.

        Raises:
            StoreError: the store does not deliver what it promised.
        """
        host_pools = self.layout.host_pools(backed=self.setting.moves)
        with self._controller(host_pools) as controller:
            restorer = _Restorer(self, host_pools, controller, lookup)
            policies = tuple(restorer.restore(policy, found) for policy, found in endpoints.items())
        unsaved = none_of(
            f"{self.label}: pages found that were never saved", self._differing(lookup, saved=False)
        )
        return policies, [unsaved, *restorer.checks]

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
        setting = self.setting
        controller = HybridKVController(
            self.member.registry,
            host_pools,
            setting.keys,
            setting.store,
            engine=SelectiveTransferEngine(setting.store, batch_pages=setting.batch_pages),
        )
        try:
            yield controller
        finally:
            controller.close()


@dataclass(frozen=True, slots=True)
class _Restorer:
    """Restores into one set of host pools, and what it checked while doing so."""

    job: RankJob
    host_pools: dict[str, HostPool]
    controller: HybridKVController
    lookup: Lookup
    checks: list[Check] = field(default_factory=list)

    def restore(self, policy: TransferPolicy, endpoint: Resolution) -> PolicyResult:
        """Restore under ``policy`` as often as asked, each time into poisoned pools; once if only counted."""
        job, setting = self.job, self.job.setting
        plan = self.controller.plan(
            self.lookup, policy, resolution=endpoint, local_tokens=setting.local_prefix_tokens
        )
        scorer = self._scorer() if setting.num_queries else None
        reports: list[RestoreReport] = []
        for sample in range(setting.repeat if setting.moves else 1):
            setting.progress(f"{job.label}: restoring {policy}, sample {sample + 1}")
            if setting.moves:
                for host_pool in self.host_pools.values():
                    host_pool.poison()
            bytes_before = setting.store.stats.get_bytes
            report = self.controller.restore(self.lookup.prefix, plan, selector=scorer)
            reports.append(report)
            self._check_delivered(report)
            self._check_restore(report, setting.store.stats.get_bytes - bytes_before)
        return policy_result(reports, scorer.notes if scorer else (), measured=setting.moves)

    def _scorer(self) -> IndexScorer:
        # Imported here: its tables are only for runs that ask for queries.
        from hicache_bench.workflows.selection import IndexScorer

        job, setting = self.job, self.job.setting
        return IndexScorer(
            job.layout,
            job.fixture.patterns,
            num_queries=setting.num_queries,
            seed=setting.token_seed,
            local_tokens=setting.local_prefix_tokens,
        )

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
                f"{self._label(report)}: the store did not deliver {lost} objects that it promised; "
                f"{_causes(report.transfer)}"
            )

    def _check_restore(self, report: RestoreReport, store_bytes: int) -> None:
        label = self._label(report)
        planned = sum(len(item.units) for item in report.plan.pools)
        arrived = sum(len(units) for units in report.arrived.values())
        self.checks.extend(
            (
                equal(
                    f"{label}: bytes by the store's own count",
                    str(report.ledger.read.num_bytes),
                    str(store_bytes),
                ),
                equal(f"{label}: pages that arrived", str(planned), str(arrived)),
                equal(f"{label}: tokens used", str(self.job.usable_tokens), str(report.ledger.used_tokens)),
                none_of(f"{label}: pools whose account is not what was saved", self._unbalanced(report)),
            )
        )
        if not self.job.setting.moves:
            return
        fixture = self.job.fixture
        mismatched = fixture.mismatched(self.host_pools, report.arrived)
        disturbed = fixture.disturbed(self.host_pools, report.arrived)
        broken = [name for name, host_pool in self.host_pools.items() if not host_pool.guards_intact()]
        self.checks.extend(
            (
                none_of(f"{label}: restored pages that differ from the saved ones", mismatched),
                none_of(f"{label}: skipped pages without their poison", disturbed),
                none_of(f"{label}: guard zones that were written to", broken),
            )
        )

    def _label(self, report: RestoreReport) -> str:
        return f"{report.ledger.policy} at {self.job.label}"


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


def equal(name: str, expected: str, actual: str) -> Check:
    """A check that what was found is what was expected."""
    return Check(name, expected, actual, expected == actual)


def none_of(name: str, found: list[str]) -> Check:
    """A check that nothing was found."""
    return equal(name, "none", f"{len(found)}: {', '.join(found[:5])}" if found else "none")
