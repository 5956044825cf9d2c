"""Which pools reach the store: register, skip or reject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

from hicache_bench.errors import ConfigError
from hicache_bench.pools import layout as layouts
from hicache_bench.pools.descriptor import KVPoolDescriptor


class Decision(str, Enum):
    """What the registry does with a pool that it accepts; a pool that it rejects raises."""

    REGISTER = "register"
    SKIP = "skip"

    def __str__(self) -> str:
        return self.value


class PoolDescriptorRegistry:
    """The pools of one rank, in the order in which they were added.

    A logical pool (no buffer) is skipped: it is known for routing, and never reaches the store. Its page
    count or bytes are never asked for, since it has none.
    """

    def __init__(self) -> None:
        self._pools: dict[str, KVPoolDescriptor] = {}
        self._folded: dict[str, str] = {}
        self._suffixes: dict[str, str] = {}

    def add(self, pool: KVPoolDescriptor, host_pool: Any = None) -> Decision:
        """Take one pool and say what becomes of it.

        ``host_pool`` may be an engine's own host-pool object, whose ``layout`` and ``kv_buffer`` must then be
        those that the descriptor speaks of.

        Raises:
            LayoutError: a physical pool whose pages are not contiguous, or not in the order described.
            ConfigError: a name, or a key, that another pool already has; pages of another length than
                theirs; a buffer that contradicts the descriptor.
        """
        self._check_collisions(pool)
        self._check_page_tokens(pool)
        if host_pool is not None and (host_pool.kv_buffer is None) != pool.is_logical:
            raise ConfigError(
                f"pool {pool.name!r} is described as {'logical' if pool.is_logical else 'physical'}, but its "
                f"host pool has {'no buffer' if host_pool.kv_buffer is None else 'a buffer'}"
            )
        if not pool.is_logical:
            layouts.check_same(pool.name, pool.layout, pool.layout if host_pool is None else host_pool.layout)
        self._pools[pool.name] = pool
        self._folded[pool.name.casefold()] = pool.name
        for suffix in _key_suffixes(pool):
            self._suffixes[suffix] = pool.name
        return Decision.SKIP if pool.is_logical else Decision.REGISTER

    def _check_collisions(self, pool: KVPoolDescriptor) -> None:
        other = self._folded.get(pool.name.casefold())
        if other is not None:
            raise ConfigError(f"two pools are named {other!r} and {pool.name!r}; pool names must differ")
        for suffix in _key_suffixes(pool):
            if suffix in self._suffixes:
                raise ConfigError(
                    f"pools {self._suffixes[suffix]!r} and {pool.name!r} would both write keys ending in "
                    f"{suffix!r}; rename one of them"
                )

    def _check_page_tokens(self, pool: KVPoolDescriptor) -> None:
        for other in self._pools.values():
            if other.page_tokens != pool.page_tokens:
                raise ConfigError(
                    f"pool {pool.name!r} has pages of {pool.page_tokens} tokens, and pool {other.name!r} of "
                    f"{other.page_tokens}: one prefix has one hash for each page; give a pool with longer "
                    "units the same page_tokens, and unit_pages"
                )

    def check(self) -> None:
        """Refuse a set of pools that stores nothing.

        Raises:
            ConfigError: no pool, or logical ones only. A store would answer "full hit" to such a model.
        """
        if not self.registered:
            raise ConfigError(
                "nothing to store: "
                + ("every pool is logical and owns no buffer" if self._pools else "no pool was added")
                + "; add at least one physical pool"
            )
        for pool in self.registered:
            if pool.derived_from is not None:
                self._check_reference(pool, pool.derived_from, "is derived from")
            if pool.selection is not None:
                self._check_reference(pool, pool.selection.index_pool, "is selected by")

    def _check_reference(self, pool: KVPoolDescriptor, name: str, relation: str) -> None:
        if name not in self._pools:
            raise ConfigError(
                f"pool {pool.name!r} {relation} {name!r}, which is not there; known: {', '.join(self._pools)}"
            )

    @property
    def registered(self) -> tuple[KVPoolDescriptor, ...]:
        """The physical pools."""
        return tuple(pool for pool in self._pools.values() if not pool.is_logical)

    @property
    def skipped(self) -> tuple[KVPoolDescriptor, ...]:
        """The logical pools."""
        return tuple(pool for pool in self._pools.values() if pool.is_logical)

    @property
    def by_name(self) -> Mapping[str, KVPoolDescriptor]:
        """All pools by name, read-only."""
        return MappingProxyType(self._pools)

    def __iter__(self) -> Iterator[KVPoolDescriptor]:
        return iter(self._pools.values())

    def __len__(self) -> int:
        return len(self._pools)


def _key_suffixes(pool: KVPoolDescriptor) -> list[str]:
    """What an underscore-joined key of this pool ends in; ``a_b`` + ``c`` and ``a`` + ``b_c`` collide."""
    return [f"{pool.name}_{component.name}".casefold() for component in pool.stored_components]
