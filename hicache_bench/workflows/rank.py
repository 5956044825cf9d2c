"""One rank's part in one prefix length: save, look up, restore under each policy, check every byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hicache_bench.engine.controller import HybridKVController
from hicache_bench.engine.lookup import EndpointSearch, look_up_prefix
from hicache_bench.engine.prefix import Prefix, PrefixKeys
from hicache_bench.engine.reports import Lookup, RestoreReport, SaveReport
from hicache_bench.engine.transfer import BATCH_PAGES, BatchHook, SelectiveTransferEngine, Transfer
from hicache_bench.errors import StoreError
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.planning.ledger import volume
from hicache_bench.planning.policy import IntVector, SavePolicy, TransferPolicy
from hicache_bench.planning.resolve import Resolution
from hicache_bench.pools.descriptor import Rank
from hicache_bench.pools.keys import KeyBuilder
from hicache_bench.records.schema import Check, PolicyResult
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.workflows.accounts import policy_result
from hicache_bench.workflows.cluster import Member
from hicache_bench.workflows.meter import Progress
from hicache_bench.workflows.prefix import FixtureBytes, PrefixLayout

if TYPE_CHECKING:
    from hicache_bench.workflows.selection import IndexScorer


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


class Endpoint(NamedTuple):
    """The endpoint of all ranks under one policy.

    ``found_pages`` is what the ``searches`` of the ranks, which ask for what decides, come to.
    """

    resolution: Resolution
    found_pages: int
    searches: Mapping[Rank, EndpointSearch]


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
        fill_batch = None
        if self._in_turn:
            fill_batch = partial(self.fixture.fill_units, host_pools)
        elif setting.moves:
            self.fixture.fill(host_pools)
        with self._controller(host_pools, before_put=fill_batch) as controller:
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
        if len(lost) == sum(self.layout.num_kept.values()):
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

    def search(self, policy: TransferPolicy) -> EndpointSearch:
        """The search for this rank's endpoint by a lookup that asks for nothing else."""
        return EndpointSearch(
            self.layout.pools,
            PrefixKeys(self.setting.keys),
            self.setting.store.batch_exists,
            self.prefix,
            policy,
            local_tokens=self.setting.local_prefix_tokens,
        )

    def restore(
        self, lookup: Lookup, endpoints: Mapping[TransferPolicy, Endpoint]
    ) -> tuple[tuple[PolicyResult, ...], list[Check]]:
        """Restore the endpoint of all ranks under each policy; the results, and what was checked.

        Raises:
            StoreError: the store does not deliver what it promised.
        """
        host_pools = self.layout.host_pools(backed=self.setting.moves)
        watch = _RingWatch(self.fixture, host_pools) if self._in_turn else None
        with self._controller(host_pools, after_get=watch) as controller:
            restorer = _Restorer(self, host_pools, controller, lookup, watch)
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

    @property
    def _in_turn(self) -> bool:
        """Whether a slot serves one unit after another, so that each batch is filled and checked alone."""
        return self.setting.moves and self.layout.ring_pages is not None

    def _controller(
        self,
        host_pools: dict[str, HostPool],
        *,
        before_put: BatchHook | None = None,
        after_get: BatchHook | None = None,
    ) -> HybridKVController:
        setting = self.setting
        return HybridKVController(
            self.member.registry,
            host_pools,
            setting.keys,
            setting.store,
            engine=SelectiveTransferEngine(
                setting.store,
                batch_pages=setting.batch_pages,
                before_put=before_put,
                after_get=after_get,
            ),
        )


@dataclass(slots=True)
class _RingWatch:
    """Checks each batch of a restore through a ring, and poisons the slots before another batch has them."""

    fixture: FixtureBytes
    host_pools: dict[str, HostPool]
    mismatched: list[str] = field(default_factory=list)
    disturbed: list[str] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)

    def __call__(self, arrived: Mapping[str, IntVector]) -> None:
        self.mismatched += self.fixture.mismatched(self.host_pools, arrived)
        self.disturbed += self.fixture.disturbed(self.host_pools, arrived)
        for name, units in arrived.items():
            self.checked[name] += len(units)
            self.host_pools[name].poison()

    def clear(self) -> None:
        """Start again."""
        self.mismatched.clear()
        self.disturbed.clear()
        self.checked.clear()


@dataclass(frozen=True, slots=True)
class _Restorer:
    """Restores into one set of host pools, and what it checked while doing so."""

    job: RankJob
    host_pools: dict[str, HostPool]
    controller: HybridKVController
    lookup: Lookup
    watch: _RingWatch | None
    checks: list[Check] = field(default_factory=list)

    def restore(self, policy: TransferPolicy, endpoint: Endpoint) -> PolicyResult:
        """Restore under ``policy`` as often as asked, each time into poisoned pools; once if only counted."""
        job, setting = self.job, self.job.setting
        plan = self.controller.plan(
            self.lookup, policy, resolution=endpoint.resolution, local_tokens=setting.local_prefix_tokens
        )
        scorer = self._scorer() if setting.num_queries else None
        reports: list[RestoreReport] = []
        for sample in range(setting.repeat if setting.moves else 1):
            setting.progress(f"{job.label}: restoring {policy}, sample {sample + 1}")
            if setting.moves:
                for host_pool in self.host_pools.values():
                    host_pool.poison()
            if self.watch is not None:
                self.watch.clear()
            bytes_before = setting.store.stats.get_bytes
            report = self.controller.restore(self.lookup.prefix, plan, selector=scorer)
            reports.append(report)
            self._check_delivered(report)
            self._check_restore(report, setting.store.stats.get_bytes - bytes_before)
        search = endpoint.searches[job.member.rank]
        return policy_result(reports, scorer.notes if scorer else (), search, measured=setting.moves)

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
        counts = self.job.layout.num_kept
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
        fixture, watch = self.job.fixture, self.watch
        if watch is None:
            mismatched = fixture.mismatched(self.host_pools, report.arrived)
            disturbed = fixture.disturbed(self.host_pools, report.arrived)
        else:
            unchecked = [
                f"{name}: {len(units) - watch.checked[name]} unchecked"
                for name, units in report.arrived.items()
                if len(units) != watch.checked[name]
            ]
            mismatched = [*watch.mismatched, *unchecked]
            # Every batch left its slots poisoned.
            disturbed = [*watch.disturbed, *fixture.disturbed(self.host_pools, {})]
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
