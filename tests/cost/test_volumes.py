from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.cost.volumes import phased_calls, plan_calls
from hicache_bench.planning.policy import TransferPolicy
from tests.cost.rig import KV, STATE, WINDOW, plan_of, read_of


def test_a_call_is_a_batch_over_all_pools() -> None:
    calls = plan_calls(plan_of(KV, WINDOW, STATE, num_pages=300))
    assert [(256, 1280), (256, 1280), (91, 542)] == [(call.num_objects, call.num_bytes) for call in calls]
    assert ((1, 2), (4, 44), (6, 44), (100, 1)) == calls[-1].groups
    assert [True, True, True] == [call.has_kv for call in calls]


def test_what_landed_counts_objects_of_each_pool() -> None:
    calls = plan_calls(plan_of(KV, STATE, num_pages=3), batch_pages=2)
    assert [{"kv": 4, "mamba": 0}, {"kv": 6, "mamba": 1}] == [dict(call.landed) for call in calls]


def test_a_unit_has_landed_with_its_last_object() -> None:
    # Five objects a call cut the third page between its k and its v.
    plan = plan_of(KV, STATE, num_pages=4)
    calls = plan_calls(plan, max_objects=5)
    assert [5, 4] == [call.num_objects for call in calls]
    read = replace(read_of(plan), calls=calls)
    assert [0, 1] == read.landed_units(1)["kv"].tolist()
    assert [0, 1, 2, 3] == read.landed_units(2)["kv"].tolist()
    assert ([], [3]) == (read.landed_units(1)["mamba"].tolist(), read.landed_units(2)["mamba"].tolist())
    assert [] == read.landed_units(0)["kv"].tolist()
    assert [((4, 2), (6, 3)), ((4, 2), (6, 1), (100, 1))] == [call.groups for call in calls]


def test_a_call_of_side_pools_alone_is_told() -> None:
    calls = plan_calls(plan_of(KV, STATE, num_pages=4), max_objects=8)
    assert [True, False] == [call.has_kv for call in calls]
    assert 1 == replace(read_of(plan_of(KV, num_pages=4)), calls=calls).kv_calls


@given(
    st.integers(1, 40), st.integers(1, 12), st.integers(1, 30), st.sampled_from(list(TransferPolicy)),
    st.integers(0, 20),
)  # fmt: skip
def test_calls_move_what_the_plan_says(
    num_pages: int, batch_pages: int, max_objects: int, policy: TransferPolicy, local: int
) -> None:
    plan = plan_of(
        KV, WINDOW, STATE, num_pages=num_pages, policy=policy, local_tokens=min(local, num_pages) * 4
    )
    calls = plan_calls(plan, batch_pages=batch_pages, max_objects=max_objects)
    assert plan.read_bytes == sum(call.num_bytes for call in calls)
    objects = {item.pool.name: len(item.units) * len(item.pool.stored_components) for item in plan.pools}
    assert sum(objects.values()) == sum(call.num_objects for call in calls)
    assert all(1 <= call.num_objects <= max_objects for call in calls)
    if calls:
        assert {name: count for name, count in objects.items() if count} == dict(calls[-1].landed)


def test_a_plan_without_units_makes_no_call() -> None:
    assert () == plan_calls(plan_of(KV, num_pages=4, threshold_tokens=256))


def test_phases_follow_each_other() -> None:
    first, second = plan_of(KV, num_pages=3), plan_of(STATE, num_pages=3)
    calls = phased_calls((first, second))
    assert [{"kv": 6}, {"kv": 6, "mamba": 1}] == [dict(call.landed) for call in calls]


@pytest.mark.parametrize("copies", [1, 8])
def test_bytes_of_a_rank_do_not_depend_on_its_copies(copies: int) -> None:
    read = read_of(plan_of(KV, num_pages=3), copies=copies)
    assert (30, 6) == (read.num_bytes, read.num_objects)
