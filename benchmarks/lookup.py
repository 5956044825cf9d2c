"""A lookup that asks for what decides, against a plain scan of everything; paired, in one process.

``python -m benchmarks.lookup`` prints both bars. The store answers at once, so that what is timed is what a
lookup costs a server besides its queries: keys, flags and the search for the endpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.paired import Row, at_least, at_most, paired_ratio
from benchmarks.table import print_rows
from hicache_bench.engine.lookup import EndpointSearch, look_up_endpoint, resolve_lookup
from hicache_bench.engine.prefix import Prefix, PrefixKeys
from hicache_bench.planning.policy import TransferPolicy, trailing_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.pools.names import AttentionType, HitPolicy
from hicache_bench.store.base import OK, KeyResult

NUM_PAGES, PAGE_TOKENS, TRAILING_PAGES = 16_384, 64, 128


def _pool(name: str, attention: AttentionType, components: str, window: int | None) -> KVPoolDescriptor:
    return KVPoolDescriptor(
        name=name,
        attention=attention,
        page_tokens=PAGE_TOKENS,
        components=tuple(Component(component, 1, 1, 64) for component in components.split()),
        window_tokens=window,
    )


POOLS = (
    _pool("kv", AttentionType.FULL, "k v", None),
    _pool("swa", AttentionType.SWA, "k v", TRAILING_PAGES * PAGE_TOKENS),
    _pool("mamba", AttentionType.RECURRENT, "temporal conv_0", None),
)


def _everything_exists(keys: Sequence[str]) -> list[KeyResult]:
    return [OK] * len(keys)


def plain_scan(hashes: Sequence[str], keys: NamespacedKeyBuilder) -> tuple[int, int]:
    """The endpoint, and how many keys were asked for: all of them, once; then each endpoint's window."""
    asked = [
        template.prefix + page_hash + template.suffix
        for pool in POOLS
        for page_hash in hashes
        for template in keys.templates(pool)
    ]
    results = iter(_everything_exists(asked))
    present = {
        pool.name: [all(next(results) is OK for _ in pool.components) for _ in hashes] for pool in POOLS
    }
    longest = 0
    for endpoint in range(1, len(hashes) + 1):
        for pool in POOLS:
            needed = endpoint if pool.hit_policy is HitPolicy.ALL_PAGES else trailing_units(pool)
            # The leading run is known from the endpoint before; a window has to be looked at as a whole.
            first = endpoint - 1 if pool.hit_policy is HitPolicy.ALL_PAGES else max(0, endpoint - needed)
            if not all(present[pool.name][first:endpoint]):
                break
        else:
            longest = endpoint
    return longest, len(asked)


def rows(pairs: int = 15) -> Iterator[Row]:
    """Both bars, measured."""
    prefix = Prefix(
        prompt_tokens=NUM_PAGES * PAGE_TOKENS + 1,
        page_tokens=PAGE_TOKENS,
        hashes=[f"{page:064x}" for page in range(NUM_PAGES)],
        slots={},
    )
    keys = NamespacedKeyBuilder("benchmark")
    policy = TransferPolicy.HIT_POLICY

    def search() -> tuple[int, int]:
        found = EndpointSearch(POOLS, PrefixKeys(keys), _everything_exists, prefix, policy)
        (lookup,) = look_up_endpoint([found])
        return resolve_lookup(POOLS, lookup, policy).hit_pages, lookup.keys_asked

    def scan() -> tuple[int, int]:
        return plain_scan(prefix.hashes, keys)

    (scanned, all_keys), (searched, few_keys) = scan(), search()
    assert scanned == searched == NUM_PAGES
    yield at_least("lookup, 16,384 pages: plain scan / ours", paired_ratio(scan, search, pairs=pairs), 8)
    yield at_most("lookup, 16,384 pages: keys asked / all keys", few_keys / all_keys, 0.4, "of all")


if __name__ == "__main__":
    print_rows(rows())
