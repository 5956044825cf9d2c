"""First in, first out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hicache_bench.trace.paths import Nodes, PagePaths
from hicache_bench.trace.streams import Stream
from hicache_bench.trace.tier import Flags, Tier, Where


class FifoTier(Tier):
    """Units leave in the order in which they were written; a request writes from its first page to its last.

    One that is driven out while its own request still writes is written again when its turn comes.
    """

    def __init__(self, paths: PagePaths, streams: Sequence[Stream], capacity_bytes: int | None) -> None:
        super().__init__(paths, streams, capacity_bytes)
        self._queue: deque[tuple[int, int]] = deque()  # stream, node
        self._touched: list[tuple[int, int, int]] = []  # page of the path, stream, node

    def held(self, request: int, stream: int, units: Nodes, where: Where) -> Flags:  # noqa: ARG002
        flags: Flags = self._owners[stream][units[where]] >= 0
        return flags

    def touch(self, request: int, stream: int, units: Nodes, where: Where) -> None:  # noqa: ARG002
        skip = self._streams[stream].unit_pages
        positions = range(where.start, where.stop) if isinstance(where, slice) else where.tolist()
        self._touched += [
            ((position + 1) * skip, stream, node)
            for position, node in zip(positions, units[where].tolist(), strict=True)
        ]

    def settle(self, request: int) -> None:  # noqa: ARG002
        for _, stream, node in sorted(self._touched):
            if self._owners[stream][node] < 0:
                self._write(stream, node)
        self._touched.clear()

    def _write(self, stream: int, node: int) -> None:
        size, capacity = self._streams[stream].unit_bytes, self.capacity_bytes
        if capacity is not None:
            if size > capacity:
                return
            while self.resident_bytes + size > capacity:
                gone, its_node = self._queue.popleft()
                self._owners[gone][its_node] = -1
                self._count_evicted(gone, 1)
        self._owners[stream][node] = 0
        self._count_written(stream, 1)
        self._queue.append((stream, node))
