"""The second statement of the rules: by hand on small prefixes, and against the planner's on random ones."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.planning.plan import build_plan
from hicache_bench.planning.policy import SavePolicy, StateSave, TransferPolicy
from hicache_bench.planning.resolve import num_units, resolve
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.names import AttentionType
from hicache_bench.workflows.roundtrip.fault_models import HYBRID, random_pools, small_pool
from hicache_bench.workflows.roundtrip.reference import (
    ReferenceStore,
    StoredObject,
    is_legal,
    kept_units,
    longest_endpoint,
    needed_tokens,
    planned_units,
    units_before,
    useful_units,
    with_local,
)

SELECTIVE, HIT_POLICY, DENSE = TransferPolicy.SELECTIVE, TransferPolicy.HIT_POLICY, TransferPolicy.DENSE
PART = Component("k", 1, 4, 8)
FULL = small_pool("kv", AttentionType.FULL, PART)
WINDOW = small_pool("swa", AttentionType.SWA, PART, window_tokens=6, engine_window_tokens=9)
CHUNK = small_pool("chunked", AttentionType.CHUNKED, PART, window_tokens=8)
STATE = small_pool("mamba", AttentionType.RECURRENT, PART)
ROWS = small_pool("c128", AttentionType.COMPRESSED, PART, unit_pages=2, partial_units=True)
ALIGNED = small_pool("c2", AttentionType.COMPRESSED, PART, unit_pages=2)


@pytest.mark.parametrize(
    ("pool", "policy", "end", "needed"),
    [
        (FULL, SELECTIVE, 5, [0, 1, 2, 3, 4]),
        (WINDOW, SELECTIVE, 12, [7, 8, 9, 10, 11]),
        (WINDOW, SELECTIVE, 4, [0, 1, 2, 3]),
        (WINDOW, HIT_POLICY, 16, list(range(4, 16))),
        (WINDOW, DENSE, 8, list(range(8))),
        (CHUNK, SELECTIVE, 16, []),
        (CHUNK, SELECTIVE, 20, [16, 17, 18, 19]),
        (CHUNK, HIT_POLICY, 16, list(range(8, 16))),
        (STATE, SELECTIVE, 8, [7]),
        (STATE, HIT_POLICY, 8, [4, 5, 6, 7]),
        (STATE, SELECTIVE, 0, []),
    ],
    ids=str,
)
def test_needed_tokens(pool: KVPoolDescriptor, policy: TransferPolicy, end: int, needed: list[int]) -> None:
    assert needed == sorted(needed_tokens(pool, policy, end))


def test_units_of_a_prefix() -> None:
    assert [1, 2, 2] == [units_before(ROWS, end) for end in (4, 12, 16)]
    assert [0, 1, 2] == [units_before(ALIGNED, end) for end in (4, 12, 16)]
    assert is_legal(ROWS, SELECTIVE, {0, 1}, 12)
    assert not is_legal(ALIGNED, SELECTIVE, {0, 1}, 12)


def test_endpoints_are_intersected_and_not_their_maxima_compared() -> None:
    pools = (STATE, small_pool("other", AttentionType.RECURRENT, PART))
    assert 1 == longest_endpoint(pools, SELECTIVE, {"mamba": {0, 2}, "other": {0, 1}}, 4)
    assert 0 == longest_endpoint(pools, SELECTIVE, {"mamba": {2}, "other": {1}}, 4)
    assert 2 == longest_endpoint(pools, SELECTIVE, {"mamba": {1, 3}, "other": {1, 3}}, 3)


def test_local_units_are_there() -> None:
    assert {"c2": {0, 5}} == with_local([ALIGNED], {"c2": {5}}, 12)


def test_planned_and_useful_units() -> None:
    assert ({1, 3}, 1) == planned_units(FULL, DENSE, {0, 1, 3}, 16, 4)
    assert ({1, 2}, 0) == planned_units(WINDOW, SELECTIVE, {0, 1, 2}, 12, 0)
    assert ({2}, 1) == planned_units(WINDOW, SELECTIVE, {0, 2}, 12, 0)
    assert {1, 2} == useful_units(WINDOW, SELECTIVE, 12)
    assert {0, 1, 2} == useful_units(WINDOW, DENSE, 12)


@pytest.mark.parametrize(
    ("pool", "policy", "kept"),
    [
        (STATE, SavePolicy(states=StateSave.ALL), [0, 1, 2, 3, 4]),
        (STATE, SavePolicy(states=StateSave.LAST), [4]),
        (STATE, SavePolicy(states=StateSave.EVERY, state_interval_tokens=8), [1, 3, 4]),
        (STATE, SavePolicy(states=StateSave.EVERY, state_interval_tokens=6), [1, 2, 4]),
        (WINDOW, SavePolicy(window_extra_pages=0), [2, 3, 4]),
        (WINDOW, SavePolicy(window_extra_pages=1), [1, 2, 3, 4]),
        (WINDOW, SavePolicy(), [0, 1, 2, 3, 4]),
        (FULL, SavePolicy(window_extra_pages=0), [0, 1, 2, 3, 4]),
    ],
    ids=str,
)
def test_kept_units(pool: KVPoolDescriptor, policy: SavePolicy, kept: list[int]) -> None:
    assert kept == sorted(kept_units(pool, policy, 20))


def test_memory_is_insert_if_absent_and_knows_damage() -> None:
    memory = ReferenceStore()
    memory.put(["a", "b", "c"], 1)
    memory.put(["a", "d"], 2)
    assert {"d"} == memory.wrong("abcd", 1, digests=False)
    memory.objects["b"] = StoredObject(1, intact=False)
    memory.objects["c"] = StoredObject(1, whole=False)
    assert {"c"} == memory.unreadable("abcd", digests=False)
    assert {"b", "c"} == memory.unreadable("abcd", digests=True)
    assert {"b", "d"} == memory.wrong("abcd", 1, digests=False)
    assert {"d"} == memory.wrong("abcd", 1, digests=True)
    memory.remove(["d", "never"])
    assert set() == memory.wrong("abcd", 1, digests=True)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 1 << 20),
    st.integers(1, 10),
    st.sampled_from(TransferPolicy),
    st.sampled_from(StateSave),
    st.sampled_from([None, 0, 1]),
)
def test_both_statements_agree(
    seed: int, num_pages: int, policy: TransferPolicy, states: StateSave, extra: int | None
) -> None:
    chance = random.Random(seed)  # noqa: S311 -- must repeat
    pools = [pool for pool in (HYBRID if seed % 5 == 0 else random_pools(chance)) if not pool.is_logical]
    page = pools[0].page_tokens
    presence = {
        pool.name: np.array(
            [chance.random() < 0.8 for _ in range(num_units(pool, num_pages))], dtype=np.bool_
        )
        for pool in pools
    }
    units = {name: set(np.flatnonzero(flags).tolist()) for name, flags in presence.items()}
    local = page * chance.randint(0, num_pages)
    found = resolve(pools, presence, policy, num_pages, local_tokens=local)
    assert found.hit_pages == longest_endpoint(pools, policy, with_local(pools, units, local), num_pages)
    plan = build_plan(pools, presence, found, policy, local_tokens=local)
    for item in plan.pools:
        expected = planned_units(item.pool, policy, units[item.pool.name], found.hit_pages * page, local)
        assert expected == (set(item.units.tolist()), item.missing)
    saves = SavePolicy(states=states, state_interval_tokens=1 + seed % 9, window_extra_pages=extra)
    for pool in pools:
        kept = np.flatnonzero(saves.saved_units(pool, num_units(pool, num_pages))).tolist()
        assert set(kept) == kept_units(pool, saves, num_pages * page)
