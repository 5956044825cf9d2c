"""The commands of the docs that need the real store, and those on the same page."""

from __future__ import annotations

from pathlib import Path

import pytest

from hicache_bench.store.client import open_mooncake
from hicache_bench.store.master import ManagedMaster
from tests.test_docs import check_page, page_id, pages, reader  # noqa: F401 -- reader is a fixture


@pytest.mark.mooncake
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", pages(of_the_real_store=True), ids=page_id)
@pytest.mark.usefixtures("reader")
def test_every_command_works_on_the_real_store(page: Path, managed_master: ManagedMaster) -> None:
    owner = open_mooncake(managed_master.address, segment_bytes=1 << 30)
    try:
        check_page(page, managed_master.address)
    finally:
        owner.close()
