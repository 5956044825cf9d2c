"""One process's part, in this process and on the embedded store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from hicache_bench.errors import StoreError
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.store.base import MISS, NO_SPACE, OK, error
from hicache_bench.workflows.bench.side import ClientLostError
from hicache_bench.workflows.bench.worker import Worker
from hicache_bench.workflows.variant import VariantOptions
from tests.workflows.bench.jobs import made_job, made_task

DENSE, SELECTIVE = TransferPolicy.DENSE, TransferPolicy.SELECTIVE


@contextmanager
def worker(**changes: Any) -> Iterator[Worker]:
    made = Worker(made_job(**changes), lambda _: None)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def saved() -> Iterator[Worker]:
    with worker() as made:
        made.save_shared()
        yield made


def test_a_save_is_of_everything_and_leaves_nothing() -> None:
    with worker() as made:
        expected = made.sides[0].layout.stored_bytes
        measured = made.measure(made_task("save"))
        assert (expected, 2, 2) == (
            measured.num_bytes, len(measured.samples.seconds), len(measured.samples.warmups)
        )  # fmt: skip
        assert 0 == made.ask(made.job.own_seed)["held"]
        stats = made.store.stats
        assert 4 * expected == stats.put_bytes
        assert 0 == stats.put_noops


def test_a_save_is_of_its_own_keys_where_others_use_the_store() -> None:
    with worker(is_alone=False) as made:
        made.save_shared()
        made.measure(made_task("save"))
        asked = made.ask(made.job.shared_seed)
        assert asked["asked"] == asked["held"] > 0
        assert 0 == made.ask(made.job.own_seed)["held"]
        assert {made.job.shared_seed, made.job.own_seed} == made.owned_seeds
        assert 0 == made.remove(sorted(made.owned_seeds))["remaining"]
        assert 0 == made.ask(made.job.shared_seed)["held"]


def test_a_lost_master_is_waited_for_once_when_all_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    with worker(ranks=(0, 1), variant=VariantOptions(tp=2), is_alone=False) as made:
        num_keys = made.ask(made.job.shared_seed)["asked"]
        asked: list[str] = []

        def refuse(_store: object, key: str, **_: object) -> object:
            asked.append(key)
            return error(-900)

        monkeypatch.setattr(type(made.store), "remove", refuse)
        seeds = [made.job.shared_seed, made.job.own_seed]
        assert {"remaining": 2 * num_keys} == made.remove(seeds)
        assert 1 == len(asked)


def test_a_store_that_keeps_its_keys_is_not_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    with worker() as made:
        monkeypatch.setattr(type(made.store), "remove_all", lambda *_, **__: 0)
        with pytest.raises(StoreError, match=r"still holds .* keys after they were removed: it is not cold"):
            made.measure(made_task("save"))


def test_a_prefix_that_was_there_is_not_ours(saved: Worker) -> None:
    assert {saved.job.shared_seed} == saved.owned_seeds
    again = saved.save_shared()
    assert (0, saved.ask(saved.job.shared_seed)["asked"]) == (again["written"], again["existing"])


@pytest.mark.parametrize("policy", [None, *TransferPolicy])
def test_a_lookup_builds_its_keys_and_asks(saved: Worker, policy: TransferPolicy | None) -> None:
    measured = saved.measure(made_task("lookup", policy))
    assert measured.objects > 0
    assert all(measured.samples.key_seconds)
    assert all(measured.samples.store_seconds)
    assert measured.objects <= saved.measure(made_task("lookup")).objects


def test_a_series_by_the_clock_ends_by_it(saved: Worker) -> None:
    measured = saved.measure(made_task("lookup", repeat=None, min_seconds=0.0, by_the_clock=True))
    assert 3 == len(measured.samples.seconds)


def test_a_restore_moves_what_its_policy_reads_and_verifies_it() -> None:
    with worker(tokens=4096) as made:
        made.save_shared()
        dense = made.measure(made_task("restore", DENSE))
        selective = made.measure(made_task("restore", SELECTIVE))
        assert made.sides[0].layout.stored_bytes == dense.num_bytes > selective.num_bytes > 0
    assert ([], []) == (dense.mismatched, selective.mismatched)
    assert dense.verify_seconds is not None
    for seconds, keys, store in zip(
        dense.samples.seconds, dense.samples.key_seconds, dense.samples.store_seconds, strict=True
    ):
        assert 0 < keys + store < seconds


@pytest.mark.parametrize(("batch_pages", "calls"), [(128, 1), (3, 3), (1, 8)])
def test_a_call_takes_so_many_pages(batch_pages: int, calls: int) -> None:
    with worker(batch_pages=batch_pages) as made:  # 8 pages
        made.save_shared()
        measured = made.measure(made_task("restore", DENSE))
        assert calls == measured.samples.store_calls
        assert made.sides[0].layout.stored_bytes == measured.num_bytes


def test_pools_alone_add_up(saved: Worker) -> None:
    names = [pool.name for pool in saved.sides[0].layout.pools]
    pools = [saved.measure(made_task("restore", DENSE, pool=name)) for name in names]
    assert saved.sides[0].layout.stored_bytes == sum(pool.num_bytes for pool in pools)
    for name, pool in zip(names, saved.sides[0].layout.pools, strict=True):
        call = saved.measure(made_task("call", DENSE, pool=name))
        assert (pool.unit_bytes, 1) == (call.num_bytes, call.samples.store_calls)


def test_wrong_bytes_are_told() -> None:
    with worker() as made:
        # Insert-if-absent keeps the bytes of another prefix under these keys.
        (side,) = made.sides
        with side.filled(made.job.own_seed) as hosts:
            side.save(hosts, side.prefix(made.job.shared_seed))
        assert made.measure(made_task("restore", DENSE)).mismatched


@pytest.mark.parametrize("lies", [range(4), range(4, 5)], ids=["while it is timed", "afterwards"])
def test_bytes_of_an_earlier_series_do_not_pass(
    saved: Worker, monkeypatch: pytest.MonkeyPatch, lies: range
) -> None:
    assert [] == saved.measure(made_task("restore", DENSE)).mismatched
    calls, honest = count(), type(saved.store).batch_get_into

    def claim(store: Any, keys: Any, *where: Any) -> Any:
        return [OK] * len(keys) if next(calls) in lies else honest(store, keys, *where)

    monkeypatch.setattr(type(saved.store), "batch_get_into", claim)
    assert saved.measure(made_task("restore", DENSE)).mismatched
    assert 5 == next(calls)


def test_a_copy_is_of_all_buffers() -> None:
    with worker() as made:
        measured = made.measure(made_task("copy"))
        assert made.sides[0].layout.stored_bytes == measured.num_bytes
        (side,) = made.sides
        source, target = made._source(side), made._target(side)
        for name, host_pool in source.pools.items():
            for index, buffer in enumerate(host_pool.kv_buffer or ()):
                assert (buffer == (target.pools[name].kv_buffer or ())[index]).all()


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (error(-800), ClientLostError, r"did not arrive.* x error\(-800\)"),
        (MISS, StoreError, "It has evicted them: give it more room, or a longer lease"),
    ],
    ids=["poisoned", "evicted"],
)
def test_a_restore_that_fails(
    saved: Worker, monkeypatch: pytest.MonkeyPatch, answer: object, kind: type[Exception], words: str
) -> None:
    monkeypatch.setattr(type(saved.store), "batch_get_into", lambda _, keys, *__: [answer] * len(keys))
    with pytest.raises(kind, match=words) as failed:
        saved.measure(made_task("restore", DENSE))
    assert isinstance(failed.value, ClientLostError) == (kind is ClientLostError)


@pytest.mark.parametrize("policy", [None, *TransferPolicy])
@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (error(-900), ClientLostError, "the store could not say whether it holds"),
        (MISS, StoreError, "give it more room"),
    ],
    ids=["no master", "evicted"],
)
def test_a_lookup_that_fails(
    saved: Worker,
    monkeypatch: pytest.MonkeyPatch,
    answer: object,
    kind: type[Exception],
    words: str,
    policy: TransferPolicy | None,
) -> None:
    monkeypatch.setattr(type(saved.store), "batch_exists", lambda _, keys: [answer] * len(keys))
    with pytest.raises(kind, match=words) as failed:
        saved.measure(made_task("lookup", policy))
    assert isinstance(failed.value, ClientLostError) == (kind is ClientLostError)


@pytest.mark.parametrize("answer", [NO_SPACE, error(-900)], ids=["full", "no master"])
def test_a_save_that_fails(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    with worker() as made:
        monkeypatch.setattr(type(made.store), "batch_put_from", lambda _, keys, *__: [answer] * len(keys))
        with pytest.raises(StoreError, match="did not keep what was saved") as failed:
            made.save_shared()
        assert isinstance(failed.value, ClientLostError) == (answer is not NO_SPACE)


def test_a_store_that_cannot_say(saved: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(saved.store), "batch_exists", lambda _, keys: [error(-900)] * len(keys))
    with pytest.raises(ClientLostError, match="could not say"):
        saved.ask(saved.job.shared_seed)
    for policy in (None, DENSE):
        with pytest.raises(ClientLostError):
            saved.measure(made_task("lookup", policy))


def test_a_lookup_of_what_was_lost(saved: Worker) -> None:
    saved.remove([saved.job.shared_seed])
    with pytest.raises(StoreError, match=r"has lost .* pages since they were saved"):
        saved.measure(made_task("lookup"))
