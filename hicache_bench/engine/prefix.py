"""A prompt's prefix as the engine sees it, and the keys of its units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hicache_bench.planning.policy import BoolVector, IntVector
from hicache_bench.planning.resolve import ends_of, num_units, unit_ends
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.keys import KeyBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A prompt's prefix and where its pages lie in the host pools.

    ``hashes[i]`` is the hash of page ``first_page + i``. ``slots`` gives, for each physical pool, the host
    slot of every unit, or -1 where the host holds none. Pages below ``first_page`` are not looked up: their
    bytes are local, and ``parent`` is the hash of the last of them, from which the chain continues.
    ``built_keys`` are filled by :class:`PrefixKeys`, by builder and pool: ranks that share a prefix have
    pools of one name with different keys.
    """

    prompt_tokens: int
    page_tokens: int
    hashes: Sequence[str] = field(repr=False)
    slots: Mapping[str, IntVector] = field(repr=False)
    first_page: int = 0
    parent: str | None = None
    built_keys: dict[tuple[KeyBuilder, KVPoolDescriptor], list[str]] = field(
        default_factory=dict, repr=False, compare=False, init=False
    )

    @property
    def num_pages(self) -> int:
        """Whole pages of the prefix."""
        return self.first_page + len(self.hashes)

    def is_keyed(self, pool: KVPoolDescriptor) -> BoolVector:
        """One flag per unit of ``pool``: it ends beyond ``first_page``, so that its key is known."""
        keyed: BoolVector = unit_ends(pool, self.num_pages) > self.first_page
        return keyed


class PrefixKeys:
    """Keys of a prefix's units, built once: save, lookup and restore use the same ones."""

    def __init__(self, builder: KeyBuilder) -> None:
        self._builder = builder

    def per_unit(self, pool: KVPoolDescriptor) -> int:
        """Keys of one unit: its components that have bytes."""
        return len(self._builder.templates(pool))

    def asked(self, pool: KVPoolDescriptor, prefix: Prefix) -> list[str]:
        """Keys of every unit that ends beyond ``first_page``, unit by unit."""
        keys = prefix.built_keys.get((self._builder, pool))
        if keys is None:
            keys = self._build(pool, prefix, unit_ends(pool, prefix.num_pages)[prefix.is_keyed(pool)])
            prefix.built_keys[self._builder, pool] = keys
        return keys

    def of_units(self, pool: KVPoolDescriptor, prefix: Prefix, units: IntVector) -> list[str]:
        """Keys of ``units``, which rise; the caller changes none. A few are built alone, and not kept."""
        if not len(units):
            return []
        num_keyed = num_units(pool, prefix.num_pages) - prefix.first_page // pool.unit_pages
        if len(units) < num_keyed and (self._builder, pool) not in prefix.built_keys:
            return self._build(pool, prefix, ends_of(pool, units, prefix.num_pages))
        keys, step = self.asked(pool, prefix), self.per_unit(pool)
        skipped = num_units(pool, prefix.num_pages) - len(keys) // step
        first, last = int(units[0]) - skipped, int(units[-1]) - skipped
        if len(units) * step == len(keys):
            return keys
        if last - first + 1 == len(units):
            return keys[first * step : (last + 1) * step]
        return [key for unit in (units - skipped).tolist() for key in keys[unit * step : (unit + 1) * step]]

    def _build(self, pool: KVPoolDescriptor, prefix: Prefix, ends: IntVector) -> list[str]:
        hashes = prefix.hashes
        if len(ends) and int(ends[-1]) - int(ends[0]) + 1 == len(ends):
            hashes = hashes[int(ends[0]) - 1 - prefix.first_page : int(ends[-1]) - prefix.first_page]
        else:
            hashes = [hashes[index] for index in (ends - 1 - prefix.first_page).tolist()]
        return self._builder.keys(pool, hashes)
