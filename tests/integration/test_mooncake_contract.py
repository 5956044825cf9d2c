"""The contract of every store, on the real Mooncake Store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from hicache_bench.errors import StoreClosedError, StoreError
from hicache_bench.store.client import open_mooncake
from hicache_bench.store.master import ManagedMaster
from hicache_bench.store.mooncake import MooncakeStoreBackend
from tests.store.contract import StoreContract
from tests.store.contract_host import host_memory


class SharedStore:
    """One client for many tests, and a new one after a test has closed it: closing takes 2 s."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._store = self._open()

    def get(self) -> MooncakeStoreBackend:
        try:
            self._store.batch_exists([])
        except StoreClosedError:
            self._store = self._open()
        return self._store

    def close(self) -> None:
        self._store.close()

    def _open(self) -> MooncakeStoreBackend:
        return open_mooncake(self._address, segment_bytes=64 << 20)


@pytest.fixture(scope="module")
def shared_store(managed_master: ManagedMaster) -> Iterator[SharedStore]:
    shared = SharedStore(managed_master.address)
    yield shared
    shared.close()


@pytest.mark.mooncake
class TestContract(StoreContract):
    @pytest.fixture
    def store(self, shared_store: SharedStore) -> Iterator[MooncakeStoreBackend]:
        store = shared_store.get()
        yield store
        with suppress(StoreClosedError):
            store.remove_all(force=True)
            memory = host_memory()
            for address in (memory.source_at(), memory.target_at()):
                with suppress(StoreError):
                    store.unregister_buffer(address)
