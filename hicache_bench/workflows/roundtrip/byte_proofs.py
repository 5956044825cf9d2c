"""Bytes: save, forget, restore; every restored byte is compared, and what was not asked for is untouched.

The lengths lie around the seam between two store calls, where batched transfers go wrong (case E14).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from hicache_bench.engine.transfer import BATCH_PAGES
from hicache_bench.errors import MemoryBudgetError
from hicache_bench.fixtures.digest import page_digests, pattern_digests
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.planning.policy import IntVector, SavePolicy, StateSave, TransferPolicy
from hicache_bench.planning.resolve import alignment_pages
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.records.proof import Proof
from hicache_bench.records.schema import Check, LengthResult
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.checksum import ChecksumStore
from hicache_bench.units import format_size
from hicache_bench.workflows.cluster import ClusterLayout, Member, lay_out_ranks
from hicache_bench.workflows.length import LengthJob
from hicache_bench.workflows.meter import Progress
from hicache_bench.workflows.prefix import FixtureBytes, PrefixLayout
from hicache_bench.workflows.rank import Setting, none_of
from hicache_bench.workflows.roundtrip.reference import kept_units, planned_units
from hicache_bench.workflows.stores import arena_bytes
from hicache_bench.workflows.variant import Variant

CASES = ("E14", "E17", "E19", "E22", "E25")
MIN_BATCH_PAGES = 2
"""The least that has a page on either side of each seam."""


@dataclass(slots=True)
class Tally:
    """What was compared, over all restores of one length, and what arrived in each."""

    compared_bytes: int = 0
    compare_seconds: float = 0.0
    skipped_pages: int = 0
    arrived: list[Mapping[str, IntVector]] = field(default_factory=list)

    @property
    def gb_per_s(self) -> float:
        """Restored bytes compared per second, 10**9 of them; 0 where none was."""
        return self.compared_bytes / self.compare_seconds / 1e9 if self.compare_seconds else 0.0


class TalliedBytes(FixtureBytes):
    """Known bytes that note how much was compared, and how fast.

    Digests of what each page should hold are made from its pattern, once and before the time is taken.
    """

    def __init__(self, layout: PrefixLayout, seed: int, tally: Tally) -> None:
        super().__init__(layout, seed)
        self._unit_bytes = {pool.name: pool.unit_bytes for pool in layout.pools}
        self._num_slots = layout.num_slots
        self._slots = layout.slots
        self._expected: dict[str, dict[int, int]] = {pool.name: {} for pool in layout.pools}
        self._tally = tally

    def mismatched(self, host_pools: Mapping[str, HostPool], arrived: Mapping[str, IntVector]) -> list[str]:
        for name, units in arrived.items():
            self._expect(host_pools[name], units)
        started = time.perf_counter()
        found = list(
            chain.from_iterable(self._wrong(host_pools[name], units) for name, units in arrived.items())
        )
        tally = self._tally
        tally.compare_seconds += time.perf_counter() - started
        tally.compared_bytes += sum(len(units) * self._unit_bytes[name] for name, units in arrived.items())
        tally.skipped_pages += sum(self._num_slots.values()) - sum(map(len, arrived.values()))
        tally.arrived.append(arrived)
        return found

    def _expect(self, host_pool: HostPool, units: IntVector) -> None:
        name = host_pool.pool.name
        known = self._expected[name]
        fresh = [unit for unit in units.tolist() if unit not in known]
        known.update(zip(fresh, pattern_digests(self.patterns[name], host_pool, fresh), strict=True))

    def _wrong(self, host_pool: HostPool, units: IntVector) -> list[str]:
        name = host_pool.pool.name
        found = page_digests(host_pool, self._slots[name][units].tolist())
        expected = self._expected[name]
        return [
            f"{name}:{unit}"
            for unit, digest in zip(units.tolist(), found, strict=True)
            if digest != expected[unit]
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class BytePlan:
    """The lengths that one preset is tried at, and how its transfers are cut.

    ``batch_pages`` are those of one store call; ``needed_bytes`` is the memory of the longest prefix.
    """

    clusters: tuple[ClusterLayout, ...]
    save_policy: SavePolicy
    batch_pages: int
    needed_bytes: int

    @property
    def stored_bytes(self) -> int:
        """Bytes of the longest prefix in the store."""
        return max(cluster.stored_bytes for cluster in self.clusters)


def seam_lengths(batch_pages: int) -> tuple[int, ...]:
    """Lengths in pages around the first two seams between batches."""
    seams = (batch_pages, 2 * batch_pages)
    return tuple(sorted({1, *(seam + step for seam in seams for step in (-1, 0, 1))}))


def plan_bytes(
    members: Sequence[Member],
    *,
    lengths: Sequence[int] | None,
    batch_pages: int | None,
    memory_bytes: int,
) -> BytePlan:
    """Choose lengths, in pages, whose host pools and store fit in ``memory_bytes``.

    Without ``lengths`` they are those around the seam of ``batch_pages``; without that, batches are halved
    from what engines use until they fit. States are saved at each seam, or only the last where not even the
    smallest batch fits otherwise.

    Raises:
        MemoryBudgetError: nothing fits.
    """
    page_tokens = members[0].registry.registered[0].page_tokens
    sizes = [batch_pages] if batch_pages is not None else _halved()
    if lengths is not None:
        sizes = sizes[:1]
    least: BytePlan | None = None
    for states in (StateSave.EVERY, StateSave.LAST):
        for size in sizes:
            save_policy = SavePolicy(states=states, state_interval_tokens=size * page_tokens)
            pages = sorted(set(lengths if lengths is not None else seam_lengths(size)))
            clusters = tuple(lay_out_ranks(members, count * page_tokens, save_policy) for count in pages)
            needed = max(cluster.host_bytes + arena_bytes(cluster.stored_bytes) for cluster in clusters)
            plan = BytePlan(clusters=clusters, save_policy=save_policy, batch_pages=size, needed_bytes=needed)
            if needed <= memory_bytes:
                return plan
            least = plan if least is None or needed < least.needed_bytes else least
    assert least is not None
    advice = ""
    if lengths is not None or batch_pages is not None:
        advice = f", or {'shorter --lengths' if lengths is not None else 'a smaller --batch-pages'}"
    raise MemoryBudgetError(
        f"prefixes of up to {least.clusters[-1].num_tokens // page_tokens} pages need "
        f"{format_size(least.needed_bytes)} of memory, and {format_size(memory_bytes)} may be taken; give "
        f"more --memory{advice}"
    )


def _halved() -> list[int]:
    sizes = [BATCH_PAGES]
    while sizes[-1] // 2 >= MIN_BATCH_PAGES:
        sizes.append(sizes[-1] // 2)
    return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteJob:
    """Proves one preset's restores on an open store."""

    variant: Variant
    plan: BytePlan
    store: KVStoreBackend
    policies: tuple[TransferPolicy, ...]
    seed: int
    progress: Progress

    def length_job(self, cluster: ClusterLayout, tally: Tally) -> LengthJob:
        """What ``run`` does with a length, with batches of the plan's size."""
        variant, plan = self.variant, self.plan
        return LengthJob(
            cluster=cluster,
            setting=Setting(
                keys=variant.keys,
                chain_seed=variant.chain_seed,
                store=self.store,
                save_policy=plan.save_policy,
                local_prefix_tokens=0,
                num_queries=0,
                repeat=1,
                token_seed=self.seed,
                progress=self.progress,
                batch_pages=plan.batch_pages,
            ),
            memory_bytes=plan.needed_bytes,
            evidence_reason=None,
            store_settings={},
            policies=self.policies,
            fixture=lambda layout, seed: TalliedBytes(layout, seed, tally),
        )

    def claim(self, cluster: ClusterLayout) -> Proof:
        """The proof of one length, of which nothing is checked yet."""
        pages = cluster.num_tokens // cluster.pools[0].page_tokens
        return Proof(
            section="bytes",
            name="1 page" if pages == 1 else f"{pages} pages",
            subject=self.variant.spec.name,
            checks=(),
            cases=CASES,
        )

    def prove(self, cluster: ClusterLayout, job: LengthJob, tally: Tally) -> Proof:
        """Save, forget and restore one length under each policy, on every rank.

        Raises:
            StoreError: the store does not keep what is saved, or does not deliver it.
        """
        started = time.perf_counter()
        cost = _digest_cost(self.store)
        result = job.run()
        restored = sum(len(units) for arrived in tally.arrived for units in arrived.values())
        checks = [
            *result.checks,
            *self._unsaved(cluster),
            none_of("pages restored and not asked for, or the reverse", self._misread(cluster, tally)),
            *self._seams(result),
        ]
        if cluster is self.plan.clusters[-1]:
            # A restore of nothing proves nothing.
            checks.append(
                Check("pages restored of the longest prefix", "at least 1", str(restored), restored > 0)
            )
        return replace(
            self.claim(cluster),
            checks=tuple(checks),
            figures={
                "pages": result.pages,
                "tokens": result.tokens,
                "batch_pages": self.plan.batch_pages,
                "ranks": len(cluster.members),
                "saved": str(self.plan.save_policy),
                "stored_bytes": result.stored.num_bytes,
                "pages_restored": restored,
                "pages_skipped": tally.skipped_pages,
                "bytes_compared": tally.compared_bytes,
                "gb_per_s": round(tally.gb_per_s, 3),
                **{name: value - cost[name] for name, value in _digest_cost(self.store).items()},
            },
            seconds=round(time.perf_counter() - started, 6),
        )

    def _unsaved(self, cluster: ClusterLayout) -> list[Check]:
        """What the save keeps, by rules that share no code with it."""
        expected = _units(cluster, self.plan.save_policy)
        differing = [
            f"{pool.name} on {member.rank}"
            for member, layout in zip(cluster.members, cluster.layouts, strict=True)
            for pool in layout.pools
            if set(layout.kept_units(pool).tolist()) != expected[pool.name]
        ]
        return [none_of("pools of which other pages were saved than the policy keeps", differing)]

    def _misread(self, cluster: ClusterLayout, tally: Tally) -> list[str]:
        """``policy pool:unit`` of what was restored and should not have been, or the reverse."""
        saved = _units(cluster, self.plan.save_policy)
        aligned = alignment_pages(cluster.pools) * cluster.pools[0].page_tokens
        end = cluster.num_tokens // aligned * aligned
        planned: dict[tuple[TransferPolicy, str], set[int]] = {}
        differing = []
        restores = iter(tally.arrived)
        for layout in cluster.layouts:
            for policy in self.policies:
                arrived = next(restores)
                for pool in layout.pools:
                    asked = policy, pool.name
                    if asked not in planned:
                        planned[asked], _ = planned_units(pool, policy, saved[pool.name], end, 0)
                    wrong = planned[asked] ^ set(arrived[pool.name].tolist())
                    differing += [f"{policy} {pool.name}:{unit}" for unit in sorted(wrong)]
        return differing

    def _seams(self, result: LengthResult) -> list[Check]:
        """Each restore of several batches took at least as many store calls."""
        dense = TransferPolicy.DENSE.value
        batches = -(-result.pages // self.plan.batch_pages)
        return [
            Check(
                f"store calls of a dense restore in batches of {self.plan.batch_pages} pages",
                f"at least {batches}",
                str(policy.store_calls),
                policy.store_calls >= batches,
            )
            for rank in result.ranks
            for policy in rank.policies
            if policy.policy == dense and policy.used_tokens == result.tokens
        ]


def _units(cluster: ClusterLayout, policy: SavePolicy) -> dict[str, set[int]]:
    """Units of each pool that a save keeps, by the slow rules."""
    pools: dict[str, KVPoolDescriptor] = {pool.name: pool for pool in cluster.pools}
    return {name: kept_units(pool, policy, cluster.num_tokens) for name, pool in pools.items()}


def _digest_cost(store: KVStoreBackend) -> dict[str, float]:
    """What digests beside the objects have cost so far, where the store keeps them."""
    if not isinstance(store, ChecksumStore):
        return {}
    return {"digest_bytes": store.overhead_bytes, "digest_seconds": store.digest_seconds}
