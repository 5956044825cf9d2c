"""Requests that share some pages and not others, each with bytes of its own: what isolation is tried on.

A request is told by one seed per page: two requests share pages for as long as their seeds agree, tokens and
bytes alike. Another owner (a model, a tenant) has the same tokens and other bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain

import numpy as np

from hicache_bench.engine.controller import HybridKVController, remove_prefix
from hicache_bench.engine.lookup import look_up_prefix, resolve_lookup
from hicache_bench.engine.prefix import Prefix, PrefixKeys
from hicache_bench.engine.reports import Lookup, RestoreReport, SaveReport
from hicache_bench.engine.transfer import Transfer
from hicache_bench.errors import StoreError
from hicache_bench.fixtures.fill import PagePattern, seeded_words, unpoisoned
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.planning.ledger import total_volume, volume
from hicache_bench.planning.policy import SavePolicy, StateSave, TransferPolicy
from hicache_bench.planning.resolve import Resolution, unit_ends
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.keys import KeyBuilder, page_hashes
from hicache_bench.pools.registry import PoolDescriptorRegistry
from hicache_bench.records.schema import Check
from hicache_bench.store.base import KVStoreBackend, Status
from hicache_bench.workflows.prefix import PrefixLayout, build_registry, lay_out
from hicache_bench.workflows.rank import equal, none_of
from hicache_bench.workflows.roundtrip.reference import longest_endpoint, planned_units
from hicache_bench.workflows.variant import Variant

SAVE_ALL = SavePolicy(states=StateSave.ALL)
SEE_STORE = "see that its master is running and reachable, and that it has room"
_OWNER_STRIDE = 1 << 40
_TOKEN_STRIDE = 1 << 28  # more tokens than a request has
_Restrict = Callable[[KVPoolDescriptor], bool]


@dataclass(frozen=True)
class Owner:
    """Who asks: a model on one rank, under its own keys. ``number`` tells its bytes from another owner's."""

    registry: PoolDescriptorRegistry
    keys: KeyBuilder
    chain_seed: str | None
    number: int
    rank: Rank

    @property
    def pools(self) -> tuple[KVPoolDescriptor, ...]:
        """The pools that reach the store."""
        return self.registry.registered

    @property
    def page_tokens(self) -> int:
        """Tokens of a page."""
        return self.pools[0].page_tokens


def owners_of(variant: Variant, number: int) -> list[Owner]:
    """One owner for each rank of a deployment, with one layer of each pool: keys and rules are the same.

    Raises:
        ConfigError: a combination that the engine refuses, or pools without a key.
    """
    return [
        Owner(
            registry=build_registry([_thin(pool) for pool in pools]),
            keys=variant.keys,
            chain_seed=variant.chain_seed,
            number=number,
            rank=rank,
        )
        for rank, pools in variant.pools.items()
    ]


@lru_cache(maxsize=128)
def _pattern(pool: KVPoolDescriptor, seed: int) -> PagePattern:
    return PagePattern(pool, seed)


def _thin(pool: KVPoolDescriptor) -> KVPoolDescriptor:
    components = tuple(
        replace(component, num_layers=min(1, component.num_layers)) for component in pool.components
    )
    return replace(pool, components=components)


@dataclass(frozen=True)
class Request:
    """One prompt of one owner: a seed for each page, and one token more."""

    owner: Owner
    page_seeds: tuple[int, ...]

    @cached_property
    def layout(self) -> PrefixLayout:
        """A host slot for every unit."""
        return lay_out(self.owner.registry, len(self.page_seeds) * self.owner.page_tokens, SAVE_ALL)

    @cached_property
    def prefix(self) -> Prefix:
        """The prompt as the engine sees it."""
        page_tokens = self.owner.page_tokens
        words = [
            seeded_words(seed * _TOKEN_STRIDE + page * page_tokens, page_tokens)
            for page, seed in enumerate(self.page_seeds)
        ]
        return Prefix(
            prompt_tokens=len(words) * page_tokens + 1,
            page_tokens=page_tokens,
            hashes=page_hashes(
                np.concatenate(words).astype(np.uint32), page_tokens, parent=self.owner.chain_seed
            ),
            slots=self.layout.slots,
        )

    @property
    def label(self) -> str:
        """Its length and its rank, for the names of checks."""
        return f"{len(self.page_seeds)} pages on {self.owner.rank}"

    @property
    def all_units(self) -> dict[str, set[int]]:
        """Every unit of each pool."""
        return {name: set(range(len(slots))) for name, slots in self.layout.slots.items()}

    def shared_units(self, num_pages: int, units: Mapping[str, set[int]]) -> dict[str, set[int]]:
        """Those of ``units`` that end within the first pages."""
        return {
            pool.name: {unit for unit in units[pool.name] if (unit + 1) * pool.unit_pages <= num_pages}
            for pool in self.owner.pools
        }

    def save(
        self, store: KVStoreBackend, policy: SavePolicy = SAVE_ALL, *, only: _Restrict | None = None
    ) -> SaveReport:
        """Save from host pools that are gone afterwards; ``only`` some pools.

        Raises:
            StoreError: the store answers with errors, or has no room.
        """
        host_pools = self.layout.host_pools(backed=True)
        for pool, seed, units in self._parts():
            _pattern(pool, seed).write(host_pools[pool.name], units, units)
        prefix = self.prefix
        if only is not None:
            slots = {
                pool.name: prefix.slots[pool.name]
                if only(pool)
                else np.full_like(prefix.slots[pool.name], -1)
                for pool in self.owner.pools
            }
            prefix = replace(prefix, slots=slots)
        with self._controller(host_pools, store) as controller:
            report = controller.save(prefix, policy)
        _check_answers(report.transfer)
        return report

    def look_up(self, store: KVStoreBackend) -> Lookup:
        """Ask the store for everything.

        Raises:
            StoreError: it cannot say.
        """
        lookup = look_up_prefix(self.owner.pools, PrefixKeys(self.owner.keys), store, self.prefix)
        if lookup.errors:
            raise StoreError(f"the store could not say whether it holds {lookup.errors} keys; {SEE_STORE}")
        return lookup

    def remove(self, store: KVStoreBackend) -> int:
        """Take it out of the store; how many of its objects may still be there."""
        return remove_prefix(self.owner.pools, self.owner.keys, store, self.prefix)

    def remove_unit(self, store: KVStoreBackend, pool: KVPoolDescriptor, unit: int) -> None:
        """Take one unit's objects out of the store, whoever reads them."""
        for key in PrefixKeys(self.owner.keys).of_units(pool, self.prefix, np.array([unit])):
            store.remove(key, force=True)

    def endpoint(self, policy: TransferPolicy, units: Mapping[str, set[int]]) -> int:
        """The longest endpoint, in pages, that ``units`` allow, by the slow rules."""
        return longest_endpoint(self.owner.pools, policy, units, len(self.page_seeds))

    def verified(
        self,
        store: KVStoreBackend,
        policies: Sequence[TransferPolicy],
        units: Mapping[str, set[int]],
        *,
        what: str,
    ) -> list[Check]:
        """Look up and restore under each policy: found is ``units``, and every byte is this request's own."""
        lookup = self.look_up(store)
        checks = [none_of(f"{what}: pages found and not stored, or the reverse", _found(lookup, units))]
        for policy in policies:
            resolution = resolve_lookup(self.owner.pools, lookup, policy)
            pages = self.endpoint(policy, units)
            checks += self.restored(store, lookup, policy, resolution, units, pages=pages, what=what)
        return checks

    def restored(
        self,
        store: KVStoreBackend,
        lookup: Lookup,
        policy: TransferPolicy,
        resolution: Resolution,
        units: Mapping[str, set[int]],
        *,
        pages: int,
        what: str,
    ) -> list[Check]:
        """Restore one endpoint, which must be ``pages``, into poisoned pools; what was checked.

        Raises:
            StoreError: the store answers with errors. A miss is no error, and a check finds it.
        """
        host_pools = self.layout.host_pools(backed=True)
        for host_pool in host_pools.values():
            host_pool.poison()
        with self._controller(host_pools, store) as controller:
            plan = controller.plan(lookup, policy, resolution=resolution)
            before = store.stats.get_bytes
            report = controller.restore(self.prefix, plan)
            store_bytes = store.stats.get_bytes - before
        _check_answers(report.transfer)
        expected = {
            pool.name: planned_units(pool, policy, units[pool.name], pages * self.owner.page_tokens, 0)[0]
            for pool in self.owner.pools
        }
        asked = total_volume(volume(pool, len(expected[pool.name])) for pool in self.owner.pools)
        name = f"{what}, {policy} at {self.label}"
        broken = [pool for pool, host_pool in host_pools.items() if not host_pool.guards_intact()]
        used = report.ledger.used_tokens // self.owner.page_tokens
        return [
            equal(f"{name}: pages used", str(pages), str(used)),
            none_of(f"{name}: pages restored and not asked for, or the reverse", _misread(report, expected)),
            none_of(f"{name}: restored pages that differ from its own", self._mismatched(host_pools, report)),
            none_of(f"{name}: skipped pages without their poison", self._disturbed(host_pools, report)),
            none_of(f"{name}: guard zones that were written to", broken),
            equal(f"{name}: bytes by the store's own count", str(asked.num_bytes), str(store_bytes)),
        ]

    def _parts(self) -> Iterator[tuple[KVPoolDescriptor, int, list[int]]]:
        """The units of each pool whose bytes have one seed: that of the page in which they end."""
        for pool in self.owner.pools:
            by_seed: dict[int, list[int]] = {}
            for unit, end in enumerate(unit_ends(pool, len(self.page_seeds)).tolist()):
                by_seed.setdefault(self.page_seeds[end - 1], []).append(unit)
            for seed, units in by_seed.items():
                yield pool, self.owner.number * _OWNER_STRIDE + seed, units

    def _mismatched(self, host_pools: Mapping[str, HostPool], report: RestoreReport) -> list[str]:
        found = []
        for pool, seed, units in self._parts():
            arrived = [unit for unit in report.arrived[pool.name].tolist() if unit in set(units)]
            wrong = _pattern(pool, seed).mismatched(host_pools[pool.name], arrived, arrived)
            found += [f"{pool.name}:{unit}" for unit in wrong]
        return found

    def _disturbed(self, host_pools: Mapping[str, HostPool], report: RestoreReport) -> list[str]:
        found = []
        for pool in self.owner.pools:
            skipped = self.all_units[pool.name] - set(report.arrived[pool.name].tolist())
            found += [f"{pool.name}:{unit}" for unit in unpoisoned(host_pools[pool.name], sorted(skipped))]
        return found

    def _controller(self, host_pools: dict[str, HostPool], store: KVStoreBackend) -> HybridKVController:
        return HybridKVController(self.owner.registry, host_pools, self.owner.keys, store)


def _check_answers(transfer: Transfer) -> None:
    """A store that is gone is told at once: each further call would wait for it again."""
    answers = chain.from_iterable(transfer.results.values())
    bad = [answer for answer in answers if answer.status in (Status.ERROR, Status.NO_SPACE)]
    if bad:
        raise StoreError(f"the store answered {bad[0]} for {len(bad)} objects; {SEE_STORE}")


def _found(lookup: Lookup, units: Mapping[str, set[int]]) -> list[str]:
    """``pool:unit`` of what the lookup says otherwise of."""
    return [
        f"{name}:{unit}"
        for name, present in lookup.presence.items()
        for unit in sorted(units[name] ^ set(np.flatnonzero(present).tolist()))
    ]


def _misread(report: RestoreReport, expected: Mapping[str, set[int]]) -> list[str]:
    return [
        f"{name}:{unit}"
        for name, units in report.arrived.items()
        for unit in sorted(expected[name] ^ set(units.tolist()))
    ]
