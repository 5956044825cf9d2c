"""Each check of a restore and of a save can fail: an outcome is falsified, and exactly that check sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from hicache_bench.planning.ledger import Volume
from hicache_bench.planning.plan import SkipReason
from hicache_bench.records.schema import Check
from hicache_bench.store.local import LocalKVStore
from hicache_bench.units import MIB
from hicache_bench.workflows.roundtrip.fault_checks import WHOLE, Broken, judge, judge_save
from hicache_bench.workflows.roundtrip.fault_models import HYBRID
from hicache_bench.workflows.roundtrip.fault_rig import SAVE_ALL, Asked, Outcome, Rig

PROMISE = "units of which the lookup says the wrong thing"
HIT = "hit and planned endpoint, in pages"
PLAN = "pools of which other units are read than the endpoint needs"
ARRIVALS = "units that count as arrived and did not, or the other way"
RESOLVED = "used and fulfilled tokens, resolved again after the read"
CONTENT = "restored units with a corrupted byte"
MEMORY = "memory that was written to and not asked for"
ACCOUNT = "pools whose account does not balance"
COUNT = "bytes read, by the store's own count"
REASONS = "hit tokens that are used or have one reason"
SECONDS = "seconds"


@pytest.fixture
def rig() -> Iterator[Rig]:
    with LocalKVStore(MIB) as store:
        rig = Rig(HYBRID, 8, store, "checks")
        yield rig
        rig.close()


@pytest.fixture
def outcome(rig: Rig) -> Outcome:
    rig.save()
    return rig.restore(Asked())


def failed(checks: list[Check]) -> set[str]:
    return {check.name for check in checks if not check.passed}


def with_ledger(outcome: Outcome, **changes: object) -> Outcome:
    ledger = replace(outcome.report.ledger, **changes)  # type: ignore[arg-type]
    return replace(outcome, report=replace(outcome.report, ledger=ledger))


def with_account(outcome: Outcome, **changes: object) -> Outcome:
    first, *others = outcome.report.ledger.pools
    changed = replace(first, **changes)  # type: ignore[arg-type]
    return with_ledger(outcome, pools=(changed, *others))


def with_arrived(outcome: Outcome, name: str, units: list[int]) -> Outcome:
    arrived = {**outcome.report.arrived, name: np.array(units, dtype=np.int64)}
    return replace(outcome, report=replace(outcome.report, arrived=arrived))


def with_planned(outcome: Outcome, units: list[int]) -> Outcome:
    first, *others = outcome.plan.pools
    changed = replace(first, units=np.array(units, dtype=np.int64))
    return replace(outcome, plan=replace(outcome.plan, pools=(changed, *others)))


def with_presence(outcome: Outcome) -> Outcome:
    presence = {**outcome.lookup.presence, "draft": ~outcome.lookup.presence["draft"]}
    return replace(outcome, lookup=replace(outcome.lookup, presence=presence))


FALSIFIED: dict[str, tuple[Callable[[Outcome], Outcome], str]] = {
    "presence": (with_presence, PROMISE),
    "hit": (lambda outcome: with_ledger(outcome, hit_tokens=28), HIT),
    "planned": (lambda outcome: with_planned(outcome, [0, 1, 2, 3, 4, 5, 6]), PLAN),
    "arrived too few": (lambda outcome: with_arrived(outcome, "draft", [0]), ARRIVALS),
    "used": (lambda outcome: with_ledger(outcome, used_tokens=28), RESOLVED),
    "fulfilled": (lambda outcome: with_ledger(outcome, fulfilled_tokens=28), RESOLVED),
    "content": (lambda outcome: replace(outcome, wrong=("kv:3",)), CONTENT),
    "memory": (lambda outcome: replace(outcome, disturbed=("kv:3",)), MEMORY),
    "read": (lambda outcome: with_account(outcome, read=Volume(8, 8, 385)), ACCOUNT),
    "missed": (lambda outcome: with_account(outcome, missed=Volume(1, 1, 48)), ACCOUNT),
    "failed": (lambda outcome: with_account(outcome, failed=Volume(1, 1, 48)), ACCOUNT),
    "wasted": (lambda outcome: with_account(outcome, wasted=Volume(1, 1, 48)), ACCOUNT),
    "skipped": (
        lambda outcome: with_account(outcome, skipped={SkipReason.NOT_SELECTED: Volume(1, 1, 48)}),
        ACCOUNT,
    ),
    "degraded": (lambda outcome: with_account(outcome, degraded=True), ACCOUNT),
    "count": (lambda outcome: replace(outcome, store_bytes=outcome.store_bytes - 1), COUNT),
    "reasons": (
        lambda outcome: with_ledger(outcome, unused_tokens={SkipReason.BEYOND_ENDPOINT: 4}),
        REASONS,
    ),
    "seconds": (lambda outcome: replace(outcome, seconds=2.5), SECONDS),
}


def test_a_whole_restore_passes_every_check(rig: Rig, outcome: Outcome) -> None:
    checks = judge(rig, outcome, WHOLE, max_seconds=2)
    assert failed(checks) == set()
    assert len(checks) == 11


@pytest.mark.parametrize("name", FALSIFIED)
def test_a_falsified_outcome_fails_its_check(rig: Rig, outcome: Outcome, name: str) -> None:
    falsify, expected = FALSIFIED[name]
    assert expected in failed(judge(rig, falsify(outcome), WHOLE, max_seconds=2))


def test_what_should_have_been_lost_and_arrived_is_found(rig: Rig, outcome: Outcome) -> None:
    broken = Broken(lost=rig.keys_of("kv", 3))
    assert {ARRIVALS} == failed(judge(rig, outcome, broken, max_seconds=2))


def test_silent_corruption_that_the_comparison_missed_is_found(rig: Rig, outcome: Outcome) -> None:
    broken = Broken(silent=rig.keys_of("kv", 3))
    (check,) = [check for check in judge(rig, outcome, broken, max_seconds=2) if not check.passed]
    assert ("kv:3", "none") == (check.expected, check.actual)


def test_used_beyond_fulfilled_never_passes(rig: Rig, outcome: Outcome) -> None:
    falsified = with_ledger(with_arrived(outcome, "kv", [0]), fulfilled_tokens=0)
    assert RESOLVED in failed(judge(rig, falsified, Broken(lost=None), max_seconds=2))


@pytest.mark.parametrize("part", ["written", "existing", "failed"])
def test_a_falsified_save_fails(rig: Rig, part: str) -> None:
    report = rig.save()
    assert failed(judge_save(rig, report, SAVE_ALL, frozenset())) == set()
    volumes = {**getattr(report, part), "kv": Volume(9, 9, 9)}
    falsified = replace(report, **{part: volumes})  # type: ignore[arg-type]
    expected = {"objects and bytes written, existing, failed"}
    assert expected == failed(judge_save(rig, falsified, SAVE_ALL, frozenset()))


def test_a_save_that_counts_pages_wrong_fails(rig: Rig) -> None:
    report = replace(rig.save(), stored_pages=7, failed_pages=1)
    assert {"pages stored and failed"} == failed(judge_save(rig, report, SAVE_ALL, frozenset()))


def test_a_save_whose_objects_are_gone_fails(rig: Rig) -> None:
    report = rig.save()
    rig.inner.remove(rig.keys_of("kv", 3)[0], force=True)
    expected = {"objects of which the save says something else than the store shows"}
    assert expected == failed(judge_save(rig, report, SAVE_ALL, frozenset()))
    assert failed(judge_save(rig, report, SAVE_ALL, frozenset(), lied=rig.keys_of("kv", 3))) == set()
