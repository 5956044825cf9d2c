from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from hicache_bench.errors import ConfigError, LayoutError
from hicache_bench.pools.descriptor import IndexSelection, KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.layout import STORABLE_LAYOUTS
from hicache_bench.pools.names import AttentionType, Layout
from hicache_bench.pools.registry import Decision, PoolDescriptorRegistry


def pool(name: str = "kv", *components: str, **changes: Any) -> KVPoolDescriptor:
    fields: dict[str, Any] = {
        "attention": AttentionType.FULL,
        "page_tokens": 4,
        "components": tuple(Component(component, 1, 4, 8) for component in components or ("k", "v")),
    }
    return KVPoolDescriptor(name=name, **{**fields, **changes})


def anchor(name: str = "kv") -> KVPoolDescriptor:
    return pool(name, attention=AttentionType.LOGICAL, components=())


@dataclass
class HostPool:
    """What the registry looks at of an engine's own host pool."""

    kv_buffer: object
    layout: str = "page_first"


class AnchorWithTraps:
    """SGLang's LogicalHostPool: asking for bytes or a page count raises (E29)."""

    kv_buffer = None

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


@pytest.mark.parametrize("layout", sorted(STORABLE_LAYOUTS))
def test_physical_pools_are_registered(layout):
    registry = PoolDescriptorRegistry()
    assert Decision.REGISTER is registry.add(pool(layout=layout))
    assert ["kv"] == [entry.name for entry in registry.registered]
    assert () == registry.skipped


def test_a_logical_anchor_is_skipped_and_still_known():
    registry = PoolDescriptorRegistry()
    assert Decision.SKIP is registry.add(anchor())
    assert Decision.REGISTER is registry.add(pool("swa"))

    registry.check()
    assert (["swa"], ["kv"]) == (
        [entry.name for entry in registry.registered],
        [entry.name for entry in registry.skipped],
    )
    assert ["kv", "swa"] == list(registry.by_name) == [entry.name for entry in registry]
    assert 2 == len(registry)


def test_nothing_is_asked_of_an_anchor_but_whether_it_has_a_buffer():
    assert Decision.SKIP is PoolDescriptorRegistry().add(anchor(), AnchorWithTraps())


def test_layer_first_is_rejected_with_the_layouts_to_use():
    registry = PoolDescriptorRegistry()
    with pytest.raises(LayoutError, match=r"'kv'.*page_first, or page_first_direct with direct I/O"):
        registry.add(pool(layout=Layout.LAYER_FIRST))
    assert 0 == len(registry), "a rejected pool leaves no trace"
    assert Decision.REGISTER is registry.add(pool())


def test_the_layout_of_the_host_pool_must_be_the_one_described():
    with pytest.raises(LayoutError, match="layer_first"):
        PoolDescriptorRegistry().add(pool(), HostPool(object(), "layer_first"))
    with pytest.raises(LayoutError, match=r"page_first, and its host pool is page_head"):
        PoolDescriptorRegistry().add(pool(), HostPool(object(), "page_head"))
    described = pool(layout=Layout.PAGE_HEAD)
    assert Decision.REGISTER is PoolDescriptorRegistry().add(described, HostPool(object(), "page_head"))


@pytest.mark.parametrize(
    ("described", "host_pool", "words"),
    [
        (pool(), HostPool(None), "physical.*no buffer"),
        (anchor(), HostPool(object()), "logical.*a buffer"),
    ],
    ids=["physical", "logical"],
)
def test_a_buffer_that_contradicts_the_descriptor(described, host_pool, words):
    with pytest.raises(ConfigError, match=words):
        PoolDescriptorRegistry().add(described, host_pool)


@pytest.mark.parametrize("pools", [[], [anchor()], [anchor(), anchor("swa")]], ids=len)
def test_a_model_without_physical_pools_has_nothing_to_store(pools):
    """E29: a store answers "full hit" to it."""
    registry = PoolDescriptorRegistry()
    for entry in pools:
        registry.add(entry)
    with pytest.raises(ConfigError, match=r"nothing to store.*add at least one physical pool"):
        registry.check()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pool("swa"), pool("swa")),
        (pool("swa"), pool("SWA", "x")),
        (anchor("kv"), pool("kv")),
        (pool("a_b", "c"), pool("a", "b_c")),
        (pool("a_b", "C"), pool("A", "b_c")),
    ],
    ids=["equal", "case", "logical", "delimiter", "delimiter and case"],
)
def test_names_or_keys_that_could_collide_are_refused(first, second):
    """E48."""
    for one, other in ((first, second), (second, first)):
        registry = PoolDescriptorRegistry()
        registry.add(one)
        with pytest.raises(ConfigError, match=f"'{one.name}'.*'{other.name}'"):
            registry.add(other)
        assert [one.name] == list(registry.by_name)


@pytest.mark.parametrize("first", [pool("kv"), anchor("kv")], ids=["physical", "logical"])
def test_pages_of_another_length_are_refused(first):
    """A page hash stands for one number of tokens; a longer unit is several pages."""
    registry = PoolDescriptorRegistry()
    registry.add(first)
    with pytest.raises(ConfigError, match="'swa' has pages of 16 tokens, and pool 'kv' of 4"):
        registry.add(pool("swa", page_tokens=16))
    assert Decision.REGISTER is registry.add(pool("swa", unit_pages=4))


def test_components_without_bytes_collide_with_nothing():
    empty = (Component("c", 1, 4, 0), Component("d", 1, 4, 8))
    registry = PoolDescriptorRegistry()
    registry.add(pool("a_b", components=empty))
    assert Decision.REGISTER is registry.add(pool("a", "b_c"))


def test_order_of_pools_is_that_of_adding():
    names = ["swa", "kv", "mamba", "indexer"]
    registry = PoolDescriptorRegistry()
    for name in names:
        registry.add(pool(name))
    assert names == list(registry.by_name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"derived_from": "swa"}, "'state'.*is derived from 'swa'.*known: kv, state"),
        ({"selection": IndexSelection(index_pool="indexer", top_k=8)}, "'state'.*is selected by 'indexer'"),
    ],
    ids=["derived", "selected"],
)
def test_pools_that_others_refer_to_must_be_there(changes, words):
    """E27: a pool whose index was not registered is an error, not a warning."""
    registry = PoolDescriptorRegistry()
    registry.add(pool())
    registry.add(pool("state", **changes))
    with pytest.raises(ConfigError, match=words):
        registry.check()


def test_pools_by_name_cannot_be_changed_from_outside():
    registry = PoolDescriptorRegistry()
    registry.add(pool())
    with pytest.raises(TypeError):
        registry.by_name["swa"] = pool("swa")  # type: ignore[index]
