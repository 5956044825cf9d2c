"""Changes to stored objects behind their users' backs."""

from __future__ import annotations

import pytest

from hicache_bench.errors import StoreError
from hicache_bench.store.base import MISS, OK
from hicache_bench.store.fault_objects import ObjectEditor, flip_bit
from hicache_bench.store.local import LocalKVStore
from hicache_bench.units import KIB


def test_objects_are_read_replaced_and_removed_leased_or_not() -> None:
    store = LocalKVStore(64 * KIB)
    editor = ObjectEditor(store, 100)
    editor.replace("key", b"first")
    assert [OK] == store.batch_exists(["key"])  # takes a lease
    editor.replace("key", b"second")
    assert b"second" == editor.read("key", 6)
    editor.remove("key")
    editor.remove("key")
    assert [MISS] == store.batch_exists(["key"])


def test_what_the_store_does_not_do_is_an_error() -> None:
    store = LocalKVStore(64 * KIB)
    editor = ObjectEditor(store, 100)
    editor.replace("key", b"bytes")
    with pytest.raises(StoreError, match="cannot read 'key'"):
        editor.read("key", 4)
    with pytest.raises(StoreError, match="cannot remove ''"):
        editor.replace("", b"bytes")


def test_scratch_is_given_back() -> None:
    store = LocalKVStore(64 * KIB)
    editor = ObjectEditor(store, 100)
    editor.close()
    with pytest.raises(StoreError, match="no registered buffer"):
        editor.close()


@pytest.mark.parametrize("bit", [0, 7, 8, 23])
def test_one_bit_flips(bit: int) -> None:
    changed = flip_bit(b"abc", bit)
    difference = int.from_bytes(b"abc", "little") ^ int.from_bytes(changed, "little")
    assert 1 << bit == difference
