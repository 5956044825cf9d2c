"""How a length gets through the memory that it may take: whole, through a ring, in part, or only counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from hicache_bench.engine.transfer import BATCH_PAGES
from hicache_bench.planning.policy import SavePolicy, StateSave, TransferPolicy
from hicache_bench.planning.resolve import alignment_pages
from hicache_bench.records.schema import LengthResult
from hicache_bench.units import format_size, format_tokens
from hicache_bench.workflows.cluster import ClusterLayout, Member, lay_out_ranks
from hicache_bench.workflows.rank import none_of

EVERY_POLICY = tuple(TransferPolicy)
_NEEDED = SavePolicy(states=StateSave.LAST, window_extra_pages=0)
"""Keeps what the last endpoint needs, and nothing that only ``dense`` reads."""

_NEEDING = (TransferPolicy.HIT_POLICY, TransferPolicy.SELECTIVE)


class Way(NamedTuple):
    """What is moved of a length, under which policies, and the memory that it takes of this machine.

    ``host_bytes`` are one set of host pools, ``store_bytes`` what the store itself has here.
    """

    cluster: ClusterLayout
    save_policy: SavePolicy
    policies: tuple[TransferPolicy, ...]
    host_bytes: int
    store_bytes: int

    @property
    def memory_bytes(self) -> int:
        """All of it."""
        return self.host_bytes + self.store_bytes

    @property
    def moves_all(self) -> bool:
        """Whether every policy is moved, from a store that holds the whole save."""
        return self.policies == EVERY_POLICY

    def describe(self) -> str:
        """In what memory it goes, for a line of progress and the record."""
        ring = self.cluster.layouts[0].ring_pages
        through = f"a ring of {ring} host pages" if ring is not None else "host pools of the whole prefix"
        return (
            f"{format_size(self.memory_bytes)} of memory: {format_size(self.store_bytes)} in the store, "
            f"{format_size(self.host_bytes)} in {through}"
        )


def ways(
    members: Sequence[Member],
    num_tokens: int,
    save_policy: SavePolicy,
    *,
    store_bytes: Callable[[int], int],
    whole_only: bool = False,
) -> Iterator[Way]:
    """Every way to move a prefix, the one that moves and holds most first.

    ``store_bytes`` tells what a store takes here to hold so many. An index that is scored must lie in host
    pools as a whole: ``whole_only`` leaves the rings out.

    A ring has slots for one batch. It is filled batch by batch before each put, and what a get brought is
    verified before the next one. Where even so the store has no room, what hit_policy and selective read is
    saved alone, and dense is not moved.
    """
    cluster = lay_out_ranks(members, num_tokens, save_policy)
    yield _way(cluster, save_policy, EVERY_POLICY, store_bytes)
    if whole_only:
        return
    cluster = lay_out_ranks(members, num_tokens, save_policy, ring_pages=BATCH_PAGES)
    yield _way(cluster, save_policy, EVERY_POLICY, store_bytes)
    pages = num_tokens // cluster.pools[0].page_tokens
    if pages % alignment_pages(cluster.pools) == 0:
        # At any other length the last endpoint is not the longest legal one.
        cluster = lay_out_ranks(members, num_tokens, _NEEDED, ring_pages=BATCH_PAGES)
        yield _way(cluster, _NEEDED, _NEEDING, store_bytes)


def combined(counted: LengthResult, moved: LengthResult) -> LengthResult:
    """The accounts of a whole save, counted, with what was measured of the policies that were moved.

    Checks hold what was moved to what was counted, pool by pool.
    """
    checks = [*counted.checks, *moved.checks]
    ranks = []
    for whole, part in zip(counted.ranks, moved.ranks, strict=True):
        samples = {policy.policy: policy for policy in part.policies}
        policies = []
        for account in whole.policies:
            sample = samples.get(account.policy)
            if sample is None:
                policies.append(account)
                continue
            differing = [
                one.pool
                for one, other in zip(account.pools, sample.pools, strict=True)
                if one.read != other.read
            ]
            place = f"{account.policy} at {format_tokens(counted.tokens)} tokens on {whole.rank}"
            checks.append(none_of(f"{place}: pools of which more or less was moved than counted", differing))
            policies.append(
                replace(
                    account,
                    evidence=sample.evidence,
                    seconds=sample.seconds,
                    store_seconds=sample.store_seconds,
                )
            )
        ranks.append(replace(whole, policies=tuple(policies)))
    return replace(
        counted,
        store=moved.store,
        store_settings=moved.store_settings,
        memory_bytes=moved.memory_bytes,
        ranks=tuple(ranks),
        checks=tuple(checks),
        warnings=tuple(dict.fromkeys((*counted.warnings, *moved.warnings))),
    )


def _way(
    cluster: ClusterLayout,
    save_policy: SavePolicy,
    policies: tuple[TransferPolicy, ...],
    store_bytes: Callable[[int], int],
) -> Way:
    return Way(cluster, save_policy, policies, cluster.host_bytes, store_bytes(cluster.stored_bytes))
