from __future__ import annotations

import pytest

from hicache_bench.engine.metrics import MetricsSink
from hicache_bench.errors import InputError, StoreClosedError, StoreUnavailableError
from hicache_bench.store import client, master
from hicache_bench.store.counting import CountingStore
from hicache_bench.store.local import DEFAULT_EVICTION_WATERMARK, LocalKVStore
from hicache_bench.units import MIB
from hicache_bench.workflows.stores import arena_bytes, check_store, open_store


@pytest.mark.parametrize("stored_bytes", [1, 50 * MIB, 10 * 1024 * MIB])
def test_a_full_arena_stays_below_the_eviction_watermark(stored_bytes: int) -> None:
    assert stored_bytes < arena_bytes(stored_bytes) * DEFAULT_EVICTION_WATERMARK


def test_a_store_is_open_inside_and_closed_after() -> None:
    with open_store("local", stored_bytes=MIB) as opened:
        assert isinstance(opened.backend, LocalKVStore)
        assert 64 * MIB == opened.settings["capacity_bytes"]
        assert 1 == len(opened.backend.batch_exists(["key"]))
    with pytest.raises(StoreClosedError):
        opened.backend.batch_exists(["key"])


def test_a_store_is_closed_when_the_work_fails() -> None:
    with pytest.raises(ZeroDivisionError), open_store("local", stored_bytes=1) as opened:
        raise ZeroDivisionError
    with pytest.raises(StoreClosedError):
        opened.backend.batch_exists(["key"])


def test_counting_takes_no_room() -> None:
    with open_store("count", stored_bytes=1 << 60) as opened:
        assert isinstance(opened.backend, CountingStore)


def test_without_metrics_nothing_stands_before_a_store() -> None:
    with open_store("local", stored_bytes=1) as opened:
        assert type(opened.backend) is LocalKVStore


@pytest.mark.parametrize(("name", "is_metered"), [("local", True), ("count", False)])
def test_what_moves_is_metered_and_what_is_counted_is_not(name: str, is_metered: bool) -> None:
    metrics = MetricsSink()
    with open_store(name, stored_bytes=MIB, metrics=metrics) as opened:
        opened.backend.batch_exists(["key"])
    assert is_metered is not metrics.is_empty


def test_what_cannot_be_opened_is_refused() -> None:
    for refuse in (
        check_store,
        lambda name, master, segment: open_store(
            name, stored_bytes=1, master=master, segment_bytes=segment
        ).__enter__(),
    ):
        with pytest.raises(InputError, match="unknown store 'redis'; allowed: local, count, mooncake"):
            refuse("redis", None, None)
        with pytest.raises(InputError, match="--master is for --store mooncake, not 'count'"):
            refuse("count", "127.0.0.1:50051", None)
        with pytest.raises(InputError, match="--segment is for --store mooncake, not 'local'"):
            refuse("local", None, 1 << 30)
        with pytest.raises(InputError, match="--segment 0 leaves a private store without room; leave it out"):
            refuse("mooncake", None, 0)
    with pytest.raises(InputError, match="--master-http-port is a port of the master to join; give --master"):
        check_store("mooncake", None, None, master_http_port=9003)
    check_store("mooncake", "127.0.0.1:50051", 1 << 30, master_http_port=9103)
    check_store("mooncake", "127.0.0.1:50051", 0)


@pytest.mark.parametrize(
    ("name", "nearest"), [("locl", "local"), ("Mooncake", "mooncake"), ("counts", "count")]
)
def test_a_store_that_is_misspelt_is_told_its_neighbour(name: str, nearest: str) -> None:
    with pytest.raises(InputError, match=rf"unknown store '{name}'; .*did you mean '{nearest}'\?"):
        check_store(name, None, None)


@pytest.mark.parametrize("address", [None, "127.0.0.1:1"], ids=["private master", "joined"])
def test_what_the_client_lacks_is_told_before_a_master_starts(
    monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    lacks = client.Availability(False, "1", ("wheel",), ("lib",), "missing system libraries: lib", "get it")
    monkeypatch.setattr(client, "mooncake_availability", lambda: lacks)
    monkeypatch.setattr(master, "ManagedMaster", lambda: pytest.fail("a master was started"))
    opening = open_store("mooncake", stored_bytes=MIB, master=address)
    with pytest.raises(StoreUnavailableError, match=r"^missing system libraries: lib; to mend it: get it$"):
        opening.__enter__()
