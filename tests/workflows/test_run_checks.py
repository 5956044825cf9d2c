"""Negative controls: a run on a store that cheats must not pass its checks."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from hicache_bench.errors import StoreError
from hicache_bench.planning.plan import TransferPlan, build_plan
from hicache_bench.planning.resolve import Resolution, resolve_ranks
from hicache_bench.records.schema import RunRecord
from hicache_bench.store.base import MISS, NO_SPACE, OK, Buffers, KeyResult, KVStoreBackend, error
from hicache_bench.store.faults import CorruptGet, FailCalls, FailRandomly, Fault, FaultyStore, ShortGet
from hicache_bench.store.wrappers import CallLog, CountingWrapper, Operation, StoreWrapper
from hicache_bench.workflows import run as workflow
from hicache_bench.workflows.stores import open_store
from tests.workflows.runs import run_now

TOKENS = 1024
Wrap = Callable[[KVStoreBackend], KVStoreBackend]


@pytest.fixture
def run_on(monkeypatch: pytest.MonkeyPatch) -> Callable[[Wrap], RunRecord]:
    """Run the synthetic model on a local store inside of something else."""

    def run_wrapped(wrap: Wrap) -> RunRecord:
        @contextmanager
        def cheating(*arguments: Any, **options: Any) -> Iterator[Any]:
            with open_store(*arguments, **options) as opened:
                yield replace(opened, backend=wrap(opened.backend))

        monkeypatch.setattr(workflow, "open_store", cheating)
        return run_now("kitchen-sink", TOKENS, store="local")

    return run_wrapped


def failed(record: RunRecord) -> set[str]:
    """What failed, without the policy and length that it failed under."""
    assert ("failed" if record.failed_checks else "ok") == record.status
    return {check.name.partition(": ")[2] for check in record.failed_checks}


@dataclass(frozen=True, slots=True)
class Pool(Fault):
    """Applies a fault to the first key of a pool that a read asks for."""

    pool: str
    fault: Fault

    def spoils(self, call: int, key: str) -> bool:
        return f"/{self.pool}/" in key

    def spoil(self, content: bytes, chance: random.Random) -> bytes:
        return self.fault.spoil(content, chance)


def test_an_honest_wrapper_passes(run_on: Callable[[Wrap], RunRecord]) -> None:
    assert set() == failed(run_on(StoreWrapper))


@pytest.mark.parametrize("pool", ["mla", "indexer", "swa", "mamba"])
@pytest.mark.parametrize("fault", [CorruptGet(frozenset()), ShortGet(frozenset())], ids=["one bit", "short"])
def test_wrong_bytes_are_found(run_on: Callable[[Wrap], RunRecord], pool: str, fault: Fault) -> None:
    record = run_on(lambda store: FaultyStore(store, [Pool(pool, fault)]))
    assert {"restored pages that differ from the saved ones"} == failed(record)
    assert all(f"{pool}:" in check.actual for check in record.failed_checks)
    assert {"none"} == {check.expected for check in record.failed_checks}


class SwapsTwo(StoreWrapper):
    """Delivers the first two objects of equal size of each read in each other's place."""

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        swapped = list(addresses)
        other = next((i for i in range(1, len(keys)) if sizes[i] == sizes[0]), 0)
        swapped[0], swapped[other] = swapped[other], swapped[0]
        return super().batch_get_into(keys, swapped, sizes)


def test_swapped_pages_are_found(run_on: Callable[[Wrap], RunRecord]) -> None:
    assert {"restored pages that differ from the saved ones"} == failed(run_on(SwapsTwo))


class ReadsOneMore(StoreWrapper):
    """Reads the first object of each call twice."""

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        super().batch_get_into(keys[:1], addresses[:1], sizes[:1])
        return super().batch_get_into(keys, addresses, sizes)


def test_one_object_more_than_planned_is_found(run_on: Callable[[Wrap], RunRecord]) -> None:
    assert {"bytes by the store's own count"} == failed(run_on(ReadsOneMore))


class Scribbler(StoreWrapper):
    """After each read, flips one byte of registered memory that the read did not ask for."""

    def __init__(self, inner: KVStoreBackend, *, past_the_end: bool) -> None:
        super().__init__(inner)
        self._ranges: dict[int, int] = {}
        self._past_the_end = past_the_end

    def register_buffer(self, address: int, num_bytes: int) -> None:
        super().register_buffer(address, num_bytes)
        self._ranges[address] = num_bytes

    def unregister_buffer(self, address: int) -> None:
        super().unregister_buffer(address)
        del self._ranges[address]

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        results = super().batch_get_into(keys, addresses, sizes)
        place = self._end() if self._past_the_end else self._unread(dict(zip(addresses, sizes, strict=True)))
        if place is not None:
            ctypes.memset(place, ctypes.string_at(place, 1)[0] ^ 1, 1)
        return results

    def _end(self) -> int:
        address, num_bytes = next(iter(self._ranges.items()))
        return address + num_bytes

    def _unread(self, asked: dict[Any, Any]) -> int | None:
        """A byte of a page that was skipped; none where every page is read."""
        for start, num_bytes in self._ranges.items():
            inside = sorted(address for address in asked if start <= address < start + num_bytes)
            if inside and inside[0] > start:
                return start
        return None


def test_a_touched_page_that_was_skipped_is_found(run_on: Callable[[Wrap], RunRecord]) -> None:
    record = run_on(lambda store: Scribbler(store, past_the_end=False))
    assert {"skipped pages without their poison"} == failed(record)
    assert {"hit_policy", "selective"} == {check.name.split()[0] for check in record.failed_checks}


def test_a_byte_past_a_buffer_is_found(run_on: Callable[[Wrap], RunRecord]) -> None:
    record = run_on(lambda store: Scribbler(store, past_the_end=True))
    assert {"guard zones that were written to"} == failed(record)


class ClaimsAllIsWell(StoreWrapper):
    """Answers OK to every read and moves nothing."""

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        return [OK] * len(keys)


def test_a_store_that_only_claims_to_have_read_is_found(run_on: Callable[[Wrap], RunRecord]) -> None:
    expected = {"restored pages that differ from the saved ones", "bytes by the store's own count"}
    assert expected == failed(run_on(ClaimsAllIsWell))


def test_a_store_that_loses_objects_is_an_error_and_no_result(run_on: Callable[[Wrap], RunRecord]) -> None:
    lost = FailRandomly(Operation.GET, 0.5, MISS)
    with pytest.raises(StoreError, match=r"dense at .* did not deliver \d+ objects.* x miss\. It has"):
        run_on(lambda store: FaultyStore(store, [lost]))


def test_a_store_that_stops_answering_ends_the_run_at_the_first_restore(
    run_on: Callable[[Wrap], RunRecord],
) -> None:
    gone = FailRandomly(Operation.GET, 1.0, error(-900))
    log = CallLog()
    with pytest.raises(StoreError, match=r"x error\(-900\)\. See that its master is running"):
        run_on(lambda store: CountingWrapper(FaultyStore(store, [gone]), log))
    assert 1 == len(log.of(Operation.GET))


def test_a_lookup_that_misses_what_was_saved_is_an_error(run_on: Callable[[Wrap], RunRecord]) -> None:
    blind = FailRandomly(Operation.EXISTS, 0.5, MISS)
    with pytest.raises(StoreError, match=r"lost \d+ pages since they were saved \(mla:\d+, mla:\d+"):
        run_on(lambda store: FaultyStore(store, [blind]))


class RenamesWhatItIsAsked(StoreWrapper):
    """As a reader would that derives its namespace from another copy of the config."""

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        return super().batch_exists([f"other/{key}" for key in keys])


def test_a_reader_with_keys_that_nobody_wrote_is_named(run_on: Callable[[Wrap], RunRecord]) -> None:
    """E45: everything written, nothing found."""
    with pytest.raises(StoreError, match=r"not one of the \d+ pages .*asymmetric_keys.*hicache-bench keys"):
        run_on(RenamesWhatItIsAsked)


def test_a_lookup_that_fails_is_an_error_and_not_a_miss(run_on: Callable[[Wrap], RunRecord]) -> None:
    mute = FailCalls(Operation.EXISTS, frozenset({1}), error(-900))
    with pytest.raises(StoreError, match=r"could not say whether it holds \d+ keys"):
        run_on(lambda store: FaultyStore(store, [mute]))


def test_a_save_that_finds_no_room_is_an_error(run_on: Callable[[Wrap], RunRecord]) -> None:
    full = FailCalls(Operation.PUT, frozenset(range(1, 10)), NO_SPACE)
    with pytest.raises(StoreError, match=r"first 0 of 16 pages whole.* x no_space\. Give it more room"):
        run_on(lambda store: FaultyStore(store, [full]))


def test_a_save_that_loses_its_master_does_not_ask_for_room(run_on: Callable[[Wrap], RunRecord]) -> None:
    gone = FailCalls(Operation.PUT, frozenset(range(1, 10)), error(-900))
    with pytest.raises(StoreError, match=r"x error\(-900\)\. See that its master is running"):
        run_on(lambda store: FaultyStore(store, [gone]))


def test_a_restore_of_nothing_is_found(
    run_on: Callable[[Wrap], RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    def promises_nothing(resolutions: Sequence[Resolution]) -> Resolution:
        return replace(resolve_ranks(resolutions), hit_pages=0)

    monkeypatch.setattr("hicache_bench.workflows.length.resolve_ranks", promises_nothing)
    assert {"tokens used", "hit of a lookup of what decides"} == failed(run_on(StoreWrapper))


def test_an_account_that_forgets_what_it_skipped_is_found(
    run_on: Callable[[Wrap], RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(*arguments: Any, **options: Any) -> TransferPlan:
        plan = build_plan(*arguments, **options)
        return replace(plan, pools=tuple(replace(item, skipped={}) for item in plan.pools))

    monkeypatch.setattr("hicache_bench.engine.controller.build_plan", forgetful)
    record = run_on(StoreWrapper)
    assert {"pools whose account is not what was saved"} == failed(record)
    assert {"1: swa"} == {check.actual for check in record.failed_checks}
