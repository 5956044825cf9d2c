"""The checks of the rules on restores that mistake something: each mistake must be found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.planning.resolve import resolve
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.records.proof import Proof
from hicache_bench.records.schema import Check
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.faults import CorruptGet
from hicache_bench.workflows.meter import Progress
from hicache_bench.workflows.roundtrip.fault_checks import WHOLE, judge
from hicache_bench.workflows.roundtrip.fault_lab import SELECTIVE, Lab
from hicache_bench.workflows.roundtrip.fault_rig import Asked, Outcome, Rig
from hicache_bench.workflows.roundtrip.findings import findings
from hicache_bench.workflows.roundtrip.rule_proofs import (
    MAX_SECONDS,
    NUM_PAGES,
    ODD_POOLS,
    PAGE_TOKENS,
    SUBJECT,
    continued,
    derived_rig,
    saved_rig,
)


def _is_found(rig: Rig, outcome: Outcome) -> bool:
    return not all(check.passed for check in judge(rig, outcome, WHOLE, max_seconds=MAX_SECONDS))


def _other_window(lab: Lab, *, pool: str, model: int = 0, engine: int = 0) -> bool:
    """The engine takes a window for so many tokens longer; at one endpoint at least that shows."""

    def mistaken(known: KVPoolDescriptor) -> KVPoolDescriptor:
        window, believed = known.window_tokens, known.engine_window_tokens
        if known.name != pool or window is None:
            return known
        return replace(
            known,
            window_tokens=window + model,
            engine_window_tokens=None if believed is None else believed + engine,
        )

    pools = tuple(map(mistaken, ODD_POOLS))
    return any(_is_found(rig, outcome) for rig, outcome in _restores(lab, pools))


def _restores(lab: Lab, pools: tuple[KVPoolDescriptor, ...]) -> Iterator[tuple[Rig, Outcome]]:
    for pages in range(1, NUM_PAGES + 1):
        rig = lab.rig(ODD_POOLS, pages)
        rig.save()
        mistaken = lab.rig(pools, pages)
        for policy in TransferPolicy:
            yield rig, mistaken.restore(Asked(policy=policy))


def _other_request(lab: Lab, *, done: Asked, asked: Asked) -> bool:
    """The engine does what nobody asked for."""
    rig = saved_rig(lab)
    return _is_found(rig, replace(rig.restore(done), asked=asked))


def _not_local(lab: Lab) -> bool:
    """Pages are taken for local ones, and are not."""
    rig = saved_rig(lab)
    rig.prefix = continued(rig.prefix, 2)
    return _is_found(rig, rig.restore(SELECTIVE))


def _nothing_reported(lab: Lab) -> bool:
    """A pool that nobody reported is said to have no page."""
    rig = derived_rig(lab)
    presence = dict(rig.controller.lookup(rig.prefix).presence)
    presence["swa_9"] = presence["swa_9"] & False
    return resolve(rig.pools, presence, TransferPolicy.SELECTIVE, NUM_PAGES).hit_pages != NUM_PAGES


def _flipped_bit(lab: Lab) -> bool:
    """One bit of one page is wrong, and the store says nothing of it."""
    rig = saved_rig(lab)
    fault = CorruptGet(frozenset(rig.keys_of("kv", NUM_PAGES - 1)))
    return _is_found(rig, rig.restore(SELECTIVE, [fault], seed=lab.seed))


def _nothing(lab: Lab) -> bool:
    return _other_window(lab, pool="swa_8") or _other_request(lab, done=SELECTIVE, asked=SELECTIVE)


CONTROLS: dict[str, tuple[Callable[[Lab], bool], bool]] = {
    "nothing is mistaken": (_nothing, False),
    "a flipped bit": (_flipped_bit, True),
    "a window one token longer": (partial(_other_window, pool="swa_8", model=1), True),
    "a window one token shorter": (partial(_other_window, pool="swa_9", model=-1), True),
    "an engine's window one token longer": (partial(_other_window, pool="swa_8", engine=1), True),
    "an engine's window one token shorter": (partial(_other_window, pool="swa_9", engine=-1), True),
    "a chunk one token longer": (partial(_other_window, pool="chunk_14", model=1), True),
    "a chunk one token shorter": (partial(_other_window, pool="chunk_14", model=-1), True),
    "a local page too many": (
        partial(
            _other_request,
            done=Asked(local_tokens=2 * PAGE_TOKENS),
            asked=Asked(local_tokens=PAGE_TOKENS),
        ),
        True,
    ),
    "room for a page too many": (
        partial(_other_request, done=Asked(host_capacity_pages=3), asked=Asked(host_capacity_pages=2)),
        True,
    ),
    "a threshold one token higher": (
        partial(
            _other_request,
            done=Asked(threshold_tokens=NUM_PAGES * PAGE_TOKENS + 1),
            asked=Asked(threshold_tokens=NUM_PAGES * PAGE_TOKENS),
        ),
        True,
    ),
    "a chain that goes on where nothing is local": (_not_local, True),
    "a pool without a report taken for an empty one": (_nothing_reported, True),
}
"""What the engine mistakes, and whether that must be found."""


def rule_controls(store: KVStoreBackend, seed: int, progress: Progress) -> tuple[Proof, ...]:
    """Mistake each thing once, on a store that was opened for that alone."""
    proofs = []
    for name, (control, is_mistake) in CONTROLS.items():
        progress(f"control: {name}")
        checks: list[Check] = []
        with Lab(name, store, seed, None, MAX_SECONDS) as lab, findings(checks, own_store=True):
            wanted, actual = _told(is_mistake), _told(control(lab))
            # Not by what all checks are made with: one that always passes would pass its controls.
            checks.append(Check("a check that fails", wanted, actual, wanted == actual))
        proofs.append(Proof(section="control", name=name, subject=SUBJECT, checks=tuple(checks)))
    return tuple(proofs)


def _told(found: bool) -> str:
    return "yes" if found else "no"
