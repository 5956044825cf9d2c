"""Random faults: rules for one save or one restore, and damage to what is stored."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hicache_bench.planning.policy import SavePolicy, StateSave, TransferPolicy
from hicache_bench.store.base import MISS, NO_SPACE, OK
from hicache_bench.store.fault_objects import ObjectEditor, flip_bit
from hicache_bench.store.faults import (
    TRANSFER_FAIL,
    CorruptGet,
    EvictBeforeGet,
    FailCalls,
    FailKeys,
    FailRandomly,
    Fault,
    ShortGet,
    exists_lies,
)
from hicache_bench.store.wrappers import Operation
from hicache_bench.workflows.roundtrip.fault_checks import WHOLE, Broken
from hicache_bench.workflows.roundtrip.fault_rig import Asked, Rig
from hicache_bench.workflows.roundtrip.fault_scenarios import LEASE_EXPIRED
from hicache_bench.workflows.roundtrip.reference import ReferenceStore, StoredObject

STALE = -1
"""Content of an object that a writer put wrong: no rig has it."""

_Draw = Callable[[random.Random, Sequence[str], bool], "DrawnFault"]
_ANSWERS = (TRANSFER_FAIL, LEASE_EXPIRED, MISS)


@dataclass(frozen=True, slots=True)
class DrawnFault:
    """Rules for one call of the rig, and what they do; ``evicted`` are gone if anything is read at all."""

    rules: tuple[Fault, ...] = ()
    broken: Broken = WHOLE
    evicted: frozenset[str] = frozenset()
    lied: frozenset[str] = frozenset()


def draw_asked(chance: random.Random, rig: Rig) -> Asked:
    """How a request asks, a local prefix and limits of the host included."""
    page = rig.page_tokens
    return Asked(
        policy=chance.choice(list(TransferPolicy)),
        local_tokens=page * chance.randint(0, rig.num_pages) if chance.random() < 0.3 else 0,
        host_capacity_pages=chance.randint(0, rig.num_pages) if chance.random() < 0.2 else None,
        threshold_tokens=chance.randint(1, 3 * page) if chance.random() < 0.2 else 0,
    )


def draw_save_policy(chance: random.Random, rig: Rig) -> SavePolicy:
    """What a save keeps."""
    return SavePolicy(
        states=chance.choice(list(StateSave)),
        state_interval_tokens=chance.randint(1, 3 * rig.page_tokens),
        window_extra_pages=chance.choice((None, None, 0, 1)),
    )


def draw_put_fault(chance: random.Random, absent: Sequence[str]) -> DrawnFault:
    """A fault of a save, in keys or in calls. ``absent`` are keys that it writes."""
    answer = chance.choice((TRANSFER_FAIL, NO_SPACE))
    kind = chance.randrange(4)
    if kind == 0 or not absent:
        calls = frozenset({chance.randint(1, 4), chance.randint(1, 4)})
        return DrawnFault((FailCalls(Operation.PUT, calls, answer),))
    keys = _some(chance, absent)
    if kind == 1:
        return DrawnFault((FailKeys(Operation.PUT, keys, answer),))
    if kind == 2:
        return DrawnFault((FailRandomly(Operation.PUT, chance.choice((0.05, 0.3)), answer),))
    return DrawnFault((FailKeys(Operation.PUT, keys, OK),), lied=keys)


def draw_read_fault(
    chance: random.Random, good: Sequence[str], absent: Sequence[str], *, digests: bool
) -> DrawnFault:
    """A fault of a restore. ``good`` keys are there and right, ``absent`` ones are not there."""
    kinds: list[_Draw] = [_fail_calls, _fail_randomly]
    if absent:
        kinds.append(lambda chance, _good, _digests: _lie(_some(chance, absent)))
    if good:
        kinds += [_evict, _deny, _fail_keys, _corrupt, _shorten, _leave_out]
    return chance.choice(kinds)(chance, good, digests)


def _some(chance: random.Random, keys: Sequence[str]) -> frozenset[str]:
    return frozenset(chance.sample(keys, min(len(keys), chance.randint(1, 4))))


def _lie(keys: frozenset[str]) -> DrawnFault:
    return DrawnFault((exists_lies(*keys),), Broken(promised=keys, lost=keys))


def _fail_calls(chance: random.Random, _good: Sequence[str], _digests: bool) -> DrawnFault:
    calls = frozenset({chance.randint(1, 3), chance.randint(1, 4)})
    return DrawnFault((FailCalls(Operation.GET, calls, chance.choice(_ANSWERS)),), Broken(lost=None))


def _fail_randomly(chance: random.Random, _good: Sequence[str], _digests: bool) -> DrawnFault:
    rule = FailRandomly(Operation.GET, chance.choice((0.05, 0.2, 0.7)), chance.choice(_ANSWERS))
    return DrawnFault((rule,), Broken(lost=None))


def _evict(chance: random.Random, good: Sequence[str], _digests: bool) -> DrawnFault:
    keys = _some(chance, good)
    return DrawnFault((EvictBeforeGet(keys),), Broken(lost=keys), evicted=keys)


def _deny(chance: random.Random, good: Sequence[str], _digests: bool) -> DrawnFault:
    keys = _some(chance, good)
    return DrawnFault((FailKeys(Operation.EXISTS, keys, chance.choice(_ANSWERS)),), Broken(denied=keys))


def _fail_keys(chance: random.Random, good: Sequence[str], _digests: bool) -> DrawnFault:
    keys = _some(chance, good)
    return DrawnFault((FailKeys(Operation.GET, keys, chance.choice(_ANSWERS)),), Broken(lost=keys))


def _spoiled(rule: Fault, keys: frozenset[str], *, digests: bool) -> DrawnFault:
    return DrawnFault((rule,), Broken(lost=keys) if digests else Broken(silent=keys))


def _corrupt(chance: random.Random, good: Sequence[str], digests: bool) -> DrawnFault:
    keys = _some(chance, good)
    return _spoiled(CorruptGet(keys), keys, digests=digests)


def _shorten(chance: random.Random, good: Sequence[str], digests: bool) -> DrawnFault:
    keys = _some(chance, good)
    return _spoiled(ShortGet(keys, chance.randint(1, 12)), keys, digests=digests)


def _leave_out(chance: random.Random, good: Sequence[str], digests: bool) -> DrawnFault:
    keys = _some(chance, good)
    drawn = _spoiled(FailKeys(Operation.GET, keys, OK), keys, digests=digests)
    return drawn if digests else replace(drawn, broken=replace(drawn.broken, unread=keys))


def damage(
    chance: random.Random,
    rig: Rig,
    good: Sequence[str],
    memory: ReferenceStore,
    *,
    stored: ObjectEditor,
    written: ObjectEditor,
) -> None:
    """Change one good object in the store, and tell the memory.

    ``stored`` edits the store itself, ``written`` puts as a writer does, with a digest where there are some.
    """
    key = chance.choice(good)
    known = memory.objects[key]
    content = stored.read(key, rig.stored_bytes(key))
    payload = content[: rig.sizes[key]]
    twins = [other for other in good if other != key and rig.sizes[other] == rig.sizes[key]]
    kind = chance.randrange(5 if twins else 4)
    if kind == 0:
        stored.replace(key, flip_bit(content, chance.randrange(8 * len(content))))
        known = replace(known, intact=False)
    elif kind == 1:
        stored.replace(key, content[: -chance.randint(1, len(content) - 1)])
        known = replace(known, whole=False)
    elif kind == 2:
        stored.replace(key, content + content[: chance.randint(1, len(content))])
        known = replace(known, whole=False)
    elif kind == 3:
        written.replace(key, flip_bit(payload, chance.randrange(8 * len(payload))))
        known = StoredObject(STALE)
    else:
        other = chance.choice(twins)
        stored.replace(key, stored.read(other, rig.stored_bytes(other)))
        known = replace(known, intact=False)
    memory.objects[key] = known
