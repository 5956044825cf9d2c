"""Two stores under the same random operations; every result is compared.

``python -m tests.store.differential`` drives the embedded store and a private Mooncake store. Where nothing
is evicted the two must agree in every answer, every byte and every count. Under pressure, where Mooncake
evicts on its own time, each must keep what the contract promises. ``docs/stores.md`` lists what may differ.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from hicache_bench.store.base import OK, KeyResult, KVStoreBackend, error
from hicache_bench.store.client import open_mooncake
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.master import ManagedMaster
from hicache_bench.units import MIB
from tests.store.differential_model import Call, Model, Rules

LEASE_EXPIRED = error(-707)
"""Mooncake's answer where the lease that a read took ends before its bytes have come; listed in the docs."""

SOURCE_BYTES = 2 << 20
_MARGIN_SECONDS = 0.02
_MAX_KEYS = 8
_NOWHERE = 1 << 46
_MANY = 50
_SHARE_UNDER_PRESSURE = 0.2
_LEASE_MS = 200


class Side:
    """One store, its two registered buffers, and the model of what it holds."""

    def __init__(self, name: str, store: KVStoreBackend, rules: Rules, room: int) -> None:
        self.name = name
        self.store = store
        self.model = Model(rules)
        self.source = np.random.default_rng(0).integers(0, 256, SOURCE_BYTES, dtype=np.uint8)
        self.target = np.zeros(room, dtype=np.uint8)
        for memory in (self.source, self.target):
            store.register_buffer(int(memory.ctypes.data), memory.nbytes)


@dataclass(slots=True)
class Outcome:
    """What a run came to: ``differences`` as text, those that the docs ``listed``, and all ``answers``."""

    differences: list[str] = field(default_factory=list)
    listed: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    operations: int = 0


class Differential:
    """Draws operations and has both stores do them."""

    def __init__(
        self,
        stores: Sequence[tuple[str, KVStoreBackend]],
        rules: Rules,
        *,
        seed: int,
        num_keys: int,
        max_object_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._room = max_object_bytes + 1000
        self._sides = [Side(name, store, rules, _MAX_KEYS * self._room) for name, store in stores]
        self._rules = rules
        self._chance = random.Random(seed)  # noqa: S311 -- a test's dice
        self._keys = [f"key/{index}" for index in range(num_keys)]
        self._max_object_bytes = max_object_bytes
        self._clock = clock
        self._sleep = sleep
        self.outcome = Outcome()

    def run(self, num_operations: int) -> Outcome:
        """Do that many operations, or fewer if many differences are found."""
        pressed = self._rules.evicts
        operations: dict[Callable[[], None], float] = {
            self._put: 35,
            self._get: 30,
            self._exists: 16,
            self._remove: 18,
            self._end_leases: 0.6 if pressed else 0.2,
            self._remove_all: 0.1,
            self._census: 0.05,
        }
        for _ in range(num_operations):
            self.outcome.operations += 1
            self._chance.choices(list(operations), list(operations.values()))[0]()
            for side in self._sides:
                for key, expected, found in side.model.refused:
                    self._differ(side, key, expected, found)
                side.model.refused.clear()
            if len(self.outcome.differences) > _MANY:
                break
        if not self._rules.evicts:
            first, other = (asdict(side.store.stats) for side in self._sides)
            for name in first:
                if first[name] != other[name]:
                    self._differ(self._sides[1], name, str(first[name]), str(other[name]))
        return self.outcome

    def _put(self) -> None:
        keys, scattered = self._draw_keys(), self._chance.random() < 0.2
        objects = [self._draw_parts(3 if scattered else 1) for _ in keys]
        addresses: list[list[int]] = [[at for at, _ in parts] for parts in objects]
        sizes: list[list[int]] = [[size for _, size in parts] for parts in objects]
        if self._chance.random() < 0.06:
            spoiled = self._chance.randrange(len(keys))
            objects[spoiled] = ()
            if self._chance.random() < 0.5:
                sizes[spoiled][0] = 0
            else:
                addresses[spoiled][0] = self._chance.choice([-1, _NOWHERE])
        elif self._rules.evicts and self._chance.random() < 0.02:
            # Only there: Mooncake evicts for a put that cannot be stored, even where it has room.
            times = self._rules.capacity_bytes // SOURCE_BYTES + 1
            index, scattered = self._chance.randrange(len(keys)), True
            objects[index] = ((0, SOURCE_BYTES),) * times
            addresses[index], sizes[index] = [0] * times, [SOURCE_BYTES] * times

        def put(side: Side) -> list[KeyResult]:
            base = int(side.source.ctypes.data)
            # -1 stands for NULL.
            starts = [[base + at if at >= 0 else 0 for at in parts] for parts in addresses]
            if scattered:
                return side.store.batch_put_from(keys, starts, sizes)
            return side.store.batch_put_from(keys, [at[0] for at in starts], [size[0] for size in sizes])

        self._compare("put", keys, put, lambda model, call: model.put(call, objects))

    def _get(self) -> None:
        keys, scattered = self._draw_keys(), self._chance.random() < 0.2
        held = self._sides[self._chance.randrange(2)].model.held
        asked = [held[key].num_bytes if key in held else self._chance.randint(1, 5000) for key in keys]
        if self._chance.random() < 0.2:
            wrong = self._chance.randrange(len(keys))
            asked[wrong] = max(1, asked[wrong] + self._chance.choice([-1, 1, 999]))
        cuts = [self._chance.randint(1, size) for size in asked]

        def get(side: Side) -> list[KeyResult]:
            side.target[:] = 0
            starts = [int(side.target.ctypes.data) + index * self._room for index in range(len(keys))]
            if not scattered:
                return side.store.batch_get_into(keys, starts, asked)
            pieces = [
                [cut, size - cut] if cut < size else [size] for cut, size in zip(cuts, asked, strict=True)
            ]
            places = [
                [start, start + cut][: len(part)]
                for start, cut, part in zip(starts, cuts, pieces, strict=True)
            ]
            return side.store.batch_get_into(keys, places, pieces)

        answers = self._compare("get", keys, get, lambda model, call: model.get(call, asked))
        for side, results in zip(self._sides, answers, strict=True):
            for index, (key, result) in enumerate(zip(keys, results, strict=True)):
                if result is OK and key in side.model.held:
                    parts = side.model.held[key].parts
                    expected = np.concatenate([side.source[at : at + size] for at, size in parts])
                    start = index * self._room
                    if not np.array_equal(expected, side.target[start : start + expected.size]):
                        self._differ(side, key, "the bytes that were put", "others")

    def _exists(self) -> None:
        keys = self._draw_keys()
        self._compare("exists", keys, lambda side: side.store.batch_exists(keys), Model.exists)

    def _remove(self) -> None:
        key, force = self._draw_keys()[0], self._chance.random() < 0.5
        self._be_certain(key)
        self._compare(
            "remove",
            [key],
            lambda side: [side.store.remove(key, force=force)],
            lambda model, call: model.remove(call, force=force),
        )

    def _remove_all(self) -> None:
        """With some keys under a lease, and all others surely without."""
        self._end_leases()
        self._exists()
        force = self._chance.random() < 0.3
        for side in self._sides:
            began = self._clock()
            count = side.store.remove_all(force=force)
            side.model.remove_all(count, force=force, began=began)
        if not self._rules.evicts:
            self._census()

    def _census(self) -> None:
        """Ask for every key: nothing else is there, and no more than fits."""
        if self._rules.evicts:
            self._end_leases()
        self._compare("exists", self._keys, lambda side: side.store.batch_exists(self._keys), Model.exists)
        for side in self._sides:
            if side.model.num_bytes > self._rules.capacity_bytes:
                self._differ(side, "all", "no more than fits", f"{side.model.num_bytes} bytes")

    def _end_leases(self) -> None:
        self._sleep(self._rules.lease_seconds + _MARGIN_SECONDS)

    def _be_certain(self, key: str) -> None:
        """Unless the lease surely holds in both stores, wait until it surely holds in none."""
        now = self._clock()
        holds_until, ended_at = zip(*(side.model.lease_of(key) for side in self._sides), strict=True)
        if min(holds_until) < now + _MARGIN_SECONDS and max(ended_at) > now:
            self._sleep(max(ended_at) - now + _MARGIN_SECONDS / 4)

    def _draw_keys(self) -> list[str]:
        keys = self._chance.choices(self._keys, k=self._chance.randint(1, _MAX_KEYS))
        if self._chance.random() < 0.02:
            keys[self._chance.randrange(len(keys))] = self._chance.choice(["", "\ud800"])
        return keys

    def _draw_parts(self, most: int) -> tuple[tuple[int, int], ...]:
        parts = []
        for _ in range(self._chance.randint(1, most)):
            limit = self._max_object_bytes // most
            size = self._chance.choice([1, 7, limit, self._chance.randint(1, limit)])
            parts.append((self._chance.randrange(SOURCE_BYTES - size), size))
        return tuple(parts)

    def _compare(
        self,
        operation: str,
        keys: Sequence[str],
        do: Callable[[Side], list[KeyResult]],
        judge: Callable[[Model, Call], None],
    ) -> list[list[KeyResult]]:
        """Have both stores do it; each answer must be allowed and, without eviction, the same on both."""
        answers = []
        for side in self._sides:
            began = self._clock()
            results = do(side)
            call = Call(keys, results, began, self._clock())
            if LEASE_EXPIRED in results:
                self.outcome.listed["a lease that ended during a read"] += 1
                call.results = [OK if result is LEASE_EXPIRED else result for result in results]
            judge(side.model, call)
            answers.append(results)
            self.outcome.answers.update(f"{operation}: {result}" for result in call.results)
            if not self._rules.evicts and len(answers) == 2 and not self._forgot_unsure(keys):
                for key, first, result in zip(keys, answers[0], call.results, strict=True):
                    if first is not result:
                        self._differ(side, key, f"{operation}: {first}", str(result))
        return answers

    def _forgot_unsure(self, keys: Sequence[str]) -> bool:
        """Where a busy machine let a lease end between two calls, both stores forget the key."""
        if not any(side.model.unsure for side in self._sides):
            return False
        self.outcome.listed["a lease that ended during a removal"] += 1
        for side in self._sides:
            side.model.unsure = False
            for key in keys:
                side.store.remove(key, force=True)
                side.model.held.pop(key, None)
        return True

    def _differ(self, side: Side, key: str, expected: str, found: str) -> None:
        self.outcome.differences.append(
            f"operation {self.outcome.operations}, {side.name}, {key!r}: expected {expected}, found {found}"
        )


def against_mooncake(num_operations: int, seed: int) -> list[Outcome]:
    """Both stores with room for everything, then both under pressure."""
    pressed = int(num_operations * _SHARE_UNDER_PRESSURE)
    return [
        _drive(num_operations - pressed, seed, Rules(64 * MIB, _LEASE_MS / 1000, evicts=False), 64 << 10),
        _drive(pressed, seed, Rules(16 * MIB, _LEASE_MS / 1000, evicts=True), MIB),
    ]


def _drive(num_operations: int, seed: int, rules: Rules, max_object_bytes: int) -> Outcome:
    with (
        ManagedMaster(lease_ttl_ms=_LEASE_MS) as master,
        open_mooncake(master.address, segment_bytes=rules.capacity_bytes) as real,
        LocalKVStore(rules.capacity_bytes, lease_ttl_seconds=rules.lease_seconds) as local,
    ):
        stores = [("local", local), ("mooncake", real)]
        pair = Differential(stores, rules, seed=seed, num_keys=60, max_object_bytes=max_object_bytes)
        return pair.run(num_operations)


def main() -> None:
    """Print what both stores answered; exit 1 if a difference is found that the docs do not list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    outcomes = against_mooncake(asked.operations, asked.seed)
    told = []
    for name, outcome in zip(("with room", "under pressure"), outcomes, strict=True):
        answers = [f"{count:,} x {answer}" for answer, count in sorted(outcome.answers.items())]
        told += [
            f"{name}: {outcome.operations:,} operations, {len(outcome.differences)} differences",
            "  answers of both: " + ", ".join(answers),
            *(f"  listed in docs/stores.md: {count} x {what}" for what, count in outcome.listed.items()),
            *(f"  {difference}" for difference in outcome.differences),
        ]
    sys.stdout.write("\n".join(told) + "\n")
    sys.exit(any(outcome.differences for outcome in outcomes))


if __name__ == "__main__":
    main()
