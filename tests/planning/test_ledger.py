from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import ConfigError
from hicache_bench.planning.ledger import Ledger, PoolArrival, Volume, settle, total_volume, volume
from hicache_bench.planning.plan import PoolPlan, SkipReason, TransferPlan
from hicache_bench.planning.policy import BoolVector, TransferPolicy, first_needed_at
from hicache_bench.planning.resolve import num_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.names import AttentionType, Requirement
from tests.planning.test_plan import plan
from tests.planning.test_resolve import pools_and_presence
from tests.pool_builders import endpoints, flags, pool

SELECTIVE = TransferPolicy.SELECTIVE
KV = pool("kv", AttentionType.MLA)
INDEX = pool("indexer", AttentionType.SPARSE_INDEX)
STATE = pool("mamba", AttentionType.RECURRENT)


def arrival(item: PoolPlan, *lost: int, failed: bool = False) -> PoolArrival:
    """Everything of a plan but the ``lost`` units."""
    units = item.units[~np.isin(item.units, lost)]
    gone = volume(item.pool, len(item.units) - len(units))
    kind = "failed" if failed else "missed"
    return PoolArrival(units=units, read=volume(item.pool, len(units)), **{kind: gone})


def settled(transfer: TransferPlan, **lost: tuple[int, ...]) -> Ledger:
    return settle(transfer, {p.pool.name: arrival(p, *lost.get(p.pool.name, ())) for p in transfer.pools})


def whole(pages: int, *pools: KVPoolDescriptor) -> dict[str, BoolVector]:
    return {p.name: np.ones(num_units(p, pages), dtype=np.bool_) for p in pools}


def test_a_lost_index_page_shortens_what_is_used_and_wastes_the_rest() -> None:  # cases E05
    ledger = settled(plan([KV, INDEX], whole(8, KV, INDEX), 8), indexer=(5,))
    assert (128, 80, 80) == (ledger.hit_tokens, ledger.fulfilled_tokens, ledger.used_tokens)
    kv, index = ledger.pools
    assert (Volume(8, 8, 512), Volume(3, 3, 192)) == (kv.read, kv.wasted)
    assert (Volume(7, 7, 448), Volume(2, 2, 128)) == (index.read, index.wasted)
    assert Volume(1, 1, 64) == index.missed
    assert {SkipReason.TRANSFER_SHORTFALL: 48} == ledger.unused_tokens


def test_a_lost_state_leaves_the_next_lower_common_endpoint_or_nothing() -> None:  # cases E60
    presence = {**whole(8, KV), "mamba": endpoints(8, 3, 8)}
    lost_under = {
        policy: settled(plan([KV, STATE], presence, 8, policy), mamba=(7,)) for policy in TransferPolicy
    }
    assert 48 == lost_under[TransferPolicy.DENSE].used_tokens  # it read the state of endpoint 3 as well
    assert 0 == lost_under[SELECTIVE].used_tokens
    assert lost_under[SELECTIVE].pools[0].read == lost_under[SELECTIVE].pools[0].wasted


def test_a_local_prefix_survives_a_lost_transfer() -> None:
    presence = {**whole(8, KV), "mamba": endpoints(8, 8)}
    ledger = settled(plan([KV, STATE], presence, 8, local_tokens=64), mamba=(7,))
    assert (128, 64) == (ledger.hit_tokens, ledger.used_tokens)
    assert Volume(4, 4, 256) == ledger.pools[0].wasted


def test_a_plan_cut_to_the_host_keeps_its_reason() -> None:  # cases E13
    ledger = settled(plan([KV], whole(8, KV), 8, host_capacity_pages=3))
    assert (128, 48, 48) == (ledger.hit_tokens, ledger.fulfilled_tokens, ledger.used_tokens)
    assert {SkipReason.HOST_CAPACITY: 80} == ledger.unused_tokens
    assert {SkipReason.HOST_CAPACITY: Volume(5, 5, 320)} == ledger.pools[0].skipped


def test_a_speed_pool_that_is_short_is_degraded_and_shortens_nothing() -> None:  # cases E28
    draft = pool("draft", AttentionType.FULL, required_for=Requirement.SPEED)
    ledger = settled(plan([KV, draft], {**whole(4, KV), "draft": flags(4, 0)}, 4))
    assert 64 == ledger.used_tokens
    assert [False, True] == [account.degraded for account in ledger.pools]
    assert Volume(3, 3, 192) == ledger.pools[1].missed


def test_a_speed_pool_whose_read_fails_is_degraded_too() -> None:
    draft = pool("draft", AttentionType.FULL, required_for=Requirement.SPEED)
    ledger = settled(plan([KV, draft], whole(4, KV, draft), 4), draft=(2,))
    assert (64, [False, True]) == (ledger.used_tokens, [account.degraded for account in ledger.pools])


def test_a_unit_whose_components_arrived_in_part_is_no_use() -> None:
    split = pool("kv", AttentionType.FULL, components=(Component("k", 1, 1, 64), Component("v", 1, 1, 32)))
    transfer = plan([split], whole(4, split), 4)
    half = PoolArrival(units=np.array([0, 1, 3]), read=Volume(3, 7, 3 * 96 + 64), failed=Volume(1, 1, 32))
    ledger = settle(transfer, {"kv": half})
    assert 32 == ledger.used_tokens
    assert Volume(1, 3, 96 + 64) == ledger.pools[0].wasted
    assert volume(split, 4) == ledger.pools[0].total


def test_unselected_blocks_do_not_shorten_the_prefix_and_a_lost_selected_one_ends_it() -> None:
    """At a shorter endpoint the index would have chosen other blocks, which nobody read."""
    transfer = plan([KV, INDEX], whole(8, KV, INDEX), 8)
    kv = PoolPlan(pool=KV, units=np.array([2, 6]), skipped={SkipReason.NOT_SELECTED: 6})
    chosen = TransferPlan(
        policy=SELECTIVE, num_pages=8, hit_pages=8, endpoint_pages=8, pools=(kv, transfer.pools[1])
    )
    assert 128 == settled(chosen).used_tokens
    assert 0 == settled(chosen, kv=(6,)).used_tokens
    assert 0 == settled(chosen, indexer=(5,)).used_tokens
    assert 48 == settled(replace(chosen, local_tokens=48), indexer=(5,)).used_tokens


def test_a_pool_that_shortens_the_prefix_is_not_degraded() -> None:
    ledger = settled(plan([KV, STATE], whole(8, KV, STATE), 8), kv=(7,))
    assert (0, [False, False]) == (ledger.used_tokens, [account.degraded for account in ledger.pools])


def test_a_plan_without_a_physical_pool_has_no_account() -> None:
    with pytest.raises(ConfigError, match="no account"):
        settle(replace(plan([KV], whole(4, KV), 4), pools=()), {})


def test_a_planned_pool_without_an_arrival_is_refused() -> None:
    with pytest.raises(ConfigError, match="kv"):
        settle(plan([KV], whole(4, KV), 4), {})


def test_volumes_add_and_subtract() -> None:
    one, two = Volume(1, 2, 3), Volume(10, 20, 30)
    assert (Volume(11, 22, 33), Volume(9, 18, 27)) == (one + two, two - one)
    assert Volume() == total_volume([])


@given(
    drawn=pools_and_presence(),
    policy=st.sampled_from(list(TransferPolicy)),
    local=st.integers(0, 60),
    data=st.data(),
)
def test_the_account_balances_and_what_is_used_really_arrived(
    drawn: tuple[list[KVPoolDescriptor], dict[str, BoolVector], int],
    policy: TransferPolicy,
    local: int,
    data: Any,
) -> None:
    pools, presence, pages = drawn
    transfer = plan(pools, presence, pages, policy, local_tokens=local)
    lost = {
        p.pool.name: tuple(data.draw(st.sets(st.sampled_from(p.units.tolist()))) if len(p.units) else ())
        for p in transfer.pools
    }
    ledger = settled(transfer, **lost)
    assert ledger.fulfilled_tokens <= ledger.used_tokens <= ledger.hit_tokens
    assert ledger.hit_tokens == ledger.used_tokens + sum(ledger.unused_tokens.values())
    for item, account in zip(transfer.pools, ledger.pools, strict=True):
        assert volume(item.pool, int(presence[item.pool.name].sum())) == account.total
        assert account.wasted.num_bytes <= account.read.num_bytes
        end = num_units(item.pool, ledger.used_tokens // 4)
        for unit in range(first_needed_at(item.pool, policy, end), end):
            is_local = (unit + 1) * item.pool.unit_tokens <= transfer.local_tokens
            if ledger.used_tokens > transfer.local_tokens:
                assert is_local or (unit in item.units and unit not in lost[item.pool.name])
