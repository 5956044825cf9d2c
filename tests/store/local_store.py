"""A small embedded store on a clock that tests move."""

from __future__ import annotations

from dataclasses import dataclass

from hicache_bench.store.local import LocalKVStore
from hicache_bench.units import KIB
from tests.store.contract_host import Host

TTL_SECONDS = 10.0
"""The lease that a store takes unless it is told otherwise."""


@dataclass(slots=True)
class Clock:
    """Seconds that stand still until a test moves them."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


def open_store(host: Host, clock: Clock, num_kib: int, **settings: float) -> LocalKVStore:
    """A store of ``num_kib`` KiB that knows both host buffers."""
    store = LocalKVStore(num_kib * KIB, clock=clock, **settings)  # type: ignore[arg-type]
    store.register_buffer(host.source_at(), host.source.nbytes)
    store.register_buffer(host.target_at(), host.target.nbytes)
    return store


def put(store: LocalKVStore, host: Host, *keys: str, num_bytes: int = KIB) -> list[str]:
    """Put objects in one call; statuses as text."""
    results = store.batch_put_from(keys, [host.source_at()] * len(keys), [num_bytes] * len(keys))
    return [str(result) for result in results]


def put_each(store: LocalKVStore, host: Host, keys: list[str]) -> None:
    """Put objects of 1 KiB, one call each."""
    for key in keys:
        assert ["ok"] == put(store, host, key)


def present(store: LocalKVStore, keys: list[str]) -> list[str]:
    """Keys that are stored, found without touching or leasing any."""
    return [key for key in keys if store._objects.find(key) is not None]


def names(num_keys: int) -> list[str]:
    """``k0``, ``k1``, ..."""
    return [f"k{index}" for index in range(num_keys)]
