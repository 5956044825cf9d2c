"""Which endpoint of a prompt can be restored: the largest one that is legal in every pool on every rank.

Never the minimum of per-pool maxima: windows and states leave holes, so each pool has a *set* of legal
endpoints, and the answer is the maximum of their intersection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import lcm

import numpy as np

from hicache_bench.errors import ConfigError
from hicache_bench.planning.policy import BoolVector, IntVector, TransferPolicy, first_needed, index_dtype
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import HitPolicy
from hicache_bench.units import format_tokens

Presence = Mapping[str, BoolVector]
"""Pool name to one flag per unit: all components of the unit are there, on this rank."""


def matchable_pages(prompt_tokens: int, page_tokens: int) -> int:
    """Longest endpoint that a prompt of ``prompt_tokens`` may use: at least one token is recomputed."""
    return max(0, prompt_tokens - 1) // page_tokens


def num_units(pool: KVPoolDescriptor, num_pages: int) -> int:
    """Units of ``pool`` in a prefix; a last incomplete unit exists only where it may be used in part."""
    return -(-num_pages // pool.unit_pages) if pool.partial_units else num_pages // pool.unit_pages


def unit_ends(pool: KVPoolDescriptor, num_pages: int) -> IntVector:
    """Endpoint, in pages, under which each unit is stored: its key is the hash of the page before it."""
    return ends_of(pool, np.arange(num_units(pool, num_pages)), num_pages)


def ends_of(pool: KVPoolDescriptor, units: IntVector, num_pages: int) -> IntVector:
    """:func:`unit_ends` of some ``units``."""
    return np.minimum((units + 1) * pool.unit_pages, num_pages)


def legal_endpoints(
    pool: KVPoolDescriptor, present: BoolVector, policy: TransferPolicy, num_pages: int
) -> BoolVector:
    """One flag for each endpoint ``0..num_pages``: whether ``pool`` can restore it from ``present``.

    Endpoint 0 is always legal. A pool that constrains nothing (logical, ``speed``) allows every endpoint.

    Raises:
        ConfigError: ``present`` has not one flag per unit.
    """
    if not pool.constrains:
        return np.ones(num_pages + 1, dtype=np.bool_)
    units = num_units(pool, num_pages)
    if len(present) != units:
        raise ConfigError(f"pool {pool.name!r} has {units} units in {num_pages} pages, not {len(present)}")
    legal_units = _legal_units(pool, present, policy)
    if pool.unit_pages == 1:
        return legal_units
    pages = np.arange(num_pages + 1, dtype=np.int64)
    if pool.partial_units:
        return legal_units[-(-pages // pool.unit_pages)]
    legal: BoolVector = (pages % pool.unit_pages == 0) & legal_units[pages // pool.unit_pages]
    return legal


def _legal_units(pool: KVPoolDescriptor, present: BoolVector, policy: TransferPolicy) -> BoolVector:
    """Flags of the endpoints after ``0..len(present)`` units: no needed unit is missing."""
    num_present = len(present)
    gap = int(np.argmin(present)) if num_present and not present.all() else num_present
    if gap == num_present or pool.hit_policy is HitPolicy.ALL_PAGES:
        # Before the first gap every endpoint is legal; past it, none that needs all pages.
        legal = np.zeros(num_present + 1, dtype=np.bool_)
        legal[: gap + 1] = True
        return legal
    ends = np.arange(num_present + 1, dtype=index_dtype(pool, num_present))
    last_gap = np.zeros_like(ends)  # endpoint just after the last missing unit below each endpoint; 0: none
    np.multiply(ends[1:], ~present, out=last_gap[1:])
    np.maximum.accumulate(last_gap, out=last_gap)
    windowed: BoolVector = last_gap <= first_needed(pool, policy, ends)
    return windowed


def legal_alike(
    pools: Iterable[KVPoolDescriptor], num_pages: int, first: TransferPolicy, second: TransferPolicy
) -> bool:
    """Whether two policies make the same endpoints legal whatever a store holds: they need the same units."""
    for pool in pools:
        if not pool.constrains:
            continue
        units = num_units(pool, num_pages)
        ends = np.arange(units + 1, dtype=index_dtype(pool, units))
        if not np.array_equal(first_needed(pool, first, ends), first_needed(pool, second, ends)):
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What a lookup promises.

    ``hit_pages`` is the usable endpoint, ``legal`` the flags of every endpoint that was looked at, of which
    those up to ``matchable`` leave a token to recompute;
    ``best_pages`` each pool's own best, as far as it was asked, ``limited_by`` the pools whose own best, or
    whose holes, keep the endpoint from being longer. ``replay_boundary`` says that a longer endpoint was
    legal, but would leave the prompt without a token to recompute.
    """

    hit_pages: int
    legal: BoolVector = field(repr=False)
    matchable: int
    best_pages: Mapping[str, int] = field(default_factory=dict)
    limited_by: tuple[str, ...] = ()
    replay_boundary: bool = False


def resolve(
    pools: Sequence[KVPoolDescriptor],
    presence: Presence,
    policy: TransferPolicy,
    num_pages: int,
    *,
    matchable: int | None = None,
    local_tokens: int = 0,
    asked: Presence | None = None,
) -> Resolution:
    """Largest endpoint that is legal in all ``pools``, at most ``matchable`` (default ``num_pages``).

    Whole units below ``local_tokens`` are there whatever the store says. A unit that was not ``asked`` for
    (default: all were) is neither there nor missing: it makes no endpoint legal, and its pool limits none.

    A pool that is missing from ``presence`` was *not reported*, which is not the same as "0 hits": if it
    declares ``derived_from``, that pool's presence stands for it.

    Raises:
        ConfigError: a constraining pool was not reported and derives from none that was.
    """
    legal_by_pool = {
        pool.name: legal_endpoints(pool, _present(pool, presence, local_tokens), policy, num_pages)
        for pool in pools
        if pool.constrains
    }
    found = _resolution(legal_by_pool, num_pages, num_pages if matchable is None else matchable)
    if asked is None or all(flags.all() for flags in asked.values()):
        return found
    possible = {name: present | ~asked[name] for name, present in presence.items()}
    at_best = resolve(pools, possible, policy, num_pages, matchable=matchable, local_tokens=local_tokens)
    return replace(found, best_pages=at_best.best_pages, limited_by=at_best.limited_by)


def resolve_ranks(resolutions: Sequence[Resolution]) -> Resolution:
    """Largest endpoint that is legal on every rank: an intersection of sets, not a minimum of maxima.

    Raises:
        ConfigError: no rank reported, or ranks looked at prefixes of different lengths. An empty set on a
            rank (nothing legal but 0) is an answer; a rank without an answer is not.
    """
    if not resolutions:
        raise ConfigError("no rank reported its legal endpoints")
    lengths = {len(resolution.legal) for resolution in resolutions}
    if len(lengths) > 1:
        raise ConfigError(f"ranks looked at different numbers of endpoints: {sorted(lengths)}")
    legal = reduce(np.logical_and, (resolution.legal for resolution in resolutions))
    matchable = min(resolution.matchable for resolution in resolutions)
    limited = {name for resolution in resolutions for name in resolution.limited_by}
    best: dict[str, int] = {}
    for resolution in resolutions:
        for name, pages in resolution.best_pages.items():
            best[name] = min(best.get(name, pages), pages)
    return Resolution(
        hit_pages=_largest(legal[: matchable + 1]),
        legal=legal,
        matchable=matchable,
        best_pages=best,
        limited_by=tuple(sorted(limited)),
        replay_boundary=_largest(legal) > matchable,
    )


def alignment_pages(pools: Iterable[KVPoolDescriptor]) -> int:
    """Pages between endpoints that the units of all constraining pools allow."""
    return lcm(*(pool.unit_pages for pool in pools if pool.constrains and not pool.partial_units))


def alignment_warning(pools: Sequence[KVPoolDescriptor], num_tokens: int) -> str | None:
    """Say so when no endpoint of a prefix can be legal because a unit is longer than it; else None."""
    tokens = alignment_pages(pools) * pools[0].page_tokens
    if tokens <= num_tokens:
        return None
    return (
        f"alignment {tokens} > prompt {num_tokens}: the pools' units leave no endpoint in a prefix of "
        f"{format_tokens(num_tokens)} tokens, so nothing of it can ever be restored"
    )


def _present(pool: KVPoolDescriptor, presence: Presence, local_tokens: int) -> BoolVector:
    for name in (pool.name, pool.derived_from):
        if name is not None and name in presence:
            reported = presence[name]
            local_units = local_tokens // pool.unit_tokens
            return reported | (np.arange(len(reported)) < local_units) if local_units else reported
    raise ConfigError(
        f"pool {pool.name!r} was not reported; absent is not the same as 0 hits. Report it, or declare the "
        "pool that it derives from"
    )


def _resolution(legal_by_pool: Mapping[str, BoolVector], num_pages: int, matchable: int) -> Resolution:
    legal = np.ones(num_pages + 1, dtype=np.bool_)
    for pool_legal in legal_by_pool.values():
        legal &= pool_legal
    hit = _largest(legal[: matchable + 1])
    best = {name: _largest(pool_legal) for name, pool_legal in legal_by_pool.items()}
    # A pool limits the hit if the matchable endpoint is not among its own.
    target = min(matchable, num_pages)
    limited = tuple(name for name, pool_legal in legal_by_pool.items() if not pool_legal[target])
    return Resolution(
        hit_pages=hit,
        legal=legal,
        matchable=target,
        best_pages=best,
        limited_by=limited if hit < target else (),
        replay_boundary=_largest(legal) > matchable,
    )


def _largest(legal: BoolVector) -> int:
    """Index of the last true flag; flag 0 is always true."""
    return len(legal) - 1 - int(np.argmax(legal[::-1]))
