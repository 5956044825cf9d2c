"""One prefix length: every rank saves it, every rank finds it, every rank restores it under each policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import TypeVar

from hicache_bench.engine.lookup import find_endpoint, resolve_lookup
from hicache_bench.engine.prefix import Prefix
from hicache_bench.engine.reports import Lookup, SaveReport
from hicache_bench.planning.ledger import Volume, total_volume, volume
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.planning.resolve import alignment_pages, alignment_warning, legal_alike, resolve_ranks
from hicache_bench.records.schema import Check, Evidence, LengthResult, RankResult
from hicache_bench.units import format_tokens
from hicache_bench.workflows.accounts import amount, policy_totals, saved_pools
from hicache_bench.workflows.cluster import ClusterLayout, Member, remove_prefixes
from hicache_bench.workflows.prefix import FixtureBytes, PrefixLayout, prompt_prefix
from hicache_bench.workflows.rank import Endpoint, RankJob, Setting, equal

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthJob:
    """What a run does with one prefix length on an open store, one rank after the other.

    ``evidence_reason`` says why the bytes are counted and not moved, where they are. ``fixture`` makes the
    known bytes of a rank's prefix from its layout and the seed of the tokens.
    """

    cluster: ClusterLayout
    setting: Setting
    memory_bytes: int
    evidence_reason: str | None
    store_settings: Mapping[str, str | int | float]
    policies: tuple[TransferPolicy, ...] = tuple(TransferPolicy)
    fixture: Callable[[PrefixLayout, int], FixtureBytes] = FixtureBytes

    def run(self) -> LengthResult:
        """Do it.

        Raises:
            StoreError: the store does not keep what is saved, or does not deliver it.
        """
        jobs = self._jobs()
        saves = [self._alone(job, job.save()) for job in jobs]
        lookups, endpoints = self._found(jobs)
        ranks: list[RankResult] = []
        checks = [*self._write_checks(saves), *starmap(self._search_check, endpoints.items())]
        for job, saved, lookup in zip(jobs, saves, lookups, strict=True):
            policies, checked = self._alone(job, job.restore(lookup, endpoints))
            checks += checked
            ranks.append(
                RankResult(
                    rank=str(job.member.rank),
                    saved=saved_pools(saved),
                    save_seconds=saved.seconds if self.setting.moves else None,
                    lookup_seconds=lookup.seconds if self.setting.moves else None,
                    lookup_keys=lookup.keys_asked,
                    lookup_calls=lookup.calls,
                    policies=policies,
                )
            )
        warning = alignment_warning(self.cluster.pools, self.cluster.num_tokens)
        return LengthResult(
            tokens=self.cluster.num_tokens,
            pages=jobs[0].prefix.num_pages,
            evidence=(Evidence.MEASURED if self.setting.moves else Evidence.COUNTED).value,
            evidence_reason=self.evidence_reason,
            store=self.setting.store.capabilities.name,
            store_settings=self.store_settings,
            memory_bytes=self.memory_bytes,
            stored=amount(
                total_volume(_stored(job.member, saved) for job, saved in zip(jobs, saves, strict=True))
            ),
            policies=policy_totals(ranks),
            ranks=tuple(ranks),
            checks=tuple(checks),
            warnings=(warning,) if warning else (),
        )

    def verify(self) -> tuple[Check, ...]:
        """Restore, on every rank, what another process has saved; what was checked.

        Raises:
            StoreError: the store does not hold it, or does not deliver it.
        """
        jobs = self._jobs()
        lookups, endpoints = self._found(jobs)
        checks: list[Check] = []
        for job, lookup in zip(jobs, lookups, strict=True):
            checks += self._alone(job, job.restore(lookup, endpoints))[1]
        return tuple(checks)

    def remove(self) -> int:
        """Take what was saved out of a store that goes on; return how many objects may still be there."""
        setting = self.setting
        setting.progress("removing what was saved from the cluster")
        owned = [member.owned for member in self.cluster.members]
        return remove_prefixes(zip(owned, self._prefixes(), strict=True), setting.keys, setting.store)

    def _found(self, jobs: Sequence[RankJob]) -> tuple[list[Lookup], dict[TransferPolicy, Endpoint]]:
        """What each rank finds, and the endpoint of all of them under each policy."""
        lookups = [self._alone(job, job.look_up()) for job in jobs]
        endpoints: dict[TransferPolicy, Endpoint] = {}
        for policy in self.policies:
            # Where the same endpoints are legal the answer is the same one, and so are the questions.
            known = (
                found
                for other, found in endpoints.items()
                if legal_alike(self.cluster.pools, jobs[0].prefix.num_pages, policy, other)
            )
            endpoints[policy] = next(known, None) or self._endpoint(jobs, lookups, policy)
        return lookups, endpoints

    def _jobs(self) -> list[RankJob]:
        cluster = self.cluster
        label = f"{format_tokens(cluster.num_tokens)} tokens"
        aligned = alignment_pages(cluster.pools) * cluster.pools[0].page_tokens
        return [
            RankJob(
                setting=self.setting,
                member=member,
                layout=layout,
                prefix=prefix,
                fixture=self.fixture(layout, self.setting.token_seed),
                label=f"{label} on {member.rank}" if self._is_shared else label,
                usable_tokens=cluster.num_tokens // aligned * aligned,
            )
            for member, layout, prefix in zip(cluster.members, cluster.layouts, self._prefixes(), strict=True)
        ]

    def _prefixes(self) -> list[Prefix]:
        """One prompt; every rank has its own slots and keys."""
        first, *others = self.cluster.layouts
        setting = self.setting
        prefix = prompt_prefix(first, token_seed=setting.token_seed, chain_seed=setting.chain_seed)
        return [prefix, *(replace(prefix, slots=layout.slots) for layout in others)]

    @property
    def _is_shared(self) -> bool:
        return len(self.cluster.members) > 1

    def _alone(self, job: RankJob, result: _Result) -> _Result:
        """``result``; the keys of one rank of many are not kept while the others work."""
        if self._is_shared:
            job.prefix.built_keys.clear()
        return result

    def _endpoint(
        self, jobs: Sequence[RankJob], lookups: Sequence[Lookup], policy: TransferPolicy
    ) -> Endpoint:
        local_tokens = self.setting.local_prefix_tokens
        resolution = resolve_ranks(
            [
                resolve_lookup(job.layout.pools, lookup, policy, local_tokens=local_tokens)
                for job, lookup in zip(jobs, lookups, strict=True)
            ]
        )
        searches = {job.member.rank: job.search(policy) for job in jobs}
        return Endpoint(resolution, find_endpoint(list(searches.values())), searches)

    def _search_check(self, policy: TransferPolicy, endpoint: Endpoint) -> Check:
        """A lookup that asks for what decides comes to the endpoint of the one that asked for everything."""
        page_tokens = self.cluster.pools[0].page_tokens
        return equal(
            f"{policy} at {format_tokens(self.cluster.num_tokens)} tokens: hit of a lookup of what decides",
            str(endpoint.resolution.hit_pages * page_tokens),
            str(endpoint.found_pages * page_tokens),
        )

    def _write_checks(self, saves: Sequence[SaveReport]) -> list[Check]:
        """Among several ranks: each object has one writer."""
        if not self._is_shared:
            return []
        expected = total_volume(
            volume(pool, layout.num_kept[pool.name])
            for member, layout in zip(self.cluster.members, self.cluster.layouts, strict=True)
            for pool in member.owned
        )
        written = total_volume(part for saved in saves for part in saved.written.values())
        name = f"{format_tokens(self.cluster.num_tokens)} tokens: objects written by all ranks, each once"
        return [equal(name, str(expected.objects), str(written.objects))]


def _stored(member: Member, saved: SaveReport) -> Volume:
    """What the store holds of the pools that ``member`` writes, by what it answered."""
    return total_volume(saved.written[pool.name] + saved.existing[pool.name] for pool in member.owned)
