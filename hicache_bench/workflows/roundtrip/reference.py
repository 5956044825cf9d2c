"""The rules a second time, slowly: which tokens' state must be there, in plain Python over sets of tokens.

It shares no code with :mod:`hicache_bench.planning`, so that a fault in a rule cannot hide in its own proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hicache_bench.planning.policy import SavePolicy, StateSave, TransferPolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType, Requirement

_WINDOWS = (AttentionType.SWA, AttentionType.CHUNKED)
_STATES = (AttentionType.RECURRENT, AttentionType.COMPRESSOR_STATE)

Units = Mapping[str, set[int]]
"""Pool name to the units that are there."""


def needed_tokens(pool: KVPoolDescriptor, policy: TransferPolicy, end: int) -> set[int]:
    """Tokens whose cached state a continuation from token ``end`` asks of ``pool``.

    ``selective`` asks what attention reads, the others what an engine restores of its trailing pools.
    """
    window = pool.window_tokens or 1
    if pool.attention in (*_WINDOWS, *_STATES) and policy is not TransferPolicy.SELECTIVE:
        units = max(1, _ceil(pool.engine_window_tokens or window, pool.unit_tokens))
        return {token for token in range(end) if token >= end - units * pool.unit_tokens}
    if pool.attention is AttentionType.SWA:
        return {token for token in range(end) if end - token < window}
    if pool.attention is AttentionType.CHUNKED:
        return {token for token in range(end) if token // window == end // window}
    if pool.attention in _STATES:
        return {end - 1} if end else set()
    return set(range(end))


def needed_units(pool: KVPoolDescriptor, policy: TransferPolicy, end: int) -> set[int]:
    """Units that hold the :func:`needed_tokens`."""
    return {token // pool.unit_tokens for token in needed_tokens(pool, policy, end)}


def units_before(pool: KVPoolDescriptor, end: int) -> int:
    """Units of ``pool`` in the first ``end`` tokens; a last incomplete one counts where it may be used."""
    return _ceil(end, pool.unit_tokens) if pool.partial_units else end // pool.unit_tokens


def is_legal(pool: KVPoolDescriptor, policy: TransferPolicy, units: set[int], end: int) -> bool:
    """Whether ``pool`` can be continued from token ``end`` when it has ``units``."""
    if pool.attention is AttentionType.LOGICAL or pool.required_for is Requirement.SPEED:
        return True
    if end % pool.unit_tokens and not pool.partial_units:
        return False
    return needed_units(pool, policy, end) <= units


def longest_endpoint(
    pools: Sequence[KVPoolDescriptor], policy: TransferPolicy, units: Units, limit_pages: int
) -> int:
    """The largest endpoint, in pages up to the limit, that every pool allows: each is tried, from the top."""
    for pages in range(limit_pages, 0, -1):
        if all(is_legal(pool, policy, units[pool.name], pages * pool.page_tokens) for pool in pools):
            return pages
    return 0


def with_local(pools: Iterable[KVPoolDescriptor], units: Units, local_tokens: int) -> Units:
    """``units`` and those that lie whole in the local prefix."""
    return {pool.name: units[pool.name] | set(range(local_tokens // pool.unit_tokens)) for pool in pools}


def planned_units(
    pool: KVPoolDescriptor, policy: TransferPolicy, units: set[int], end: int, local_tokens: int
) -> tuple[set[int], int]:
    """The units that a restore of ``end`` tokens reads, and how many it needs that are not there."""
    count = units_before(pool, end)
    # A unit that ends past the endpoint is used up to there.
    local = {unit for unit in range(count) if min((unit + 1) * pool.unit_tokens, end) <= local_tokens}
    needed = needed_units(pool, policy, count * pool.unit_tokens) - local
    wanted = set(range(count)) - local if policy is TransferPolicy.DENSE else needed
    return wanted & units, len(needed - units)


def useful_units(pool: KVPoolDescriptor, policy: TransferPolicy, end: int) -> set[int]:
    """The units that a continuation from token ``end`` has a use for."""
    count = units_before(pool, end)
    return (
        set(range(count))
        if policy is TransferPolicy.DENSE
        else needed_units(pool, policy, count * pool.unit_tokens)
    )


def kept_units(pool: KVPoolDescriptor, policy: SavePolicy, num_tokens: int) -> set[int]:
    """The units that a save of ``num_tokens`` writes."""
    count = units_before(pool, num_tokens)
    units = set(range(count))
    if pool.attention is AttentionType.RECURRENT and policy.states is not StateSave.ALL:
        interval = policy.state_interval_tokens
        marks = set(range(interval, num_tokens + 1, interval)) if policy.states is StateSave.EVERY else set()
        return {unit for unit in units if unit == count - 1 or _holds(pool, unit, marks)}
    extra = policy.window_extra_pages
    if pool.attention in (*_WINDOWS, AttentionType.COMPRESSOR_STATE) and extra is not None:
        end = count * pool.unit_tokens
        asked = [needed_units(pool, rule, end) | {count} for rule in TransferPolicy]
        first = min(map(min, asked)) - extra
        return {unit for unit in units if unit >= first}
    return units


def _holds(pool: KVPoolDescriptor, unit: int, marks: set[int]) -> bool:
    """Whether one of these token counts is reached within ``unit``."""
    start = unit * pool.unit_tokens
    return not marks.isdisjoint(range(start + 1, start + pool.unit_tokens + 1))


def _ceil(count: int, divisor: int) -> int:
    return -(-count // divisor)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What is known of an object: whose bytes it was put with, and what became of them since."""

    content: int
    intact: bool = True
    whole: bool = True


@dataclass(slots=True)
class ReferenceStore:
    """A store as it ought to be: keys in memory, insert-if-absent, with the damage that was done to it."""

    objects: dict[str, StoredObject] = field(default_factory=dict)

    def put(self, keys: Iterable[str], content: int) -> None:
        """Put objects; those that exist stay as they are."""
        for key in keys:
            self.objects.setdefault(key, StoredObject(content))

    def remove(self, keys: Iterable[str]) -> None:
        """Forget objects."""
        for key in keys:
            self.objects.pop(key, None)

    def unreadable(self, keys: Iterable[str], *, digests: bool) -> set[str]:
        """Objects that no read may bring: those of another size, with digests those of other bytes."""
        known = {key: self.objects[key] for key in keys if key in self.objects}
        return {key for key, found in known.items() if not found.whole or (digests and not found.intact)}

    def wrong(self, keys: Iterable[str], content: int, *, digests: bool) -> set[str]:
        """Objects that a read brings, and that are not ``content``."""
        readable = {key for key in keys if key in self.objects} - self.unreadable(keys, digests=digests)
        return {key for key in readable if self.objects[key] != StoredObject(content)}
