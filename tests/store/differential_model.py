"""What one store must hold, told by its own answers, and which answers the contract then allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hicache_bench.store.base import EXISTS, INVALID_PARAMS, LEASED, MISS, NO_SPACE, OK, KeyResult

Allowed = set[KeyResult]


@dataclass(frozen=True, slots=True)
class Rules:
    """How the stores were opened. ``evicts`` says that objects may vanish between calls."""

    capacity_bytes: int
    lease_seconds: float
    evicts: bool


@dataclass(slots=True)
class Stored:
    """An object; ``parts`` are offsets and sizes in the source that it was put from.

    Its lease surely holds before ``leased_until`` and surely not after ``maybe_leased_until``: what lies
    between is the time that the call took which gave the lease.
    """

    parts: tuple[tuple[int, int], ...]
    leased_until: float = 0.0
    maybe_leased_until: float = 0.0

    @property
    def num_bytes(self) -> int:
        return sum(size for _, size in self.parts)


@dataclass(slots=True)
class Call:
    """One call of a store: its answers, and when it began and ended."""

    keys: Sequence[str]
    results: Sequence[KeyResult]
    began: float
    ended: float


@dataclass(slots=True)
class Model:
    """The objects of one store, and each answer that was not allowed: ``(key, allowed, found)``.

    ``unsure`` is set by a removal that came just when the lease ended, so that either answer is right.
    """

    rules: Rules
    unsure: bool = False
    held: dict[str, Stored] = field(default_factory=dict)
    refused: list[tuple[str, str, str]] = field(default_factory=list)

    def put(self, call: Call, objects: Sequence[tuple[tuple[int, int], ...]]) -> None:
        """Objects without parts are those that no store can take."""
        held = dict(self.held)
        first: dict[str, KeyResult] = {}
        for key, result, parts in zip(call.keys, call.results, objects, strict=True):
            if not parts or not is_text(key):
                self._expect(key, {INVALID_PARAMS}, result)
                continue
            if key in first:  # given twice in one call: the second is told what became of the first
                self._expect(key, {EXISTS if first[key] is OK else first[key]}, result)
                continue
            first[key] = result
            self._expect(key, self._allowed_put(held.get(key), sum(size for _, size in parts), call), result)
            if result is OK:
                self.held[key] = Stored(parts)
            elif result is EXISTS and key in held:
                self._lease(held[key], call)
            elif result is NO_SPACE:
                self.held.pop(key, None)

    def get(self, call: Call, sizes: Sequence[int]) -> None:
        def allowed(stored: Stored, num_bytes: int) -> KeyResult:
            return OK if stored.num_bytes == num_bytes else INVALID_PARAMS

        self._query(call, sizes, allowed)

    def exists(self, call: Call) -> None:
        self._query(call, [0] * len(call.keys), lambda _stored, _size: OK)

    def remove(self, call: Call, *, force: bool) -> None:
        (key,), (result,) = call.keys, call.results
        stored = self.held.get(key)
        if stored is None:
            allowed = {MISS if is_text(key) else INVALID_PARAMS}
        else:
            allowed = {OK, MISS} if self._may_vanish(stored, call) else {OK}
            if not force and stored.maybe_leased_until >= call.began:
                self.unsure = stored.leased_until <= call.ended
                allowed = {LEASED, *allowed} if self.unsure else {LEASED}
        self._expect(key, allowed, result)
        if result is not LEASED:
            self.held.pop(key, None)

    def remove_all(self, count: int, *, force: bool, began: float) -> None:
        """Every lease must surely hold, or surely have ended."""
        left = {} if force else {key: it for key, it in self.held.items() if it.leased_until > began}
        expected = len(self.held) - len(left)
        self.held = left
        if count > expected or (count < expected and not self.rules.evicts):
            self.refused.append(("all", str(expected), str(count)))

    def lease_of(self, key: str) -> tuple[float, float]:
        """Until when the lease of ``key`` surely holds, and from when it surely does not."""
        stored = self.held.get(key)
        return (stored.leased_until, stored.maybe_leased_until) if stored else (0.0, 0.0)

    def _query(
        self, call: Call, sizes: Sequence[int], allowed_of: Callable[[Stored, int], KeyResult]
    ) -> None:
        for key, result, size in zip(call.keys, call.results, sizes, strict=True):
            stored = self.held.get(key)
            if stored is None:
                self._expect(key, {MISS if is_text(key) else INVALID_PARAMS}, result)
                continue
            allowed = {allowed_of(stored, size)}
            self._expect(key, {*allowed, MISS} if self._may_vanish(stored, call) else allowed, result)
            if result is MISS:
                del self.held[key]
            else:
                self._lease(stored, call)

    def _allowed_put(self, stored: Stored | None, num_bytes: int, call: Call) -> Allowed:
        if stored is not None and not self._may_vanish(stored, call):
            return {EXISTS}
        allowed = {EXISTS} if stored is not None else set()
        if num_bytes > self.rules.capacity_bytes:
            return {*allowed, NO_SPACE}
        allowed.add(OK)
        # A store that is half empty has room, whatever it evicts.
        if self.rules.evicts and self.num_bytes + num_bytes > self.rules.capacity_bytes // 2:
            allowed.add(NO_SPACE)
        return allowed

    @property
    def num_bytes(self) -> int:
        """All that may be stored."""
        return sum(stored.num_bytes for stored in self.held.values())

    def _may_vanish(self, stored: Stored, call: Call) -> bool:
        return self.rules.evicts and stored.leased_until <= call.ended

    def _lease(self, stored: Stored, call: Call) -> None:
        stored.leased_until = call.began + self.rules.lease_seconds
        stored.maybe_leased_until = call.ended + self.rules.lease_seconds

    def _expect(self, key: str, allowed: Allowed, result: KeyResult) -> None:
        if result not in allowed:
            self.refused.append((key, " or ".join(sorted(map(str, allowed))), str(result)))


def is_text(key: str) -> bool:
    """Whether a store can hold the key."""
    return bool(key) and key.isascii()
