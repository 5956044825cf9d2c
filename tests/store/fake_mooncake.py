"""A stand-in for ``MooncakeDistributedStore`` that answers as the wheel was seen to answer, traps included.

What would crash or corrupt the real one (a call after close, a NULL address, memory that is not registered,
too many slices at once) fails the test here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from hicache_bench.store.mooncake import MooncakeStoreBackend

NUM_BYTES = 8192
Answers = list[int]


class FakeMooncake:
    """Objects in a dict. ``scripted[name]`` replaces the answers of one method; ``calls`` logs the keys."""

    def __init__(self, *, health: int = 0, max_slices: int = 2048) -> None:
        self.objects: dict[str, bytes] = {}
        self.leased: set[str] = set()
        self.ranges: dict[int, int] = {}
        self.calls: list[tuple[str, list[str]]] = []
        self.scripted: dict[str, Callable[[Answers], Answers]] = {}
        self.num_closes = 0
        self._health = health
        self._max_slices = max_slices

    def called(self, name: str) -> list[list[str]]:
        """Keys of each call of a method, in order."""
        return [keys for method, keys in self.calls if method == name]

    def health_check(self) -> int:
        return self._health

    def register_buffer(self, address: int, num_bytes: int) -> int:
        self._enter("register_buffer", [])
        self.ranges[address] = num_bytes
        return self._answer("register_buffer", [0])[0]

    def unregister_buffer(self, address: int) -> int:
        self._enter("unregister_buffer", [])
        del self.ranges[address]
        return self._answer("unregister_buffer", [0])[0]

    def batch_is_exist(self, keys: Sequence[str]) -> Answers:
        self._enter("batch_is_exist", keys)
        self.leased.update(key for key in keys if key in self.objects)
        return self._answer("batch_is_exist", [int(key in self.objects) for key in keys])

    def batch_put_from(self, keys: Sequence[str], addresses: Sequence[int], sizes: Sequence[int]) -> Answers:
        self._enter("batch_put_from", keys)
        return self._put("batch_put_from", keys, [[item] for item in addresses], [[item] for item in sizes])

    def batch_put_from_multi_buffers(
        self, keys: Sequence[str], addresses: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]
    ) -> Answers:
        self._enter("batch_put_from_multi_buffers", keys)
        return self._put("batch_put_from_multi_buffers", keys, addresses, sizes)

    def batch_get_into(self, keys: Sequence[str], addresses: Sequence[int], sizes: Sequence[int]) -> Answers:
        self._enter("batch_get_into", keys)
        assert len(set(keys)) == len(keys), "the real store fills the last buffer of a key only"
        answers = [
            self._get(key, [address], [size], exact=False)
            for key, address, size in zip(keys, addresses, sizes, strict=True)
        ]
        return self._answer("batch_get_into", answers)

    def batch_get_into_multi_buffers(
        self, keys: Sequence[str], addresses: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]
    ) -> Answers:
        self._enter("batch_get_into_multi_buffers", keys)
        assert len(set(keys)) == len(keys), "the real store fills the last buffer of a key only"
        assert sum(map(len, sizes)) <= self._max_slices, "the queue to the peer breaks"
        answers = [
            self._get(key, starts, lengths, exact=True)
            for key, starts, lengths in zip(keys, addresses, sizes, strict=True)
        ]
        return self._answer("batch_get_into_multi_buffers", answers)

    def get_size(self, key: str) -> int:
        self._enter("get_size", [key])
        return self._answer("get_size", [len(self.objects[key]) if key in self.objects else -704])[0]

    def remove(self, key: str, force: bool) -> int:
        self._enter("remove", [key])
        if key not in self.objects:
            return self._answer("remove", [-704])[0]
        if key in self.leased and not force:
            return self._answer("remove", [-706])[0]
        del self.objects[key]
        return self._answer("remove", [0])[0]

    def remove_all(self, force: bool) -> int:
        self._enter("remove_all", [])
        removed = [key for key in self.objects if force or key not in self.leased]
        for key in removed:
            del self.objects[key]
        return self._answer("remove_all", [len(removed)])[0]

    def close(self) -> int:
        self.num_closes += 1
        return self._answer("close", [0])[0]

    def _enter(self, name: str, keys: Sequence[str]) -> None:
        assert not self.num_closes, f"{name} after close: the real store is a segfault here"
        assert len(keys) <= self._max_slices, "the queue to the peer breaks"
        assert all(keys), f"{name} was given an empty key"
        self.calls.append((name, list(keys)))

    def _answer(self, name: str, answers: Answers) -> Answers:
        return self.scripted[name](answers) if name in self.scripted else answers

    def _check(self, address: int, num_bytes: int) -> None:
        assert address, "NULL: the real store writes garbage and answers success"
        assert num_bytes > 0
        assert any(
            start <= address and address + num_bytes <= start + length
            for start, length in self.ranges.items()
        ), "memory that was never registered"

    def _put(
        self,
        name: str,
        keys: Sequence[str],
        addresses: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
    ) -> Answers:
        assert sum(map(len, sizes)) <= self._max_slices, "the queue to the peer breaks"
        for key, starts, lengths in zip(keys, addresses, sizes, strict=True):
            parts = []
            for address, num_bytes in zip(starts, lengths, strict=True):
                self._check(address, num_bytes)
                parts.append(ctypes.string_at(address, num_bytes))
            self.objects.setdefault(key, b"".join(parts))
        return self._answer(name, [0] * len(keys))

    def _get(self, key: str, addresses: Sequence[int], sizes: Sequence[int], *, exact: bool) -> int:
        for address, num_bytes in zip(addresses, sizes, strict=True):
            self._check(address, num_bytes)
        data = self.objects.get(key)
        if data is None:
            return -704
        self.leased.add(key)
        if sum(sizes) < len(data):
            return -600
        if exact and sum(sizes) > len(data):
            return -800
        start = 0
        for address, num_bytes in zip(addresses, sizes, strict=True):
            part = data[start : start + num_bytes]
            ctypes.memmove(address, part, len(part))
            start += num_bytes
        return len(data)


class FakeMooncakeFixtures:
    """A backend over the fake, with one registered buffer whose bytes count up."""

    @pytest.fixture
    def native(self) -> FakeMooncake:
        return FakeMooncake()

    @pytest.fixture
    def memory(self) -> npt.NDArray[np.uint8]:
        return np.arange(NUM_BYTES, dtype=np.uint8)

    @pytest.fixture
    def address(self, memory: npt.NDArray[np.uint8]) -> int:
        return int(memory.ctypes.data)

    @pytest.fixture
    def store(self, native: FakeMooncake, address: int) -> Iterator[MooncakeStoreBackend]:
        store = MooncakeStoreBackend(native, {"protocol": "fake"})
        store.register_buffer(address, NUM_BYTES)
        yield store
        store.close()
