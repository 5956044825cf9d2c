"""Where objects lie in a fixed address space: an extent allocator, without the memory itself."""

from __future__ import annotations

from bisect import bisect_right

from hicache_bench.errors import StoreContractError


class ExtentAllocator:
    """Hands out byte ranges of ``[0, capacity_bytes)``: first fit, exact sizes, neighbours merged on release.

    Free extents are kept sorted by start. While the arena fills there is a single one, so that an allocation
    only moves its start; least-recently-used eviction frees neighbours, so that the list stays short later.
    """

    __slots__ = ("_capacity_bytes", "_free_bytes", "_sizes", "_starts")

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._free_bytes = capacity_bytes
        self._starts = [0]
        self._sizes = [capacity_bytes]

    @property
    def capacity_bytes(self) -> int:
        """Bytes in all."""
        return self._capacity_bytes

    @property
    def free_bytes(self) -> int:
        """Bytes that no allocation holds; one request may get less, since they can be scattered."""
        return self._free_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes that allocations hold."""
        return self._capacity_bytes - self._free_bytes

    @property
    def free_extents(self) -> list[tuple[int, int]]:
        """``(start, num_bytes)`` of every hole, lowest first."""
        return list(zip(self._starts, self._sizes, strict=True))

    def allocate(self, num_bytes: int) -> int | None:
        """Start of a range of ``num_bytes`` (above zero), or None where no hole is large enough."""
        if num_bytes > self._free_bytes:
            return None
        sizes = self._sizes
        for index, extent_bytes in enumerate(sizes):
            if extent_bytes >= num_bytes:
                start = self._starts[index]
                if extent_bytes == num_bytes:
                    del self._starts[index], sizes[index]
                else:
                    self._starts[index] = start + num_bytes
                    sizes[index] = extent_bytes - num_bytes
                self._free_bytes -= num_bytes
                return start
        return None

    def release(self, start: int, num_bytes: int) -> None:
        """Give back a range that :meth:`allocate` returned.

        Raises:
            StoreContractError: some of it is free already, or lies outside the arena.
        """
        starts, sizes = self._starts, self._sizes
        end = start + num_bytes
        index = bisect_right(starts, start)
        previous_end = starts[index - 1] + sizes[index - 1] if index else 0
        next_start = starts[index] if index < len(starts) else self._capacity_bytes
        if num_bytes <= 0 or start < previous_end or end > next_start:
            raise StoreContractError(
                f"cannot release bytes [{start}, {end}): the allocated range around them is "
                f"[{previous_end}, {next_start}); release each allocation once, with its own size"
            )
        joins_previous = index > 0 and previous_end == start
        joins_next = index < len(starts) and next_start == end
        if joins_previous and joins_next:
            sizes[index - 1] += num_bytes + sizes[index]
            del starts[index], sizes[index]
        elif joins_previous:
            sizes[index - 1] += num_bytes
        elif joins_next:
            starts[index] = start
            sizes[index] += num_bytes
        else:
            starts.insert(index, start)
            sizes.insert(index, num_bytes)
        self._free_bytes += num_bytes
