"""Keys as text and as plain data. A key is never broken: it is there to be copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from hicache_bench.pools.keys import KeyUnit, NamespacedKeyBuilder
from hicache_bench.report.preset_data import pool_fields
from hicache_bench.report.presets import hit_policy_text, plain_table
from hicache_bench.report.tables import plural
from hicache_bench.workflows.key_inventory import Inventory
from hicache_bench.workflows.model_keys import Shard, page_keys, trailing_pages
from hicache_bench.workflows.variant import Variant

Shards = Mapping[str, tuple[Shard, ...]]


def keys_text(variant: Variant, shards: Shards, pages: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Lines: for each page its hash, for each pool what it is, and each key on a line of its own.

    ``pages`` are pairs of a page number and its hash.
    """
    for number, page_hash in pages:
        if number >= 0:
            yield f"page {number}: {page_hash}"
        for name, group in shards.items():
            pool = group[0].pool
            needs = hit_policy_text(pool, trailing_pages(pool))
            yield f"{name} ({pool.attention}, {needs}, {plural(len(group), 'shard')})"
            yield from (f"  {key}" for _, _, key in page_keys(variant, group, page_hash))


def keys_as_dict(
    variant: Variant, shards: Shards, pages: Sequence[tuple[int, str]], key_unit: KeyUnit
) -> dict[str, Any]:
    """The same as plain data."""
    return {
        **_heading(variant, key_unit),
        "pages": [
            {
                "page": number if number >= 0 else None,
                "hash": page_hash,
                "keys": [
                    {
                        "pool": name,
                        "shard": shard.label_of(component),
                        "component": component.name,
                        "bytes": component.object_bytes,
                        "key": key,
                    }
                    for name, group in shards.items()
                    for shard, component, key in page_keys(variant, group, page_hash)
                ],
            }
            for number, page_hash in pages
        ],
    }


def describe_keys(variant: Variant, shards: Shards, key_unit: KeyUnit) -> dict[str, Any]:
    """What a router needs to ask a store for a prefix by itself; a key is ``prefix + page hash + suffix``.

    ``writers`` ranks each write one shard of a pool, which ``readers`` ranks read. An endpoint needs every
    page before it of a pool ``all_pages``, the last ``trailing_pages`` of a pool ``trailing_pages``, and
    nothing of one that is logical or required for speed only.
    """
    logical = [
        {**pool_fields(pool), "trailing_pages": None, "writers": 0, "readers": 0, "shards": []}
        for pool in next(iter(variant.pools.values()))
        if pool.is_logical
    ]
    return {
        **_heading(variant, key_unit),
        "page_hash": "sha256(digest of the page before, else chain_seed; units as uint32 little-endian)",
        "pools": logical + [_described(variant, group) for group in shards.values()],
    }


def _described(variant: Variant, group: Sequence[Shard]) -> dict[str, Any]:
    pool = group[0].pool
    return {
        **pool_fields(pool),
        "trailing_pages": trailing_pages(pool),
        "writers": len(group),
        "readers": group[0].ranks,
        "shards": [
            {
                "shard": shard.label_of(shard.pool.stored_components[0]),
                "objects": [
                    {
                        "component": template.component.name,
                        "bytes": template.component.object_bytes,
                        "prefix": template.prefix,
                        "suffix": template.suffix,
                    }
                    for template in variant.keys.templates(shard.pool)
                ],
            }
            for shard in group
        ],
    }


def _heading(variant: Variant, key_unit: KeyUnit) -> dict[str, Any]:
    keys = variant.keys
    return {
        "preset": variant.preset.name,
        "digest": variant.spec.digest,
        "profile": variant.profile,
        "ranks": len(variant.pools),
        "page_tokens": variant.page_tokens,
        "key_scheme": keys.scheme,
        "namespace": keys.namespace if isinstance(keys, NamespacedKeyBuilder) else None,
        "key_unit": key_unit.value,
        "chain_seed": variant.chain_seed,
    }


def render_inventory(found: Inventory) -> RenderableType:
    """One row per pool: pages that an engine needs of the whole prompt, and keys behind them."""
    table = plain_table(
        "pool", "shards", "pages\nneeded", "pages\nfound", "other\npages", "keys\nfound", left=("pool",)
    )
    for entry in found.pools:
        table.add_row(
            entry.pool,
            str(entry.shards),
            str(entry.expected_pages),
            str(entry.found_pages),
            str(entry.other_pages),
            f"{entry.found_keys}/{entry.expected_keys}",
        )
    return Group(
        table,
        Text(f"restorable: {found.restorable_pages} of {found.num_pages} pages"),
        Text("other pages: found too, and not needed to resume at the end of the prompt"),
    )
