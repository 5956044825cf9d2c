"""Fixtures for the real Mooncake Store: one private master for each module, on free loopback ports."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hicache_bench.store.client import mooncake_availability, open_mooncake
from hicache_bench.store.master import ManagedMaster
from hicache_bench.store.mooncake import MooncakeStoreBackend


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs the store where it cannot be used; in CI, fail: a suite that skips proves nothing."""
    if item.get_closest_marker("mooncake") is None:
        return
    availability = mooncake_availability()
    if not availability.importable:
        text = f"{availability.reason}; to mend it: {availability.advice}"
        if os.environ.get("CI") == "true":
            pytest.fail(text, pytrace=False)
        pytest.skip(text)


@pytest.fixture(scope="module")
def managed_master() -> Iterator[ManagedMaster]:
    """A master whose leases last for the default 10 s."""
    with ManagedMaster() as master:
        yield master


@pytest.fixture(scope="module")
def mooncake_store(managed_master: ManagedMaster) -> Iterator[MooncakeStoreBackend]:
    """A client that owns the cluster's only segment, of 64 MiB. Tests share it: closing one takes 2 s."""
    store = open_mooncake(managed_master.address, segment_bytes=64 << 20)
    yield store
    store.close()
