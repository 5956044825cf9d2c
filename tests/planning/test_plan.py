from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.planning.plan import PoolPlan, SkipReason, TransferPlan, build_plan, narrow
from hicache_bench.planning.policy import BoolVector, TransferPolicy, first_needed_at
from hicache_bench.planning.resolve import matchable_pages, num_units, resolve
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType, Requirement
from tests.planning.test_resolve import pools_and_presence
from tests.pool_builders import endpoints, flags, pool, window_pool

DENSE, HIT, SELECTIVE = TransferPolicy.DENSE, TransferPolicy.HIT_POLICY, TransferPolicy.SELECTIVE
KV = pool("kv", AttentionType.FULL)
STATE = pool("mamba", AttentionType.RECURRENT)


def plan(
    pools: list[KVPoolDescriptor],
    presence: dict[str, BoolVector],
    pages: int,
    policy: TransferPolicy = SELECTIVE,
    *,
    matchable: int | None = None,
    **options: Any,
) -> TransferPlan:
    return build_plan(
        pools,
        presence,
        resolve(
            pools,
            presence,
            policy,
            pages,
            matchable=matchable,
            local_tokens=options.get("local_tokens", 0),
        ),
        policy,
        **options,
    )


def units(transfer: TransferPlan, name: str) -> list[int]:
    found: list[int] = next(p for p in transfer.pools if p.pool.name == name).units.tolist()
    return found


def skipped(transfer: TransferPlan, name: str) -> dict[SkipReason, int]:
    return dict(next(p for p in transfer.pools if p.pool.name == name).skipped)


def test_each_policy_reads_its_own_share_and_says_why_it_leaves_the_rest() -> None:
    swa = window_pool("swa", 33)  # 32 older tokens: 2 pages; the engine's ceil(33/16) is 3
    presence = {
        "kv": flags(8, *range(8)),
        "swa": flags(8, *range(8)),
        "mamba": endpoints(8, 2, 5, 8),
    }
    pools = [pool("anchor", AttentionType.LOGICAL), KV, swa, STATE]
    read = {policy: plan(pools, presence, 8, policy) for policy in TransferPolicy}
    assert [list(range(8))] * 3 == [units(read[policy], "kv") for policy in TransferPolicy]
    assert list(range(8)) == units(read[DENSE], "swa")
    assert [5, 6, 7] == units(read[HIT], "swa")
    assert [6, 7] == units(read[SELECTIVE], "swa")
    assert [1, 4, 7] == units(read[DENSE], "mamba")
    assert [7] == units(read[SELECTIVE], "mamba") == units(read[HIT], "mamba")
    assert {SkipReason.OUT_OF_WINDOW: 6} == skipped(read[SELECTIVE], "swa")
    assert {SkipReason.SUPERSEDED_STATE: 2} == skipped(read[SELECTIVE], "mamba")
    assert {} == skipped(read[DENSE], "mamba")
    assert ["kv", "swa", "mamba"] == [p.pool.name for p in read[SELECTIVE].pools]
    assert 64 * (8 + 2 + 1) == read[SELECTIVE].read_bytes


def test_units_past_the_endpoint_stay_in_the_store() -> None:
    presence = {"kv": flags(8, *range(8)), "mamba": endpoints(8, 3)}
    transfer = plan([KV, STATE], presence, 8)
    assert (3, [0, 1, 2]) == (transfer.endpoint_pages, units(transfer, "kv"))
    assert {SkipReason.BEYOND_ENDPOINT: 5} == skipped(transfer, "kv")


def test_units_past_the_replay_boundary_carry_that_reason() -> None:  # cases E08
    presence = {"kv": flags(2, 0, 1), "mamba": endpoints(2, 2)}
    transfer = plan([KV, STATE], presence, 2, matchable=matchable_pages(32, 16))
    assert 0 == transfer.hit_pages
    assert {SkipReason.REPLAY_BOUNDARY: 1} == skipped(transfer, "mamba")


def test_a_host_without_room_gets_the_largest_legal_endpoint_that_fits() -> None:  # cases E13
    kv = pool("kv", AttentionType.FULL, page_tokens=1)
    dense_only = plan([kv], {"kv": np.ones(16_010, dtype=np.bool_)}, 16_010, host_capacity_pages=2551)
    assert (16_010, 2551) == (dense_only.hit_pages, dense_only.endpoint_pages)
    assert SkipReason.HOST_CAPACITY is dense_only.shortfall
    state = pool("mamba", AttentionType.RECURRENT, page_tokens=1)
    presence = {"kv": np.ones(16_010, dtype=np.bool_), "mamba": endpoints(16_010, 16_010)}
    hybrid = plan([kv, state], presence, 16_010, host_capacity_pages=2551)
    assert (16_010, 0) == (hybrid.hit_pages, hybrid.endpoint_pages)
    presence["mamba"] = endpoints(16_010, 2000, 16_010)
    assert 2000 == plan([kv, state], presence, 16_010, host_capacity_pages=2551).endpoint_pages


@pytest.mark.parametrize(("tokens", "read"), [(255, 0), (256, 256)])
def test_a_hit_below_the_threshold_is_not_read(tokens: int, read: int) -> None:
    kv = pool("kv", AttentionType.FULL, page_tokens=1)
    transfer = plan([kv], {"kv": flags(tokens, *range(tokens))}, tokens, threshold_tokens=256)
    assert (tokens, read) == (transfer.hit_pages, len(units(transfer, "kv")))
    assert (SkipReason.BELOW_THRESHOLD if read == 0 else None) is transfer.shortfall


def test_a_hit_below_the_threshold_names_the_pool_that_made_it_so_short() -> None:  # cases E10
    presence = {"kv": flags(8, *range(8)), "mamba": endpoints(8, 1)}
    declined = plan([KV, STATE], presence, 8, threshold_tokens=2 * 16)
    assert (1, 0, SkipReason.BELOW_THRESHOLD) == (
        declined.hit_pages, declined.endpoint_pages, declined.shortfall
    )  # fmt: skip
    assert ("mamba",) == declined.limited_by
    whole = plan([KV, STATE], {**presence, "mamba": endpoints(8, 8)}, 8, threshold_tokens=2 * 16)
    assert (None, ()) == (whole.shortfall, whole.limited_by)


def test_a_unit_that_is_local_in_part_is_read_whole_and_counted_once() -> None:  # cases E15
    kv = pool("kv", AttentionType.FULL, page_tokens=64, unit_pages=4)
    transfer = plan([kv], {"kv": flags(3, 0, 1, 2)}, 12, local_tokens=320)
    assert [1, 2] == units(transfer, "kv")
    assert 448 == transfer.loaded_tokens
    assert {SkipReason.LOCAL_PREFIX: 1} == skipped(transfer, "kv")


@pytest.mark.parametrize("policy", list(TransferPolicy))
def test_a_unit_of_which_the_endpoint_uses_only_the_local_part_is_not_read(policy: TransferPolicy) -> None:
    kv = pool("kv", AttentionType.FULL, page_tokens=4)
    ratio = pool("c128", AttentionType.COMPRESSED, page_tokens=4, unit_pages=2, partial_units=True)
    presence = {"kv": flags(4, *range(4)), "c128": flags(2, 0, 1)}
    declined = plan([kv, ratio], presence, 4, policy, local_tokens=12, threshold_tokens=5)
    assert (3, [], []) == (declined.endpoint_pages, units(declined, "kv"), units(declined, "c128"))
    longer = plan([kv, ratio], presence, 4, policy, local_tokens=12, threshold_tokens=4)
    assert (4, [3], [1]) == (longer.endpoint_pages, units(longer, "kv"), units(longer, "c128"))


@pytest.mark.parametrize("policy", list(TransferPolicy))
def test_a_local_prefix_is_not_read_again(policy: TransferPolicy) -> None:
    swa = window_pool("swa", 64)
    presence = {"kv": flags(8, *range(8)), "swa": flags(8, *range(8)), "mamba": endpoints(8, 4, 8)}
    transfer = plan([KV, swa, STATE], presence, 8, policy, local_tokens=6 * 16)
    assert [6, 7] == units(transfer, "kv") == units(transfer, "swa")
    assert [7] == units(transfer, "mamba")
    assert 32 == transfer.loaded_tokens


def test_local_pages_need_not_be_in_the_store() -> None:
    presence = {"kv": flags(8, *range(2, 8)), "mamba": endpoints(8, 8)}
    assert 0 == plan([KV, STATE], presence, 8).hit_pages
    transfer = plan([KV, STATE], presence, 8, local_tokens=2 * 16)
    assert (8, list(range(2, 8))) == (transfer.hit_pages, units(transfer, "kv"))
    nothing = plan([KV, STATE], {"kv": flags(8), "mamba": flags(8)}, 8, local_tokens=2 * 16 + 5)
    assert (2, []) == (nothing.hit_pages, units(nothing, "kv"))


def test_a_host_needs_room_only_for_what_is_not_local() -> None:
    transfer = plan([KV], {"kv": flags(8, *range(8))}, 8, local_tokens=3 * 16, host_capacity_pages=4)
    assert (7, [3, 4, 5, 6]) == (transfer.endpoint_pages, units(transfer, "kv"))


def test_nothing_is_read_where_everything_is_local() -> None:
    presence = {"kv": flags(8, *range(8)), "mamba": endpoints(8, 8)}
    transfer = plan([KV, STATE], presence, 8, local_tokens=500)
    assert ([], [], 0) == (units(transfer, "kv"), units(transfer, "mamba"), transfer.loaded_tokens)
    assert 128 == transfer.local_tokens


def test_a_missing_draft_pool_shows_as_missing_and_shortens_nothing() -> None:  # cases E28
    draft = pool("draft", AttentionType.FULL, required_for=Requirement.SPEED)
    transfer = plan([KV, draft], {"kv": flags(4, 0, 1, 2, 3), "draft": flags(4, 0, 1)}, 4)
    assert (4, [0, 1]) == (transfer.endpoint_pages, units(transfer, "draft"))
    assert 2 == transfer.pools[1].missing


def test_a_pool_without_presence_is_not_read() -> None:
    index = pool("indexer", AttentionType.SPARSE_INDEX, derived_from="kv")
    transfer = plan([KV, index], {"kv": flags(4, 0, 1, 2, 3)}, 4)
    assert ([], 4) == (units(transfer, "indexer"), transfer.pools[1].missing)


def test_a_partly_used_unit_says_how_many_tokens_are_used() -> None:  # cases E12
    kv = pool("kv", AttentionType.FULL, page_tokens=512, unit_pages=8, partial_units=True)
    state = pool("mamba", AttentionType.RECURRENT, page_tokens=512)
    pages = 14848 // 512
    presence = {"kv": flags(4, 0, 1, 2, 3), "mamba": endpoints(pages, 27)}
    transfer = plan([kv, state], presence, pages)
    assert [0, 1, 2, 3] == units(transfer, "kv")
    assert [4096, 4096, 4096, 1536] == [transfer.pools[0].used_tokens(unit, 27) for unit in range(4)]


def test_an_index_narrows_a_plan_and_the_rest_is_not_selected() -> None:
    whole = PoolPlan(pool=KV, units=np.arange(2, 8), skipped={SkipReason.LOCAL_PREFIX: 2})
    narrowed = narrow(whole, flags(8, 0, 3, 7))
    assert [3, 7] == narrowed.units.tolist()
    assert {SkipReason.LOCAL_PREFIX: 2, SkipReason.NOT_SELECTED: 4} == dict(narrowed.skipped)
    assert whole.skipped == narrow(whole, np.ones(8, dtype=np.bool_)).skipped


@given(drawn=pools_and_presence(), policy=st.sampled_from(list(TransferPolicy)), local=st.integers(0, 100))
def test_every_stored_unit_is_read_or_skipped_for_one_reason(
    drawn: tuple[list[KVPoolDescriptor], dict[str, BoolVector], int], policy: TransferPolicy, local: int
) -> None:
    pools, presence, pages = drawn
    transfer = plan(pools, presence, pages, policy, local_tokens=local)
    for item in transfer.pools:
        assert presence[item.pool.name].sum() == len(item.units) + sum(item.skipped.values())
        assert presence[item.pool.name][item.units].all()
        assert 0 == item.missing


@given(drawn=pools_and_presence(), local=st.integers(0, 100))
def test_selective_reads_exactly_what_is_needed_and_not_local(
    drawn: tuple[list[KVPoolDescriptor], dict[str, BoolVector], int], local: int
) -> None:
    pools, presence, pages = drawn
    transfer = plan(pools, presence, pages, local_tokens=local)
    for item in transfer.pools:
        end = num_units(item.pool, transfer.endpoint_pages)
        needed = range(first_needed_at(item.pool, SELECTIVE, end), end)
        endpoint_tokens = transfer.endpoint_pages * item.pool.page_tokens
        used_to = [min((u + 1) * item.pool.unit_tokens, endpoint_tokens) for u in needed]
        beyond = [u for u, token in zip(needed, used_to, strict=True) if token > local]
        assert beyond == item.units.tolist()
