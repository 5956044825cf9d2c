"""How the Mooncake backend cuts, checks and spells the batches that it hands to the native store."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from hicache_bench.errors import StoreContractError
from hicache_bench.store.base import INVALID_PARAMS, MAX_SLICES_PER_CALL, MISS, OK, error
from hicache_bench.store.mooncake import MooncakeStoreBackend
from tests.store.fake_mooncake import NUM_BYTES, FakeMooncake, FakeMooncakeFixtures


class TestScattered(FakeMooncakeFixtures):
    def test_one_buffer_each_takes_the_plain_call(
        self, store: MooncakeStoreBackend, native: FakeMooncake, address: int
    ) -> None:
        assert [OK, OK] == store.batch_put_from(["a", "b"], [[address], [address]], [[10], [20]])
        assert [OK, OK] == store.batch_get_into(["a", "b"], ((address,), (address,)), ((10,), (20,)))
        assert {"batch_put_from", "batch_get_into"} < {name for name, _ in native.calls}
        assert [] == native.called("batch_put_from_multi_buffers")
        assert [] == native.called("batch_get_into_multi_buffers")

    def test_size_too_large_is_told_from_a_broken_transfer(
        self, store: MooncakeStoreBackend, native: FakeMooncake, address: int
    ) -> None:
        pieces = [[address, address + 10]]
        store.batch_put_from(["a", "b"], pieces * 2, [[10, 10]] * 2)
        native.scripted["batch_get_into_multi_buffers"] = lambda answers: [-800, -800]
        results = store.batch_get_into(["a", "b"], pieces * 2, [[10, 11], [10, 10]])
        assert [INVALID_PARAMS, error(-800)] == results
        assert [["a"], ["b"]] == native.called("get_size")

    def test_sizes_are_not_asked_of_a_master_that_is_gone(
        self, store: MooncakeStoreBackend, native: FakeMooncake, address: int
    ) -> None:
        native.scripted["batch_get_into_multi_buffers"] = lambda answers: [-800] * 5
        native.scripted["get_size"] = lambda answers: [-901]
        keys = list("abcde")
        results = store.batch_get_into(keys, [[address, address + 10]] * 5, [[10, 10]] * 5)
        assert [error(-800)] * 5 == results
        assert [["a"]] == native.called("get_size")

    def test_inner_lists_of_different_length_raise(self, store: MooncakeStoreBackend, address: int) -> None:
        for call in (store.batch_put_from, store.batch_get_into):
            with pytest.raises(StoreContractError, match="one size for each address"):
                call(["a"], [[address, address]], [[10]])

    def test_more_buffers_than_one_call_takes(self, native: FakeMooncake, address: int) -> None:
        with MooncakeStoreBackend(native, {}, max_slices_per_call=4) as store:
            store.register_buffer(address, NUM_BYTES)
            results = store.batch_put_from(["a", "b"], [[address] * 5, [address] * 4], [[1] * 5, [1] * 4])
            assert [INVALID_PARAMS, OK] == results


class TestSplitting(FakeMooncakeFixtures):
    def test_calls_stay_below_the_slice_limit(
        self, store: MooncakeStoreBackend, native: FakeMooncake, address: int
    ) -> None:
        keys = [f"key-{index}" for index in range(2500)]
        assert [OK] * 2500 == store.batch_put_from(keys, [address] * 2500, [3] * 2500)
        assert [OK] * 2500 == store.batch_exists(keys)
        assert [OK] * 2500 == store.batch_get_into(keys, [address] * 2500, [3] * 2500)
        for name in ("batch_put_from", "batch_is_exist", "batch_get_into"):
            assert [1024, 1024, 452] == [len(part) for part in native.called(name)][-3:]
        assert (7500, 7500) == (store.stats.put_bytes, store.stats.get_bytes)
        assert (1, 1, 1) == (store.stats.put_calls, store.stats.exist_calls, store.stats.get_calls)

    def test_buffers_count_and_order_stays(self, native: FakeMooncake, address: int) -> None:
        widths = [3, 1, 4, 1, 5, 2, 6, 5, 3, 5]
        keys = [f"key-{index}" for index in range(len(widths))]
        starts = [[address + index] * width for index, width in enumerate(widths)]
        sizes = [[1] * width for width in widths]
        native._max_slices = 6
        with MooncakeStoreBackend(native, {}, max_slices_per_call=6) as store:
            store.register_buffer(address, NUM_BYTES)
            assert [OK] * 10 == store.batch_put_from(keys, starts, sizes)
            parts = native.called("batch_put_from_multi_buffers")
            assert keys == [key for part in parts for key in part]
            assert [bytes([index] * width) for index, width in enumerate(widths)] == list(
                native.objects.values()
            )
            assert [OK] * 10 == store.batch_get_into(keys, starts, sizes)
            assert parts == native.called("batch_get_into_multi_buffers")

    def test_default_limit_is_what_the_transport_queues(self) -> None:
        assert 1024 == MAX_SLICES_PER_CALL

    def test_lost_master_is_waited_for_once(
        self, store: MooncakeStoreBackend, native: FakeMooncake, address: int
    ) -> None:
        native.scripted["batch_is_exist"] = lambda answers: [-901] * len(answers)
        keys = [f"key-{index}" for index in range(5000)]
        assert [error(-901)] * 5000 == store.batch_exists(keys)
        assert [error(-901)] * 5000 == store.batch_put_from(keys, [address] * 5000, [1] * 5000)
        assert 2 == len(native.called("batch_is_exist"))

    def test_partial_rpc_failure_does_not_stop_the_rest(
        self, store: MooncakeStoreBackend, native: FakeMooncake
    ) -> None:
        native.scripted["batch_is_exist"] = lambda answers: [-900] * (len(answers) - 1) + [0]
        results = store.batch_exists([f"key-{index}" for index in range(2048)])
        assert 2 == len(native.called("batch_is_exist"))
        assert 2 == results.count(MISS)


class TestKeyReadTwice(FakeMooncakeFixtures):
    def test_each_destination_is_filled_in_calls_of_distinct_keys(
        self, store: MooncakeStoreBackend, native: FakeMooncake, address: int, memory: npt.NDArray[np.uint8]
    ) -> None:
        store.batch_put_from(["a", "b"], [address + 1, address + 2], [10, 20])
        targets = [address + 1000 + 100 * index for index in range(5)]
        results = store.batch_get_into(["a", "b", "a", "a", "b"], targets, [10, 20, 10, 9, 20])
        assert [OK, OK, OK, INVALID_PARAMS, OK] == results
        assert [["a", "b"], ["a", "b"], ["a"]] == native.called("batch_get_into")
        for start, length, source in ((1000, 10, 1), (1100, 20, 2), (1200, 10, 1), (1400, 20, 2)):
            assert memory[source : source + length].tobytes() == memory[start : start + length].tobytes()


class TestWhatNeverReachesTheStore(FakeMooncakeFixtures):
    def test_key_that_is_no_text(
        self, store: MooncakeStoreBackend, native: FakeMooncake, address: int
    ) -> None:
        # The binding refuses a lone surrogate with a TypeError for the whole batch.
        keys = ["a", "\ud800", "é"]
        assert [OK, INVALID_PARAMS, OK] == store.batch_put_from(keys, [address] * 3, [10] * 3)
        assert [OK, INVALID_PARAMS, OK] == store.batch_exists(keys)
        assert [OK, INVALID_PARAMS, OK] == store.batch_get_into(keys, [address] * 3, [10] * 3)
        assert INVALID_PARAMS == store.remove("\ud800")
        assert {"a", "é"} == set(native.objects)

    @pytest.mark.parametrize(
        ("offset", "num_bytes"), [(-1, 1), (0, NUM_BYTES + 1), (NUM_BYTES, 1), (2**70, 1)], ids=str
    )
    def test_memory_outside(
        self, store: MooncakeStoreBackend, address: int, offset: int, num_bytes: int
    ) -> None:
        starts, sizes = [address, address + offset], [1, num_bytes]
        assert [OK, INVALID_PARAMS] == store.batch_put_from(["a", "b"], starts, sizes)
        assert [OK, INVALID_PARAMS] == store.batch_get_into(["a", "b"], starts, sizes)

    def test_batch_over_two_ranges(self, store: MooncakeStoreBackend, native: FakeMooncake) -> None:
        memory = np.zeros(64, dtype=np.uint8)
        first = int(memory.ctypes.data)
        store.register_buffer(first, 16)
        store.register_buffer(first + 32, 16)
        starts = [first, first + 32, first + 15, first + 32, first + 8]
        results = store.batch_put_from(list("abcde"), starts, [16, 16, 1, 17, 16])
        # The last one begins in one range and ends between the two.
        assert [OK, OK, OK, INVALID_PARAMS, INVALID_PARAMS] == results

    def test_numpy_arrays_of_mixed_sign(self, store: MooncakeStoreBackend, address: int) -> None:
        # uint64 + int64 is float64 in NumPy: an address would lose its low bits.
        starts, sizes = np.array([address, address + 3], dtype=np.uint64), np.array([3, 5], dtype=np.int64)
        results = store.batch_put_from(["a", "b"], starts, sizes)  # type: ignore[arg-type]
        assert [OK, OK] == results
        assert 8 == store.stats.put_bytes
