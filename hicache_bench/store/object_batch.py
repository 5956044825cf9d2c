"""The objects of one call in one shape, however the caller spelled them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from hicache_bench.errors import StoreContractError
from hicache_bench.store.base import OK, Buffers, KeyResult, check_lengths
from hicache_bench.store.registration import NO_RANGE, RegisteredMemory


def is_valid_key(key: str) -> bool:
    """Whether a store can hold this key: not empty, and text that UTF-8 can spell (no lone surrogate)."""
    if key.isascii():
        return bool(key)
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def valid_key_indices(keys: Sequence[str]) -> Sequence[int]:
    """Positions of the keys that a store can hold."""
    # ASCII text has no surrogates: one pass in C instead of one encode for each key.
    if all(keys) and "".join(keys).isascii():
        return range(len(keys))
    return [index for index, key in enumerate(keys) if is_valid_key(key)]


@dataclass(slots=True)
class ObjectBatch:
    """Keys with their buffers. Nothing changes it; not frozen, since one is made before every native call.

    Where an object has several buffers the batch is ``scattered``: ``addresses`` and ``sizes`` then hold one
    list for each key, and ``widths`` their lengths; else they hold one integer for each key. ``totals`` are
    the bytes of each object.
    """

    keys: Sequence[str]
    addresses: Sequence[Any]
    sizes: Sequence[Any]
    totals: list[int]
    widths: list[int]
    scattered: bool

    @classmethod
    def of(cls, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> ObjectBatch:
        """The batch of a call; lists of one buffer each are flattened.

        Raises:
            StoreContractError: lists whose lengths differ, the inner ones included.
        """
        check_lengths(keys, addresses, sizes)
        if not keys or isinstance(addresses[0], (int, np.integer)):
            flat_sizes: Any = _integers(sizes)
            return cls(keys, _integers(addresses), flat_sizes, flat_sizes, [], scattered=False)
        starts: Any = list(map(_integers, addresses))
        lengths: Any = list(map(_integers, sizes))
        widths = list(map(len, lengths))
        if widths != list(map(len, starts)):
            raise StoreContractError(
                "an object of a batch has more addresses than sizes, or fewer; give one size for each address"
            )
        if all(width == 1 for width in widths):
            flat_sizes = list(chain.from_iterable(lengths))
            flat_starts = list(chain.from_iterable(starts))
            return cls(keys, flat_starts, flat_sizes, flat_sizes, [], scattered=False)
        return cls(keys, starts, lengths, list(map(sum, lengths)), widths, scattered=True)

    def admitted(self, memory: RegisteredMemory, max_slices: int) -> Sequence[int]:
        """Indices of the objects that a native store may see.

        Those have a valid key, at most ``max_slices`` buffers, and each buffer has bytes, within one
        registered range.
        """
        if not self.keys:
            return ()
        every_start, every_length, widths_fit = self.addresses, self.sizes, True
        if self.scattered:
            every_start, every_length = list(chain(*self.addresses)), list(chain(*self.sizes))
            widths_fit = min(self.widths) > 0 and max(self.widths) <= max_slices
        valid = valid_key_indices(self.keys)
        if widths_fit and _holds_all(memory, every_start, every_length):
            return valid
        return [index for index in valid if self._buffers_fit(index, memory, max_slices)]

    def _buffers_fit(self, index: int, memory: RegisteredMemory, max_slices: int) -> bool:
        starts, lengths = self.addresses[index], self.sizes[index]
        if not self.scattered:
            return _holds_all(memory, [starts], [lengths])
        return 0 < self.widths[index] <= max_slices and _holds_all(memory, starts, lengths)

    def __len__(self) -> int:
        return len(self.keys)

    def successes(self, results: Sequence[KeyResult]) -> tuple[int, int]:
        """How many of the objects answered ``OK``, and their bytes."""
        num_ok = results.count(OK)
        if num_ok == len(results):
            return num_ok, sum(self.totals)
        return num_ok, sum(total for total, result in zip(self.totals, results, strict=True) if result is OK)

    def distinct_rounds(self) -> list[Sequence[int]]:
        """Positions of all objects, in rounds none of which holds a key twice."""
        if len(set(self.keys)) == len(self.keys):
            return [range(len(self.keys))]
        rounds: list[list[int]] = []
        num_seen: Counter[str] = Counter()
        for position, key in enumerate(self.keys):
            if num_seen[key] == len(rounds):
                rounds.append([])
            rounds[num_seen[key]].append(position)
            num_seen[key] += 1
        return list(rounds)

    def pick(self, indices: Sequence[int]) -> ObjectBatch:
        """The objects at ``indices``, which rise; all of them is the batch itself, not a copy."""
        if len(indices) == len(self.keys):
            return self
        sizes = [self.sizes[index] for index in indices]
        return ObjectBatch(
            [self.keys[index] for index in indices],
            [self.addresses[index] for index in indices],
            sizes,
            [self.totals[index] for index in indices] if self.scattered else sizes,
            [self.widths[index] for index in indices] if self.scattered else [],
            self.scattered,
        )

    def split(self, max_slices: int) -> Iterator[ObjectBatch]:
        """Consecutive parts of at most ``max_slices`` keys x buffers; no single key may have more."""
        start = num_slices = 0
        if not self.scattered:
            for start in range(0, len(self.keys), max_slices):
                yield self.pick(range(start, min(start + max_slices, len(self.keys))))
            return
        for index, width in enumerate(self.widths):
            if num_slices + width > max_slices:
                yield self.pick(range(start, index))
                start, num_slices = index, 0
            num_slices += width
        if start < len(self.keys):
            yield self.pick(range(start, len(self.keys)))


def _holds_all(memory: RegisteredMemory, addresses: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether each of these buffers (at least one) has bytes and lies in one registered range.

    Asked before every native call, so the usual case (all in one range) takes a few passes in C.
    """
    if memory.holding(addresses, sizes) is not NO_RANGE:
        return True
    if min(sizes) <= 0:
        return False
    found = NO_RANGE
    for address, num_bytes in zip(addresses, sizes, strict=True):
        if not found.start <= address < found.end:
            found = memory.find(address)
        if address + num_bytes > found.end:
            return False
    return True


def _integers(values: Any) -> list[int]:
    # Mixing NumPy's signed and unsigned scalars yields floats, so arrays become Python integers here.
    return values if isinstance(values, list) else [int(value) for value in values]
