"""How each fault of the catalogue is brought about: reads and lookups that break."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from hicache_bench.engine.host import HostPool
from hicache_bench.errors import StoreContractError
from hicache_bench.planning.policy import BoolVector, TransferPolicy
from hicache_bench.pools.descriptor import IndexSelection, KVPoolDescriptor
from hicache_bench.pools.names import Requirement
from hicache_bench.store.base import OK, error
from hicache_bench.store.faults import (
    CorruptGet,
    EvictBeforeGet,
    FailCalls,
    FailKeys,
    Fault,
    ShortGet,
    WrongLength,
    exists_lies,
)
from hicache_bench.store.wrappers import Operation
from hicache_bench.workflows.roundtrip.fault_checks import Broken
from hicache_bench.workflows.roundtrip.fault_lab import Lab
from hicache_bench.workflows.roundtrip.fault_models import (
    CONV_ONLY,
    HYBRID,
    INDEX,
    LATENT,
    PAGE_TOKENS,
    PLAIN,
    SPARSE,
)
from hicache_bench.workflows.roundtrip.fault_rig import Asked, Rig
from hicache_bench.workflows.roundtrip.reference import needed_units

NUM_PAGES = 8
LEASE_EXPIRED = error(-707)
"""Mooncake's ``LEASE_EXPIRED`` (``types.h``)."""

Scenario = Callable[[Lab], None]


def _needed_key(lab: Lab, rig: Rig, pool_name: str) -> str:
    """An object that a selective restore of the whole prefix reads, at a seeded place."""
    pool = next(pool for pool in rig.pools if pool.name == pool_name)
    units = sorted(needed_units(pool, TransferPolicy.SELECTIVE, rig.num_tokens))
    return lab.chance.choice(rig.keys_of(pool_name, lab.chance.choice(units or [0])))


def _needed_keys(lab: Lab, rig: Rig) -> list[str]:
    """One needed object of each pool, chunks aside: at the end of a chunk none is needed."""
    return [_needed_key(lab, rig, pool.name) for pool in rig.pools if pool.name != "chunked"]


def _evicted_before_read(lab: Lab) -> None:
    hybrid = lab.rig(HYBRID, NUM_PAGES)
    lab.save(hybrid, "save")
    for key in _needed_keys(lab, hybrid):
        pool = next(iter(hybrid.units_with([key])))
        evicted = EvictBeforeGet(frozenset({key}))
        lab.restore(hybrid, f"{pool} evicted", Broken(lost=[key]), [evicted])
        lab.save(hybrid, f"{pool} saved again")
    (state,) = hybrid.keys_of("mamba", NUM_PAGES - 1)[:1]
    for policy, pages in ((TransferPolicy.SELECTIVE, 0), (TransferPolicy.DENSE, NUM_PAGES - 1)):
        outcome = lab.restore(
            hybrid,
            f"last state evicted, {policy}",
            Broken(lost=[state]),
            [EvictBeforeGet(frozenset({state}))],
            asked=Asked(policy=policy),
        )
        lab.equal(f"last state evicted, {policy}: pages used", pages, outcome.used_tokens // PAGE_TOKENS)
        lab.save(hybrid, "the state saved again")
    lab.recover(hybrid)


def _index_evicted(lab: Lab) -> None:
    sparse = lab.rig(SPARSE, NUM_PAGES)
    lab.save(sparse, "save")
    gone = sparse.keys_of("indexer", 5)
    after = lab.restore(
        sparse, "index page 5 evicted after the lookup", Broken(lost=gone), [EvictBeforeGet(frozenset(gone))]
    )
    wasted = {account.pool: account.wasted.units for account in after.report.ledger.pools}
    lab.equal("evicted after the lookup: pages promised", NUM_PAGES, after.plan.hit_pages)
    lab.equal("evicted after the lookup: pages used", 5, after.used_tokens // PAGE_TOKENS)
    lab.equal("evicted after the lookup: pages wasted", {"kv": 3, "indexer": 2}, wasted)
    before = lab.restore(sparse, "index page 5 gone before the lookup")
    lab.equal("gone before the lookup: pages used", 5, before.used_tokens // PAGE_TOKENS)
    lab.recover(sparse)
    _scored_index_evicted(lab)


def _scored_index_evicted(lab: Lab) -> None:
    """An index that selects blocks has lost a page: poison must not be scored, and all blocks are read."""
    selected = replace(LATENT, selection=IndexSelection(index_pool=INDEX.name, top_k=1))
    rig = lab.rig((selected, INDEX), NUM_PAGES, model="selected")
    lab.save(rig, "save of what an index selects from")
    gone = rig.keys_of(INDEX.name, 5)
    scored: list[str] = []

    def score(pool: KVPoolDescriptor, _host_pool: HostPool) -> BoolVector:
        scored.append(pool.name)
        return np.ones(NUM_PAGES, dtype=np.bool_)

    label = "a page of a scored index evicted"
    lab.restore(rig, label, Broken(lost=gone), [EvictBeforeGet(frozenset(gone))], selector=score)
    lab.equal(f"{label}: pools that were selected from", [], scored)


def _draft_missing(lab: Lab) -> None:
    hybrid = lab.rig(HYBRID, NUM_PAGES)
    lab.save(hybrid, "save")
    (draft,) = (pool for pool in hybrid.pools if pool.required_for is Requirement.SPEED)
    gone = hybrid.keys_of(draft.name, *range(NUM_PAGES))
    evicted = [EvictBeforeGet(frozenset(gone))]
    for label, broken, faults in (
        ("evicted after the lookup", Broken(lost=gone), evicted),
        ("gone before the lookup", Broken(), []),
    ):
        outcome = lab.restore(hybrid, label, broken, faults)
        degraded = [account.pool for account in outcome.report.ledger.pools if account.degraded]
        lab.equal(f"{label}: tokens used", hybrid.num_tokens, outcome.used_tokens)
        lab.equal(f"{label}: pools that are degraded", ["draft"], degraded)
    lab.recover(hybrid)


def _lookup_lies(lab: Lab) -> None:
    plain = lab.rig(PLAIN, 32, model="never saved")
    lies = list(plain.sizes)
    outcome = lab.restore(plain, "32 pages promised", Broken(promised=lies, lost=lies), [exists_lies(*lies)])
    ledger = outcome.report.ledger
    lab.equal("32 pages promised: hit and fulfilled", (128, 0), (ledger.hit_tokens, ledger.fulfilled_tokens))
    lab.equal("32 pages promised: objects missed", 32, sum(part.missed.objects for part in ledger.pools))
    hybrid = lab.rig(HYBRID, NUM_PAGES)
    lab.save(hybrid, "save")
    for key in _needed_keys(lab, hybrid):
        hybrid.inner.remove(key, force=True)
        broken = Broken(promised=[key], lost=[key])
        lab.restore(hybrid, f"{hybrid.units_with([key])} promised", broken, [exists_lies(key)])
        lab.save(hybrid, "saved again")
    lab.recover(hybrid)


def _lease_expired(lab: Lab) -> None:
    hybrid = lab.rig(HYBRID, NUM_PAGES)
    lab.save(hybrid, "save")
    expired = lab.chance.sample(_needed_keys(lab, hybrid), 3)
    fault = FailKeys(Operation.GET, frozenset(expired), LEASE_EXPIRED)
    outcome = lab.restore(hybrid, "3 leases expired", Broken(lost=expired), [fault])
    failed = sum(account.failed.objects for account in outcome.report.ledger.pools)
    lab.equal("3 leases expired: objects that failed", 3, failed)
    lab.recover(hybrid)


def _failed_batch_read(lab: Lab) -> None:
    plain = lab.rig(PLAIN, 257)
    lab.save(plain, "save")
    fault = FailCalls(Operation.GET, frozenset({2}))
    outcome = lab.restore(plain, "batch 2 of 3 failed", Broken(lost=None), [fault])
    lab.equal("batch 2 of 3 failed: pages used", 128, outcome.used_tokens // PAGE_TOKENS)
    lab.equal("batch 2 of 3 failed: batches sent", 2, outcome.report.transfer.batches)
    lab.recover(plain)
    hybrid = lab.rig(HYBRID, NUM_PAGES, batch_pages=3)
    lab.save(hybrid, "hybrid: save")
    for policy in TransferPolicy:
        label = f"hybrid, {policy}: batch 2 failed"
        lab.restore(hybrid, label, Broken(lost=None), [fault], asked=Asked(policy=policy))
    lab.recover(hybrid)


def _short_read(lab: Lab) -> None:
    _spoiled_reads(lab, lambda key: ShortGet(frozenset({key}), 1 + lab.chance.randrange(16)))


def _empty_read(lab: Lab) -> None:
    _spoiled_reads(lab, lambda key: FailKeys(Operation.GET, frozenset({key}), OK), unread=True)


def _flipped_bit(lab: Lab) -> None:
    _spoiled_reads(lab, lambda key: CorruptGet(frozenset({key})))


def _spoiled_reads(lab: Lab, fault: Callable[[str], Fault], *, unread: bool = False) -> None:
    """A read of one object of each pool answers ``OK`` and brings something else."""
    hybrid = lab.rig(HYBRID, NUM_PAGES)
    lab.save(hybrid, "save")
    for key in _needed_keys(lab, hybrid):
        broken = Broken(lost=[key]) if lab.digest else Broken(silent=[key], unread=[key] if unread else ())
        pool = next(iter(hybrid.units_with([key])))
        lab.restore(hybrid, f"{pool} spoiled", broken, [fault(key)])
    lab.recover(hybrid)


def _wrong_length(lab: Lab) -> None:
    hybrid = lab.rig(HYBRID, NUM_PAGES)
    for operation in Operation:
        for num_extra in (-1, 1):
            fault = WrongLength(operation, frozenset({1}), num_extra)
            refused = "taken as it came"
            try:
                if operation is Operation.PUT:
                    hybrid.save(faults=[fault])
                else:
                    hybrid.restore(Asked(), [fault])
            except StoreContractError:
                refused = "refused"
            lab.equal(f"{operation.value} with {num_extra:+d} results", "refused", refused)
        lab.recover(hybrid)


def _zero_size_component(lab: Lab) -> None:
    conv = lab.rig(CONV_ONLY, NUM_PAGES)
    lab.save(conv, "save")
    keys = conv.keys_of("mamba", NUM_PAGES - 1)
    lab.equal("keys of a state with 3 components that have bytes", 3, len(keys))
    outcome = lab.restore(conv, "without the empty component")
    lab.equal("without the empty component: tokens used", conv.num_tokens, outcome.used_tokens)
    lost = [lab.chance.choice(keys)]
    label = "without one of the others"
    outcome = lab.restore(conv, label, Broken(lost=lost), [EvictBeforeGet(frozenset(lost))])
    lab.equal(f"{label}: tokens used", 0, outcome.used_tokens)
    lab.recover(conv)


READ_SCENARIOS: Mapping[str, Scenario] = {
    "evicted-before-read": _evicted_before_read,
    "index-evicted": _index_evicted,
    "draft-missing": _draft_missing,
    "lookup-lies": _lookup_lies,
    "lease-expired": _lease_expired,
    "failed-batch-read": _failed_batch_read,
    "short-read": _short_read,
    "empty-read": _empty_read,
    "wrong-length": _wrong_length,
    "flipped-bit": _flipped_bit,
    "zero-size-component": _zero_size_component,
}
