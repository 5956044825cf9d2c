"""Which host memory a store may touch."""

from __future__ import annotations

import ctypes
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import add
from typing import NamedTuple

from hicache_bench.errors import StoreError


class RegisteredRange(NamedTuple):
    """One range of host memory, ``[start, end)``, and a view of its bytes."""

    start: int
    end: int
    view: memoryview


NO_RANGE = RegisteredRange(0, 0, memoryview(b""))
"""Holds no address: the answer of :meth:`RegisteredMemory.find` where nothing is registered."""


class RegisteredMemory:
    """The ranges that a caller registered: sorted, disjoint, found by address.

    The memory stays the caller's, who keeps it alive until it is unregistered.
    """

    __slots__ = ("_ranges", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: list[RegisteredRange] = []

    def add(self, address: int, num_bytes: int) -> None:
        """Register ``[address, address + num_bytes)``.

        Raises:
            StoreError: NULL, no bytes, or an overlap with a registered range.
        """
        if address <= 0 or num_bytes <= 0:
            raise StoreError(
                f"cannot register {num_bytes} bytes at address {address}; give a buffer of at least one byte"
            )
        end = address + num_bytes
        # Ranges are disjoint, so the last one that starts before `end` is the only one that can overlap.
        index = bisect_left(self._starts, end)
        if index and self._ranges[index - 1].end > address:
            other = self._ranges[index - 1]
            raise StoreError(
                f"cannot register [{address:#x}, {end:#x}): it overlaps [{other.start:#x}, {other.end:#x}); "
                "unregister that range first"
            )
        memory = (ctypes.c_ubyte * num_bytes).from_address(address)
        # ctypes exports the format "<B", and views copy to one another only in equal formats.
        view = memoryview(memory).cast("B")
        self._starts.insert(index, address)
        self._ranges.insert(index, RegisteredRange(address, end, view))

    def discard(self, address: int) -> None:
        """Forget the range that starts at ``address``.

        Raises:
            StoreError: none does.
        """
        index = bisect_left(self._starts, address)
        if index == len(self._starts) or self._starts[index] != address:
            raise StoreError(
                f"no registered buffer starts at {address:#x}; give the address that was registered"
            )
        del self._starts[index], self._ranges[index]

    def clear(self) -> None:
        """Forget every range."""
        self._starts.clear()
        self._ranges.clear()

    def find(self, address: int) -> RegisteredRange:
        """The range that holds ``address``, or :data:`NO_RANGE`."""
        index = bisect_right(self._starts, address)
        if index and address < (found := self._ranges[index - 1]).end:
            return found
        return NO_RANGE

    def holding(self, addresses: Sequence[int], sizes: Sequence[int]) -> RegisteredRange:
        """The one range that holds each of these buffers, or :data:`NO_RANGE`; a few passes in C."""
        if not addresses:
            return NO_RANGE
        smallest = largest = sizes[0]
        if sizes.count(smallest) != len(sizes):  # one size for all is the usual case, and quicker to see
            smallest, largest = min(sizes), max(sizes)
        if smallest <= 0:
            return NO_RANGE
        rising = sorted(addresses)  # they mostly rise as they are, and this sees it sooner than min and max
        found = self.find(rising[0])
        if rising[-1] + largest <= found.end or max(map(add, addresses, sizes)) <= found.end:
            return found
        return NO_RANGE
