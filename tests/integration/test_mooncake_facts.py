"""What the native binding does, shown on the wheel: the reasons for the wrapper's guards.

When one of these fails after an upgrade of Mooncake, a guard of the wrapper may have become needless.
"""

from __future__ import annotations

import importlib
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hicache_bench.store.master import ManagedMaster
from tests.integration.processes import run

pytestmark = pytest.mark.mooncake

NUM_BYTES = 4096


@pytest.fixture(scope="module")
def native(managed_master: ManagedMaster) -> Iterator[Any]:
    store = importlib.import_module("mooncake.store").MooncakeDistributedStore()
    assert 1 == store.health_check()
    segment_bytes = 16 << 20
    assert 0 == store.setup("127.0.0.1", "P2PHANDSHAKE", segment_bytes, 0, "tcp", "", managed_master.address)
    assert 0 == store.health_check()
    yield store
    assert 0 == store.close()
    assert 1 == store.health_check()
    assert 0 == store.close()


@pytest.fixture
def memory(native: Any) -> Iterator[np.ndarray]:
    memory = np.arange(NUM_BYTES, dtype=np.uint8)
    address = int(memory.ctypes.data)
    assert 0 == native.register_buffer(address, NUM_BYTES)
    yield memory
    native.remove_all(True)
    assert 0 == native.unregister_buffer(address)


def test_put_of_an_existing_key_reports_success_and_keeps_the_old_value(
    native: Any, memory: np.ndarray
) -> None:
    address = int(memory.ctypes.data)
    assert [0] == native.batch_put_from(["key"], [address], [10])
    assert [0] == native.batch_put_from(["key"], [address + 20], [20])
    assert 10 == native.get_size("key")
    assert [0, 0] == native.batch_put_from(["twice", "twice"], [address, address], [7, 8])
    # Either of them: it is not always the first that wins.
    assert native.get_size("twice") in (7, 8)


def test_codes(native: Any, memory: np.ndarray) -> None:
    address = int(memory.ctypes.data)
    assert [0, -600] == native.batch_put_from(["key", ""], [address, address], [10, 10])
    assert [-600] == native.batch_put_from(["zero"], [address], [0])
    assert [10, -704] == native.batch_get_into(["key", "gone"], [address, address], [10, 10])
    assert [1, 0] == native.batch_is_exist(["key", "gone"])
    assert -706 == native.remove("key", False)
    assert -704 == native.remove("gone", False)
    assert 0 == native.remove_all(False)
    assert 1 == native.remove_all(True)


def test_wrong_sizes(native: Any, memory: np.ndarray) -> None:
    address = int(memory.ctypes.data)
    assert [0] == native.batch_put_from(["key"], [address], [10])
    assert [-600] == native.batch_get_into(["key"], [address], [9])
    # Larger: success with the plain call, a transfer error with several buffers.
    assert [10] == native.batch_get_into(["key"], [address], [11])
    pieces = [[address, address + 100]]
    assert [-600] == native.batch_get_into_multi_buffers(["key"], pieces, [[5, 4]])
    assert [-800] == native.batch_get_into_multi_buffers(["key"], pieces, [[5, 6]])
    assert [10] == native.batch_get_into_multi_buffers(["key"], pieces, [[5, 5]])


@pytest.mark.parametrize("scattered", [False, True])
def test_key_read_twice_in_one_call_fills_one_buffer_only(
    native: Any, memory: np.ndarray, scattered: bool
) -> None:
    address = int(memory.ctypes.data)
    assert [0] == native.batch_put_from(["key"], [address + 1], [10])
    memory[1000:] = 0
    first, last = address + 1000, address + 2000
    if scattered:
        answers = native.batch_get_into_multi_buffers(
            ["key"] * 2, [[first, first + 5], [last, last + 5]], [[5, 5]] * 2
        )
    else:
        answers = native.batch_get_into(["key"] * 2, [first, last], [10, 10])
    assert [10, 10] == answers
    filled = [bytes(range(1, 11)) == memory[start : start + 10].tobytes() for start in (1000, 2000)]
    assert 1 == sum(filled)


def test_registration(native: Any, memory: np.ndarray) -> None:
    address = int(memory.ctypes.data)
    for start, num_bytes in ((address, NUM_BYTES), (address + 8, 8), (address - 8, 16), (address, 0)):
        assert -600 == native.register_buffer(start, num_bytes)
    assert -600 == native.unregister_buffer(address + 8)


def test_lone_surrogate_refuses_the_whole_batch(native: Any) -> None:
    with pytest.raises(TypeError, match="incompatible function arguments"):
        native.batch_is_exist(["key", "\ud800"])


def test_call_after_close_is_a_segmentation_fault(managed_master: ManagedMaster) -> None:
    ended = run(
        """
        from mooncake.store import MooncakeDistributedStore
        store = MooncakeDistributedStore()
        assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1]) == 0
        store.close()
        say("closed")
        store.batch_is_exist(["key"])
        """,
        managed_master.address,
    )
    assert '"closed"\n' == ended.stdout
    assert -signal.SIGSEGV == ended.returncode
