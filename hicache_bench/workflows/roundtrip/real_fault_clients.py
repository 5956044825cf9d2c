"""Faults of the real store's clients: calls too large, ports taken, a close during use, calls after it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from hicache_bench.errors import StoreClosedError
from hicache_bench.store.base import Buffers
from hicache_bench.store.client import open_mooncake
from hicache_bench.store.master import ManagedMaster
from hicache_bench.store.mooncake import MooncakeStoreBackend
from hicache_bench.workflows.roundtrip.real_fault_rig import SEGMENT_BYTES, SavedPrefix, Stage

NUM_KEYS, OBJECT_BYTES = 2500, 4096
"""More slices than the 1,024 that wait for a peer and the 1,024 that may still join them."""

_LOOPBACK = "127.0.0.1"


def too_many_slices(stage: Stage) -> None:
    """Calls with more slices than the way to a peer takes, with that queue at the library's own length."""
    master = stage.master()
    stage.owner(master)
    store = stage.client(master, segment_bytes=0)
    source = np.arange(NUM_KEYS * OBJECT_BYTES // 4, dtype=np.uint32).view(np.uint8)
    target = np.zeros_like(source)
    for memory in (source, target):
        store.register_buffer(int(memory.ctypes.data), memory.nbytes)
    for num_pieces in (1, 4):
        keys = [f"{num_pieces}-{index}" for index in range(NUM_KEYS)]
        target.fill(0)
        answers, seconds = [], []
        for call, memory in ((store.batch_put_from, source), (store.batch_get_into, target)):
            started = time.monotonic()
            answers += [str(result) for result in call(keys, *_pieces(memory, num_pieces))]
            seconds.append(time.monotonic() - started)
        label = f"{NUM_KEYS} objects of {num_pieces} slices"
        stage.found.equal(f"{label}: answers", "ok", ", ".join(sorted(set(answers))))
        stage.found.within(label, 20.0, max(seconds))
        wrong = np.flatnonzero((source != target).reshape(NUM_KEYS, -1).any(axis=1))
        stage.found.none_of(f"{label}: wrong objects", [keys[index] for index in wrong.tolist()])
    saved = SavedPrefix(stage, store)
    saved.save_whole("the same client afterwards")
    saved.request_whole("the same client afterwards")


def port_taken(stage: Stage) -> None:
    """Others have the ports: a master finds free ones, and a client says that no master is there."""
    with socket.create_server((_LOOPBACK, 0)) as other:
        taken = other.getsockname()[1]
        _master_beside(stage, taken, "HTTP", (_free_port(), taken))
        master = _master_beside(stage, taken, "RPC", (taken, _free_port()))
        saved = SavedPrefix(stage, stage.client(master, segment_bytes=SEGMENT_BYTES))
        saved.save_whole("on the other ports")
        saved.request_whole("on the other ports")
        for name, address in (
            ("a program that never answers", f"{_LOOPBACK}:{taken}"),
            ("the master's HTTP port", master.http_address),
        ):
            started = time.monotonic()
            stage.found.refused(
                f"a client of {name}",
                partial(open_mooncake, address, segment_bytes=0),
                "StoreUnavailableError",
                "does not answer as a Mooncake master",
                "give its RPC port",
            )
            stage.found.within(f"a client of {name} gives up", 10.0, time.monotonic() - started)


def _master_beside(stage: Stage, taken: int, name: str, ports: tuple[int, int]) -> ManagedMaster:
    """A master that is offered ``ports`` first, one of them taken."""
    offers = _Offers(ports)
    started = time.monotonic()
    master = stage.master(find_ports=offers)
    stage.found.within(f"{name} port taken: a master on other ports", 10.0, time.monotonic() - started)
    stage.found.at_least(f"{name} port taken: offers that were tried", 2, offers.num_asked)
    used = {master.address, master.http_address}
    stage.found.equal(f"{name} port taken: the master uses it", False, f"{_LOOPBACK}:{taken}" in used)
    return master


def close_during_use(stage: Stage) -> None:
    """A store is closed while threads read from it: their calls end first, and the next ones are refused."""
    master = stage.master()
    store = stage.client(master, segment_bytes=SEGMENT_BYTES)
    readers = [_Reader(store, number) for number in range(3)]
    for reader in readers:
        reader.start()
    time.sleep(0.3)
    started = time.monotonic()
    store.close()
    stage.found.within("close", 10.0, time.monotonic() - started)
    for reader in readers:
        reader.thread.join(10.0)
    stage.found.equal("threads that still run", 0, sum(reader.thread.is_alive() for reader in readers))
    stage.found.at_least("reads before the close", 1, sum(reader.num_reads for reader in readers))
    stage.found.equal("reads that were wrong", 0, sum(reader.num_wrong for reader in readers))
    stage.found.equal(
        "what ended each reader",
        ", ".join([StoreClosedError.__name__] * len(readers)),
        ", ".join(reader.ended_by for reader in readers),
    )
    saved = SavedPrefix(stage, stage.client(master, segment_bytes=SEGMENT_BYTES))
    saved.save_whole("a new client")
    saved.request_whole("a new client")


class _Offers:
    """Ports for a master: first these, then free ones."""

    def __init__(self, first: tuple[int, int]) -> None:
        self._first = first
        self.num_asked = 0

    def __call__(self) -> tuple[int, int]:
        self.num_asked += 1
        return self._first if self.num_asked == 1 else (_free_port(), _free_port())


class _Reader:
    """A thread that writes one object and reads it until that is refused."""

    def __init__(self, store: MooncakeStoreBackend, number: int) -> None:
        self.num_reads = self.num_wrong = 0
        self.ended_by = "nothing"
        self.thread = threading.Thread(target=self._read, name=f"reader-{number}", daemon=True)
        self._store, self._key = store, f"object-{number}"
        self._source = np.arange(1 << 20, dtype=np.uint32).view(np.uint8) ^ np.uint8(number)
        self._target = np.zeros_like(self._source)
        for memory in (self._source, self._target):
            store.register_buffer(int(memory.ctypes.data), memory.nbytes)

    def start(self) -> None:
        self._store.batch_put_from([self._key], [int(self._source.ctypes.data)], [self._source.nbytes])
        self.thread.start()

    def _read(self) -> None:
        try:
            while True:
                self._target.fill(0)
                results = self._store.batch_get_into(
                    [self._key], [int(self._target.ctypes.data)], [self._target.nbytes]
                )
                self.num_reads += 1
                is_right = [str(result) for result in results] == ["ok"]
                self.num_wrong += not (is_right and np.array_equal(self._source, self._target))
        except StoreClosedError as problem:
            self.ended_by = type(problem).__name__


def calls_after_close(stage: Stage) -> None:
    """Every call of a closed store is refused in Python: the native ones would crash the process."""
    master = stage.master()
    store = stage.client(master, segment_bytes=SEGMENT_BYTES)
    saved = SavedPrefix(stage, store)
    saved.save_whole("before")
    memory = np.zeros(OBJECT_BYTES, dtype=np.uint8)
    address = int(memory.ctypes.data)
    store.register_buffer(address, memory.nbytes)
    store.close()
    calls: dict[str, Callable[[], object]] = {
        "batch_exists": lambda: store.batch_exists(["key"]),
        "batch_put_from": lambda: store.batch_put_from(["key"], [address], [memory.nbytes]),
        "batch_get_into": lambda: store.batch_get_into(["key"], [address], [memory.nbytes]),
        "register_buffer": lambda: store.register_buffer(address, memory.nbytes),
        "unregister_buffer": lambda: store.unregister_buffer(address),
        "remove": lambda: store.remove("key"),
        "remove_all": lambda: store.remove_all(force=True),
        "a save": saved.save,
        "a lookup": saved.look_up,
    }
    for name, call in calls.items():
        stage.found.refused(f"{name} after close", call, "StoreClosedError", "open a new one")
    store.close()
    new = SavedPrefix(stage, stage.client(master, segment_bytes=SEGMENT_BYTES))
    stage.found.equal("tokens promised once their owner has left", 0, new.hit_tokens(new.look_up()))
    new.save_whole("a new client")
    new.request_whole("a new client")


def _pieces(memory: npt.NDArray[np.uint8], num_pieces: int) -> tuple[Buffers, Buffers]:
    """Addresses and sizes of every object, in one buffer or several."""
    starts = range(int(memory.ctypes.data), int(memory.ctypes.data) + memory.nbytes, OBJECT_BYTES)
    if num_pieces == 1:
        return list(starts), [OBJECT_BYTES] * len(starts)
    size = OBJECT_BYTES // num_pieces
    return (
        [[start + size * piece for piece in range(num_pieces)] for start in starts],
        [[size] * num_pieces for _ in starts],
    )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((_LOOPBACK, 0))
        port: int = free.getsockname()[1]
        return port
