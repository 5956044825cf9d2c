"""A lookup that asks little comes to the endpoint of one that asks for everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.engine.lookup import (
    EndpointSearch,
    agree,
    look_up_endpoint,
    look_up_prefix,
    resolve_lookup,
)
from hicache_bench.engine.prefix import Prefix, PrefixKeys
from hicache_bench.engine.reports import Lookup
from hicache_bench.errors import StoreContractError
from hicache_bench.planning.plan import TransferPlan, build_plan
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.planning.resolve import Resolution, num_units, resolve_ranks
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.pools.names import AttentionType, HitPolicy, Requirement, Sharding
from hicache_bench.store.base import OK
from hicache_bench.store.counting import CountingStore
from hicache_bench.store.wrappers import CountingWrapper, Operation
from tests.engine.rig import PAGE_TOKENS, SELECTIVE, small

PAGE, OTHER = Component("page", 1, 1, 8), Component("other", 1, 1, 8)
KV = small("kv", AttentionType.FULL, PAGE, OTHER)
STATE = small("mamba", AttentionType.RECURRENT, PAGE, OTHER)
WINDOW = small("swa", AttentionType.SWA, PAGE, OTHER, window_tokens=128 * PAGE_TOKENS)
KINDS = {
    "full": AttentionType.FULL,
    "ratio": AttentionType.COMPRESSED,
    "swa": AttentionType.SWA,
    "chunked": AttentionType.CHUNKED,
    "state": AttentionType.RECURRENT,
    "ring": AttentionType.COMPRESSOR_STATE,
}
POLICIES = st.sampled_from(list(TransferPolicy))


def prefix_of(num_pages: int, *, first_page: int = 0, extra_tokens: int = 1) -> Prefix:
    return Prefix(
        prompt_tokens=num_pages * PAGE_TOKENS + extra_tokens,
        page_tokens=PAGE_TOKENS,
        hashes=[f"{page:04x}" for page in range(first_page, num_pages)],
        slots={},
        first_page=first_page,
        parent="parent" if first_page else None,
    )


@dataclass(frozen=True)
class World:
    """A prompt on some ranks, and a store that holds some of its objects."""

    ranks: Sequence[Sequence[KVPoolDescriptor]]
    prefix: Prefix
    store: CountingWrapper
    builder: NamespacedKeyBuilder
    local_tokens: int = 0

    def put(self, pool: KVPoolDescriptor, units: Sequence[int]) -> None:
        keys = PrefixKeys(self.builder).of_units(pool, replace(self.prefix), np.array(units, dtype=np.int64))
        self.store.batch_put_from(keys, [1] * len(keys), [8] * len(keys))

    def put_whole(self) -> None:
        for pools in self.ranks:
            for pool in pools:
                self.put(pool, range(num_units(pool, self.prefix.num_pages)))

    def searches(self, policy: TransferPolicy, first_batch_pages: int = 128) -> list[EndpointSearch]:
        return [
            EndpointSearch(
                pools,
                PrefixKeys(self.builder),
                self.store.batch_exists,
                replace(self.prefix),
                policy,
                local_tokens=self.local_tokens,
                first_batch_pages=first_batch_pages,
            )
            for pools in self.ranks
        ]

    def full_lookups(self) -> list[Lookup]:
        keys = PrefixKeys(self.builder)
        return [look_up_prefix(pools, keys, self.store, replace(self.prefix)) for pools in self.ranks]

    def resolve(self, lookups: Sequence[Lookup], policy: TransferPolicy) -> Resolution:
        return resolve_ranks(
            [
                resolve_lookup(pools, lookup, policy, local_tokens=self.all_local_tokens)
                for pools, lookup in zip(self.ranks, lookups, strict=True)
            ]
        )

    def plans(
        self, lookups: Sequence[Lookup], policy: TransferPolicy, capacity: int | None
    ) -> list[TransferPlan]:
        resolution = self.resolve(lookups, policy)
        return [
            build_plan(
                pools,
                lookup.presence,
                resolution,
                policy,
                local_tokens=self.all_local_tokens,
                host_capacity_pages=capacity,
            )
            for pools, lookup in zip(self.ranks, lookups, strict=True)
        ]

    @property
    def all_local_tokens(self) -> int:
        return max(self.local_tokens, self.prefix.first_page * PAGE_TOKENS)


def world_of(
    *ranks: Sequence[KVPoolDescriptor], num_pages: int, first_page: int = 0, local_tokens: int = 0
) -> World:
    prefix = prefix_of(num_pages, first_page=first_page)
    return World(ranks, prefix, CountingWrapper(CountingStore()), NamespacedKeyBuilder("t"), local_tokens)


@st.composite
def pool_sets(draw: st.DrawFn) -> list[KVPoolDescriptor]:
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    pools = []
    for index, kind in enumerate(kinds):
        windowed = kind in ("swa", "chunked")
        pools.append(
            small(
                f"{kind}{index}",
                KINDS[kind],
                *draw(st.sampled_from([(PAGE,), (PAGE, OTHER)])),
                unit_pages=draw(st.sampled_from([1, 1, 1, 2, 3])),
                partial_units=kind in ("full", "ratio") and draw(st.booleans()),
                window_tokens=draw(st.integers(1, 40)) if windowed else None,
                engine_window_tokens=draw(st.integers(1, 40)) if windowed else None,
                required_for=draw(st.sampled_from([Requirement.CORRECTNESS] * 4 + [Requirement.SPEED])),
                sharding=draw(st.sampled_from(Sharding)),
            )
        )
    return pools


@st.composite
def worlds(draw: st.DrawFn) -> World:
    num_pages = draw(st.integers(1, 40))
    num_ranks = draw(st.integers(1, 3))
    pools = draw(pool_sets())
    ranks = [
        [replace(pool, rank=Rank(tp_rank=index, tp_size=num_ranks)) for pool in pools]
        for index in range(num_ranks)
    ]
    first_page = draw(st.integers(0, num_pages - 1)) if draw(st.booleans()) else 0
    prefix = prefix_of(num_pages, first_page=first_page, extra_tokens=draw(st.integers(0, PAGE_TOKENS)))
    local_tokens = draw(st.integers(0, num_pages * PAGE_TOKENS)) if draw(st.booleans()) else 0
    world = World(ranks, prefix, CountingWrapper(CountingStore()), NamespacedKeyBuilder("t"), local_tokens)
    generator = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    for rank in ranks:
        for pool in rank:
            units = np.arange(num_units(pool, num_pages))
            units = units[(units + 1) * pool.unit_pages > first_page]
            stop = draw(st.integers(0, len(units)) | st.just(len(units)))
            density = draw(st.sampled_from([1.0, 1.0, 0.95, 0.8, 0.4, 0.0]))
            if pool.hit_policy is HitPolicy.ALL_PAGES:
                density = max(density, 0.95)
            kept = units[:stop][generator.random(stop) < density]
            if len(kept):
                world.put(pool, kept.tolist())
    return world


@given(
    world=worlds(),
    policy=POLICIES,
    first_batch_pages=st.integers(1, 8),
    capacity=st.none() | st.integers(0, 30),
)
@settings(max_examples=200)
def test_the_endpoint_is_that_of_a_full_lookup(
    world: World, policy: TransferPolicy, first_batch_pages: int, capacity: int | None
) -> None:
    full = world.full_lookups()
    few = look_up_endpoint(world.searches(policy, first_batch_pages), host_capacity_pages=capacity)
    expected, found = world.resolve(full, policy), world.resolve(few, policy)
    assert expected.hit_pages == found.hit_pages
    assert expected.replay_boundary == found.replay_boundary
    assert not (found.legal & ~expected.legal).any()
    assert set(found.limited_by) <= set(expected.limited_by)
    assert bool(found.limited_by) == bool(expected.limited_by)
    for whole, part in zip(
        world.plans(full, policy, capacity), world.plans(few, policy, capacity), strict=True
    ):
        assert (whole.endpoint_pages, whole.shortfall) == (part.endpoint_pages, part.shortfall)
        assert whole.read_bytes == part.read_bytes
        for planned, also in zip(whole.pools, part.pools, strict=True):
            assert planned.units.tolist() == also.units.tolist()
            assert planned.missing == also.missing


@given(world=worlds(), policy=POLICIES)
def test_what_was_not_asked_is_no_miss(world: World, policy: TransferPolicy) -> None:
    full = world.full_lookups()
    for complete, few in zip(full, look_up_endpoint(world.searches(policy)), strict=True):
        assert few.keys_asked <= complete.keys_asked
        for name, asked in few.asked.items():
            assert not (asked & ~complete.asked[name]).any()
            assert (few.presence[name] & asked).tolist() == (complete.presence[name] & asked).tolist()
            assert not (few.presence[name] & ~asked & complete.asked[name]).any()


def test_a_full_hit_asks_for_every_page_of_one_pool_and_for_what_trails() -> None:
    world = world_of([KV, WINDOW, STATE], num_pages=16_384)
    world.put_whole()
    (lookup,) = look_up_endpoint(world.searches(SELECTIVE))
    assert 16_384 == resolve_lookup(world.ranks[0], lookup, SELECTIVE).hit_pages
    assert 2 * (16_384 + 128 + 1) == lookup.keys_asked  # of 98,304
    assert 0.34 > lookup.keys_asked / (6 * 16_384)
    assert 10 == lookup.calls == len(world.store.log.of(Operation.EXISTS))


def test_a_miss_at_the_start_ends_the_search_after_one_batch() -> None:
    world = world_of([KV, WINDOW, STATE], num_pages=1024)
    (search,) = world.searches(SELECTIVE)
    assert 0 == search.longest(1024)
    assert (2 * 128, 1) == (search.keys_asked, search.calls)


def test_sparse_states_are_found_without_their_windows_below() -> None:
    world = world_of([KV, WINDOW, STATE], num_pages=1000)
    world.put(KV, range(1000))
    world.put(WINDOW, range(1000))
    world.put(STATE, range(63, 1000, 64))  # the last one ends page 960
    (search,) = world.searches(SELECTIVE)
    assert 960 == search.longest(1000)
    assert 2 * (1000 + 63 + 128) == search.keys_asked
    assert 4 + 6 + 1 == search.calls  # pages 128, 256, 512, 1000; states 1, 2, 4 ... 32; one window


def test_holes_in_every_window_end_in_a_full_scan() -> None:
    world = world_of([KV, WINDOW], num_pages=1024)
    world.put(KV, range(1024))
    world.put(WINDOW, range(1, 1024, 2))
    (search,) = world.searches(SELECTIVE)
    assert 0 == search.longest(1024)
    assert 2 * 2 * 1024 == search.keys_asked
    assert 4 + 4 == search.calls


def test_what_is_local_is_not_asked_for() -> None:
    world = world_of([KV, STATE], num_pages=64, local_tokens=60 * PAGE_TOKENS)
    world.put(KV, range(60, 64))
    world.put(STATE, [63])
    (lookup,) = look_up_endpoint(world.searches(SELECTIVE))
    assert 64 == world.resolve([lookup], SELECTIVE).hit_pages
    assert 2 * 4 + 2 == lookup.keys_asked


def test_ranks_agree_on_the_maximum_of_the_intersection() -> None:  # cases E04
    ranks = [
        [replace(STATE, rank=Rank(tp_rank=index, tp_size=2), sharding=Sharding.SHARDED)] for index in (0, 1)
    ]
    world = world_of(*ranks, num_pages=3)
    world.put(ranks[0][0], [0, 2])
    world.put(ranks[1][0], [0, 1])
    assert [3, 2] == [search.longest(3) for search in world.searches(SELECTIVE)]
    assert 1 == agree(world.searches(SELECTIVE), 3)


def test_a_state_that_only_the_whole_prompt_has_is_a_replay_and_no_miss() -> None:  # cases E08
    world = world_of([KV, STATE], num_pages=8)
    world = replace(world, prefix=prefix_of(8, extra_tokens=0))
    world.put(KV, range(8))
    world.put(STATE, [7])
    resolution = world.resolve(look_up_endpoint(world.searches(SELECTIVE)), SELECTIVE)
    assert (0, True) == (resolution.hit_pages, resolution.replay_boundary)


def test_a_pool_for_speed_is_asked_for_where_the_endpoint_ends() -> None:
    draft = replace(KV, name="draft", required_for=Requirement.SPEED)
    world = world_of([KV, draft, STATE], num_pages=8)
    world.put(KV, range(8))
    world.put(draft, [0, 1, 3])
    world.put(STATE, [4])
    (lookup,) = look_up_endpoint(world.searches(SELECTIVE))
    plan = world.plans([lookup], SELECTIVE, None)[0]
    assert (5, [0, 1, 3], 2) == (plan.endpoint_pages, plan.pools[1].units.tolist(), plan.pools[1].missing)
    assert [True] * 5 + [False] * 3 == lookup.asked["draft"].tolist()


@given(
    units=st.sets(st.integers(0, 19), max_size=20),
    unit_pages=st.sampled_from([1, 2, 3]),
    partial=st.booleans(),
    first_page=st.integers(0, 19),
)
def test_keys_of_a_few_units_are_those_among_the_keys_of_all(
    units: set[int], unit_pages: int, partial: bool, first_page: int
) -> None:
    pool = small("kv", AttentionType.FULL, PAGE, OTHER, unit_pages=unit_pages, partial_units=partial)
    alone, whole = (prefix_of(20, first_page=first_page) for _ in range(2))
    chosen = np.flatnonzero(whole.is_keyed(pool) & np.isin(np.arange(num_units(pool, 20)), list(units)))
    keys = PrefixKeys(NamespacedKeyBuilder("t"))
    built = dict(
        zip(np.flatnonzero(whole.is_keyed(pool)).tolist(), _pairs(keys.asked(pool, whole)), strict=True)
    )
    expected = [key for unit in chosen.tolist() for key in built[unit]]
    assert expected == keys.of_units(pool, alone, chosen) == keys.of_units(pool, whole, chosen)


def _pairs(keys: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(keys[::2], keys[1::2], strict=True))


def test_answers_of_the_wrong_number_are_refused() -> None:
    search = EndpointSearch(
        [KV], PrefixKeys(NamespacedKeyBuilder("t")), lambda keys: [OK], prefix_of(4), SELECTIVE
    )
    with pytest.raises(StoreContractError, match="1 results for 8 keys"):
        search.longest(4)
