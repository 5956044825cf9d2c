"""What can be known of a cluster that this process joined: what its master tells over HTTP, and no more.

A client is not told how the master was started. The master's HTTP server names its segments, its memory and
its counters, and none of its flags (wheel 0.3.13.post1), so that leases and eviction stay unknown.
"""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from hicache_bench.store.base import OK, KeyResult, KVStoreBackend
from hicache_bench.store.client import answer_within, split_address

_DEFAULT_HTTP_PORT = 9003
"""``-metrics_port`` of ``mooncake_master --help`` (wheel 0.3.13.post1)."""

UNKNOWN = "unknown"
"""The value of a setting that nobody tells: a default would be taken for a fact."""

_SETTINGS_OF_THE_MASTER = ("lease_ttl_ms", "eviction_watermark", "eviction_ratio")
_METRICS = {
    "cluster_capacity_bytes": "master_total_capacity_bytes",
    "cluster_used_bytes": "master_allocated_bytes",
    "cluster_keys": "master_key_count",
    "cluster_clients": "master_active_clients",
    "cluster_evicted_keys": "master_evicted_key_count",
}
_REQUEST_SECONDS = 1.0
_LIMIT_SECONDS = 2.5
"""Of what one question takes in all."""

_MAX_ANSWER_BYTES = 16 << 20
_PROBE_BYTES = 4096
"""Registered memory is a whole page; the probe itself is one byte."""

_Answer = TypeVar("_Answer")


def joined_settings(
    store: KVStoreBackend, master_address: str, *, http_port: int | None = None
) -> dict[str, str | int | float]:
    """Settings of the cluster at ``master_address``, as of now; each that nobody tells is ``unknown``.

    ``store`` is an open client of it. The server at ``http_port`` (default 9003) of its host is believed once
    it knows a one-byte object that was just put through ``store``, and is then taken away: several masters
    may run on one host. ``master_http`` says what came of it. Takes at most 5 s beyond the store's own calls,
    and never raises for what the server does.

    Raises:
        InputError: not a HOST:PORT.
        StoreError: the store breaks meanwhile.
    """
    host, _ = split_address(master_address)
    http_port = http_port or _DEFAULT_HTTP_PORT
    settings: dict[str, str | int | float] = dict.fromkeys(_SETTINGS_OF_THE_MASTER, UNKNOWN)
    settings |= dict.fromkeys(("cluster_segments", *_METRICS), UNKNOWN)
    key = f"hicache-bench-probe-{os.urandom(8).hex()}"
    stored = _put(store, key)
    if stored != OK:
        return settings | {"master_http": f"not asked: a byte to know the cluster by was not kept ({stored})"}
    try:
        status, _ = _within_limit(lambda: _get(host, http_port, f"/query_key?key={key}")) or (None, "")
    finally:
        store.remove(key, force=True)
    if status == http.client.OK:
        settings |= _within_limit(lambda: _told(host, http_port)) or {}
        return settings | {"master_http": f"port {http_port}"}
    if status is None:
        return settings | {"master_http": f"no answer at port {http_port}"}
    return settings | {"master_http": f"port {http_port} is not this master's"}


def _put(store: KVStoreBackend, key: str) -> KeyResult:
    memory = np.zeros(_PROBE_BYTES, dtype=np.uint8)
    address = int(memory.ctypes.data)
    store.register_buffer(address, _PROBE_BYTES)
    try:
        return store.batch_put_from([key], [address], [1])[0]
    finally:
        store.unregister_buffer(address)


def _within_limit(question: Callable[[], _Answer]) -> _Answer | None:
    """The answer; None if there is none, or none in time."""
    try:
        return answer_within(_LIMIT_SECONDS, question)
    # A host name with an empty or overlong label is a UnicodeError; a port may be of any program.
    except (OSError, UnicodeError, ValueError, http.client.HTTPException):
        return None


def _told(host: str, port: int) -> Mapping[str, int]:
    """What the master's counters say; a counter that it does not have is left out."""
    samples = dict(line.rpartition(" ")[::2] for line in _get(host, port, "/metrics")[1].splitlines())
    told = {name: int(float(samples[metric])) for name, metric in _METRICS.items() if metric in samples}
    status, segments = _get(host, port, "/get_all_segments")
    if status == http.client.OK:
        told["cluster_segments"] = len(segments.split())
    return told


def _get(host: str, port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=_REQUEST_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(_MAX_ANSWER_BYTES).decode(errors="replace")
    finally:
        connection.close()
