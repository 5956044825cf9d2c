"""Small models of every attention type: the ones that faults are tried on."""

from __future__ import annotations

import random
from typing import Any

from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.names import AttentionType, Layout, Requirement

PAGE_TOKENS = 4


def small_pool(
    name: str, attention: AttentionType, *components: Component, page_tokens: int = PAGE_TOKENS, **fields: Any
) -> KVPoolDescriptor:
    """A pool of a few bytes a page."""
    return KVPoolDescriptor(
        name=name, attention=attention, page_tokens=page_tokens, components=components, **fields
    )


LATENT = small_pool("kv", AttentionType.MLA, Component("k", 2, 4, 6))
INDEX = small_pool("indexer", AttentionType.SPARSE_INDEX, Component("page", 1, 1, 20))
DRAFT = small_pool("draft", AttentionType.FULL, Component("k", 1, 4, 8), required_for=Requirement.SPEED)
HYBRID: tuple[KVPoolDescriptor, ...] = (
    small_pool("anchor", AttentionType.LOGICAL),
    LATENT,
    INDEX,
    small_pool("full", AttentionType.FULL, Component("k", 1, 4, 4, 2), Component("v", 1, 4, 8, 2)),
    small_pool(
        "swa",
        AttentionType.SWA,
        Component("k", 2, 4, 8, 2),
        Component("v", 2, 4, 4, 2),
        window_tokens=6,
        engine_window_tokens=9,
    ),
    small_pool("chunked", AttentionType.CHUNKED, Component("k", 1, 4, 8), window_tokens=8),
    small_pool(
        "mamba", AttentionType.RECURRENT, Component("temporal", 3, 1, 9), Component("conv_0", 3, 1, 5)
    ),
    small_pool(
        "c128", AttentionType.COMPRESSED, Component("page", 2, 1, 24), unit_pages=2, partial_units=True
    ),
    small_pool("c4_state", AttentionType.COMPRESSOR_STATE, Component("page", 1, 1, 32)),
    DRAFT,
)
"""Every attention type at once, on one rank."""

PLAIN = (LATENT,)
SPARSE = (LATENT, INDEX)
CONV_ONLY = (
    LATENT,
    small_pool(
        "mamba",
        AttentionType.RECURRENT,
        Component("temporal", 3, 1, 0),
        *(Component(f"conv_{index}", 3, 1, 4 + index) for index in range(3)),
    ),
)
"""A model whose states have no temporal part: a component of 0 bytes."""


def random_pools(chance: random.Random) -> tuple[KVPoolDescriptor, ...]:
    """A model that nobody built: one pool that keeps all pages, and any others."""
    page_tokens = chance.choice((1, 2, 4, 8))
    layout = chance.choice((Layout.PAGE_FIRST, Layout.PAGE_FIRST_DIRECT, Layout.PAGE_HEAD))

    def component(name: str, rows: int = page_tokens) -> Component:
        # At least 8 bytes: fewer could be the same in two pages by chance.
        return Component(name, chance.randint(1, 3), rows, 2 * chance.randint(4, 9), 2)

    def window() -> dict[str, int]:
        tokens = chance.randint(1, 5 * page_tokens)
        return {"window_tokens": tokens, "engine_window_tokens": max(1, tokens + chance.randint(-1, 3))}

    def pool(name: str, attention: AttentionType, *parts: Component, **fields: Any) -> KVPoolDescriptor:
        return small_pool(name, attention, *parts, page_tokens=page_tokens, layout=layout, **fields)

    units = {"unit_pages": chance.choice((1, 2, 3)), "partial_units": chance.random() < 0.7}
    optional = (
        pool("indexer", AttentionType.SPARSE_INDEX, component("page", 1)),
        pool("full", AttentionType.FULL, component("k"), component("v")),
        pool("swa", AttentionType.SWA, component("k"), component("v"), **window()),
        pool("chunked", AttentionType.CHUNKED, component("k"), window_tokens=window()["window_tokens"]),
        pool("mamba", AttentionType.RECURRENT, component("temporal", 1), component("conv_0", 1)),
        pool("c128", AttentionType.COMPRESSED, component("page", 1), **units),
        pool("c4_state", AttentionType.COMPRESSOR_STATE, component("page", 1)),
        pool("draft", AttentionType.FULL, component("k"), required_for=Requirement.SPEED),
        pool("anchor", AttentionType.LOGICAL),
    )
    chosen = [other for other in optional if chance.random() < 0.45]
    pools = [pool("kv", AttentionType.MLA, component("k")), *chosen]
    chance.shuffle(pools)
    return tuple(pools)
