from __future__ import annotations

from dataclasses import replace

import pytest

from hicache_bench.engine.facade import HybridHiCacheFacade
from hicache_bench.errors import ConfigError, LayoutError
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.planning.policy import SavePolicy, StateSave
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import HitPolicy, Layout
from hicache_bench.pools.registry import Decision
from tests.engine.rig import (
    ANCHOR,
    CHUNK,
    INDEX,
    KITCHEN_SINK,
    LATENT,
    PAGE_TOKENS,
    RATIO,
    RING,
    STATE,
    WINDOW,
    Rig,
)


def test_a_pool_without_a_buffer_is_skipped_and_any_other_registered() -> None:
    facade = HybridHiCacheFacade()
    expected = {pool.name: Decision.SKIP if pool is ANCHOR else Decision.REGISTER for pool in KITCHEN_SINK}
    assert expected == {pool.name: facade.classify(pool) for pool in KITCHEN_SINK}


def test_the_host_pool_decides_where_there_is_one() -> None:
    facade = HybridHiCacheFacade()
    assert Decision.REGISTER is facade.classify(LATENT, HostPool(LATENT, 1))
    assert Decision.SKIP is facade.classify(ANCHOR, HostPool(ANCHOR, 1))
    scattered = HostPool(replace(STATE, layout=Layout.LAYER_FIRST), 1)
    with pytest.raises(LayoutError, match="page_first"):
        facade.classify(STATE, scattered)
    with pytest.raises(ConfigError, match="no buffer"):
        facade.classify(replace(INDEX, name="other"), HostPool(ANCHOR, 1))
    assert ["kv", "anchor"] == [pool.name for pool in facade.registry]  # a rejected pool leaves no trace


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (LATENT, (HitPolicy.ALL_PAGES, 0)),
        (INDEX, (HitPolicy.ALL_PAGES, 0)),
        (RATIO, (HitPolicy.ALL_PAGES, 0)),
        (WINDOW, (HitPolicy.TRAILING_PAGES, 3)),  # the engine believes in a window of 9 tokens
        (CHUNK, (HitPolicy.TRAILING_PAGES, 2)),
        (STATE, (HitPolicy.TRAILING_PAGES, 1)),
        (RING, (HitPolicy.TRAILING_PAGES, 1)),
        (replace(WINDOW, unit_pages=2), (HitPolicy.TRAILING_PAGES, 4)),  # two units of two pages
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_hit_policy(pool: KVPoolDescriptor, expected: tuple[HitPolicy, int]) -> None:
    facade = HybridHiCacheFacade()
    facade.classify(pool)
    assert expected == facade.hit_policy(pool.name)


def test_io_is_counted_in_units_and_bytes() -> None:
    facade = HybridHiCacheFacade()
    facade.classify(LATENT)
    facade.record_io("kv", "read", 3)
    facade.record_io("kv", "read", 2)
    facade.record_io("kv", "failed", 1)
    text = facade.metrics.to_prometheus()
    assert f'mooncake_hicache_read_bytes_total{{pool="kv"}} {5 * LATENT.unit_bytes}' in text.splitlines()
    assert 'mooncake_hicache_read_pages_total{pool="kv"} 5' in text.splitlines()
    assert 'mooncake_hicache_failed_pages_total{pool="kv"} 1' in text.splitlines()


def test_a_backend_finds_its_endpoint_with_its_own_query_and_few_keys() -> None:
    writer = Rig([ANCHOR, LATENT, STATE], 8)
    writer.save(SavePolicy(states=StateSave.EVERY, state_interval_tokens=5 * PAGE_TOKENS))
    writer.inner.remove(writer.key("mamba", 7))
    facade = HybridHiCacheFacade()
    for pool in (ANCHOR, LATENT, STATE):
        facade.classify(pool)
    search = facade.search(writer.prefix.hashes, writer.keys, writer.inner.batch_exists)
    assert [5, 5, 0] == [search.longest(8), search.longest(7), search.longest(4)]
    assert (8 + 2 * 8, 5) == (search.keys_asked, search.calls)  # states 8, then 6 and 7, 2 to 5, and 1
    continued = facade.search(
        writer.prefix.hashes[3:],
        writer.keys,
        writer.inner.batch_exists,
        first_page=3,
        parent=writer.prefix.hashes[2],
    )
    assert (5, 3) == (continued.longest(8), continued.longest(4))
    with pytest.raises(ConfigError, match="nothing to store"):
        HybridHiCacheFacade().search(writer.prefix.hashes, writer.keys, writer.inner.batch_exists)


def test_what_is_unknown_is_named_with_what_is_known() -> None:
    facade = HybridHiCacheFacade()
    with pytest.raises(ConfigError, match="'kv' was never classified; known: none"):
        facade.hit_policy("kv")
    facade.classify(LATENT)
    with pytest.raises(ConfigError, match="'swa' was never classified; known: kv"):
        facade.record_io("swa", "read", 1)
    with pytest.raises(ConfigError, match="'reads'; allowed: read, written, missed, failed, wasted"):
        facade.record_io("kv", "reads", 1)


def test_two_facades_share_nothing() -> None:
    one, other = HybridHiCacheFacade(), HybridHiCacheFacade()
    one.classify(LATENT)
    one.record_io("kv", "read", 1)
    assert 0 == len(other.registry)
    assert "read" not in other.metrics.to_prometheus()
