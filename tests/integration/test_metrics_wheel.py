"""Our counts of a store beside the wheel's own, of the same calls: the table of ``docs/metrics.md``."""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hicache_bench.engine.metrics import STORE_PREFIX, MetricsSink
from hicache_bench.engine.metrics_store import MeteredStore
from hicache_bench.store.client import open_mooncake
from hicache_bench.store.master import ManagedMaster
from hicache_bench.store.mooncake import MooncakeStoreBackend
from hicache_bench.units import MIB
from tests.engine.scraped import value

pytestmark = pytest.mark.mooncake

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture
def master() -> Iterator[ManagedMaster]:
    """Its own: a master counts for all of its clients together."""
    with ManagedMaster() as master:
        yield master


def native_with_http(master: str, port: int) -> Any:
    """A client of the wheel that serves its own metrics, which :func:`open_mooncake` never asks for."""
    from mooncake.store import MooncakeDistributedStore

    native = MooncakeDistributedStore()
    options = {"enable_client_http_server": True, "client_http_port": port}
    code = native.setup("127.0.0.1", "P2PHANDSHAKE", 64 * MIB, 0, "tcp", "", master, **options)
    assert 0 == code
    return native


def scraped(address: str) -> dict[str, float]:
    """Metric → sum over its series."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    # The parser takes a counter's name without the suffix for one with it.
    names = set(re.findall(r"^(\w+)[ {]", text, flags=re.MULTILINE))
    return {name if name in names else name.removesuffix("_total"): amount for name, amount in found.items()}


def test_the_wheel_counts_what_we_count(master: ManagedMaster) -> None:
    open_mooncake(master.address, segment_bytes=0).close()  # sets the wheel's environment before its import
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    metrics = MetricsSink()
    memory = np.arange(MIB, dtype=np.uint32).view(np.uint8)
    address = int(memory.ctypes.data)
    with MeteredStore(MooncakeStoreBackend(native_with_http(master.address, port), {}), metrics) as store:
        store.register_buffer(address, memory.nbytes)
        store.batch_put_from(["a", "b", "c"], [address] * 3, [4096, 8192, 100])
        store.batch_put_from(["a", "d"], [[address, address + 100]] * 2, [[4000, 96], [10, 20]])
        store.batch_put_from(["too large"], [[address] * 20], [[4 * MIB] * 20])
        store.batch_exists(["a", "nothing", "d"])
        store.batch_get_into(["a", "nothing", "b"], [address] * 3, [4096, 1, 8192])
        store.batch_get_into(["d"], [[address, address + 100]], [[10, 20]])
        of_client, of_master = scraped(f"127.0.0.1:{port}"), scraped(master.http_address)
        store.unregister_buffer(address)

    def ours(name: str) -> float | None:
        return value(metrics, name, prefix=STORE_PREFIX, backend="mooncake")

    assert (4, 3, 1, 0) == tuple(ours(f"get_{what}") for what in ("keys", "hits", "misses", "failures"))
    assert (6, 1, 4, 1) == tuple(ours(f"put_{what}") for what in ("keys", "hits", "misses", "failures"))
    assert (3, 2, 1, 0) == tuple(ours(f"exists_{what}") for what in ("keys", "hits", "misses", "failures"))
    assert (4096 + 8192 + 30, 4096 + 8192 + 100 + 30) == (ours("get_bytes"), ours("put_bytes"))
    assert {
        "total_get_nums_": ours("get_keys"),
        "valid_get_nums_": ours("get_hits"),
        "master_batch_get_replica_list_failed_items_total": ours("get_misses"),
        "mem_cache_hit_bytes_total": ours("get_bytes"),
        "master_batch_put_end_items_total": ours("put_misses"),
        "master_batch_put_start_failed_items_total": ours("put_failures"),
        "master_batch_exist_key_items_total": (ours("exists_keys") or 0) + (ours("put_keys") or 0),
    } == {
        name: of_master[name]
        for name in (
            "total_get_nums_",
            "valid_get_nums_",
            "master_batch_get_replica_list_failed_items_total",
            "mem_cache_hit_bytes_total",
            "master_batch_put_end_items_total",
            "master_batch_put_start_failed_items_total",
            "master_batch_exist_key_items_total",
        )
    }
    assert (ours("get_bytes"), ours("put_bytes")) == (
        of_client["mooncake_transfer_read_operation_bytes"],
        of_client["mooncake_transfer_write_operation_bytes"],
    )
    named = set(re.findall(r"`((?:master|mooncake_transfer)_\w+|\w+_nums_|mem_cache_\w+)`", DOCS.read_text()))
    there = {re.sub("_(bucket|sum|count)$", "", name) for name in of_client} | set(of_client) | set(of_master)
    assert named
    assert set() == named - there
