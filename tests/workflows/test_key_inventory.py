from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import StoreError
from hicache_bench.pools.keys import KeyUnit
from hicache_bench.store.base import KeyResult, KVStoreBackend, error
from hicache_bench.store.local import LocalKVStore
from hicache_bench.workflows.key_inventory import (
    Inventory,
    look_elsewhere,
    missing_keys_text,
    take_inventory,
)
from hicache_bench.workflows.model_keys import example_tokens, page_keys, prompt_hashes, shards_of
from hicache_bench.workflows.variant import Variant, VariantOptions, apply_options

PAGES = 24
TOKENS = example_tokens(PAGES * 64 + 1)


def variant(name: str = "kimi-linear-48b-a3b", **options: Any) -> Variant:
    return apply_options(load_model(name), VariantOptions(**options))


@pytest.fixture
def store() -> Iterator[KVStoreBackend]:
    with LocalKVStore(1 << 20) as opened:
        yield opened


def put(store: KVStoreBackend, keys: Iterable[str]) -> None:
    """Store a byte under each key: an inventory asks for no sizes."""
    byte = np.zeros(1, dtype=np.uint8)
    store.register_buffer(byte.ctypes.data, 1)
    names = list(keys)
    results = store.batch_put_from(names, [byte.ctypes.data] * len(names), [1] * len(names))
    assert {"ok"} == {str(result) for result in results}
    store.unregister_buffer(byte.ctypes.data)


def keys_of(chosen: Variant, pool: str, pages: Iterable[int], key_unit: KeyUnit = KeyUnit.TOKEN) -> list[str]:
    hashes = prompt_hashes(chosen, TOKENS, key_unit)
    return [key for page in pages for _, _, key in page_keys(chosen, shards_of(chosen)[pool], hashes[page])]


def inventory(store: KVStoreBackend, chosen: Variant, key_unit: KeyUnit = KeyUnit.TOKEN) -> Inventory:
    return take_inventory(store, chosen, prompt_hashes(chosen, TOKENS, key_unit))


def rows(found: Inventory) -> dict[str, tuple[int, ...]]:
    return {
        entry.pool: (
            entry.expected_pages,
            entry.found_pages,
            entry.other_pages,
            entry.expected_keys,
            entry.found_keys,
        )
        for entry in found.pools
    }


def test_pools_that_were_not_written_are_listed(store: KVStoreBackend) -> None:  # cases E46
    chosen = variant("deepseek-v3.2")
    put(store, keys_of(chosen, "kv", range(PAGES)))
    found = inventory(store, chosen)
    assert {"kv": (24, 24, 0, 24, 24), "indexer": (24, 0, 0, 24, 0)} == rows(found)
    assert (24, 0) == (found.num_pages, found.restorable_pages)


def test_a_state_is_expected_at_the_end_and_found_elsewhere(store: KVStoreBackend) -> None:
    chosen = variant()
    put(store, keys_of(chosen, "kv", range(PAGES)))
    put(store, keys_of(chosen, "mamba", [7, 15]))
    found = inventory(store, chosen)
    assert {"kv": (24, 24, 0, 24, 24), "mamba": (1, 0, 2, 2, 0)} == rows(found)
    assert 16 == found.restorable_pages
    put(store, keys_of(chosen, "mamba", [23]))
    assert 24 == inventory(store, chosen).restorable_pages


def test_a_page_needs_every_component_of_every_shard(store: KVStoreBackend) -> None:
    chosen = variant(tp=2)
    put(store, keys_of(chosen, "kv", range(PAGES)))
    state = keys_of(chosen, "mamba", [23])
    assert 4 == len(state)
    put(store, state[:3])
    found = inventory(store, chosen)
    assert (1, 0, 0, 4, 3) == rows(found)["mamba"]
    assert 0 == found.restorable_pages
    put(store, state[3:])
    assert (1, 1, 0, 4, 4) == rows(inventory(store, chosen))["mamba"]


def test_only_a_leading_run_of_pages_is_restorable(store: KVStoreBackend) -> None:
    chosen = variant("llama-3.1-8b")
    put(store, keys_of(chosen, "kv", (0, 1, 3)))
    found = inventory(store, chosen)
    assert (2, 6, 48) == (found.restorable_pages, found.keys_found, found.keys_asked)


def test_an_error_is_no_miss(store: KVStoreBackend) -> None:
    class Failing(LocalKVStore):
        def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
            return [error(-7)] * len(keys)

    with Failing(1 << 20) as failing, pytest.raises(StoreError, match=r"error\(-7\)"):
        inventory(failing, variant())


# --- keys of another kind ---------------------------------------------------------------------------------

WRITERS: list[tuple[dict[str, Any], KeyUnit, tuple[str, ...]]] = [
    ({}, KeyUnit.BIGRAM, ("--key-unit bigram",)),
    ({"key_scheme": "sglang"}, KeyUnit.TOKEN, ("--key-scheme sglang",)),
    ({"key_scheme": "sglang"}, KeyUnit.BIGRAM, ("--key-unit bigram", "--key-scheme sglang")),
]


@pytest.mark.parametrize(("options", "unit", "changes"), WRITERS)
def test_the_writers_keys_are_named(
    store: KVStoreBackend, options: dict[str, Any], unit: KeyUnit, changes: tuple[str, ...]
) -> None:  # cases E44
    writer, reader = variant("llama-3.1-8b", **options), variant("llama-3.1-8b")
    put(store, keys_of(writer, "kv", range(3), unit))
    found = inventory(store, reader)
    assert 0 == found.keys_found
    other, tried = look_elsewhere(store, reader, TOKENS, KeyUnit.TOKEN)
    assert other is not None
    assert (changes, 6, ()) == (other.changes, other.keys_found, tried)
    text = missing_keys_text(found, other, tried)
    assert all(change in text for change in changes)
    assert text.startswith("none of the 48 keys of this prompt is in the store, and 6 are there with ")


def test_an_adapter_that_the_writer_had_not_is_named(store: KVStoreBackend) -> None:
    writer = variant("llama-3.1-8b", key_scheme="sglang")
    reader = variant("llama-3.1-8b", key_scheme="sglang", adapter="lora", salt="me", model_name="m/x")
    put(store, keys_of(writer, "kv", range(3)))
    other, _ = look_elsewhere(store, reader, TOKENS, KeyUnit.TOKEN)
    assert other is not None
    assert ("no --adapter", "no --salt", "no --model-name") == other.changes


def test_what_was_tried_is_told_where_nothing_is_found(store: KVStoreBackend) -> None:
    reader = variant("llama-3.1-8b", salt="me")
    found = inventory(store, reader)
    other, tried = look_elsewhere(store, reader, TOKENS, KeyUnit.BIGRAM)
    assert other is None
    assert ("--key-unit token", "--key-scheme sglang", "no --salt") == tried
    assert all(change in missing_keys_text(found, other, tried) for change in tried)


def test_a_scheme_without_keys_for_the_pools_is_passed_over(store: KVStoreBackend) -> None:
    other, tried = look_elsewhere(store, variant("kitchen-sink"), TOKENS, KeyUnit.TOKEN)
    assert (None, ("--key-unit bigram", "--key-scheme sglang")) == (other, tried)
