"""Random requests on one store, with a reference model in memory beside it: one step at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from hicache_bench.errors import HicacheBenchError, StoreUnavailableError
from hicache_bench.records.schema import Check
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.checksum import Digest
from hicache_bench.store.fault_objects import ObjectEditor
from hicache_bench.workflows.rank import none_of
from hicache_bench.workflows.roundtrip.fault_checks import judge, judge_save
from hicache_bench.workflows.roundtrip.fault_draw import (
    DrawnFault,
    damage,
    draw_asked,
    draw_put_fault,
    draw_read_fault,
    draw_save_policy,
)
from hicache_bench.workflows.roundtrip.fault_models import random_pools
from hicache_bench.workflows.roundtrip.fault_rig import Rig
from hicache_bench.workflows.roundtrip.findings import BREAKDOWNS, breakdown
from hicache_bench.workflows.roundtrip.reference import ReferenceStore, kept_units

NUM_REQUESTS = 4
"""Three models; the last request is that of the first model, from a writer that has other bytes."""

MAX_PAGES = 10


class StepKind(str, Enum):
    """What a step does with its request."""

    SAVE = "save"
    RESTORE = "restore"
    DAMAGE = "damage"
    LOSE = "lose"
    FORGET = "forget"


class Step(NamedTuple):
    """One step: it does the same whenever its world is as it was. ``seed`` draws everything else."""

    kind: StepKind
    request: int
    seed: int

    def __str__(self) -> str:
        return f"{self.kind.value}({self.request}, seed={self.seed})"


@dataclass(slots=True)
class Counters:
    """What was done so far."""

    steps: int = 0
    requests: int = 0
    faults: int = 0
    bytes_compared: int = 0

    def add(self, other: Counters) -> None:
        """Count another world's."""
        self.steps += other.steps
        self.requests += other.requests
        self.faults += other.faults
        self.bytes_compared += other.bytes_compared


class World:
    """Requests that share a store. Two worlds of one seed are the same, whatever was done before them.

    What is stored is taken out when it closes; the store stays open.
    """

    def __init__(
        self, store: KVStoreBackend, seed: int, *, digest: Digest | None, max_seconds: float
    ) -> None:
        self.counters = Counters()
        self._memory = ReferenceStore()
        self._digests = digest is not None
        self._max_seconds = max_seconds
        self._open = ExitStack()
        self._requests: list[tuple[Rig, int, ObjectEditor, ObjectEditor]] = []
        chance = random.Random(f"world {seed}")  # noqa: S311 -- worlds that must repeat
        drawn = [self._draw(chance, model) for model in range(NUM_REQUESTS - 1)]
        for content, (namespace, options) in enumerate((*drawn, drawn[0])):
            rig = Rig(
                **options, inner=store, namespace=f"soak {seed} {namespace}", content=content, digest=digest
            )
            self._open.callback(rig.close)
            self._open.callback(rig.forget)
            largest = max(map(rig.stored_bytes, rig.sizes))
            stored, written = ObjectEditor(store, 2 * largest), ObjectEditor(rig.store, largest)
            self._open.callback(stored.close)
            self._open.callback(written.close)
            self._requests.append((rig, content, stored, written))

    @staticmethod
    def _draw(chance: random.Random, model: int) -> tuple[int, dict[str, Any]]:
        return model, {
            "pools": random_pools(chance),
            "num_pages": chance.randint(1, MAX_PAGES),
            "seed": chance.randrange(1 << 16),
            "batch_pages": chance.choice((1, 3, 128)),
            "put_retries": chance.randint(0, 1),
            "whole_prompt": chance.random() < 0.2,
        }

    def close(self) -> None:
        """Take out what was stored."""
        self._open.close()

    def step(self, step: Step) -> list[Check]:
        """Do one step; the checks that failed. An error that a step ends with is one of them.

        Raises:
            StoreUnavailableError: the store is gone, which is not what a step was to show.
        """
        self.counters.steps += 1
        request = self._requests[step.request]
        chance = random.Random(step.seed)  # noqa: S311 -- steps that must repeat
        try:
            checks = self._do[step.kind](self, chance, *request)
        except StoreUnavailableError:
            raise
        except (HicacheBenchError, *BREAKDOWNS) as error:
            return [breakdown(error)]
        rig = request[0]
        differing = rig.held() ^ (set(rig.sizes) & set(self._memory.objects))
        checks.append(none_of("objects of which store and memory disagree", sorted(differing)))
        return [check for check in checks if not check.passed]

    def _save(self, chance: random.Random, rig: Rig, content: int, *_editors: ObjectEditor) -> list[Check]:
        policy = draw_save_policy(chance, rig)
        before = rig.held()
        kept = [
            key
            for pool in rig.pools
            for key in rig.keys_of(pool.name, *sorted(kept_units(pool, policy, rig.num_tokens)))
        ]
        fault = DrawnFault()
        if chance.random() < 0.4:
            fault = draw_put_fault(chance, [key for key in kept if key not in before])
            self.counters.faults += 1
        self.counters.requests += 1
        report = rig.save(policy, fault.rules, seed=chance.randrange(1 << 16))
        self._memory.put(rig.held() - before, content)
        return judge_save(rig, report, policy, before, lied=fault.lied)

    def _restore(self, chance: random.Random, rig: Rig, content: int, *_editors: ObjectEditor) -> list[Check]:
        unreadable = self._memory.unreadable(rig.sizes, digests=self._digests)
        wrong = self._memory.wrong(rig.sizes, content, digests=self._digests)
        fault = DrawnFault()
        if chance.random() < 0.85:
            good = [key for key in self._known(rig) if key not in unreadable | wrong]
            absent = [key for key in rig.sizes if key not in self._memory.objects]
            fault = draw_read_fault(chance, good, absent, digests=self._digests)
            self.counters.faults += 1
        self.counters.requests += 1
        outcome = rig.restore(draw_asked(chance, rig), fault.rules, seed=chance.randrange(1 << 16))
        self.counters.bytes_compared += outcome.report.ledger.read.num_bytes
        if outcome.report.transfer.calls:
            self._memory.remove(fault.evicted)
        broken = fault.broken
        broken = replace(
            broken,
            lost=None if broken.lost is None else unreadable | set(broken.lost),
            silent=wrong | set(broken.silent),
        )
        return judge(rig, outcome, broken, max_seconds=self._max_seconds)

    def _damage(
        self, chance: random.Random, rig: Rig, content: int, stored: ObjectEditor, written: ObjectEditor
    ) -> list[Check]:
        bad = self._memory.unreadable(rig.sizes, digests=True) | self._memory.wrong(
            rig.sizes, content, digests=True
        )
        good = [key for key in self._known(rig) if key not in bad]
        if good:
            self.counters.faults += 1
            damage(chance, rig, good, self._memory, stored=stored, written=written)
        return []

    def _lose(self, chance: random.Random, rig: Rig, *_rest: object) -> list[Check]:
        known = self._known(rig)
        if known:
            self.counters.faults += 1
        for key in chance.sample(known, min(len(known), chance.randint(1, 6))):
            rig.inner.remove(key, force=True)
            self._memory.remove([key])
        return []

    def _forget(self, _chance: random.Random, rig: Rig, *_rest: object) -> list[Check]:
        rig.forget()
        self._memory.remove(rig.sizes)
        return []

    def _known(self, rig: Rig) -> Sequence[str]:
        return [key for key in rig.sizes if key in self._memory.objects]

    _do: dict[StepKind, Callable[..., list[Check]]] = {  # noqa: RUF012 -- one table for all worlds
        StepKind.SAVE: _save,
        StepKind.RESTORE: _restore,
        StepKind.DAMAGE: _damage,
        StepKind.LOSE: _lose,
        StepKind.FORGET: _forget,
    }
