"""One rank's pools in one process of a bench: filled to save from, poisoned to restore into."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np

from hicache_bench.engine.controller import HybridKVController, remove_prefix
from hicache_bench.engine.prefix import Prefix, PrefixKeys
from hicache_bench.engine.reports import Lookup, RestoreReport, SaveReport
from hicache_bench.engine.transfer import SelectiveTransferEngine, Transfer
from hicache_bench.errors import StoreError
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.planning.plan import TransferPlan
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.planning.resolve import alignment_pages
from hicache_bench.pools.keys import KeyBuilder
from hicache_bench.store.base import MISS, OK, KVStoreBackend
from hicache_bench.workflows.cluster import Member
from hicache_bench.workflows.prefix import FixtureBytes, PrefixLayout, prompt_prefix

_KEYS_PER_QUESTION = 1 << 15
_MORE_ROOM = "give it more room (--segment), or a longer lease"


class ClientLostError(StoreError):
    """A client that cannot go on, where another one may: poisoned, or its master or its peer is gone."""


@dataclass(frozen=True, slots=True)
class Presence:
    """What a store answered about keys: how many were asked for, how many it holds."""

    asked: int
    held: int


class RankSide:
    """The pools of one rank. ``keys`` and ``store`` may be timed; ``batch_pages`` are those of one call."""

    def __init__(
        self,
        member: Member,
        layout: PrefixLayout,
        keys: KeyBuilder,
        store: KVStoreBackend,
        *,
        save_policy: SavePolicy,
        batch_pages: int,
        chain_seed: str | None,
    ) -> None:
        self.member = member
        self.layout = layout
        self._keys = keys
        self._store = store
        self._save_policy = save_policy
        self._batch_pages = batch_pages
        self._chain_seed = chain_seed
        aligned = alignment_pages(layout.pools) * layout.pools[0].page_tokens
        self.usable_tokens = layout.num_tokens // aligned * aligned

    def prefix(self, seed: int) -> Prefix:
        """The prefix with the tokens of ``seed``."""
        return prompt_prefix(self.layout, token_seed=seed, chain_seed=self._chain_seed)

    @contextmanager
    def filled(self, seed: int) -> Iterator[HostSet]:
        """Host pools that hold the known bytes of ``seed``."""
        with self._host_set() as hosts:
            FixtureBytes(self.layout, seed).fill(hosts.pools)
            yield hosts

    @contextmanager
    def empty(self) -> Iterator[HostSet]:
        """Host pools that hold poison."""
        with self._host_set() as hosts:
            for host_pool in hosts.pools.values():
                host_pool.poison()
            yield hosts

    @contextmanager
    def _host_set(self) -> Iterator[HostSet]:
        pools = self.layout.host_pools(backed=True)
        engine = SelectiveTransferEngine(self._store, batch_pages=self._batch_pages)
        controller = HybridKVController(self.member.registry, pools, self._keys, self._store, engine=engine)
        with ExitStack() as stack:
            stack.callback(controller.close)
            yield HostSet(pools, controller)

    def save(self, hosts: HostSet, prefix: Prefix) -> SaveReport:
        """Save it whole.

        Raises:
            ClientLostError: the store answered errors.
            StoreError: it has no room.
        """
        report = hosts.controller.save(prefix, self._save_policy)
        if not report.complete:
            raise _lost("the store did not keep what was saved", report.transfer)
        return report

    def ask(self, prefix: Prefix) -> Presence:
        """Ask the store for every key that a save of the prefix writes.

        Raises:
            ClientLostError: it could not say.
        """
        builder = PrefixKeys(self._keys)
        keys = [
            key
            for pool in self.layout.pools
            for key in builder.of_units(pool, prefix, self.layout.kept_units(pool))
        ]
        held = missing = 0
        for start in range(0, len(keys), _KEYS_PER_QUESTION):
            answers = self._store.batch_exists(keys[start : start + _KEYS_PER_QUESTION])
            held += answers.count(OK)
            missing += answers.count(MISS)
        if held + missing != len(keys):
            raise ClientLostError(
                f"the store could not say whether it holds {len(keys) - held - missing} keys"
            )
        return Presence(len(keys), held)

    def remove(self, prefix: Prefix) -> int:
        """Take the prefix's objects out of the store; how many may still be there."""
        return remove_prefix(self.layout.pools, self._keys, self._store, prefix)

    def check_lookup(self, lookup: Lookup) -> None:
        """The store must know of everything that was saved.

        Raises:
            ClientLostError: it could not say.
            StoreError: it has lost some of it.
        """
        _check_answers(lookup)
        lost = sum(
            int((self.layout.is_kept(pool) & ~lookup.presence[pool.name]).sum()) for pool in self.layout.pools
        )
        if lost:
            raise StoreError(f"the store has lost {lost} pages since they were saved; {_MORE_ROOM}")

    def check_endpoint(self, lookup: Lookup, hit_pages: int) -> None:
        """A lookup of what decides must find the whole prefix.

        Raises:
            ClientLostError: the store could not say.
            StoreError: it has lost some of it.
        """
        _check_answers(lookup)
        hit_tokens = hit_pages * self.layout.pools[0].page_tokens
        if hit_tokens != self.usable_tokens:
            raise StoreError(
                f"a lookup found {hit_tokens} of {self.usable_tokens} tokens that were saved; {_MORE_ROOM}"
            )

    def check_restore(self, report: RestoreReport, plan: TransferPlan) -> None:
        """Every unit of the plan must have arrived.

        Raises:
            ClientLostError: the store answered errors.
            StoreError: it has lost some of it.
        """
        planned = sum(len(item.units) for item in plan.pools)
        arrived = sum(len(units) for units in report.arrived.values())
        if arrived != planned:
            raise _lost(f"{planned - arrived} of {planned} pages did not arrive", report.transfer)

    def mismatched(self, hosts: HostSet, report: RestoreReport, seed: int) -> list[str]:
        """``pool:unit`` of every restored unit whose bytes are not those of ``seed``, and broken guards."""
        wrong = FixtureBytes(self.layout, seed).mismatched(hosts.pools, report.arrived)
        return wrong + [
            f"{name}:guard" for name, host_pool in hosts.pools.items() if not host_pool.guards_intact()
        ]


@dataclass(frozen=True, slots=True)
class HostSet:
    """One set of host pools and the controller over them."""

    pools: dict[str, HostPool]
    controller: HybridKVController

    def poison(self) -> None:
        """Overwrite every page."""
        for host_pool in self.pools.values():
            host_pool.poison()

    def copy_from(self, source: HostSet) -> None:
        """Copy every buffer of another set: what no store on this machine can beat."""
        for name, host_pool in self.pools.items():
            for to, come_from in zip(
                host_pool.kv_buffer or (), source.pools[name].kv_buffer or (), strict=True
            ):
                np.copyto(to, come_from)


def without_keys(prefix: Prefix) -> Prefix:
    """The prefix as a new request has it: its hashes are known, its keys not yet built."""
    return replace(prefix)


def only_pool(plan: TransferPlan, pool: str, *, first_unit: bool = False) -> TransferPlan:
    """The part of a plan that reads one pool, or one unit of it."""
    items = [item for item in plan.pools if item.pool.name == pool]
    if first_unit:
        items = [replace(item, units=item.units[:1]) for item in items]
    return replace(plan, pools=tuple(items))


def _check_answers(lookup: Lookup) -> None:
    if lookup.errors:
        raise ClientLostError(f"the store could not say whether it holds {lookup.errors} keys")


def _lost(what: str, transfer: Transfer) -> StoreError:
    """A full or an evicting store stays so for the next client; anything else may be this client's alone."""
    counts: dict[str, int] = {}
    for results in transfer.results.values():
        for result in results:
            counts[str(result)] = counts.get(str(result), 0) + 1
    told = ", ".join(f"{count} x {answer}" for answer, count in sorted(counts.items()))
    if "no_space" in counts:
        return StoreError(f"{what}: {told}. Give it more room (--segment), or use fewer tokens")
    if "miss" in counts:
        return StoreError(f"{what}: {told}. It has evicted them: give it more room, or a longer lease")
    return ClientLostError(f"{what}: {told}")
