"""One request on a store that can be made to break, and what a restore of it came to."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hicache_bench.engine.controller import HybridKVController, UnitSelector
from hicache_bench.engine.reports import Lookup, RestoreReport, SaveReport
from hicache_bench.engine.transfer import BATCH_PAGES, SelectiveTransferEngine
from hicache_bench.errors import StoreUnavailableError
from hicache_bench.planning.plan import TransferPlan
from hicache_bench.planning.policy import SavePolicy, StateSave, TransferPolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.store.base import MISS, OK, KVStoreBackend
from hicache_bench.store.checksum import DIGEST_BYTES, ChecksumStore, Digest
from hicache_bench.store.faults import Fault, FaultyStore
from hicache_bench.workflows.prefix import FixtureBytes, PrefixLayout, build_registry, prompt_prefix
from hicache_bench.workflows.roundtrip.reference import Units, units_before

SAVE_ALL = SavePolicy(states=StateSave.ALL)
STORE_BYTES = 64 << 20
"""Room for what the rigs of one run store at once: a few MiB, far below the watermark of eviction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a restore is asked for."""

    policy: TransferPolicy = TransferPolicy.SELECTIVE
    local_tokens: int = 0
    host_capacity_pages: int | None = None
    threshold_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A restore and all that is known of it from outside the engine.

    ``held`` are the keys that the store held just before, by its own answer below every wrapper. ``wrong``
    are the restored units (``pool:unit``) whose bytes are not those that were saved, ``disturbed`` the slots
    that were to stay as they were and did not.
    """

    asked: Asked
    held: frozenset[str]
    lookup: Lookup
    plan: TransferPlan
    report: RestoreReport
    store_bytes: int
    wrong: tuple[str, ...]
    disturbed: tuple[str, ...]
    seconds: float

    @property
    def used_tokens(self) -> int:
        """Where the model resumes."""
        return self.report.ledger.used_tokens


class Rig:
    """One prompt's prefix of one model on a store. Units lie in shuffled slots, none where its number says.

    The engine sees ``store``: the given one, with faults, and with digests if a ``digest`` is given. Rigs of
    one ``namespace`` and ``seed`` have the same keys; ``content`` tells their bytes apart. A ``whole_prompt``
    ends where the prefix ends, and so must recompute its last page.
    """

    def __init__(
        self,
        pools: Sequence[KVPoolDescriptor],
        num_pages: int,
        inner: KVStoreBackend,
        namespace: str,
        *,
        seed: int = 0,
        content: int = 0,
        digest: Digest | None = None,
        batch_pages: int = BATCH_PAGES,
        put_retries: int = 1,
        whole_prompt: bool = False,
    ) -> None:
        registry = build_registry(pools)
        self.pools = registry.registered
        self.page_tokens = self.pools[0].page_tokens
        self.num_pages = num_pages
        self.num_tokens = num_pages * self.page_tokens
        self.matchable_pages = num_pages - 1 if whole_prompt else num_pages
        self.inner = inner
        layout = self._lay_out(seed)
        prefix = prompt_prefix(layout, token_seed=seed)
        self.prefix = replace(prefix, prompt_tokens=self.num_tokens + (not whole_prompt))
        self._digest_bytes = DIGEST_BYTES if digest else 0
        self.units: dict[tuple[str, int], tuple[str, ...]] = {}
        self.sizes: dict[str, int] = {}
        self._name_objects(NamespacedKeyBuilder(namespace))
        self.host_pools = layout.host_pools(backed=True)
        self.fixture = FixtureBytes(layout, content)
        self.faulty = FaultyStore(inner, ())
        self._checksum = ChecksumStore(self.faulty, digest) if digest else None
        self.store: KVStoreBackend = self._checksum or self.faulty
        engine = SelectiveTransferEngine(
            self.store, batch_pages=batch_pages, put_retries=put_retries, sleep=_no_wait
        )
        keys = NamespacedKeyBuilder(namespace)
        self.controller = HybridKVController(registry, self.host_pools, keys, self.store, engine=engine)

    def close(self) -> None:
        """Let go of the store, which stays open and keeps what was saved."""
        self.controller.close()
        if self._checksum is not None:
            self._checksum.detach()

    def save(
        self, policy: SavePolicy = SAVE_ALL, faults: Sequence[Fault] = (), *, seed: int = 0
    ) -> SaveReport:
        """Save the whole prefix from filled host pools."""
        self.fixture.fill(self.host_pools)
        self.faulty.arm(faults, seed=seed)
        try:
            return self.controller.save(self.prefix, policy)
        finally:
            self.faulty.arm(())

    def restore(
        self,
        asked: Asked,
        faults: Sequence[Fault] = (),
        *,
        seed: int = 0,
        selector: UnitSelector | None = None,
    ) -> Outcome:
        """Restore into poisoned host pools, with these faults from the lookup on."""
        held = self.held()
        for host_pool in self.host_pools.values():
            host_pool.poison()
        self.faulty.arm(faults, seed=seed)
        bytes_before = self.store.stats.get_bytes
        started = time.perf_counter()
        try:
            lookup = self.controller.lookup(self.prefix)
            plan = self.controller.plan(
                lookup,
                asked.policy,
                local_tokens=asked.local_tokens,
                host_capacity_pages=asked.host_capacity_pages,
                threshold_tokens=asked.threshold_tokens,
            )
            report = self.controller.restore(self.prefix, plan, selector=selector)
        finally:
            self.faulty.arm(())
        seconds = time.perf_counter() - started
        planned = {item.pool.name: item.units for item in plan.pools}
        broken = [f"{name}:guard" for name, pool in self.host_pools.items() if not pool.guards_intact()]
        return Outcome(
            asked=asked,
            held=held,
            lookup=lookup,
            plan=plan,
            report=report,
            store_bytes=self.store.stats.get_bytes - bytes_before,
            wrong=tuple(self.fixture.mismatched(self.host_pools, report.arrived)),
            disturbed=(*self.fixture.disturbed(self.host_pools, planned), *broken),
            seconds=seconds,
        )

    def held(self) -> frozenset[str]:
        """The keys that the store itself holds, asked below every wrapper.

        Raises:
            StoreUnavailableError: it cannot say.
        """
        keys = list(self.sizes)
        results = self.inner.batch_exists(keys)
        errors = len(results) - results.count(OK) - results.count(MISS)
        if errors:
            raise StoreUnavailableError(
                f"the store could not say whether it holds {errors} keys; see that its master is running and "
                "reachable"
            )
        return frozenset(key for key, result in zip(keys, results, strict=True) if result is OK)

    def keys_of(self, pool: str, *units: int) -> tuple[str, ...]:
        """The keys of some units of a pool."""
        return tuple(key for unit in units for key in self.units[pool, unit])

    def whole_units(self, keys: Iterable[str]) -> Units:
        """The units whose every object is among ``keys``."""
        present = set(keys)
        whole: dict[str, set[int]] = {pool.name: set() for pool in self.pools}
        for (pool, unit), names in self.units.items():
            if present.issuperset(names):
                whole[pool].add(unit)
        return whole

    def units_with(self, keys: Iterable[str]) -> set[str]:
        """``pool:unit`` of the units that have an object among ``keys``."""
        chosen = set(keys)
        return {f"{pool}:{unit}" for (pool, unit), names in self.units.items() if chosen.intersection(names)}

    def stored_bytes(self, key: str) -> int:
        """Bytes of an object as the store holds it, its digest included."""
        return self.sizes[key] + self._digest_bytes

    def forget(self) -> None:
        """Take what was saved out of the store, leased or not. The first error ends it: so do the next."""
        for key in self.sizes:
            if self.inner.remove(key, force=True) not in (OK, MISS):
                break

    def _lay_out(self, seed: int) -> PrefixLayout:
        chance = random.Random(seed)  # noqa: S311 -- a shuffle that must repeat
        slots = {}
        for pool in self.pools:
            order = list(range(units_before(pool, self.num_tokens)))
            chance.shuffle(order)
            slots[pool.name] = np.array(order, dtype=np.int64)
        return PrefixLayout(pools=self.pools, num_tokens=self.num_tokens, slots=slots)

    def _name_objects(self, keys: NamespacedKeyBuilder) -> None:
        """The key of each object, put together one by one and not as the engine does it."""
        for pool in self.pools:
            templates = keys.templates(pool)
            for unit in range(units_before(pool, self.num_tokens)):
                end = min((unit + 1) * pool.unit_pages, self.num_pages)
                names = tuple(template.key(self.prefix.hashes[end - 1]) for template in templates)
                self.units[pool.name, unit] = names
                self.sizes.update(
                    (name, template.component.object_bytes)
                    for name, template in zip(names, templates, strict=True)
                )


def _no_wait(_seconds: float) -> None:
    """A put is tried again at once: nothing here needs time to heal."""
