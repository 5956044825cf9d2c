"""What must hold of every restore, whatever broke: judged from outside, against the slow reference."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hicache_bench.engine.reports import SaveReport
from hicache_bench.planning.ledger import PoolLedger
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.records.schema import Check
from hicache_bench.store.base import EXISTS, MISS, NOT_SENT, OK, KeyResult, Status
from hicache_bench.workflows.rank import equal, none_of
from hicache_bench.workflows.roundtrip.fault_rig import Outcome, Rig
from hicache_bench.workflows.roundtrip.reference import (
    Units,
    kept_units,
    longest_endpoint,
    planned_units,
    useful_units,
    with_local,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """What a fault does to a restore, in keys.

    ``promised`` are keys that the lookup says are there and are not, ``denied`` those that it does not find
    though they are. Objects in ``lost`` do not arrive; None if they cannot be told beforehand. ``silent`` are
    objects that arrive wrong, and that only a comparison with the source can find; those in ``unread`` count
    as read though the store never delivered them.
    """

    promised: Collection[str] = ()
    denied: Collection[str] = ()
    lost: Collection[str] | None = ()
    silent: Collection[str] = ()
    unread: Collection[str] = ()


WHOLE = Broken()
"""Nothing is broken."""


def judge(rig: Rig, outcome: Outcome, broken: Broken, *, max_seconds: float) -> list[Check]:
    """Check everything that a restore promises. The names of the checks are the same for every fault."""
    judged = _Judged(rig, outcome, broken)
    return [
        judged.promise(),
        judged.hit(),
        judged.plan(),
        judged.arrivals(),
        judged.resolved_again(),
        judged.content(),
        none_of("memory that was written to and not asked for", list(outcome.disturbed)),
        none_of("pools whose account does not balance", judged.unbalanced()),
        judged.store_count(),
        judged.reasons(),
        Check("seconds", f"up to {max_seconds:g}", f"{outcome.seconds:.3f}", outcome.seconds <= max_seconds),
    ]


def judge_save(
    rig: Rig,
    report: SaveReport,
    policy: SavePolicy,
    before: Collection[str],
    *,
    lied: Collection[str] = frozenset(),
) -> list[Check]:
    """Check a save against what the store held before and holds now; ``lied`` keys were not kept."""
    held = rig.held()
    answers: dict[str, KeyResult] = {}
    failed_pages = []
    for pool in rig.pools:
        results = iter(report.transfer.results[pool.name])
        for unit in sorted(kept_units(pool, policy, rig.num_tokens)):
            own = dict(zip(rig.keys_of(pool.name, unit), results, strict=False))
            answers.update(own)
            if not {OK, EXISTS}.issuperset(own.values()):
                failed_pages.append(unit * pool.unit_pages)
    stored = min(failed_pages, default=rig.num_pages)
    groups: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    for key, answer in answers.items():
        groups[0 if answer is OK else 1 if answer is EXISTS else 2].add(key)
    written, existing, failed = groups
    was = set(before)
    untrue = (written ^ ((held | set(lied)) - was)) | (existing - (was & held)) | (failed & held - was)
    parts = (report.written, report.existing, report.failed)
    actual = [
        (sum(part.objects for part in volumes.values()), sum(part.num_bytes for part in volumes.values()))
        for volumes in parts
    ]
    return [
        none_of("objects of which the save says something else than the store shows", sorted(untrue)),
        equal(
            "objects and bytes written, existing, failed",
            str([_amount(rig, keys) for keys in groups]),
            str(actual),
        ),
        equal(
            "pages stored and failed",
            f"{stored} and {rig.num_pages - stored}",
            f"{report.stored_pages} and {report.failed_pages}",
        ),
    ]


def _amount(rig: Rig, keys: Collection[str]) -> tuple[int, int]:
    return len(keys), sum(rig.sizes[key] for key in keys)


class _Judged:
    def __init__(self, rig: Rig, outcome: Outcome, broken: Broken) -> None:
        self._rig, self._outcome, self._broken = rig, outcome, broken
        self._asked = outcome.asked
        self._ledger = outcome.report.ledger
        self._arrived: Units = {name: set(units.tolist()) for name, units in outcome.report.arrived.items()}
        self._planned: Units = {item.pool.name: set(item.units.tolist()) for item in outcome.plan.pools}
        self._present = rig.whole_units((outcome.held | set(broken.promised)) - set(broken.denied))

    def promise(self) -> Check:
        """The lookup says of each unit whether it is there."""
        presence = self._outcome.lookup.presence
        wrong = [
            f"{name}:{unit}"
            for (name, unit) in self._rig.units
            if bool(presence[name][unit]) != (unit in self._present[name])
        ]
        return none_of("units of which the lookup says the wrong thing", wrong)

    def _pool(self, name: str) -> KVPoolDescriptor:
        """The pool as it is, whatever the engine takes it for."""
        return next(pool for pool in self._rig.pools if pool.name == name)

    def _pages(self, units: Units, limit: int, local_tokens: int) -> int:
        there = with_local(self._rig.pools, units, local_tokens)
        return longest_endpoint(self._rig.pools, self._asked.policy, there, limit)

    def hit(self) -> Check:
        """Hit and planned endpoint are the longest that all pools allow."""
        page, asked = self._rig.page_tokens, self._asked
        hit = planned = self._pages(self._present, self._rig.matchable_pages, asked.local_tokens)
        local = asked.local_tokens // page
        if asked.host_capacity_pages is not None:
            planned = self._pages(
                self._present, min(planned, local + asked.host_capacity_pages), asked.local_tokens
            )
        if 0 < planned * page - asked.local_tokens < asked.threshold_tokens:
            planned = min(planned, local)
        return equal(
            "hit and planned endpoint, in pages",
            f"{hit} and {planned}",
            f"{self._ledger.hit_tokens // page} and {self._outcome.plan.endpoint_pages}",
        )

    def plan(self) -> Check:
        """The units that are read are those that the endpoint asks for, and no others."""
        end = self._outcome.plan.endpoint_pages * self._rig.page_tokens
        wrong = []
        for item in self._outcome.plan.pools:
            pool = self._pool(item.pool.name)
            expected = planned_units(
                pool, self._asked.policy, self._present[pool.name], end, self._asked.local_tokens
            )
            if expected != (self._planned[pool.name], item.missing):
                wrong.append(pool.name)
        return none_of("pools of which other units are read than the endpoint needs", wrong)

    def arrivals(self) -> Check:
        """What is lost is what the fault took; each unit that counts as arrived has all its objects."""
        results = self._outcome.report.transfer.results
        lost = None if self._broken.lost is None else self._rig.units_with(self._broken.lost)
        # Only a batch of errors ends a read: after misses alone, everything that was planned is asked for.
        ended = any(answer.status is Status.ERROR for answers in results.values() for answer in answers)
        wrong = []
        for item in self._outcome.plan.pools:
            name = item.pool.name
            count = len(item.pool.stored_components)
            for index, unit in enumerate(item.units.tolist()):
                answers = results[name][index * count : (index + 1) * count]
                arrived = unit in self._arrived[name]
                unasked = ended and NOT_SENT in answers
                expected = arrived if lost is None or unasked else f"{name}:{unit}" not in lost
                if arrived != (answers.count(OK) == count) or arrived != expected:
                    wrong.append(f"{name}:{unit}")
        return none_of("units that count as arrived and did not, or the other way", wrong)

    def resolved_again(self) -> Check:
        """Used, fulfilled and hit, with ``used`` found again by trying every endpoint on what arrived."""
        page, ledger, end = self._rig.page_tokens, self._ledger, self._outcome.plan.endpoint_pages
        # An account knows of no local token beyond its endpoint.
        local = min(self._asked.local_tokens, end * page)
        fulfilled = self._pages(self._arrived, end, local) * page
        used = max(fulfilled, local)
        ordered = ledger.used_tokens <= max(ledger.fulfilled_tokens, local)
        ordered = ordered and ledger.fulfilled_tokens <= ledger.hit_tokens
        check = equal(
            "used and fulfilled tokens, resolved again after the read",
            f"{used} and {fulfilled}, up to {ledger.hit_tokens}",
            f"{ledger.used_tokens} and {ledger.fulfilled_tokens}, up to {ledger.hit_tokens}",
        )
        return check if ordered else Check(check.name, check.expected, check.actual, passed=False)

    def content(self) -> Check:
        """No corrupted byte counts as restored; where nothing but the comparison can see it, it must."""
        silent = self._rig.units_with(self._broken.silent)
        found = set(self._outcome.wrong)
        expected = {
            f"{name}:{unit}"
            for name, units in self._arrived.items()
            for unit in units
            if f"{name}:{unit}" in silent
        }
        if not silent:
            return none_of("restored units with a corrupted byte", sorted(found))
        name = "corrupted units that only a checksum or a comparison of content finds"
        return equal(name, ", ".join(sorted(expected)) or "none", ", ".join(sorted(found)) or "none")

    def store_count(self) -> Check:
        """What counts as read is what the store delivered."""
        planned = {key for name, units in self._planned.items() for key in self._rig.keys_of(name, *units)}
        unread = sum(self._rig.sizes[key] for key in planned & set(self._broken.unread))
        return equal(
            "bytes read, by the store's own count",
            str(self._outcome.store_bytes + unread),
            str(self._ledger.read.num_bytes),
        )

    def unbalanced(self) -> list[str]:
        """Pools whose account is not what the single answers of the store add up to."""
        return [account.pool for account in self._ledger.pools if not self._balances(account)]

    def _balances(self, account: PoolLedger) -> bool:
        pool = self._pool(account.pool)
        sizes = [component.object_bytes for component in pool.stored_components]
        answers = self._outcome.report.transfer.results[pool.name]
        planned, arrived = self._planned[pool.name], self._arrived[pool.name]
        item = next(item for item in self._outcome.plan.pools if item.pool.name == pool.name)
        useful = arrived & useful_units(pool, self._asked.policy, self._ledger.fulfilled_tokens)
        skipped = len(self._present[pool.name] - planned)
        found = {OK: [0, 0], MISS: [item.missing * len(sizes), item.missing * sum(sizes)], None: [0, 0]}
        for index, answer in enumerate(answers):
            amount = found.get(answer, found[None])
            amount[0] += 1
            amount[1] += sizes[index % len(sizes)]
        expected = [
            *found.values(),
            [skipped * len(sizes), skipped * sum(sizes)],
            [found[OK][0] - len(useful) * len(sizes), found[OK][1] - len(useful) * sum(sizes)],
        ]
        parts = (account.read, account.missed, account.failed, account.skipped_total, account.wasted)
        actual = [[part.objects, part.num_bytes] for part in parts]
        total = len(self._present[pool.name]) + item.missing
        whole = (account.total.units, account.total.objects, account.total.num_bytes)
        degraded = not item.pool.constrains and (item.missing > 0 or arrived != planned)
        return (
            expected == actual
            and whole == (total, total * len(sizes), total * sum(sizes))
            and account.degraded == degraded
        )

    def reasons(self) -> Check:
        """Every hit token is used, or has one reason why not."""
        ledger = self._ledger
        told = " + ".join(f"{tokens} {reason}" for reason, tokens in ledger.unused_tokens.items())
        left = sum(ledger.unused_tokens.values())
        accounted = ledger.used_tokens + left
        passed = accounted == max(ledger.hit_tokens, ledger.used_tokens)
        passed = passed and all(tokens > 0 for tokens in ledger.unused_tokens.values())
        return Check(
            "hit tokens that are used or have one reason",
            str(max(ledger.hit_tokens, ledger.used_tokens)),
            f"{accounted}: {ledger.used_tokens} used" + (f" + {told}" if told else ""),
            passed,
        )
