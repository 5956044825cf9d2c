"""``roundtrip --soak``: random worlds until the time is up, and the shortest way to what went wrong."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hicache_bench.records.proof import Proof
from hicache_bench.records.schema import Check
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.checksum import Digest
from hicache_bench.workflows.meter import Progress
from hicache_bench.workflows.rank import none_of
from hicache_bench.workflows.roundtrip.faults import MAX_SECONDS, checksum_digest
from hicache_bench.workflows.roundtrip.soak_world import NUM_REQUESTS, Counters, Step, StepKind, World

STEPS_PER_WORLD = 60
_KINDS = (
    *[StepKind.RESTORE] * 24,
    *[StepKind.SAVE] * 12,
    *[StepKind.DAMAGE, StepKind.LOSE] * 2,
    StepKind.FORGET,
)
_MAX_EMPTY_STEPS = 10 * STEPS_PER_WORLD
_MAX_RERUNS = 300
"""Of the shrinker; each takes as long as its steps."""


@dataclass(frozen=True, slots=True)
class Violation:
    """What went wrong, and the fewest steps found that lead there."""

    world_seed: int
    digests: bool
    steps: tuple[Step, ...]
    check: Check

    def __str__(self) -> str:
        steps = "; ".join(map(str, self.steps))
        return (
            f"world seed {self.world_seed}, {'with' if self.digests else 'without'} digests, "
            f"{len(self.steps)} steps: {steps}; {self.check.name}: expected {self.check.expected}, "
            f"found {self.check.actual}"
        )


@dataclass(slots=True)
class Soak:
    """Random worlds on an open store, from a seed. With ``checksum`` all have digests, else every second."""

    store: KVStoreBackend
    seed: int
    checksum: bool = False
    max_seconds: float = MAX_SECONDS
    counters: Counters = field(default_factory=Counters)
    num_worlds: int = 0
    violation: Violation | None = None

    def run(self, go_on: Callable[[Counters], bool]) -> None:
        """Do steps while ``go_on`` says so; stop at the first violation and shrink it."""
        while self.violation is None and go_on(self.counters):
            world_seed = self.seed + self.num_worlds
            digests = self.checksum or self.num_worlds % 2 == 1
            self.num_worlds += 1
            self._run_world(world_seed, digests, go_on)

    def _run_world(self, world_seed: int, digests: bool, go_on: Callable[[Counters], bool]) -> None:
        chance = random.Random(f"steps {world_seed}")  # noqa: S311 -- a soak that must repeat
        world = self._world(world_seed, digests)
        before = self.counters
        steps: list[Step] = []
        found: list[Check] = []
        try:
            while len(steps) < STEPS_PER_WORLD and not found:
                total = Counters()
                total.add(before)
                total.add(world.counters)
                if not go_on(total):
                    break
                steps.append(_draw_step(chance, len(steps)))
                found = world.step(steps[-1])
        finally:
            world.close()
        self.counters.add(world.counters)
        if found:
            self.violation = self._shrink(world_seed, digests, steps, found[0])

    def _world(self, world_seed: int, digests: bool) -> World:
        digest: Digest | None = checksum_digest() if digests else None
        return World(self.store, world_seed, digest=digest, max_seconds=self.max_seconds)

    def replay(self, world_seed: int, digests: bool, steps: Sequence[Step]) -> tuple[int, Check] | None:
        """Do these steps in a fresh world: how many it took to the first failed check, and that check."""
        world = self._world(world_seed, digests)
        try:
            for count, step in enumerate(steps, 1):
                found = world.step(step)
                if found:
                    return count, found[0]
        finally:
            world.close()
        return None

    def _shrink(self, world_seed: int, digests: bool, steps: Sequence[Step], check: Check) -> Violation:
        """Leave out parts of the steps, halves first, as long as anything still goes wrong."""
        shortest, reruns = list(steps), 0
        size = len(shortest) // 2
        while size:
            start, shrunk = 0, False
            while start < len(shortest) and reruns < _MAX_RERUNS:
                candidate = shortest[:start] + shortest[start + size :]
                reruns += 1
                again = self.replay(world_seed, digests, candidate)
                if again is None:
                    start += size
                else:
                    count, check = again
                    shortest, shrunk = candidate[:count], True
            size = size if shrunk and size == 1 else size // 2
        return Violation(world_seed, digests, tuple(shortest), check)


def _draw_step(chance: random.Random, num_before: int) -> Step:
    """Any step; but a world begins with a save of each request."""
    if num_before < NUM_REQUESTS:
        return Step(StepKind.SAVE, num_before, chance.randrange(1 << 32))
    return Step(chance.choice(_KINDS), chance.randrange(NUM_REQUESTS), chance.randrange(1 << 32))


def soak_proofs(
    seconds: float, store: KVStoreBackend, *, seed: int, checksum: bool, progress: Progress
) -> tuple[Proof, ...]:
    """Random requests, models, lengths and faults for so long, on an open store that moves bytes.

    Raises:
        ConfigError: a store that only counts.
    """
    started = time.perf_counter()
    told = _Telling(progress)

    def go_on(counters: Counters) -> bool:
        told.tell(counters)
        return time.perf_counter() - started < seconds or _proves_nothing(counters)

    return (_proof("soak", f"{seconds:g} s of random requests", store, seed, checksum, go_on, started),)


def injection_proofs(
    num_injections: int, store: KVStoreBackend, *, seed: int, checksum: bool, progress: Progress
) -> tuple[Proof, ...]:
    """So many random faults, at random places of random requests of random models.

    Raises:
        ConfigError: a store that only counts.
    """
    started = time.perf_counter()
    told = _Telling(progress)

    def go_on(counters: Counters) -> bool:
        told.tell(counters)
        return counters.faults < num_injections or _proves_nothing(counters)

    return (_proof("fault", f"{num_injections} random faults", store, seed, checksum, go_on, started),)


def _proves_nothing(counters: Counters) -> bool:
    """Whether a short soak must go on: no byte was compared yet. An engine that reads none ends it too."""
    return not counters.bytes_compared and counters.steps < _MAX_EMPTY_STEPS


@dataclass(slots=True)
class _Telling:
    progress: Progress
    last: float = 0.0

    def tell(self, counters: Counters) -> None:
        now = time.monotonic()
        if now - self.last >= 1:
            self.last = now
            self.progress(f"{counters.requests} random requests, {counters.faults} faults")


def _proof(
    section: str,
    subject: str,
    store: KVStoreBackend,
    seed: int,
    checksum: bool,
    go_on: Callable[[Counters], bool],
    started: float,
) -> Proof:
    soak = Soak(store, seed, checksum)
    soak.run(go_on)
    counters = soak.counters
    enough = counters.requests > 0 and counters.bytes_compared > 0
    return Proof(
        section=section,
        name="every restore keeps its promises, whatever broke",
        subject=subject,
        checks=(
            none_of("violations", [] if soak.violation is None else [str(soak.violation)]),
            Check("requests with bytes compared", "at least one", str(counters.requests), enough),
        ),
        figures={
            "seed": seed,
            "worlds": soak.num_worlds,
            "steps": counters.steps,
            "requests": counters.requests,
            "faults": counters.faults,
            "bytes_compared": counters.bytes_compared,
        },
        seconds=time.perf_counter() - started,
    )
