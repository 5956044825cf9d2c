"""What every request of a real fault checks: on the embedded store, broken in each way that it must find."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.config.load import load_model
from hicache_bench.errors import StoreClosedError
from hicache_bench.models.engine_profile import pools_of
from hicache_bench.planning import ledger
from hicache_bench.planning.ledger import PoolLedger, Volume
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.planning.resolve import resolve
from hicache_bench.store.base import OK, Buffers, KeyResult, KVStoreBackend
from hicache_bench.store.faults import CorruptGet, EvictBeforeGet, FailKeys, Fault, FaultyStore
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.wrappers import Operation, StoreWrapper
from hicache_bench.workflows.prefix import build_registry
from hicache_bench.workflows.roundtrip import real_fault_rig
from hicache_bench.workflows.roundtrip.real_fault_rig import (
    NUM_PAGES,
    PRESET,
    Findings,
    Request,
    SavedPrefix,
    Stage,
    wait_for,
    whole_tokens,
)

MODEL = load_model(PRESET)
POOLS = build_registry(pools_of(MODEL.spec, profile=MODEL.profile)).registered
PAGE_TOKENS = POOLS[0].page_tokens


class Heard:
    """What findings said."""

    def __init__(self) -> None:
        self.lines: list[Mapping[str, Any]] = []
        self.stage = Stage(3, Findings(self.lines.append), [])

    @property
    def failed(self) -> set[str]:
        """Names of checks that failed, without the request's label."""
        checks = [line["check"] for line in self.lines if "check" in line]
        assert checks
        return {check["name"].rpartition(": ")[2] for check in checks if not check["passed"]}


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def local() -> Iterator[KVStoreBackend]:
    with LocalKVStore(64 << 20) as store:
        yield store


class StrayGet(StoreWrapper):
    """Writes one byte at an address of its own after each read."""

    def __init__(self, inner: KVStoreBackend, offset: Callable[[int, int], int]) -> None:
        super().__init__(inner)
        self._offset = offset

    def batch_get_into(self, keys, addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        results = super().batch_get_into(keys, addresses, sizes)
        ctypes.memset(self._offset(addresses, sizes), 0, 1)  # type: ignore[arg-type]
        return results


def request(heard: Heard, store: KVStoreBackend, *faults: Fault, **named: Any) -> Request:
    saved = SavedPrefix(heard.stage, store)
    saved.save_whole("save")
    saved.store = FaultyStore(store, faults)
    return saved.request("it", limit_seconds=60.0, **named)


@pytest.mark.parametrize("policy", TransferPolicy)
def test_nothing_is_wrong(heard: Heard, local: KVStoreBackend, policy: TransferPolicy) -> None:
    assert NUM_PAGES * PAGE_TOKENS == request(heard, local, policy=policy).used_tokens
    assert set() == heard.failed


def test_evicted_objects_shorten_what_is_used(heard: Heard, local: KVStoreBackend) -> None:
    assert "mla" == POOLS[0].name
    keys = SavedPrefix(heard.stage, local).keys
    found = request(heard, local, EvictBeforeGet(frozenset(keys[20:21])))
    assert 20 * PAGE_TOKENS == found.used_tokens
    assert "miss, ok" == found.answers
    assert set() == heard.failed


def test_an_incomplete_save_is_found(heard: Heard) -> None:
    with LocalKVStore(8 << 20) as small:
        SavedPrefix(heard.stage, small).save_whole("save")
    assert {"pages stored"} == heard.failed


def test_a_save_that_succeeds_where_it_must_not(heard: Heard, local: KVStoreBackend) -> None:
    SavedPrefix(heard.stage, local).save_refused("save", "no_space", 60.0)
    assert {"pages that it says failed", "answers"} == heard.failed


def test_a_request_that_is_not_whole(heard: Heard, local: KVStoreBackend) -> None:
    SavedPrefix(heard.stage, local).request_whole("request")
    assert {"tokens used"} == heard.failed


def test_a_flipped_bit(heard: Heard, local: KVStoreBackend) -> None:
    keys = SavedPrefix(heard.stage, local).keys
    request(heard, local, CorruptGet(frozenset(keys[5:6])))
    assert {"wrong bytes counted as restored"} == heard.failed


def test_a_read_that_never_was(heard: Heard, local: KVStoreBackend) -> None:
    keys = SavedPrefix(heard.stage, local).keys
    request(heard, local, FailKeys(Operation.GET, frozenset(keys[5:6]), OK))
    assert {"wrong bytes counted as restored", "bytes read, by the store's own count"} == heard.failed


def test_a_write_before_the_buffer(heard: Heard, local: KVStoreBackend) -> None:
    saved = SavedPrefix(heard.stage, local)
    saved.save_whole("save")
    saved.store = StrayGet(local, lambda addresses, sizes: addresses[0] - 1)  # type: ignore[index]
    saved.request("it", limit_seconds=60.0)
    assert {"guard zones written to"} == heard.failed


def test_a_write_to_a_page_of_no_plan(heard: Heard, local: KVStoreBackend) -> None:
    """A window reads its last pages only; its first slot keeps its poison."""
    saved = SavedPrefix(heard.stage, local)
    saved.save_whole("save")
    position = NUM_PAGES  # of the first key of the window, behind those of the latent

    def before(addresses: Any, sizes: Any) -> int:
        return int(addresses[position] - sizes[position])

    saved.store = StrayGet(local, before)
    saved.request("it", limit_seconds=60.0, policy=TransferPolicy.SELECTIVE)
    assert {"pages touched that no plan named"} == heard.failed


def test_used_that_is_not_resolved_again(
    heard: Heard, local: KVStoreBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_used_pages", lambda plan, arrivals: plan.endpoint_pages)
    keys = SavedPrefix(heard.stage, local).keys
    request(heard, local, EvictBeforeGet(frozenset(keys[5:6])))
    assert {"used, resolved again from what arrived"} == heard.failed


def test_used_beyond_hit(heard: Heard, local: KVStoreBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = ledger.settle
    monkeypatch.setattr(
        "hicache_bench.engine.controller.settle",
        lambda plan, arrivals: replace(settle(plan, arrivals), hit_tokens=PAGE_TOKENS),
    )
    request(heard, local)
    assert {"used ≤ fulfilled ≤ hit", "hit tokens with a reason for their loss"} == heard.failed


def test_tokens_lost_without_a_reason(
    heard: Heard, local: KVStoreBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = ledger.settle
    monkeypatch.setattr(
        "hicache_bench.engine.controller.settle",
        lambda plan, arrivals: replace(settle(plan, arrivals), unused_tokens={}),
    )
    keys = SavedPrefix(heard.stage, local).keys
    request(heard, local, EvictBeforeGet(frozenset(keys[5:6])))
    assert {"hit tokens with a reason for their loss"} == heard.failed


def test_an_account_that_drops_what_it_missed(
    heard: Heard, local: KVStoreBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = ledger.settle

    def forgetful(plan: Any, arrivals: Any) -> Any:
        whole = settle(plan, arrivals)
        pools: tuple[PoolLedger, ...] = tuple(replace(pool, missed=Volume()) for pool in whole.pools)
        return replace(whole, pools=pools)

    monkeypatch.setattr("hicache_bench.engine.controller.settle", forgetful)
    keys = SavedPrefix(heard.stage, local).keys
    request(heard, local, EvictBeforeGet(frozenset(keys[5:6])))
    assert {"pools whose account does not balance"} == heard.failed


class TestFindings:
    def test_within(self, heard: Heard) -> None:
        heard.stage.found.within("quick", 1.0, 1.0)
        assert set() == heard.failed
        heard.stage.found.within("slow", 1.0, 1.01)
        heard.stage.found.within("never", 1.0, float("inf"))
        assert {"slow", "never"} == heard.failed

    def test_at_least(self, heard: Heard) -> None:
        heard.stage.found.at_least("enough", 1, 1)
        assert set() == heard.failed
        heard.stage.found.at_least("none", 1, 0)
        assert {"none"} == heard.failed

    def test_refused(self, heard: Heard) -> None:
        def closed() -> None:
            raise StoreClosedError("the store is closed; open a new one")

        heard.stage.found.refused("right", closed, "StoreClosedError", "open a new one")
        assert set() == heard.failed
        heard.stage.found.refused("other advice", closed, "wait")
        heard.stage.found.refused("no error", lambda: None, "StoreClosedError")
        assert {"other advice", "no error"} == heard.failed


def test_what_never_happens_is_not_waited_for_endlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_fault_rig, "WAIT_SECONDS", 0.1)
    assert wait_for(lambda: False) == float("inf")
    assert wait_for(lambda: True) < 1.0


@given(st.lists(st.sets(st.integers(0, NUM_PAGES - 1), max_size=4), min_size=4, max_size=4))
def test_the_second_opinion_agrees_with_the_resolver(lost: list[set[int]]) -> None:
    arrived = {pool.name: set(range(NUM_PAGES)) - missing for pool, missing in zip(POOLS, lost, strict=True)}
    presence = {name: np.isin(np.arange(NUM_PAGES), sorted(units)) for name, units in arrived.items()}
    for policy in (TransferPolicy.DENSE, TransferPolicy.SELECTIVE):
        resolved = resolve(POOLS, presence, policy, NUM_PAGES).hit_pages * PAGE_TOKENS
        assert whole_tokens(POOLS, arrived) == resolved
