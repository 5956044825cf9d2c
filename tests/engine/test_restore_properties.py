"""What a restore promises, whatever breaks: checked against a second, slower statement of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.engine.reports import Lookup, RestoreReport
from hicache_bench.planning.ledger import volume
from hicache_bench.planning.plan import SkipReason
from hicache_bench.planning.policy import SavePolicy, StateSave, TransferPolicy
from hicache_bench.planning.resolve import num_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType
from hicache_bench.store.base import MISS
from hicache_bench.store.faults import TRANSFER_FAIL, EvictBeforeGet, FailCalls, FailRandomly, Fault
from hicache_bench.store.wrappers import Operation
from tests.engine.rig import KITCHEN_SINK, PAGE_TOKENS, SELECTIVE, Rig

_ALL_PAGES = (
    AttentionType.FULL,
    AttentionType.MLA,
    AttentionType.SPARSE_INDEX,
    AttentionType.COMPRESSED,
)
_PHYSICAL = [pool for pool in KITCHEN_SINK if not pool.is_logical]


def tokens_needed(pool: KVPoolDescriptor, endpoint_tokens: int) -> Sequence[int]:
    """Tokens whose cached state a continuation from ``endpoint_tokens`` reads, one by one."""
    if pool.attention in _ALL_PAGES:
        return range(endpoint_tokens)
    if pool.attention is AttentionType.SWA:
        assert pool.window_tokens is not None
        return [t for t in range(endpoint_tokens) if endpoint_tokens - t < pool.window_tokens]
    if pool.attention is AttentionType.CHUNKED:
        assert pool.window_tokens is not None
        chunk = endpoint_tokens // pool.window_tokens
        return [t for t in range(endpoint_tokens) if t // pool.window_tokens == chunk]
    return [endpoint_tokens - 1] if endpoint_tokens else []


def units_needed(pool: KVPoolDescriptor, endpoint_tokens: int) -> set[int]:
    return {token // pool.unit_tokens for token in tokens_needed(pool, endpoint_tokens)}


@dataclass(frozen=True)
class Broken:
    """A restore under faults, and all that is known about it."""

    rig: Rig
    lookup: Lookup
    report: RestoreReport
    policy: TransferPolicy
    local_tokens: int


@st.composite
def faults(draw: st.DrawFn, keys: Sequence[str]) -> list[Fault]:
    found: list[Fault] = []
    if draw(st.booleans()):
        found.append(
            EvictBeforeGet(draw(st.frozensets(st.sampled_from(keys), max_size=4)), draw(st.integers(1, 3)))
        )
    if draw(st.booleans()):
        operation = draw(st.sampled_from([Operation.GET, Operation.EXISTS]))
        probability = draw(st.sampled_from([0.02, 0.1, 0.5]))
        found.append(FailRandomly(operation, probability, draw(st.sampled_from([MISS, TRANSFER_FAIL]))))
    if draw(st.booleans()):
        calls = draw(st.frozensets(st.integers(1, 4), min_size=1, max_size=2))
        found.append(FailCalls(Operation.GET, calls, draw(st.sampled_from([MISS, TRANSFER_FAIL]))))
    return found


@st.composite
def broken_restores(draw: st.DrawFn, *, selects: bool = False) -> Broken:
    num_pages = draw(st.integers(1, 12))
    save_policy = SavePolicy(
        states=draw(st.sampled_from(StateSave)),
        state_interval_tokens=draw(st.sampled_from([1, 8, 12])),
        window_extra_pages=draw(st.sampled_from([None, 0, 1])),
    )
    policy = SELECTIVE if selects else draw(st.sampled_from(TransferPolicy))
    writer = Rig(KITCHEN_SINK, num_pages)
    writer.save(save_policy)
    reader = Rig(
        KITCHEN_SINK,
        num_pages,
        draw(faults(writer.all_keys())),
        writer.inner,
        seed=draw(st.integers(0, 3)),
        batch_pages=draw(st.sampled_from([1, 3, 128])),
    )
    local_tokens = draw(st.integers(0, num_pages)) * PAGE_TOKENS if draw(st.booleans()) else 0
    lookup = reader.controller.lookup(reader.prefix)
    plan = reader.controller.plan(lookup, policy, local_tokens=local_tokens)
    chosen = np.array(draw(st.lists(st.booleans(), min_size=num_pages, max_size=num_pages)), dtype=np.bool_)
    selector = (lambda pool, index: chosen) if selects else None
    report = reader.controller.restore(reader.prefix, plan, selector=selector)
    return Broken(reader, lookup, report, policy, plan.local_tokens)


def assert_every_byte_that_the_used_endpoint_needs_is_there(broken: Broken) -> None:
    used = broken.report.ledger.used_tokens
    assert {} == broken.rig.wrong_arrivals(broken.report.arrived)
    if used == broken.local_tokens:
        return  # nothing of the store is used
    for pool in _PHYSICAL:
        if not pool.constrains:
            continue
        assert pool.partial_units or used % pool.unit_tokens == 0
        local = broken.local_tokens // pool.unit_tokens
        needed = {unit for unit in units_needed(pool, used) if unit >= local}
        assert [] == broken.rig.wrong(pool.name, sorted(needed)), f"{pool.name} at {used} tokens"


def assert_no_longer_endpoint_could_have_been_used(broken: Broken) -> None:
    """Selective promises the longest; the other policies ask for SGLang's windows, which may be longer."""
    ledger = broken.report.ledger
    if broken.policy is not SELECTIVE:
        return
    for longer in range(ledger.used_tokens + PAGE_TOKENS, ledger.hit_tokens + 1, PAGE_TOKENS):
        missing = [
            (pool.name, unit)
            for pool in _PHYSICAL
            if pool.constrains
            for unit in units_needed(pool, longer)
            if unit >= broken.local_tokens // pool.unit_tokens
            and unit not in broken.report.arrived[pool.name].tolist()
        ]
        assert missing, f"{longer} tokens were there, and {ledger.used_tokens} used"


def assert_every_stored_object_ends_in_one_account(broken: Broken) -> None:
    ledger = broken.report.ledger
    for account, item in zip(ledger.pools, broken.report.plan.pools, strict=True):
        pool = item.pool
        found = int(broken.lookup.presence[pool.name].sum())
        assert volume(pool, found + item.missing) == account.total
        assert item.missing == 0 or not pool.constrains
        parts = (account.read, account.skipped_total, account.missed, account.failed)
        for name in ("units", "objects", "num_bytes"):
            values = [getattr(part, name) for part in (*parts, account.wasted)]
            assert min(values) >= 0
            assert sum(values[:-1]) == getattr(account.total, name)
            assert getattr(account.wasted, name) <= getattr(account.read, name)
    assert ledger.read.num_bytes == broken.rig.inner.stats.get_bytes


def assert_every_hit_token_ends_in_one_reason(broken: Broken) -> None:
    ledger = broken.report.ledger
    assert 0 <= ledger.fulfilled_tokens <= ledger.used_tokens <= max(ledger.hit_tokens, broken.local_tokens)
    assert ledger.used_tokens % PAGE_TOKENS == 0
    assert all(tokens > 0 for tokens in ledger.unused_tokens.values())
    assert ledger.hit_tokens == ledger.used_tokens + sum(ledger.unused_tokens.values())


def assert_wasted_is_what_the_used_endpoint_does_not_need(broken: Broken) -> None:
    """Dense uses whatever lies below the endpoint; the others use what their rule asks for there."""
    if broken.policy is not SELECTIVE:
        return
    used = broken.report.ledger.used_tokens
    for account, item in zip(broken.report.ledger.pools, broken.report.plan.pools, strict=True):
        arrived = set(broken.report.arrived[item.pool.name].tolist())
        useful = arrived & units_needed(item.pool, used)
        assert account.read - volume(item.pool, len(useful)) == account.wasted, item.pool.name


@settings(max_examples=300, deadline=None)
@given(broken_restores())
def test_a_broken_restore_keeps_every_promise(broken: Broken) -> None:
    assert_every_byte_that_the_used_endpoint_needs_is_there(broken)
    assert_no_longer_endpoint_could_have_been_used(broken)
    assert_every_stored_object_ends_in_one_account(broken)
    assert_every_hit_token_ends_in_one_reason(broken)
    assert_wasted_is_what_the_used_endpoint_does_not_need(broken)


@settings(max_examples=100, deadline=None)
@given(broken_restores(selects=True))
def test_selection_keeps_the_account_and_the_promise(broken: Broken) -> None:
    assert {} == broken.rig.wrong_arrivals(broken.report.arrived)
    assert_every_stored_object_ends_in_one_account(broken)
    assert_every_hit_token_ends_in_one_reason(broken)
    kv, account = broken.report.plan.pools[0], broken.report.ledger.pools[0]
    end = num_units(kv.pool, broken.report.ledger.used_tokens // PAGE_TOKENS)
    if broken.report.ledger.used_tokens > broken.local_tokens:
        assert [] == broken.rig.wrong("kv", [unit for unit in kv.units.tolist() if unit < end])
    left_out = account.skipped.get(SkipReason.NOT_SELECTED)
    assert left_out is None or left_out.units > 0
