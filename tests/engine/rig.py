"""A small hybrid model on an embedded store, for tests of the engine.

Every pool has its host slots in a shuffled order, so that a unit is never taken for its slot, and bytes that
name (pool, component, layer, page). Fresh pools are poisoned. The log holds what the engine saw, faults
included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hicache_bench.engine.controller import HybridKVController, UnitSelector
from hicache_bench.engine.metrics import MetricsSink
from hicache_bench.engine.prefix import Prefix
from hicache_bench.engine.reports import RestoreReport, SaveReport
from hicache_bench.engine.transfer import BATCH_PAGES, SelectiveTransferEngine
from hicache_bench.fixtures.fill import PagePattern
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.planning.policy import IntVector, SavePolicy, StateSave, TransferPolicy
from hicache_bench.planning.resolve import num_units, unit_ends
from hicache_bench.pools.descriptor import IndexSelection, KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.keys import KeyBuilder, NamespacedKeyBuilder, page_hashes
from hicache_bench.pools.names import AttentionType, Layout, Requirement
from hicache_bench.pools.registry import PoolDescriptorRegistry
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.faults import Fault, FaultyStore
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.wrappers import CallLog, CountingWrapper
from hicache_bench.units import MIB
from hicache_bench.workflows.prefix import build_registry

PAGE_TOKENS = 4
SAVE_ALL = SavePolicy(states=StateSave.ALL)
SELECTIVE = TransferPolicy.SELECTIVE


def small(name: str, attention: AttentionType, *components: Component, **fields: Any) -> KVPoolDescriptor:
    return KVPoolDescriptor(
        name=name, attention=attention, page_tokens=PAGE_TOKENS, components=components, **fields
    )


ANCHOR = small("anchor", AttentionType.LOGICAL)
LATENT = small("kv", AttentionType.MLA, Component("k", 2, 4, 6))
INDEX = small("indexer", AttentionType.SPARSE_INDEX, Component("page", 1, 1, 20))
SELECTED = replace(LATENT, selection=IndexSelection(index_pool="indexer", top_k=4))
WINDOW = small(
    "swa",
    AttentionType.SWA,
    Component("k", 2, 4, 8, 2),
    Component("v", 2, 4, 4, 2),
    window_tokens=6,
    engine_window_tokens=9,
)
CHUNK = small("chunked", AttentionType.CHUNKED, Component("k", 1, 4, 8), window_tokens=8)
STATE = small("mamba", AttentionType.RECURRENT, Component("temporal", 3, 1, 9), Component("conv_0", 3, 1, 5))
RATIO = small("c128", AttentionType.COMPRESSED, Component("page", 2, 1, 24), unit_pages=2, partial_units=True)
RING = small("c4_state", AttentionType.COMPRESSOR_STATE, Component("page", 1, 1, 32))
DRAFT = small("draft", AttentionType.FULL, Component("k", 1, 4, 8), required_for=Requirement.SPEED)
KITCHEN_SINK = (ANCHOR, SELECTED, INDEX, WINDOW, CHUNK, STATE, RATIO, RING, DRAFT)


def tokens(num_tokens: int, seed: int = 0) -> npt.NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(0, 1 << 17, num_tokens, dtype=np.uint32)


def shuffled_slots(pool: KVPoolDescriptor, num_pages: int, seed: int) -> IntVector:
    return np.random.default_rng([seed, len(pool.name)]).permutation(num_units(pool, num_pages))


def local_units(pool: KVPoolDescriptor, local_tokens: int) -> int:
    """Units of a pool that lie in the local prefix as a whole."""
    return local_tokens // pool.unit_tokens


def make_keys() -> KeyBuilder:
    return NamespacedKeyBuilder("engine tests")


@dataclass(slots=True)
class Rig:
    """One rank. ``inner`` is the embedded store itself; ``log`` holds the calls that the engine made.

    Two rigs that share ``inner`` are two engines on one store.
    """

    pools: Sequence[KVPoolDescriptor]
    num_pages: int
    faults: Sequence[Fault] = ()
    inner: LocalKVStore = field(default_factory=lambda: LocalKVStore(8 * MIB))
    prompt: npt.NDArray[np.uint32] | None = None
    host_layout: Layout | None = None
    batch_pages: int = BATCH_PAGES
    put_retries: int = 1
    seed: int = 0
    metrics: MetricsSink = field(default_factory=MetricsSink)
    log: CallLog = field(default_factory=CallLog)
    slept: list[float] = field(default_factory=list)
    keys: KeyBuilder = field(init=False)
    registry: PoolDescriptorRegistry = field(init=False)
    host_pools: dict[str, HostPool] = field(init=False)
    patterns: dict[str, PagePattern] = field(init=False)
    store: KVStoreBackend = field(init=False)
    controller: HybridKVController = field(init=False)
    prefix: Prefix = field(init=False)

    def __post_init__(self) -> None:
        self.keys = make_keys()
        self.registry = build_registry(self.pools)
        physical = self.registry.registered
        slots = {pool.name: shuffled_slots(pool, self.num_pages, self.seed) for pool in physical}
        self.host_pools = {
            pool.name: HostPool(
                pool if self.host_layout is None else replace(pool, layout=self.host_layout),
                max(1, len(slots[pool.name])),
            )
            for pool in physical
        }
        for pool in physical:
            # A page in several pieces, or of other order within: the engine only sees its buffers.
            self.host_pools[pool.name].layout = pool.layout.value
        self.poison()
        self.patterns = {pool.name: PagePattern(pool) for pool in physical}
        self.store = CountingWrapper(FaultyStore(self.inner, self.faults, seed=self.seed), self.log)
        engine = SelectiveTransferEngine(
            self.store,
            batch_pages=self.batch_pages,
            put_retries=self.put_retries,
            sleep=self.slept.append,
        )
        self.controller = HybridKVController(
            self.registry, self.host_pools, self.keys, self.store, metrics=self.metrics, engine=engine
        )
        if self.prompt is None:
            self.prompt = tokens(self.num_pages * PAGE_TOKENS)
        self.prefix = Prefix(
            prompt_tokens=len(self.prompt) + 1,
            page_tokens=PAGE_TOKENS,
            hashes=page_hashes(self.prompt, PAGE_TOKENS)[: self.num_pages],
            slots=slots,
        )

    def fill(self) -> None:
        """Put the bytes of every unit that has a slot into it."""
        for name, pattern in self.patterns.items():
            units = np.flatnonzero(self.prefix.slots[name] >= 0)
            pattern.write(self.host_pools[name], units.tolist(), self.prefix.slots[name][units].tolist())

    def poison(self) -> None:
        for host_pool in self.host_pools.values():
            host_pool.poison()

    def save(self, policy: SavePolicy = SAVE_ALL) -> SaveReport:
        """Save a filled prefix, then forget it."""
        self.fill()
        report = self.controller.save(self.prefix, policy)
        self.poison()
        return report

    def restore(
        self,
        policy: TransferPolicy = SELECTIVE,
        *,
        local_tokens: int = 0,
        selector: UnitSelector | None = None,
    ) -> RestoreReport:
        lookup = self.controller.lookup(self.prefix)
        plan = self.controller.plan(lookup, policy, local_tokens=local_tokens)
        return self.controller.restore(self.prefix, plan, selector=selector)

    def wrong(self, name: str, units: Iterable[int]) -> list[int]:
        """The units of a pool whose slot does not hold their bytes."""
        chosen = list(units)
        slots = self.prefix.slots[name][chosen].tolist()
        return self.patterns[name].mismatched(self.host_pools[name], chosen, slots)

    def wrong_arrivals(self, arrived: Mapping[str, IntVector]) -> dict[str, list[int]]:
        """As :meth:`wrong`, for all that a restore says it brought; empty where all is right."""
        found = {name: self.wrong(name, units.tolist()) for name, units in arrived.items()}
        return {name: units for name, units in found.items() if units}

    def key(self, name: str, unit: int, component: int = 0) -> str:
        """The key of one object."""
        pool = self.registry.by_name[name]
        page_hash = self.prefix.hashes[int(unit_ends(pool, self.num_pages)[unit]) - 1]
        return self.keys.templates(pool)[component].key(page_hash)

    def all_keys(self) -> list[str]:
        """The key of every object of the prefix."""
        return [
            self.key(pool.name, unit, component)
            for pool in self.registry.registered
            for unit in range(num_units(pool, self.num_pages))
            for component in range(len(pool.stored_components))
        ]
