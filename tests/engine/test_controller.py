from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hicache_bench.engine.controller import remove_prefix
from hicache_bench.errors import ConfigError
from hicache_bench.planning.ledger import Volume, volume
from hicache_bench.planning.plan import SkipReason
from hicache_bench.planning.policy import SavePolicy, StateSave, TransferPolicy
from hicache_bench.planning.resolve import matchable_pages
from hicache_bench.pools.keys import page_hashes
from hicache_bench.store.faults import EvictBeforeGet, FailKeys, exists_lies
from hicache_bench.store.wrappers import Operation
from tests.engine.rig import (
    ANCHOR,
    INDEX,
    KITCHEN_SINK,
    LATENT,
    PAGE_TOKENS,
    RATIO,
    SELECTIVE,
    STATE,
    WINDOW,
    Rig,
    tokens,
)

DENSE, HIT_POLICY = TransferPolicy.DENSE, TransferPolicy.HIT_POLICY


def test_a_hybrid_prefix_comes_back_under_every_policy_and_nothing_else_is_touched() -> None:
    rig = Rig(KITCHEN_SINK, 9)
    assert rig.save().complete
    for policy in TransferPolicy:
        rig.poison()
        report = rig.restore(policy)
        assert (36, 36, 36) == (
            report.ledger.hit_tokens, report.ledger.fulfilled_tokens, report.ledger.used_tokens
        )  # fmt: skip
        assert {} == rig.wrong_arrivals(report.arrived)
        for name, host_pool in rig.host_pools.items():
            restored = set(rig.prefix.slots[name][report.arrived[name]].tolist())
            view = host_pool.view(0)
            poisoned = {slot for slot in range(host_pool.num_slots) if (view[slot] == 0xFF).all()}
            assert set(range(host_pool.num_slots)) - restored == poisoned
    assert all(host_pool.guards_intact() for host_pool in rig.host_pools.values())


def test_each_policy_reads_what_its_rule_says() -> None:
    """9 pages of 4 tokens, n = 36: a window of 6 needs tokens 31..35, the engine's of 9 needs 3 pages."""
    rig = Rig(KITCHEN_SINK, 9)
    rig.save()
    read = {p: {k: v.tolist() for k, v in rig.restore(p).arrived.items()} for p in TransferPolicy}
    everything = list(range(9))
    for policy in TransferPolicy:
        assert everything == read[policy]["kv"] == read[policy]["indexer"] == read[policy]["draft"]
        assert list(range(5)) == read[policy]["c128"]
    assert [everything, [6, 7, 8], [7, 8]] == [read[p]["swa"] for p in (DENSE, HIT_POLICY, SELECTIVE)]
    # Chunks of 8 tokens: the last one starts at 32, hence page 8 alone; the engine takes two.
    assert [everything, [7, 8], [8]] == [read[p]["chunked"] for p in (DENSE, HIT_POLICY, SELECTIVE)]
    for name in ("mamba", "c4_state"):
        assert [everything, [8], [8]] == [read[p][name] for p in (DENSE, HIT_POLICY, SELECTIVE)]


def test_the_logical_anchor_has_no_key_no_buffer_and_no_account() -> None:
    rig = Rig([ANCHOR, LATENT], 3)
    rig.save()
    assert {"kv": Volume(3, 3, 3 * LATENT.unit_bytes)} == {
        pool.pool: pool.read for pool in rig.restore().ledger.pools
    }
    assert 3 == len(rig.inner)


def test_replay_of_the_very_prompt_recomputes_one_token() -> None:  # cases E08
    rig = Rig([LATENT, STATE], 8)
    rig.save(SavePolicy(states=StateSave.LAST))
    exact = replace(rig.prefix, prompt_tokens=32)
    lookup = rig.controller.lookup(exact)
    assert 7 == matchable_pages(32, PAGE_TOKENS)
    plan = rig.controller.plan(lookup, SELECTIVE)
    assert (0, 0) == (plan.hit_pages, plan.read_bytes)  # the only state is that of endpoint 8
    assert {SkipReason.REPLAY_BOUNDARY} == set(plan.pools[0].skipped)
    rig.save(SavePolicy(states=StateSave.ALL))
    assert 7 == rig.controller.resolve(rig.controller.lookup(exact), SELECTIVE).hit_pages


def test_an_object_lost_between_lookup_and_read_shortens_what_is_used() -> None:  # cases E05
    writer = Rig([LATENT, INDEX], 8)
    writer.save()
    reader = Rig([LATENT, INDEX], 8, [EvictBeforeGet(frozenset({writer.key("indexer", 5)}))], writer.inner)
    ledger = reader.restore().ledger
    assert (32, 20, 20) == (ledger.hit_tokens, ledger.fulfilled_tokens, ledger.used_tokens)
    kv, index = ledger.pools
    assert (volume(LATENT, 8), volume(LATENT, 3)) == (kv.read, kv.wasted)
    assert (volume(INDEX, 7), volume(INDEX, 2), volume(INDEX, 1)) == (index.read, index.wasted, index.missed)
    assert {SkipReason.TRANSFER_SHORTFALL: 12} == ledger.unused_tokens
    assert [] == reader.wrong("kv", range(5)) == reader.wrong("indexer", range(5))


@pytest.mark.parametrize(("policy", "used_pages"), [(DENSE, 6), (HIT_POLICY, 0), (SELECTIVE, 0)])
def test_a_lost_state_falls_back_to_an_endpoint_whose_state_was_read(
    policy: TransferPolicy, used_pages: int
) -> None:  # cases E60
    every_third = SavePolicy(states=StateSave.EVERY, state_interval_tokens=3 * PAGE_TOKENS)
    writer = Rig([LATENT, STATE], 8)
    writer.save(every_third)  # states of endpoints 3, 6 and 8
    lost = frozenset({writer.key("mamba", 7, component=1)})  # one of its two objects is enough
    reader = Rig([LATENT, STATE], 8, [EvictBeforeGet(lost)], writer.inner)
    report = reader.restore(policy)
    assert used_pages * PAGE_TOKENS == report.ledger.used_tokens
    state = report.ledger.pools[1]
    assert (1, 1) == (state.missed.units, state.missed.objects)
    assert state.read.objects == 2 * state.read.units + 1  # the half that did arrive is counted
    # Under dense, which reads them on purpose, the states of endpoints 3 and 6 are no waste.
    useful = 2 if policy is DENSE else 0
    assert state.wasted.num_bytes == state.read.num_bytes - useful * STATE.unit_bytes


def test_pages_from_the_store_land_behind_the_local_ones() -> None:  # cases E61
    writer = Rig([LATENT, WINDOW, STATE], 7)
    writer.save()
    reader = Rig([LATENT, WINDOW, STATE], 7, inner=writer.inner, seed=3)
    report = reader.restore(local_tokens=16)
    assert [4, 5, 6] == report.arrived["kv"].tolist()
    assert [] == reader.wrong("kv", [4, 5, 6])
    assert [0, 1, 2, 3] == reader.wrong("kv", range(7))  # the local ones are not touched, hence still poison
    assert {SkipReason.LOCAL_PREFIX: volume(LATENT, 4)} == report.ledger.pools[0].skipped
    assert (28, 12) == (report.ledger.used_tokens, report.plan.loaded_tokens)


def test_a_unit_that_is_local_in_part_is_read_as_a_whole_or_counts_as_lost() -> None:  # cases E15
    writer = Rig([LATENT, RATIO], 8)
    writer.save()
    reader = Rig([LATENT, RATIO], 8, inner=writer.inner)
    report = reader.restore(local_tokens=12)  # 3 pages: unit 1 of two pages is local by half
    assert [1, 2, 3] == report.arrived["c128"].tolist()
    lost = EvictBeforeGet(frozenset({writer.key("c128", 1)}))
    unlucky = Rig([LATENT, RATIO], 8, [lost], writer.inner)
    assert 12 == unlucky.restore(local_tokens=12).ledger.used_tokens


@pytest.mark.parametrize("knows_parent", [True, False])
def test_a_prefix_that_continues_needs_the_hash_of_its_parent(knows_parent: bool) -> None:  # cases E10
    writer = Rig([LATENT, STATE], 7)
    writer.save()
    parent = writer.prefix.hashes[3] if knows_parent else None
    prompt = tokens(7 * PAGE_TOKENS)
    reader = Rig([LATENT, STATE], 7, inner=writer.inner, seed=4)
    reader.prefix = replace(
        reader.prefix,
        first_page=4,
        parent=parent,
        hashes=page_hashes(prompt[4 * PAGE_TOKENS :], PAGE_TOKENS, parent=parent),
    )
    lookup = reader.controller.lookup(reader.prefix)
    assert 3 + 2 * 3 == lookup.keys_asked  # local pages are not asked for
    assert ((), ("chain_anchor_mismatch",))[not knows_parent] == lookup.diagnostics
    report = reader.restore()
    found = [4, 5, 6] if knows_parent else []
    assert found == report.arrived["kv"].tolist()
    assert (28 if knows_parent else 16) == report.ledger.used_tokens
    assert {} == reader.wrong_arrivals(report.arrived)


def test_a_save_that_continues_writes_only_what_lies_beyond() -> None:
    rig = Rig([LATENT, STATE], 7)
    whole = rig.prefix
    rig.prefix = replace(whole, first_page=4, parent=whole.hashes[3], hashes=whole.hashes[4:])
    report = rig.save()
    assert (3 + 2 * 3, 7) == (len(rig.inner), report.stored_pages)
    rig.prefix = whole
    assert 0 == rig.controller.resolve(rig.controller.lookup(whole), SELECTIVE).hit_pages
    present = rig.controller.lookup(whole).presence
    assert [False] * 4 + [True] * 3 == present["kv"].tolist() == present["mamba"].tolist()


def test_only_states_that_the_host_holds_are_saved() -> None:  # cases E20
    rig = Rig([LATENT, STATE], 8)
    valid = np.where(np.arange(8) == 5, rig.prefix.slots["mamba"], -1)
    rig.prefix = replace(rig.prefix, slots={**rig.prefix.slots, "mamba": valid})
    rig.fill()
    report = rig.controller.save(rig.prefix, SavePolicy(states=StateSave.ALL))
    assert (1, 2) == (report.written["mamba"].units, report.written["mamba"].objects)
    assert report.complete
    assert 6 == rig.controller.resolve(rig.controller.lookup(rig.prefix), SELECTIVE).hit_pages


def test_a_page_that_the_host_lacks_is_not_reported_as_stored() -> None:
    rig = Rig([LATENT], 8)
    slots = rig.prefix.slots["kv"].copy()
    slots[3] = -1
    rig.prefix = replace(rig.prefix, slots={"kv": slots})
    rig.fill()
    report = rig.controller.save(rig.prefix, SavePolicy())
    assert (3, 5, False) == (report.stored_pages, report.failed_pages, report.complete)


def test_a_unit_without_a_slot_cannot_be_restored() -> None:
    rig = Rig([LATENT], 8)
    rig.save()
    slots = np.where(np.arange(8) == 6, -1, rig.prefix.slots["kv"])
    rig.prefix = replace(rig.prefix, slots={"kv": slots})
    with pytest.raises(ConfigError, match="'kv': unit 6 has no host slot"):
        rig.restore()


def test_garbage_under_the_right_key_is_found_and_a_later_save_does_not_mend_it() -> None:  # cases E20
    rig = Rig([LATENT, STATE], 6)
    rig.fill()
    slot = int(rig.prefix.slots["mamba"][5])
    rig.host_pools["mamba"].view(0)[slot] = 0
    rig.controller.save(rig.prefix, SavePolicy())
    again = rig.save(SavePolicy())  # the right bytes this time: a put of an existing key stores nothing
    assert (0, 1) == (again.written["mamba"].units, again.existing["mamba"].units)
    report = rig.restore()
    assert 24 == report.ledger.used_tokens
    assert {"mamba": [5]} == rig.wrong_arrivals(report.arrived)


def test_a_prefix_is_found_by_another_engine_with_other_slots() -> None:
    writer = Rig(KITCHEN_SINK, 11)
    writer.save()
    reader = Rig(KITCHEN_SINK, 11, inner=writer.inner, seed=5)
    report = reader.restore(DENSE)
    assert 44 == report.ledger.used_tokens
    assert {} == reader.wrong_arrivals(report.arrived)


def test_a_longer_prompt_uses_what_a_shorter_one_saved() -> None:
    prompt = tokens(10 * PAGE_TOKENS)
    writer = Rig([LATENT, INDEX, STATE], 6, prompt=prompt)
    writer.save()
    reader = Rig([LATENT, INDEX, STATE], 10, prompt=prompt, inner=writer.inner)
    report = reader.restore()
    assert 24 == report.ledger.used_tokens
    assert {} == reader.wrong_arrivals(report.arrived)


@pytest.mark.parametrize(("states", "used"), [(StateSave.ALL, 16), (StateSave.LAST, 0)])
def test_a_prompt_that_diverges_uses_what_is_common(states: StateSave, used: int) -> None:
    prompt = tokens(8 * PAGE_TOKENS)
    writer = Rig([LATENT, STATE], 8, prompt=prompt)
    writer.save(SavePolicy(states=states))
    other = prompt.copy()
    other[4 * PAGE_TOKENS + 1] ^= 1
    reader = Rig([LATENT, STATE], 8, prompt=other, inner=writer.inner)
    report = reader.restore()
    assert used == report.ledger.used_tokens
    assert {} == reader.wrong_arrivals(report.arrived)
    assert [False] * 4 == reader.controller.lookup(reader.prefix).presence["kv"][4:].tolist()


def test_a_store_that_promises_what_it_lacks_gives_nothing_and_says_so() -> None:  # cases E54
    probe = Rig([LATENT], 6)
    rig = Rig([LATENT], 6, [exists_lies(*probe.all_keys())])
    ledger = rig.restore().ledger
    assert (24, 0, 0) == (ledger.hit_tokens, ledger.fulfilled_tokens, ledger.used_tokens)
    assert volume(LATENT, 6) == ledger.pools[0].missed


def test_a_prefix_can_be_taken_out_of_a_store_that_goes_on() -> None:
    rig = Rig(KITCHEN_SINK, 5)
    rig.save()
    other = Rig(KITCHEN_SINK, 5, inner=rig.inner, prompt=tokens(20, seed=9))
    other.save()
    before = len(rig.inner)
    rig.controller.lookup(rig.prefix)  # takes leases
    remove_prefix(rig.registry.registered, rig.keys, rig.inner, rig.prefix)
    assert before == 2 * len(rig.inner)
    assert 20 == other.restore().ledger.used_tokens


@pytest.mark.parametrize("policy", list(TransferPolicy))
def test_a_lookup_of_what_decides_leads_to_the_same_restore(policy: TransferPolicy) -> None:
    rig = Rig(KITCHEN_SINK, 11)
    rig.save(SavePolicy(states=StateSave.EVERY, state_interval_tokens=12, window_extra_pages=2))
    rig.inner.remove(rig.key("mamba", 10), force=True)
    whole = rig.restore(policy, local_tokens=8)
    lookup = rig.controller.lookup_endpoint(rig.prefix, policy, local_tokens=8)
    plan = rig.controller.plan(lookup, policy, local_tokens=8)
    rig.poison()
    report = rig.controller.restore(rig.prefix, plan)
    assert whole.ledger.used_tokens == report.ledger.used_tokens == 36
    assert whole.ledger.read == report.ledger.read
    assert {name: units.tolist() for name, units in whole.arrived.items()} == {
        name: units.tolist() for name, units in report.arrived.items()
    }
    assert {} == rig.wrong_arrivals(report.arrived)
    assert lookup.keys_asked < rig.controller.lookup(rig.prefix).keys_asked


def test_a_host_without_room_gets_the_longest_endpoint_that_fits() -> None:
    rig = Rig([LATENT, STATE], 12)
    rig.save(SavePolicy(states=StateSave.EVERY, state_interval_tokens=12))
    lookup = rig.controller.lookup_endpoint(rig.prefix, SELECTIVE, host_capacity_pages=8)
    plan = rig.controller.plan(lookup, SELECTIVE, host_capacity_pages=8)
    assert (12, 6, SkipReason.HOST_CAPACITY) == (plan.hit_pages, plan.endpoint_pages, plan.shortfall)
    assert 24 == rig.controller.restore(rig.prefix, plan).ledger.used_tokens


def test_lookup_counts_errors_apart_from_misses() -> None:  # cases E49
    writer = Rig([LATENT], 6)
    writer.save()
    unreachable = FailKeys(Operation.EXISTS, frozenset({writer.key("kv", 2)}))
    reader = Rig([LATENT], 8, [unreachable], writer.inner, prompt=tokens(32))
    lookup = reader.controller.lookup(reader.prefix)
    expected = [True, True, False, True, True, True, False, False]
    assert expected == lookup.presence["kv"].tolist()
    assert (8, 1, 1) == (lookup.keys_asked, lookup.calls, lookup.errors)
    assert 8 == reader.restore().ledger.hit_tokens


def test_a_prefix_that_is_local_as_a_whole_needs_no_key() -> None:
    """Of the last ratio unit the local part is all that there is, and it has no key here."""
    rig = Rig([LATENT, RATIO], 3)
    rig.save()
    hashes = rig.prefix.hashes
    local = replace(rig.prefix, hashes=[], first_page=3, parent=hashes[-1])
    report = rig.controller.restore(local, rig.controller.plan(rig.controller.lookup(local), SELECTIVE))
    assert (3 * PAGE_TOKENS, 0) == (report.ledger.used_tokens, report.ledger.read.objects)
