"""The contract of every store: synchronous, batched, zero copy, one result per key.

The names are those that HiCache's storage interface and Mooncake's Python binding use. Addresses are
integers into host memory that the caller owns and has registered. Where a page of a pool is scattered,
``addresses[i]`` and ``sizes[i]`` are lists: several buffers, one object (their concatenation).

A contract suite (``tests/store/contract.py``) holds each backend to this page.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import TracebackType
from typing import Any

from hicache_bench.errors import StoreContractError

Buffers = Sequence[int | Sequence[int]]
"""One address (or size) per key; or, for every key of the call, the list of those of its pieces."""


MAX_SLICES_PER_CALL = 1024
"""Keys x buffers of one native call. Mooncake's TCP transport queues 1,024 transfers to a peer and admits
1,024 more; a call beyond that hangs for 60 s and every later call of that client to that peer fails."""


class Status(str, Enum):
    """What became of one key."""

    OK = "ok"
    MISS = "miss"
    EXISTS = "exists"
    NO_SPACE = "no_space"
    LEASED = "leased"
    ERROR = "error"
    NOT_SENT = "not_sent"


@dataclass(frozen=True, slots=True, eq=False)
class KeyResult:
    """Status of one key; ``code`` is the backend's own number when the status is ``ERROR``.

    There is one object for each result (:data:`OK`, :data:`MISS`, ..., :func:`error`), so that comparing and
    counting thousands of them is a matter of identity. Never construct one elsewhere.
    """

    status: Status
    code: int = 0

    def __str__(self) -> str:
        return f"{self.status.value}({self.code})" if self.code else self.status.value


OK = KeyResult(Status.OK)
MISS = KeyResult(Status.MISS)
EXISTS = KeyResult(Status.EXISTS)
NO_SPACE = KeyResult(Status.NO_SPACE)
LEASED = KeyResult(Status.LEASED)
NOT_SENT = KeyResult(Status.NOT_SENT)
"""The caller's own word for a key that it never sent, since an earlier batch had failed for good."""


@cache
def error(code: int) -> KeyResult:
    """The failure that has no status of its own; ``code`` is the backend's number for it (never 0)."""
    return KeyResult(Status.ERROR, code)


INVALID_PARAMS = error(-600)
"""Empty key, zero-size value, wrong buffer size, unregistered memory. Source: Mooncake ``types.h``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCapabilities:
    """What a backend can do and which limits a caller must keep.

    ``moves_bytes`` is false for a store that only counts: addresses are then never followed.
    ``max_slices_per_call`` bounds keys x buffers of one call (Mooncake's TCP peer queue breaks beyond 1,024).
    """

    name: str
    moves_bytes: bool
    max_slices_per_call: int
    supports_leases: bool = False
    needs_registration: bool = True


@dataclass(slots=True)
class StoreStats:
    """What a backend counted since it was opened; every field only grows.

    A put of a key that exists is a no-op: it counts in ``put_noops`` and adds nothing to ``put_bytes``.
    ``modeled_seconds`` is what a :class:`~hicache_bench.links.bandwidth.BandwidthModel` adds up; never slept.
    """

    exist_calls: int = 0
    exist_keys: int = 0
    put_calls: int = 0
    put_keys: int = 0
    put_bytes: int = 0
    put_noops: int = 0
    put_failures: int = 0
    get_calls: int = 0
    get_keys: int = 0
    get_bytes: int = 0
    get_misses: int = 0
    get_failures: int = 0
    evicted_keys: int = 0
    evicted_bytes: int = 0
    modeled_seconds: float = 0.0


class KVStoreBackend(ABC):
    """A key-value store of page objects.

    Semantics that every backend shares, as Mooncake Store has them:

    * A put is insert-if-absent: an existing key keeps its bytes and answers ``EXISTS``. The same holds for a
      key given twice in one call.
    * A read must ask for exactly the object's size, else ``INVALID_PARAMS``; the destination then holds
      nothing that the caller may use.
    * ``exists`` and ``get`` take a lease where the backend has leases; a leased key answers ``LEASED`` to
      ``remove`` and is not evicted.
    * An empty key, a zero-size value and a NULL address answer ``INVALID_PARAMS`` without reaching the store.
    * A failure of one key never touches the others of its batch.
    * After ``close`` every call but ``close`` raises :class:`~hicache_bench.errors.StoreClosedError`.
    """

    @property
    @abstractmethod
    def capabilities(self) -> StoreCapabilities:
        """What this backend can do."""

    @property
    def metrics(self) -> Any:
        """The metrics in which this store, or one inside it, is counted; None where it is in none."""
        return None

    @abstractmethod
    def register_buffer(self, address: int, num_bytes: int) -> None:
        """Make ``[address, address + num_bytes)`` usable in puts and gets.

        Raises:
            StoreError: overlaps a registered range, or has no bytes.
        """

    @abstractmethod
    def unregister_buffer(self, address: int) -> None:
        """Undo :meth:`register_buffer` for the range that starts at ``address``.

        Raises:
            StoreError: no registered range starts there.
        """

    @abstractmethod
    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        """``OK``, ``MISS`` or an error for each key. An error is not a miss."""

    @abstractmethod
    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        """Store each object: ``OK``, ``EXISTS``, ``NO_SPACE`` or an error."""

    @abstractmethod
    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        """Read each object into its buffers: ``OK``, ``MISS`` or an error."""

    @abstractmethod
    def remove(self, key: str, *, force: bool = False) -> KeyResult:
        """Drop one object: ``OK``, ``MISS`` or ``LEASED``; ``force`` ignores the lease."""

    @abstractmethod
    def remove_all(self, *, force: bool = False) -> int:
        """Drop every object that is not leased (all of them with ``force``) and count them."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. Calling it again does nothing."""

    @property
    @abstractmethod
    def stats(self) -> StoreStats:
        """Counters since this backend was opened."""

    @property
    def settings(self) -> dict[str, str | int | float]:
        """Effective settings, for the record."""
        return {}

    def __enter__(self) -> KVStoreBackend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_lengths(keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> None:
    """Refuse a batch whose lists differ in length.

    Raises:
        StoreContractError: they do; silently zipping them would drop objects.
    """
    if not len(keys) == len(addresses) == len(sizes):
        raise StoreContractError(
            f"a batch has {len(keys)} keys, {len(addresses)} addresses and {len(sizes)} sizes; "
            "give one address and one size for each key"
        )
