"""What a master tells over HTTP; the real one is asked in ``tests/integration``."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hicache_bench.errors import InputError
from hicache_bench.store import joined
from hicache_bench.store.base import NO_SPACE, OK, Buffers, KeyResult, KVStoreBackend
from hicache_bench.store.joined import UNKNOWN, joined_settings
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.wrappers import StoreWrapper

METRICS = """# HELP master_key_count Total number of keys
master_total_capacity_bytes 67108864
segment_allocated_bytes{segment="a b"} 1
master_allocated_bytes 4.096000e+03
master_key_count 12
master_active_clients 3
master_evicted_key_count 7
"""
FIGURES = {
    "cluster_capacity_bytes": 67_108_864,
    "cluster_used_bytes": 4096,
    "cluster_keys": 12,
    "cluster_clients": 3,
    "cluster_evicted_keys": 7,
    "cluster_segments": 2,
}
UNTOLD = {"lease_ttl_ms": UNKNOWN, "eviction_watermark": UNKNOWN, "eviction_ratio": UNKNOWN}
NOTHING = UNTOLD | dict.fromkeys(FIGURES, UNKNOWN)


class Recorded(StoreWrapper):
    """A store that remembers the probe."""

    def __init__(self, inner: KVStoreBackend) -> None:
        super().__init__(inner)
        self.put: list[str] = []
        self.removed: list[str] = []

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        self.put += keys
        return super().batch_put_from(keys, addresses, sizes)

    def remove(self, key: str, *, force: bool = False) -> KeyResult:
        self.removed.append(key)
        return super().remove(key, force=force)


class Full(Recorded):
    """A store without room."""

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        return [NO_SPACE]


@pytest.fixture
def store() -> Iterator[Recorded]:
    with LocalKVStore(1 << 20) as inner:
        yield Recorded(inner)


Serve = Callable[[dict[str, Any]], int]


@pytest.fixture
def serve(store: Recorded) -> Iterator[Serve]:
    """An HTTP server with these pages, at the port that is returned; a page is a text or a status."""
    servers: list[ThreadingHTTPServer] = []

    def start(pages: dict[str, Any]) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, key = self.path.partition("?key=")
                page = pages.get(path, 404)
                if path == "/query_key" and page == "known":
                    page = "{}" if [key] == store.put else 404
                self.send_response(200 if isinstance(page, str) else page)
                self.end_headers()
                if isinstance(page, str):
                    self.wfile.write(page.encode())

            def log_message(self, *_: object) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,), daemon=True).start()
        return servers[-1].server_port

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def asked(store: KVStoreBackend, port: int) -> dict[str, str | int | float]:
    return joined_settings(store, "127.0.0.1:50051", http_port=port)


def test_what_the_master_tells_is_told_and_its_flags_stay_unknown(store: Recorded, serve: Serve) -> None:
    port = serve({"/query_key": "known", "/metrics": METRICS, "/get_all_segments": "a:1\nb:2\n"})
    assert UNTOLD | FIGURES | {"master_http": f"port {port}"} == asked(store, port)


@pytest.mark.parametrize("pages", [{}, {"/query_key": 500}], ids=["does not know the object", "broken"])
def test_the_master_of_another_cluster_is_not_believed(
    store: Recorded, serve: Serve, pages: dict[str, Any]
) -> None:
    port = serve({"/metrics": METRICS, "/get_all_segments": "a:1\n", **pages})
    assert NOTHING | {"master_http": f"port {port} is not this master's"} == asked(store, port)


def test_a_counter_that_is_missing_is_unknown(store: Recorded, serve: Serve) -> None:
    port = serve({"/query_key": "known", "/metrics": "master_key_count 5\n"})
    assert NOTHING | {"cluster_keys": 5, "master_http": f"port {port}"} == asked(store, port)


def test_a_counter_that_is_no_number_tells_nothing(store: Recorded, serve: Serve) -> None:
    port = serve({"/query_key": "known", "/metrics": "master_key_count many\n"})
    assert NOTHING | {"master_http": f"port {port}"} == asked(store, port)


def test_nobody_at_the_port(store: Recorded) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert NOTHING | {"master_http": f"no answer at port {port}"} == asked(store, port)


def test_another_protocol_at_the_port(store: Recorded) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            with other.accept()[0] as connection:
                connection.sendall(b"\0\0\0\7not http\r\n")

        threading.Thread(target=answer, daemon=True).start()
        port = other.getsockname()[1]
        assert NOTHING | {"master_http": f"no answer at port {port}"} == asked(store, port)


def test_a_server_that_drips_is_left(store: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined, "_LIMIT_SECONDS", 0.3)
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as other:

        def drip() -> None:
            with other.accept()[0] as connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while not stop.wait(0.05):
                    connection.sendall(b"x")

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        port = other.getsockname()[1]
        started = time.monotonic()
        assert NOTHING | {"master_http": f"no answer at port {port}"} == asked(store, port)
        assert time.monotonic() - started < 30  # 50 s for the whole page
        stop.set()
        dripping.join()


def test_a_store_without_room_is_not_asked_about() -> None:
    with LocalKVStore(1 << 20) as inner:
        full = Full(inner)
        settings = asked(full, 1)
        assert [] == full.removed
    expected = "not asked: a byte to know the cluster by was not kept (no_space)"
    assert NOTHING | {"master_http": expected} == settings


@pytest.mark.parametrize("pages", [{"/query_key": "known"}, {}], ids=["believed", "not believed"])
def test_the_probe_is_taken_away(store: Recorded, serve: Serve, pages: dict[str, Any]) -> None:
    asked(store, serve(pages))
    assert 1 == len(store.put)
    assert store.put == store.removed
    assert OK not in store.batch_exists(store.put)


def test_what_is_no_address_is_refused(store: Recorded) -> None:
    with pytest.raises(InputError, match="give HOST:PORT"):
        joined_settings(store, "nowhere")
    assert [] == store.put
