"""A prefix of a model, laid out in host pools: what a server would hold before it saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hicache_bench.engine.prefix import Prefix
from hicache_bench.errors import InputError, MemoryBudgetError
from hicache_bench.fixtures.fill import PagePattern, seeded_words, unpoisoned
from hicache_bench.fixtures.host_pool import HostPool, host_bytes
from hicache_bench.planning.policy import BoolVector, IntVector, SavePolicy
from hicache_bench.planning.resolve import num_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.keys import page_hashes
from hicache_bench.pools.registry import PoolDescriptorRegistry
from hicache_bench.units import format_size, format_tokens
from hicache_bench.workflows.memory import MEMORY_SHARE, usable_memory_bytes

_BOOKKEEPING_BYTES = 600
"""Of this process for each object, whatever its size: its key, its slot, its place in plan and ledger.

Measured: 440 where 1,048,576 pages have two objects each, 550 where 262,144 have four.
"""
_ALWAYS_THERE = 256 << 20
_NO_UNITS = np.zeros(0, dtype=np.int64)
_TOKEN_STRIDE = np.uint32(2_654_435_761)  # odd: a walk through all 32-bit words before it repeats
_LENGTH_STRIDE = 0xD1B54A32D192ED03  # odd and large: the counters of two lengths lie far apart


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixLayout:
    """Which units of each pool a save keeps, and the host slot of each: one slot per kept unit, no more.

    With ``ring_pages`` no pool has more slots than that, and kept units take them in turn: a slot then serves
    one unit of each batch of so many pages.
    """

    pools: tuple[KVPoolDescriptor, ...]
    num_tokens: int
    slots: Mapping[str, IntVector]
    ring_pages: int | None = None

    @property
    def num_kept(self) -> dict[str, int]:
        """Units of each pool that a save keeps."""
        return {name: int((slots >= 0).sum()) for name, slots in self.slots.items()}

    @property
    def num_slots(self) -> dict[str, int]:
        """Host slots of each pool."""
        most = self.ring_pages
        return {name: kept if most is None else min(kept, most) for name, kept in self.num_kept.items()}

    @property
    def host_bytes(self) -> int:
        """Memory of one set of host pools."""
        counts = self.num_slots
        return sum(host_bytes(pool, counts[pool.name]) for pool in self.pools)

    @property
    def stored_bytes(self) -> int:
        """Bytes that the store holds once everything is saved."""
        counts = self.num_kept
        return sum(counts[pool.name] * pool.unit_bytes for pool in self.pools)

    def is_kept(self, pool: KVPoolDescriptor) -> BoolVector:
        """One flag per unit of ``pool``: a save keeps it."""
        kept: BoolVector = self.slots[pool.name] >= 0
        return kept

    def kept_units(self, pool: KVPoolDescriptor) -> IntVector:
        """Units of ``pool`` that have a slot."""
        return np.flatnonzero(self.is_kept(pool))

    def host_pools(self, *, backed: bool) -> dict[str, HostPool]:
        """Fresh host pools."""
        counts = self.num_slots
        return {pool.name: HostPool(pool, counts[pool.name], backed=backed) for pool in self.pools}


def lay_out(
    registry: PoolDescriptorRegistry, num_tokens: int, policy: SavePolicy, *, ring_pages: int | None = None
) -> PrefixLayout:
    """Give a slot to every unit that ``policy`` keeps of a prefix; with ``ring_pages``, in turn.

    Raises:
        InputError: a prefix that is shorter than a page.
        MemoryBudgetError: so long that even its keys do not fit in memory.
    """
    pools = registry.registered
    page_tokens = pools[0].page_tokens
    num_pages = num_tokens // page_tokens
    if num_pages < 1:
        raise InputError(
            f"a prefix of {format_tokens(num_tokens)} tokens is shorter than a page of {page_tokens}; "
            f"give --tokens {page_tokens} or more"
        )
    _check_bookkeeping(pools, num_pages)
    slots = {}
    for pool in pools:
        kept = policy.saved_units(pool, num_units(pool, num_pages))
        slots[pool.name] = np.where(kept, (np.cumsum(kept) - 1) % (ring_pages or len(kept) or 1), -1)
    return PrefixLayout(pools=pools, num_tokens=num_tokens, slots=slots, ring_pages=ring_pages)


def _check_bookkeeping(pools: Sequence[KVPoolDescriptor], num_pages: int) -> None:
    """Refuse a length that this process could not even count: the system would kill it half-way."""
    objects = sum(num_units(pool, num_pages) * len(pool.stored_components) for pool in pools)
    needed = objects * _BOOKKEEPING_BYTES
    if needed > _ALWAYS_THERE and needed > (usable := usable_memory_bytes()):
        raise MemoryBudgetError(
            f"the keys and places of {objects:,} objects take about {format_size(needed)} of memory, and "
            f"this machine can give {format_size(usable)} ({MEMORY_SHARE:.0%} of what is available); use "
            "fewer --tokens or more --page-tokens"
        )


def prompt_prefix(layout: PrefixLayout, *, token_seed: int, chain_seed: str | None = None) -> Prefix:
    """The prompt that asks for the prefix: seeded tokens, one more than the prefix has.

    ``chain_seed`` is the first link of its hash chain, that of an adapter or a salt.
    """
    page_tokens = layout.pools[0].page_tokens
    # The length enters the seed, so that prefixes of one run share no page.
    start = seeded_words((token_seed << 32) ^ (layout.num_tokens * _LENGTH_STRIDE), 1).astype(np.uint32)
    tokens = np.arange(layout.num_tokens, dtype=np.uint32) * _TOKEN_STRIDE + start
    return Prefix(
        prompt_tokens=layout.num_tokens + 1,
        page_tokens=page_tokens,
        hashes=page_hashes(tokens, page_tokens, parent=chain_seed),
        slots=layout.slots,
    )


class FixtureBytes:
    """The known bytes of a prefix: writes them, and checks what a restore brought."""

    def __init__(self, layout: PrefixLayout, seed: int) -> None:
        self._layout = layout
        self._seed = seed

    @cached_property
    def patterns(self) -> Mapping[str, PagePattern]:
        """The pattern of each pool; a count that scores no index never needs them."""
        return {pool.name: PagePattern(pool, self._seed) for pool in self._layout.pools}

    def fill(self, host_pools: Mapping[str, HostPool]) -> None:
        """Write every kept unit into its slot."""
        self.fill_units(host_pools, {pool.name: self._layout.kept_units(pool) for pool in self._layout.pools})

    def fill_units(self, host_pools: Mapping[str, HostPool], units: Mapping[str, IntVector]) -> None:
        """Write these units into their slots."""
        for name, chosen in units.items():
            slots = self._layout.slots[name][chosen]
            self.patterns[name].write(host_pools[name], chosen.tolist(), slots.tolist())

    def mismatched(self, host_pools: Mapping[str, HostPool], arrived: Mapping[str, IntVector]) -> list[str]:
        """``pool:unit`` of every restored unit whose bytes are not those that were saved."""
        return [
            f"{name}:{unit}"
            for name, units in arrived.items()
            for unit in self.patterns[name].mismatched(
                host_pools[name], units.tolist(), self._layout.slots[name][units].tolist()
            )
        ]

    def disturbed(self, host_pools: Mapping[str, HostPool], arrived: Mapping[str, IntVector]) -> list[str]:
        """``pool:slot`` of every slot that was not restored and yet holds something else than poison."""
        disturbed: list[str] = []
        for pool in self._layout.pools:
            restored = self._layout.slots[pool.name][arrived.get(pool.name, _NO_UNITS)]
            untouched = np.setdiff1d(np.arange(self._layout.num_slots[pool.name]), restored)
            disturbed += [
                f"{pool.name}:{slot}" for slot in unpoisoned(host_pools[pool.name], untouched.tolist())
            ]
        return disturbed


def build_registry(pools: Sequence[KVPoolDescriptor]) -> PoolDescriptorRegistry:
    """Register a model's pools.

    Raises:
        ConfigError: pools that collide, cannot be stored, or store nothing.
    """
    registry = PoolDescriptorRegistry()
    for pool in pools:
        registry.add(pool)
    registry.check()
    return registry
