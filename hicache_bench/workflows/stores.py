"""Opening the store that a command names, and closing it whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from hicache_bench.errors import InputError
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.counting import CountingStore

if TYPE_CHECKING:
    from hicache_bench.engine.metrics import MetricsSink

STORES = ("local", "count", "mooncake")
_ARENA_SLACK = 1.25
"""Room beyond the objects, so that nothing comes near the eviction watermark (0.90)."""
_MIN_ARENA_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store that is open, and its effective settings, those of a private master included.

    Those of a joined cluster are what its master tells, and ``unknown`` where it does not.
    ``master`` is the ``HOST:PORT`` at which another process can join it; None for a store of this process.
    """

    backend: KVStoreBackend
    settings: dict[str, str | int | float]
    master: str | None = None


def arena_bytes(stored_bytes: int) -> int:
    """Capacity that holds ``stored_bytes`` without evicting; only pages that are written take memory."""
    return max(_MIN_ARENA_BYTES, int(stored_bytes * _ARENA_SLACK))


def check_store(
    name: str, master: str | None, segment_bytes: int | None, *, master_http_port: int | None = None
) -> None:
    """Refuse a store that :func:`open_store` could not open, before any work is done.

    Raises:
        InputError: an unknown store, a master or segment for a store that has none, a port of no master, a
            private store without room.
    """
    if name not in STORES:
        nearest = get_close_matches(name.casefold(), STORES, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise InputError(f"unknown store {name!r}; allowed: {', '.join(STORES)}{hint}")
    if master is not None and name != "mooncake":
        raise InputError(f"--master is for --store mooncake, not {name!r}")
    if master_http_port is not None and master is None:
        raise InputError(
            "--master-http-port is a port of the master to join; give --master HOST:PORT as well"
        )
    if segment_bytes is not None and name != "mooncake":
        raise InputError(f"--segment is for --store mooncake, not {name!r}")
    if segment_bytes == 0 and master is None:
        raise InputError(
            "--segment 0 leaves a private store without room; leave it out for what is needed, or join a "
            "cluster that has room with --master"
        )


@contextmanager
def open_store(
    name: str,
    *,
    stored_bytes: int,
    master: str | None = None,
    master_http_port: int | None = None,
    segment_bytes: int | None = None,
    metrics: MetricsSink | None = None,
) -> Iterator[OpenStore]:
    """An open store with room for ``stored_bytes``; with ``metrics`` what moves through it is counted there.

    ``count`` moves nothing, so nothing of it is in the metrics.

    ``mooncake`` starts a private master and contributes a segment of that size, or joins the cluster at
    ``master`` and contributes ``segment_bytes`` (default 0: a pure client). ``master_http_port`` is where the
    joined one tells of its cluster. The client is closed before the master is stopped.

    Raises:
        InputError: an unknown store, or a master for a store that has none.
        StoreUnavailableError: no wheel, a missing system library, no master.
    """
    check_store(name, master, segment_bytes)
    if name == "local":
        from hicache_bench.store.local import LocalKVStore

        with LocalKVStore(arena_bytes(stored_bytes)) as store:
            yield OpenStore(_metered(store, metrics), store.settings)
    elif name == "count":
        with CountingStore() as store:
            yield OpenStore(store, store.settings)
    else:
        with _open_mooncake(arena_bytes(stored_bytes), master, master_http_port, segment_bytes) as opened:
            yield replace(opened, backend=_metered(opened.backend, metrics))


@contextmanager
def _open_mooncake(
    capacity_bytes: int, master: str | None, http_port: int | None, segment_bytes: int | None
) -> Iterator[OpenStore]:
    # Imported here: only this store needs them, and they look for the wheel.
    from hicache_bench.store.client import open_mooncake, require_mooncake
    from hicache_bench.store.joined import joined_settings
    from hicache_bench.store.master import ManagedMaster

    if master is not None:
        with open_mooncake(master, segment_bytes=segment_bytes or 0) as store:
            settings = {**store.settings, **joined_settings(store, master, http_port=http_port)}
            yield OpenStore(store, settings, master)
        return
    require_mooncake()
    with (
        ManagedMaster() as managed,
        open_mooncake(managed.address, segment_bytes=segment_bytes or capacity_bytes) as store,
    ):
        yield OpenStore(store, {**managed.settings, **store.settings}, managed.address)


def _metered(store: KVStoreBackend, metrics: MetricsSink | None) -> KVStoreBackend:
    if metrics is None:
        return store
    from hicache_bench.engine.metrics_store import MeteredStore

    return MeteredStore(store, metrics)
