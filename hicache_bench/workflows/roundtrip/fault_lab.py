"""Where a named fault is tried: rigs on the store, a seed, and the checks that have come together."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from hicache_bench.engine.controller import UnitSelector
from hicache_bench.engine.reports import SaveReport
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.records.schema import Check
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.checksum import Digest
from hicache_bench.store.fault_objects import ObjectEditor
from hicache_bench.store.faults import Fault
from hicache_bench.workflows.rank import equal
from hicache_bench.workflows.roundtrip.fault_checks import WHOLE, Broken, judge, judge_save
from hicache_bench.workflows.roundtrip.fault_rig import SAVE_ALL, Asked, Outcome, Rig

SELECTIVE = Asked()


@dataclass(slots=True)
class Lab:
    """Tries one fault. Everything that it opens ends with it, and what it stored is taken out."""

    name: str
    store: KVStoreBackend
    seed: int
    digest: Digest | None
    max_seconds: float
    checks: list[Check] = field(default_factory=list)
    num_restores: int = 0
    bytes_compared: int = 0
    chance: random.Random = field(init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.name} {self.seed}")  # noqa: S311 -- places that must repeat

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    def opened(self, store: KVStoreBackend) -> KVStoreBackend:
        """A store of the scenario's own, closed after all rigs on it."""
        return self._open.enter_context(store)

    def rig(
        self,
        pools: Sequence[KVPoolDescriptor],
        num_pages: int,
        *,
        model: str = "",
        store: KVStoreBackend | None = None,
        **options: Any,
    ) -> Rig:
        """One request of the model that ``model`` names; rigs of one model share their objects."""
        namespace = f"fault {self.name} {self.seed} {model}"
        inner = self.store if store is None else store  # an empty local store is false
        rig = Rig(pools, num_pages, inner, namespace, seed=self.seed, digest=self.digest, **options)
        self._open.callback(rig.close)
        self._open.callback(rig.forget)
        return rig

    def editor(self, rig: Rig) -> ObjectEditor:
        """Changes objects in the store itself, digests included."""
        editor = ObjectEditor(self.store, 2 * max(map(rig.stored_bytes, rig.sizes)))
        self._open.callback(editor.close)
        return editor

    def writer(self, rig: Rig) -> ObjectEditor:
        """Puts objects as a writer does: with a digest where there are digests."""
        editor = ObjectEditor(rig.store, max(rig.sizes.values()))
        self._open.callback(editor.close)
        return editor

    def save(
        self,
        rig: Rig,
        label: str,
        *,
        policy: SavePolicy = SAVE_ALL,
        faults: Sequence[Fault] = (),
        lied: Iterable[str] = (),
    ) -> SaveReport:
        """Save, and check the report against what the store then holds."""
        before = rig.held()
        report = rig.save(policy, faults, seed=self.seed)
        self.add(label, judge_save(rig, report, policy, before, lied=frozenset(lied)))
        return report

    def restore(
        self,
        rig: Rig,
        label: str,
        broken: Broken = WHOLE,
        faults: Sequence[Fault] = (),
        *,
        asked: Asked = SELECTIVE,
        selector: UnitSelector | None = None,
    ) -> Outcome:
        """Restore under faults, and check everything that a restore promises."""
        outcome = rig.restore(asked, faults, seed=self.seed, selector=selector)
        self.num_restores += 1
        self.bytes_compared += outcome.report.ledger.read.num_bytes
        self.add(label, judge(rig, outcome, broken, max_seconds=self.max_seconds))
        return outcome

    def recover(self, rig: Rig, damaged: Iterable[str] = ()) -> None:
        """The next request works once what is damaged has been removed and saved again."""
        for key in damaged:
            rig.inner.remove(key, force=True)
        self.save(rig, "the next save")
        outcome = self.restore(rig, "the next request")
        whole = rig.matchable_pages * rig.page_tokens
        self.equal("the next request: tokens used", whole, outcome.used_tokens)

    def says_why(self, rig: Rig, broken: Broken) -> None:
        """The next request meets the same damage, and says what failed."""
        outcome = self.restore(rig, "the next request, before any repair", broken)
        failed = sum(account.failed.objects for account in outcome.report.ledger.pools)
        planned = [
            key for item in outcome.plan.pools for key in rig.keys_of(item.pool.name, *item.units.tolist())
        ]
        expected = len(set(broken.lost or ()).intersection(planned))
        self.equal("the next request, before any repair: objects that failed", expected, failed)

    def equal(self, name: str, expected: object, actual: object) -> None:
        """Check one figure."""
        self.checks.append(equal(name, str(expected), str(actual)))

    def add(self, label: str, checks: Iterable[Check]) -> None:
        """Keep checks, each under the label of what they were made on."""
        self.checks += [
            Check(f"{label}: {check.name}", check.expected, check.actual, check.passed) for check in checks
        ]
