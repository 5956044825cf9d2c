"""The contract of ``hicache_bench/store/base.py`` as tests that every backend inherits.

A subclass gives a fixture ``store``: an open, empty backend with room for 8 MiB, whose leases (if it has any)
last at least 2 s. Where the backend has a second way to its bytes, override :meth:`StoreContract.peek` and
:meth:`StoreContract.plant`, so that a fault in both halves of the tested path cannot cancel out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hicache_bench.errors import StoreClosedError, StoreContractError, StoreError
from hicache_bench.store import base
from hicache_bench.store.base import EXISTS, INVALID_PARAMS, LEASED, MISS, OK, KVStoreBackend
from hicache_bench.units import KIB, MIB
from tests.store.contract_host import GUARD_BYTE, STRANGE_KEYS, ContractBase, Host, growth, offsets_of


class StoreContract(ContractBase):
    """Every rule of :class:`~hicache_bench.store.base.KVStoreBackend`, tested on the fixture ``store``."""

    # Round trips

    @pytest.mark.parametrize("num_bytes", [1, 3, 63, 64, 65, 4 * KIB, 64 * KIB - 1, MIB + 7])
    def test_put_stores_the_bytes(self, store: KVStoreBackend, host: Host, num_bytes: int) -> None:
        assert [OK] == store.batch_put_from(["key"], [host.source_at(5)], [num_bytes])
        self.assert_stored(store, host, "key", 5, num_bytes)

    @pytest.mark.parametrize("num_bytes", [1, 3, 63, 64, 65, 4 * KIB, 64 * KIB - 1, MIB + 7])
    def test_get_reads_the_bytes_and_no_others(
        self, store: KVStoreBackend, host: Host, num_bytes: int
    ) -> None:
        self.plant(store, host, "key", 5, num_bytes)
        host.target.fill(GUARD_BYTE)
        assert [OK] == store.batch_get_into(["key"], [host.target_at(64)], [num_bytes])
        self.assert_read(store, host, 5, 64, num_bytes)
        assert bytes([GUARD_BYTE]) * 64 == host.target_bytes(0, 64)
        assert bytes([GUARD_BYTE]) * 64 == host.target_bytes(64 + num_bytes, 64)

    def test_batch_of_different_sizes(self, store: KVStoreBackend, host: Host) -> None:
        sizes = [1 + 97 * index for index in range(100)]
        keys = [f"key-{index}" for index in range(len(sizes))]
        offsets = offsets_of(sizes)
        assert [OK] * 100 == store.batch_put_from(keys, [host.source_at(at) for at in offsets], sizes)
        # Read in another order than written: position must not matter, only the key.
        order = [(37 * index) % 100 for index in range(100)]
        results = store.batch_get_into(
            [keys[i] for i in order],
            [host.target_at(offsets[i]) for i in order],
            [sizes[i] for i in order],
        )
        assert [OK] * 100 == results
        self.assert_read(store, host, 0, 0, sum(sizes))
        assert bytes([GUARD_BYTE]) * 64 == host.target_bytes(sum(sizes), 64)

    def test_key_read_twice_in_one_call(self, store: KVStoreBackend, host: Host) -> None:
        self.plant(store, host, "key", 0, 100)
        targets = [host.target_at(), host.target_at(100)]
        assert [OK, OK] == store.batch_get_into(["key", "key"], targets, [100, 100])
        self.assert_read(store, host, 0, 0, 100)
        self.assert_read(store, host, 0, 100, 100)

    @pytest.mark.parametrize("key", STRANGE_KEYS, ids=lambda key: repr(key[-20:]))
    def test_strange_key(self, store: KVStoreBackend, host: Host, key: str) -> None:
        assert [OK] == store.batch_put_from([key], [host.source_at()], [100])
        assert [OK] == store.batch_exists([key])
        self.assert_stored(store, host, key, 0, 100)

    def test_strange_keys_stay_apart(self, store: KVStoreBackend, host: Host) -> None:
        sizes = [10 + index for index in range(len(STRANGE_KEYS))]
        offsets = offsets_of(sizes)
        expected = [OK] * len(STRANGE_KEYS)
        assert expected == store.batch_put_from(STRANGE_KEYS, [host.source_at(at) for at in offsets], sizes)
        for key, offset, num_bytes in zip(STRANGE_KEYS, offsets, sizes, strict=True):
            self.assert_stored(store, host, key, offset, num_bytes)

    # Several buffers, one object

    def test_put_concatenates_buffers(self, store: KVStoreBackend, host: Host) -> None:
        addresses = [[host.source_at(1000), host.source_at(0), host.source_at(5000)], [host.source_at(77)]]
        sizes = [[10, 300, 1], [25]]
        assert [OK, OK] == store.batch_put_from(["three", "one"], addresses, sizes)
        stored = self.peek(store, host, "three", 311)
        if store.capabilities.moves_bytes:
            parts = host.source_bytes(1000, 10), host.source_bytes(0, 300), host.source_bytes(5000, 1)
            assert b"".join(parts) == stored
        self.assert_stored(store, host, "one", 77, 25)

    def test_get_splits_over_buffers(self, store: KVStoreBackend, host: Host) -> None:
        self.plant(store, host, "three", 0, 311)
        self.plant(store, host, "one", 400, 25)
        host.target.fill(GUARD_BYTE)
        addresses = [[host.target_at(1000), host.target_at(0), host.target_at(5000)], [host.target_at(700)]]
        assert [OK, OK] == store.batch_get_into(["three", "one"], addresses, [[10, 300, 1], [25]])
        self.assert_read(store, host, 0, 1000, 10)
        self.assert_read(store, host, 10, 0, 300)
        self.assert_read(store, host, 310, 5000, 1)
        self.assert_read(store, host, 400, 700, 25)
        assert bytes([GUARD_BYTE]) == host.target_bytes(300, 1)
        assert bytes([GUARD_BYTE]) == host.target_bytes(1010, 1)

    def test_split_of_put_and_get_may_differ(self, store: KVStoreBackend, host: Host) -> None:
        sources = [[host.source_at(0), host.source_at(100)]]
        assert [OK] == store.batch_put_from(["key"], sources, [[100, 200]])
        targets = [[host.target_at(0), host.target_at(7), host.target_at(150)]]
        assert [OK] == store.batch_get_into(["key"], targets, [[7, 143, 150]])
        self.assert_read(store, host, 0, 0, 300)

    @pytest.mark.parametrize("sizes", [[100, 199], [100, 201], [300, 1], [299]], ids=str)
    def test_several_buffers_must_add_up(self, store: KVStoreBackend, host: Host, sizes: list[int]) -> None:
        self.plant(store, host, "key", 0, 300)
        targets = [[host.target_at(512 * index) for index in range(len(sizes))]]
        assert [INVALID_PARAMS] == store.batch_get_into(["key"], targets, [sizes])

    # Insert if absent

    def test_existing_key_keeps_its_bytes(self, store: KVStoreBackend, host: Host) -> None:
        assert [OK] == store.batch_put_from(["key"], [host.source_at(0)], [100])
        assert [EXISTS] == store.batch_put_from(["key"], [host.source_at(500)], [100])
        assert [EXISTS] == store.batch_put_from(["key"], [host.source_at(500)], [900])
        self.assert_stored(store, host, "key", 0, 100)

    def test_first_of_a_key_given_twice_wins(self, store: KVStoreBackend, host: Host) -> None:
        addresses = [host.source_at(0), host.source_at(500), host.source_at(900)]
        assert [OK, OK, EXISTS] == store.batch_put_from(["key", "other", "key"], addresses, [100, 50, 100])
        self.assert_stored(store, host, "key", 0, 100)
        self.assert_stored(store, host, "other", 500, 50)

    def test_existing_key_does_not_stop_the_rest(self, store: KVStoreBackend, host: Host) -> None:
        self.plant(store, host, "b", 0, 10)
        addresses = [host.source_at(100), host.source_at(200), host.source_at(300)]
        assert [OK, EXISTS, OK] == store.batch_put_from(["a", "b", "c"], addresses, [10, 10, 10])
        for key, offset in (("a", 100), ("b", 0), ("c", 300)):
            self.assert_stored(store, host, key, offset, 10)

    # Misses and sizes

    def test_exists_answers_each_key(self, store: KVStoreBackend, host: Host) -> None:
        self.plant(store, host, "here", 0, 10)
        assert [MISS, OK, MISS, OK] == store.batch_exists(["gone", "here", "Here", "here"])

    def test_miss_does_not_stop_the_rest(self, store: KVStoreBackend, host: Host) -> None:
        self.plant(store, host, "a", 0, 10)
        self.plant(store, host, "c", 10, 10)
        host.target.fill(GUARD_BYTE)
        targets = [host.target_at(0), host.target_at(100), host.target_at(10)]
        assert [OK, MISS, OK] == store.batch_get_into(["a", "b", "c"], targets, [10, 10, 10])
        self.assert_read(store, host, 0, 0, 20)
        assert bytes([GUARD_BYTE]) * 10 == host.target_bytes(100, 10)

    @pytest.mark.parametrize("asked", [1, 99, 101, 200])
    def test_size_must_be_exact(self, store: KVStoreBackend, host: Host, asked: int) -> None:
        self.plant(store, host, "key", 0, 100)
        self.plant(store, host, "next", 300, 100)
        targets = [host.target_at(0), host.target_at(1000)]
        results = store.batch_get_into(["key", "next"], targets, [asked, 100])
        assert [INVALID_PARAMS, OK] == results
        self.assert_read(store, host, 300, 1000, 100)
        self.assert_stored(store, host, "key", 0, 100)

    def test_empty_batches(self, store: KVStoreBackend) -> None:
        assert [] == store.batch_exists([])
        assert [] == store.batch_put_from([], [], [])
        assert [] == store.batch_get_into([], [], [])

    # What never reaches the store

    def test_empty_key_is_refused(self, store: KVStoreBackend, host: Host) -> None:
        addresses = [host.source_at(), host.source_at(100)]
        assert [INVALID_PARAMS, OK] == store.batch_put_from(["", "key"], addresses, [10, 10])
        assert [INVALID_PARAMS, OK] == store.batch_exists(["", "key"])
        targets = [host.target_at(), host.target_at(100)]
        assert [INVALID_PARAMS, OK] == store.batch_get_into(["", "key"], targets, [10, 10])
        assert INVALID_PARAMS == store.remove("")

    def test_key_that_utf8_cannot_spell_is_refused(self, store: KVStoreBackend, host: Host) -> None:
        surrogate = "key\ud800"
        sources = [host.source_at(), host.source_at()]
        assert [INVALID_PARAMS, OK] == store.batch_put_from([surrogate, "key"], sources, [10, 10])
        assert [INVALID_PARAMS, OK] == store.batch_exists([surrogate, "key"])
        assert INVALID_PARAMS == store.remove(surrogate)

    @pytest.mark.parametrize("sizes", [0, -1])
    def test_size_without_bytes_is_refused(self, store: KVStoreBackend, host: Host, sizes: int) -> None:
        sources = [host.source_at(), host.source_at(100)]
        targets = [host.target_at(), host.target_at(100)]
        assert [INVALID_PARAMS, OK] == store.batch_put_from(["none", "key"], sources, [sizes, 10])
        assert [MISS] == store.batch_exists(["none"])
        assert [INVALID_PARAMS, OK] == store.batch_get_into(["none", "key"], targets, [sizes, 10])
        assert [INVALID_PARAMS, OK] == store.batch_get_into(["key", "key"], targets, [sizes, 10])

    @pytest.mark.parametrize("sizes", [[], [0], [10, 0], [-5, 15]], ids=str)
    def test_buffer_without_bytes_is_refused(
        self, store: KVStoreBackend, host: Host, sizes: list[int]
    ) -> None:
        sources = [[host.source_at(100 * index) for index in range(len(sizes))], [host.source_at(900)]]
        targets = [[host.target_at(100 * index) for index in range(len(sizes))], [host.target_at(900)]]
        assert [INVALID_PARAMS, OK] == store.batch_put_from(["none", "key"], sources, [sizes, [10]])
        assert [MISS] == store.batch_exists(["none"])
        assert [INVALID_PARAMS, OK] == store.batch_get_into(["key", "key"], targets, [sizes, [10]])

    def test_null_address_is_refused(self, store: KVStoreBackend, host: Host) -> None:
        assert [INVALID_PARAMS, OK] == store.batch_put_from(["null", "key"], [0, host.source_at()], [10, 10])
        assert [MISS, OK] == store.batch_exists(["null", "key"])
        assert [INVALID_PARAMS, OK] == store.batch_get_into(["key", "key"], [0, host.target_at()], [10, 10])

    def test_null_address_among_buffers_is_refused(self, store: KVStoreBackend, host: Host) -> None:
        self.plant(store, host, "key", 0, 20)
        sources = [[host.source_at(), 0], [host.source_at(), host.source_at(50)]]
        assert [INVALID_PARAMS, OK] == store.batch_put_from(["null", "good"], sources, [[10, 10], [10, 10]])
        assert [MISS, OK] == store.batch_exists(["null", "good"])
        targets = [[host.target_at(), 0], [host.target_at(), host.target_at(50)]]
        assert [INVALID_PARAMS, OK] == store.batch_get_into(["key", "key"], targets, [[10, 10], [10, 10]])

    def test_unregistered_memory_is_refused(self, store: KVStoreBackend, host: Host) -> None:
        foreign = np.full(64 * KIB, GUARD_BYTE, dtype=np.uint8)
        outside = int(foreign.ctypes.data)
        refused = INVALID_PARAMS if store.capabilities.needs_registration else OK
        sources = [host.source_at(), outside]
        assert [OK, refused] == store.batch_put_from(["key", "foreign"], sources, [100, 100])
        targets = [outside, host.target_at()]
        assert [refused, OK] == store.batch_get_into(["key", "key"], targets, [100, 100])
        assert (foreign == GUARD_BYTE).all()

    def test_memory_past_the_registered_end_is_refused(self, store: KVStoreBackend, host: Host) -> None:
        refused = INVALID_PARAMS if store.capabilities.needs_registration else OK
        end = host.source.nbytes
        sources = [host.source_at(end - 100), host.source_at(end - 100)]
        assert [OK, refused] == store.batch_put_from(["inside", "past"], sources, [100, 101])
        if refused is INVALID_PARAMS:
            assert [MISS] == store.batch_exists(["past"])

    def test_unregistered_buffer_is_refused_afterwards(self, store: KVStoreBackend) -> None:
        memory = np.zeros(4 * KIB, dtype=np.uint8)
        address = int(memory.ctypes.data)
        store.register_buffer(address, memory.nbytes)
        assert [OK] == store.batch_put_from(["before"], [address], [100])
        store.unregister_buffer(address)
        refused = INVALID_PARAMS if store.capabilities.needs_registration else OK
        assert [refused] == store.batch_put_from(["after"], [address], [100])

    def test_registration_refuses_what_cannot_be(self, store: KVStoreBackend, host: Host) -> None:
        if not store.capabilities.needs_registration:
            return
        inside = host.source_at(4 * KIB)
        spare = np.zeros(4 * KIB, dtype=np.uint8)
        refused: list[Callable[[], None]] = [
            lambda: store.register_buffer(host.source_at(), host.source.nbytes),
            lambda: store.register_buffer(inside, 4 * KIB),
            lambda: store.register_buffer(host.source_at() - 1, 2),
            lambda: store.register_buffer(host.source_at() - 1, host.source.nbytes + 2),
            lambda: store.register_buffer(host.source_at(host.source.nbytes - 1), 2),
            lambda: store.register_buffer(0, 4 * KIB),
            lambda: store.register_buffer(int(spare.ctypes.data), 0),
            lambda: store.unregister_buffer(inside),
        ]
        for call in refused:
            with pytest.raises(StoreError):
                call()
        # None of the refused calls may have harmed the ranges that were there.
        assert [OK] == store.batch_put_from(["key"], [host.source_at()], [100])

    def test_lists_of_different_length_raise(self, store: KVStoreBackend, host: Host) -> None:
        source, target = host.source_at(), host.target_at()
        batches: list[tuple[list[str], list[int], list[int]]] = [
            (["a", "b"], [source], [10]),
            (["a"], [source, source], [10]),
            (["a"], [source], [10, 10]),
            ([], [source], [10]),
        ]
        for keys, addresses, sizes in batches:
            with pytest.raises(StoreContractError, match=r"keys.*addresses.*sizes"):
                store.batch_put_from(keys, addresses, sizes)
            with pytest.raises(StoreContractError, match=r"keys.*addresses.*sizes"):
                store.batch_get_into(keys, [target] * len(addresses), sizes)
        with pytest.raises(StoreContractError, match="one size for each address"):
            store.batch_put_from(["a", "b"], [[source], [source]], [[10], [10, 10]])
        assert [MISS, MISS] == store.batch_exists(["a", "b"])

    # Removal and leases

    def test_remove(self, store: KVStoreBackend, host: Host) -> None:
        self.plant(store, host, "a", 0, 10)
        self.plant(store, host, "b", 10, 10)
        assert OK == store.remove("a")
        assert MISS == store.remove("a")
        assert MISS == store.remove("never")
        assert [MISS, OK] == store.batch_exists(["a", "b"])
        assert [MISS] == store.batch_get_into(["a"], [host.target_at()], [10])

    def test_removed_key_can_be_put_again(self, store: KVStoreBackend, host: Host) -> None:
        self.plant(store, host, "key", 0, 10)
        assert OK == store.remove("key")
        assert [OK] == store.batch_put_from(["key"], [host.source_at(500)], [20])
        self.assert_stored(store, host, "key", 500, 20)

    def test_remove_all_counts(self, store: KVStoreBackend, host: Host) -> None:
        keys = [f"key-{index}" for index in range(7)]
        for index, key in enumerate(keys):
            self.plant(store, host, key, index, 10)
        assert 7 == store.remove_all()
        assert 0 == store.remove_all()
        assert [MISS] * 7 == store.batch_exists(keys)

    @pytest.mark.parametrize("how", ["exists", "get"])
    def test_lookup_and_read_take_a_lease(self, store: KVStoreBackend, host: Host, how: str) -> None:
        self.plant(store, host, "key", 0, 10)
        if how == "exists":
            store.batch_exists(["key"])
        else:
            store.batch_get_into(["key"], [host.target_at()], [10])
        if store.capabilities.supports_leases:
            assert LEASED == store.remove("key")
            assert [OK] == store.batch_exists(["key"])
        assert OK == store.remove("key", force=True)
        assert [MISS] == store.batch_exists(["key"])

    def test_remove_all_spares_leased_objects(self, store: KVStoreBackend, host: Host) -> None:
        for key in ("a", "b", "c"):
            self.plant(store, host, key, 0, 10)
        store.batch_exists(["b"])
        if not store.capabilities.supports_leases:
            assert 3 == store.remove_all()
            return
        assert 2 == store.remove_all()
        assert [MISS, OK, MISS] == store.batch_exists(["a", "b", "c"])
        assert 1 == store.remove_all(force=True)
        assert [MISS] == store.batch_exists(["b"])

    # Statistics

    def test_statistics_conserve_every_key(self, store: KVStoreBackend, host: Host) -> None:
        before = replace(store.stats)
        addresses = [host.source_at(at) for at in (0, 100, 300, 300)]
        assert [OK, OK, EXISTS, INVALID_PARAMS] == store.batch_put_from(
            ["a", "b", "a", "zero"], addresses, [100, 200, 100, 0]
        )
        store.batch_put_from(["b"], [host.source_at()], [200])
        assert [OK, MISS] == store.batch_exists(["a", "gone"])
        targets = [host.target_at(at) for at in (0, 100, 300, 300)]
        assert [OK, OK, MISS, INVALID_PARAMS] == store.batch_get_into(
            ["a", "b", "gone", "a"], targets, [100, 200, 10, 99]
        )
        expected = {
            "exist_calls": 1, "exist_keys": 2,
            "put_calls": 2, "put_keys": 5, "put_bytes": 300, "put_noops": 2, "put_failures": 1,
            "get_calls": 1, "get_keys": 4, "get_bytes": 300, "get_misses": 1, "get_failures": 1,
        }  # fmt: skip
        assert expected == {name: growth(store.stats, before, name) for name in expected}

    def test_statistics_of_several_buffers(self, store: KVStoreBackend, host: Host) -> None:
        before = replace(store.stats)
        store.batch_put_from(["key"], [[host.source_at(), host.source_at(50)]], [[10, 20]])
        store.batch_get_into(["key"], [[host.target_at(), host.target_at(50)]], [[15, 15]])
        names = ("put_keys", "put_bytes", "get_keys", "get_bytes", "get_failures")
        assert [1, 30, 1, 30, 0] == [growth(store.stats, before, name) for name in names]

    def test_results_without_a_code_are_shared(self, store: KVStoreBackend, host: Host) -> None:
        (stored,) = store.batch_put_from(["key"], [host.source_at()], [10])
        (existing,) = store.batch_put_from(["key"], [host.source_at()], [10])
        present, missing = store.batch_exists(["key", "gone"])
        assert base.OK is stored
        assert base.EXISTS is existing
        assert base.OK is present
        assert base.MISS is missing

    # Closing

    def test_every_call_after_close_raises(self, store: KVStoreBackend, host: Host) -> None:
        self.plant(store, host, "key", 0, 10)
        store.close()
        calls: list[Callable[[], object]] = [
            lambda: store.batch_exists(["key"]),
            lambda: store.batch_exists([]),
            lambda: store.batch_put_from(["key"], [host.source_at()], [10]),
            lambda: store.batch_get_into(["key"], [host.target_at()], [10]),
            lambda: store.remove("key"),
            store.remove_all,
            lambda: store.register_buffer(host.source_at(), 10),
            lambda: store.unregister_buffer(host.source_at()),
        ]
        for call in calls:
            with pytest.raises(StoreClosedError):
                call()

    def test_close_twice(self, store: KVStoreBackend) -> None:
        store.close()
        store.close()

    def test_what_is_known_stays_readable_after_close(self, store: KVStoreBackend, host: Host) -> None:
        self.plant(store, host, "key", 0, 10)
        name, settings, stats = store.capabilities.name, store.settings, replace(store.stats)
        store.close()
        assert (name, settings, stats) == (store.capabilities.name, store.settings, store.stats)
