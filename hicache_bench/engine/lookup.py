"""Asking a store what it holds of a prefix: everything, or only what decides the endpoint.

A lookup is metadata traffic on a master that every server shares. :func:`look_up_prefix` asks for every
object; :func:`look_up_endpoint` comes to the same endpoint, and mostly asks for a part of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import numpy as np

from hicache_bench.engine.prefix import Prefix, PrefixKeys
from hicache_bench.engine.reports import Lookup
from hicache_bench.engine.transfer import BATCH_PAGES, arrived_units
from hicache_bench.errors import StoreContractError
from hicache_bench.planning.policy import BoolVector, IntVector, TransferPolicy, first_needed_at
from hicache_bench.planning.resolve import Resolution, matchable_pages, num_units, resolve
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import HitPolicy
from hicache_bench.store.base import MISS, OK, KeyResult, KVStoreBackend

LOOKUP_KEYS_PER_CALL = 1 << 15
"""Keys of one existence query; metadata only, so the slice limit of transfers does not apply."""

Exists = Callable[[Sequence[str]], Sequence[KeyResult]]
"""One existence query: a store's ``batch_exists``, or what a server has in its place."""


class _Questions:
    """The existence queries of one lookup, and what they came to."""

    def __init__(self, keys: PrefixKeys, exists: Exists) -> None:
        self._keys = keys
        self._exists = exists
        self.keys_asked = 0
        self.calls = 0
        self.errors = 0

    def ask(self, keys_by_pool: Mapping[KVPoolDescriptor, list[str]]) -> list[BoolVector]:
        """One flag per unit of each pool: every one of its keys is there. An error is not a miss."""
        asked = list(chain.from_iterable(keys_by_pool.values()))
        results: list[KeyResult] = []
        for start in range(0, len(asked), LOOKUP_KEYS_PER_CALL):
            part = asked[start : start + LOOKUP_KEYS_PER_CALL]
            answered = self._exists(part)
            if len(answered) != len(part):
                raise StoreContractError(f"the store answered {len(answered)} results for {len(part)} keys")
            results += answered
            self.calls += 1
        self.keys_asked += len(asked)
        self.errors += len(results) - results.count(OK) - results.count(MISS)
        flags, position = [], 0
        for pool, keys in keys_by_pool.items():
            answers = results[position : position + len(keys)]
            flags.append(arrived_units(answers, self._keys.per_unit(pool)))
            position += len(keys)
        return flags


def look_up_prefix(
    pools: Sequence[KVPoolDescriptor],
    keys: PrefixKeys,
    store: KVStoreBackend,
    prefix: Prefix,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Lookup:
    """Ask the store for every object of the prefix; no host pool is needed for that."""
    started = clock()
    questions = _Questions(keys, store.batch_exists)
    answers = questions.ask({pool: keys.asked(pool, prefix) for pool in pools})
    presence, asked_of = {}, {}
    for pool, flags in zip(pools, answers, strict=True):
        asked = prefix.is_keyed(pool)
        present = np.ones(len(asked), dtype=np.bool_)
        present[asked] = flags
        presence[pool.name], asked_of[pool.name] = present, asked
    return _lookup(prefix, presence, asked_of, questions, clock() - started)


class EndpointSearch:
    """The longest endpoint of a prefix that one rank can restore, found with few questions.

    Each step takes the longest endpoint that is legal if all that is still unknown is there, and asks for
    what it needs: of the all-pages pools first, in batches that double, then of the trailing pools, those
    with the smallest need first. An endpoint that needs nothing unknown is the answer, and that of a full
    lookup: a longer one is already refuted. Where a trailing pool has holes, as much again is asked below
    them, so that many holes end in a full scan after a few queries.

    The first of the batches that double has ``first_batch_pages``. ``keys_asked`` and ``calls`` count what
    the store was asked.
    """

    def __init__(
        self,
        pools: Sequence[KVPoolDescriptor],
        keys: PrefixKeys,
        exists: Exists,
        prefix: Prefix,
        policy: TransferPolicy,
        *,
        local_tokens: int = 0,
        first_batch_pages: int = BATCH_PAGES,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.prefix = prefix
        self._pools = pools
        self._keys = keys
        self._policy = policy
        self._local_tokens = max(local_tokens, prefix.first_page * prefix.page_tokens)
        self._clock = clock
        self._questions = _Questions(keys, exists)
        self._batch_pages = first_batch_pages
        self._seconds = 0.0
        # Missing is only what was asked for and is not there.
        self._missing = {pool.name: self._no_units(pool) for pool in pools}
        self._asked = {pool.name: self._no_units(pool) for pool in pools}
        self._unknown = {pool.name: self._to_ask(pool) for pool in pools}

    @property
    def local_pages(self) -> int:
        """Whole pages that are there already, and are not asked for."""
        return self._local_tokens // self.prefix.page_tokens

    @property
    def keys_asked(self) -> int:
        """Keys that the store was asked for so far."""
        return self._questions.keys_asked

    @property
    def calls(self) -> int:
        """Existence queries so far."""
        return self._questions.calls

    def longest(self, limit_pages: int) -> int:
        """The longest legal endpoint of this rank, at most ``limit_pages``."""
        started = self._clock()
        while True:
            possible = {name: ~missing for name, missing in self._missing.items()}
            endpoint = resolve(
                self._pools, possible, self._policy, self.prefix.num_pages, matchable=limit_pages
            ).hit_pages
            undecided = self._undecided(endpoint)
            if not undecided:
                break
            self._ask(self._next_of(undecided))
        self._seconds += self._clock() - started
        return endpoint

    def complete(self, endpoint_pages: int) -> Lookup:
        """Ask for what else a restore of the endpoint reads; all that is known is then the lookup."""
        started = self._clock()
        reads = {}
        for pool in self._pools:
            end = num_units(pool, endpoint_pages)
            dense = self._policy is TransferPolicy.DENSE
            first = 0 if dense else first_needed_at(pool, self._policy, end)
            reads[pool] = self._unknown_units(pool, first, end)
        self._ask(reads)
        self._seconds += self._clock() - started
        presence = {
            pool.name: ~self._missing[pool.name] & (self._asked[pool.name] | ~self.prefix.is_keyed(pool))
            for pool in self._pools
        }
        return _lookup(self.prefix, presence, self._asked, self._questions, self._seconds)

    def _no_units(self, pool: KVPoolDescriptor) -> BoolVector:
        return np.zeros(num_units(pool, self.prefix.num_pages), dtype=np.bool_)

    def _to_ask(self, pool: KVPoolDescriptor) -> BoolVector:
        keyed = self.prefix.is_keyed(pool)
        keyed[: self._local_tokens // pool.unit_tokens] = False
        return keyed

    def _unknown_units(self, pool: KVPoolDescriptor, first: int, end: int) -> IntVector:
        return np.flatnonzero(self._unknown[pool.name][first:end]) + first

    def _undecided(self, endpoint_pages: int) -> dict[KVPoolDescriptor, IntVector]:
        """The units that the endpoint needs, and of which nothing is known yet."""
        undecided = {}
        for pool in self._pools:
            if pool.constrains:
                end = num_units(pool, endpoint_pages)
                units = self._unknown_units(pool, first_needed_at(pool, self._policy, end), end)
                if len(units):
                    undecided[pool] = units
        return undecided

    def _next_of(
        self, undecided: Mapping[KVPoolDescriptor, IntVector]
    ) -> Mapping[KVPoolDescriptor, IntVector]:
        leading = [pool for pool in undecided if pool.hit_policy is HitPolicy.ALL_PAGES]
        if leading:
            first_page = min(int(undecided[pool][0]) * pool.unit_pages for pool in leading)
            stop_page = first_page + self._batch_pages
            self._batch_pages *= 2
            return {
                pool: units[: np.searchsorted(units, -(-stop_page // pool.unit_pages))]
                for pool, units in undecided.items()
                if pool in leading
            }
        fewest = min(map(len, undecided.values()))
        return {pool: self._widened(pool, units) for pool, units in undecided.items() if len(units) == fewest}

    def _widened(self, pool: KVPoolDescriptor, units: IntVector) -> IntVector:
        """``units``, and below them as many as were asked for so far, if any of those is missing."""
        if not self._missing[pool.name].any():
            return units
        below = int(np.count_nonzero(self._asked[pool.name]))
        return self._unknown_units(pool, max(0, int(units[0]) - below), int(units[-1]) + 1)

    def _ask(self, wanted: Mapping[KVPoolDescriptor, IntVector]) -> None:
        keys = {pool: self._keys.of_units(pool, self.prefix, units) for pool, units in wanted.items()}
        answers = self._questions.ask(keys)
        for (pool, units), flags in zip(wanted.items(), answers, strict=True):
            self._missing[pool.name][units] = ~flags
            self._asked[pool.name][units] = True
            self._unknown[pool.name][units] = False


def agree(searches: Sequence[EndpointSearch], limit_pages: int) -> int:
    """The longest endpoint that is legal on every rank, at most ``limit_pages``.

    The limit goes round until nobody lowers it, which ends at the maximum of the intersection. Ranks in
    several processes do the same with an all-reduce MIN of :meth:`EndpointSearch.longest` in each round.
    """
    while True:
        endpoint = limit_pages
        for search in searches:
            endpoint = search.longest(endpoint)
        if endpoint == limit_pages:
            return endpoint
        limit_pages = endpoint


def find_endpoint(searches: Sequence[EndpointSearch]) -> int:
    """The endpoint that the prompt may use on every rank.

    One that would leave no token to recompute is looked for as well: it tells a replay from a miss.
    """
    prefix = searches[0].prefix
    return agree(searches, min(agree(searches, prefix.num_pages), _matchable(prefix)))


def look_up_endpoint(
    searches: Sequence[EndpointSearch], *, host_capacity_pages: int | None = None
) -> list[Lookup]:
    """What each rank must know of one prompt: the endpoint of all of them, and what a restore of it reads.

    Where the host has no room for the whole hit, the longest legal endpoint that fits is found as well.
    """
    endpoint = find_endpoint(searches)
    if host_capacity_pages is not None:
        endpoint = agree(searches, min(endpoint, searches[0].local_pages + host_capacity_pages))
    return [search.complete(endpoint) for search in searches]


def resolve_lookup(
    pools: Sequence[KVPoolDescriptor], lookup: Lookup, policy: TransferPolicy, *, local_tokens: int = 0
) -> Resolution:
    """The endpoint that one rank's ``pools`` allow under ``policy``; the first ``local_tokens`` are there."""
    prefix = lookup.prefix
    return resolve(
        pools,
        lookup.presence,
        policy,
        prefix.num_pages,
        matchable=_matchable(prefix),
        local_tokens=local_tokens,
        asked=lookup.asked,
    )


def _matchable(prefix: Prefix) -> int:
    return min(prefix.num_pages, matchable_pages(prefix.prompt_tokens, prefix.page_tokens))


def _lookup(
    prefix: Prefix,
    presence: Mapping[str, BoolVector],
    asked: Mapping[str, BoolVector],
    questions: _Questions,
    seconds: float,
) -> Lookup:
    return Lookup(
        prefix=prefix,
        presence=presence,
        asked=asked,
        keys_asked=questions.keys_asked,
        calls=questions.calls,
        errors=questions.errors,
        seconds=seconds,
        diagnostics=("chain_anchor_mismatch",) if prefix.first_page and prefix.parent is None else (),
    )
