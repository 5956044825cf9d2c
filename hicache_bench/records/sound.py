"""Whether a record agrees with itself.

Every field may have its right type, and the record still say what no command could have written: a ledger
that does not balance, a sum that is none, ``ok`` over a failed check, a check that passed and did not find
what it expected. A gate that compared such figures would call the bytes that are missing from a sum an
improvement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Any

from hicache_bench.errors import InputError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""Preset names, as preset files may have them: they become file names, and lines of a terminal."""

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")
_BOUND = re.compile(rf"(?P<side>at least|at most|up to) (?P<limit>one|{_NUMBER.pattern})(?: s)?")
_IN_ORDER = "in this order"
_PARTS = " … "

_STATUSES = ("ok", "failed")
_UNITS = {"pages": "pages", "objects": "objects", "num_bytes": "bytes"}


def check_sound(data: Mapping[str, Any]) -> None:
    """Look at the plain data of a record whose every field has its type.

    The figures of a record with failed checks may contradict each other: that is what its checks say. A
    number that is none contradicts nothing: it is judged where it stands.

    Raises:
        InputError: it contradicts itself; the message names the place.
    """
    fault = next(_faults(data), None)
    if fault is not None:
        raise InputError(f"it contradicts itself: {fault}; write it again with the command that makes it")


def _faults(data: Mapping[str, Any]) -> Iterator[str]:
    for name in _preset_names(data):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield f"{name!r} is no name of a preset"
    yield from _verdict(data)
    yield from _samples(data)
    if data["kind"] == "run":
        yield from _lengths(data["results"])
        if data["status"] == "ok":
            for result in data["results"]:
                yield from _sums(result)
                yield from _stored(result)
            yield from _units(data)


def _preset_names(data: Mapping[str, Any]) -> Iterable[object]:
    return (data["preset"].get("name"),) if "preset" in data else tuple(data.get("presets", ()))


def _verdict(data: Mapping[str, Any]) -> Iterator[str]:
    status = data["status"]
    if status not in _STATUSES:
        yield f"its status is {status!r}, and not {' or '.join(_STATUSES)}"
    failed = next((check["name"] for check in _checks(data) if not check["passed"]), None)
    if status == "ok" and failed is not None:
        yield f"its status is ok, and the check {failed!r} failed"
    for check in _checks(data):
        if check["passed"] and not _holds(check["expected"], check["actual"]):
            yield (
                f"the check {check['name']!r} passed, and expected {check['expected']!r} where "
                f"{check['actual']!r} was found"
            )


def _holds(expected: str, actual: str) -> bool:
    """Whether what was found is what was expected, in the forms that checks have.

    These are a text that must be the same, or that more may follow; a bound; numbers in order; parts that
    must all be found.
    """
    if actual == expected or actual.startswith(f"{expected}: "):
        return True
    if bound := _BOUND.fullmatch(expected):
        found = _NUMBER.match(actual)
        if found is None:
            return False
        limit, number = float(bound["limit"].replace("one", "1")), float(found[0])
        return number >= limit if bound["side"] == "at least" else number <= limit
    if expected == _IN_ORDER:
        numbers = [float(number) for number in _NUMBER.findall(actual)]
        return bool(numbers) and numbers == sorted(numbers)
    parts = expected.split(_PARTS)
    return len(parts) > 1 and all(part in actual for part in parts)


def _checks(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    holders = (data, *data.get("results", ()), *data.get("proofs", ()))
    for holder in holders:
        yield from holder.get("checks", ())


def _samples(data: Mapping[str, Any]) -> Iterator[str]:
    """Times that no clock shows."""
    ranks = (rank for result in data.get("results", ()) for rank in result.get("ranks", ()))
    holders = (*data.get("series", ()), *(policy for rank in ranks for policy in rank["policies"]))
    for holder in holders:
        for name in ("seconds", "store_seconds"):
            if min(holder[name], default=0) < 0:
                yield f"{name} below zero"


def _lengths(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Something must be there to compare, and each entry once: a second one would pass for an addition."""
    yield from _named_once("results", [result["tokens"] for result in results])
    for result in results:
        place = f"{result['tokens']} tokens"
        yield from _named_once(f"ranks at {place}", [rank["rank"] for rank in result["ranks"]])
        names = [policy["policy"] for policy in result["policies"]]
        yield from _named_once(f"policies at {place}", names)
        for rank in result["ranks"]:
            place = f"{result['tokens']} tokens, {rank['rank']}"
            found = [policy["policy"] for policy in rank["policies"]]
            if found != names:
                yield f"at {place} the policies are {found}, and those of all ranks {names}"
            for policy in rank["policies"]:
                pools = [account["pool"] for account in policy["pools"]]
                yield from _named_once(f"pools at {place}, {policy['policy']}", pools)


def _named_once(what: str, names: Sequence[object]) -> Iterator[str]:
    if not names:
        yield f"there are no {what}"
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        yield f"{twice} is twice among the {what}"


def _units(data: Mapping[str, Any]) -> Iterator[str]:
    """Bytes of whole units are those of the pool's objects; another pipeline stage has other ones."""
    unit_bytes: dict[str, set[int]] = {}
    for pool in data["pools"]:
        objects = sum(pool["object_bytes"].values())
        if pool["unit_objects"] == len(pool["object_bytes"]) and objects != pool["unit_bytes"]:
            yield f"a unit of pool {pool['name']} has {pool['unit_bytes']} bytes, and its objects {objects}"
        unit_bytes.setdefault(pool["name"], set()).add(pool["unit_bytes"])
    for result in data["results"]:
        for policy in chain.from_iterable(rank["policies"] for rank in result["ranks"]):
            for account, name in product(policy["pools"], ("total", "needed")):
                pages, num_bytes = account[name]["pages"], account[name]["num_bytes"]
                if all(pages * size != num_bytes for size in unit_bytes.get(account["pool"], ())):
                    place = f"{result['tokens']} tokens, {policy['policy']}, {account['pool']}"
                    yield f"{place}: {name} is no whole pages of the pool"


def _stored(result: Mapping[str, Any]) -> Iterator[str]:
    """A store holds what was written, and of what was there before as much as is not shared."""
    place = f"{result['tokens']} tokens"
    saved = [pool for rank in result["ranks"] for pool in rank["saved"]]
    for unit, word in _UNITS.items():
        amounts = [pool[name][unit] for pool in saved for name in ("written", "existing", "failed")]
        if min(amounts, default=0) < 0:
            yield f"{place}: {word} saved below zero"
        written = sum(pool["written"][unit] for pool in saved)
        existing = sum(pool["existing"][unit] for pool in saved)
        if not written <= result["stored"][unit] <= written + existing:
            yield (
                f"{place}: {result['stored'][unit]:,} {word} are stored, where {written:,} were written and "
                f"{existing:,} were there"
            )


def _sums(result: Mapping[str, Any]) -> Iterator[str]:
    for index, total in enumerate(result["policies"]):
        place = f"{result['tokens']} tokens, {total['policy']}"
        parts = [rank["policies"][index] for rank in result["ranks"]]
        yield from _differing(place, "read by all ranks", total["read"], [part["read"] for part in parts])
        for rank, part in zip(result["ranks"], parts, strict=True):
            yield from _accounts(f"{place}, {rank['rank']}", part, result["tokens"])
        for name in ("hit_tokens", "used_tokens"):
            least = min(part[name] for part in parts)
            if total[name] != least:
                yield f"{place}: {name} of all ranks is {total[name]:,}, and the least of them {least:,}"


def _accounts(place: str, policy: Mapping[str, Any], tokens: int) -> Iterator[str]:
    accounts = policy["pools"]
    yield from _differing(
        place, "read of all pools", policy["read"], [account["read"] for account in accounts]
    )
    if policy["used_tokens"] > policy["hit_tokens"]:
        yield f"{place}: {policy['used_tokens']} tokens are used, and {policy['hit_tokens']} were hit"
    if not 0 <= policy["hit_tokens"] <= tokens:
        yield f"{place}: {policy['hit_tokens']} tokens were hit, of {tokens}"
    if not 0 <= policy["fulfilled_tokens"] <= policy["used_tokens"]:
        yield f"{place}: {policy['fulfilled_tokens']} tokens arrived, and {policy['used_tokens']} are used"
    for account in accounts:
        where = f"{place}, {account['pool']}"
        parts = [account["read"], *account["skipped"].values(), account["missed"], account["failed"]]
        yield from _differing(where, "total", account["total"], parts)
        for unit, word in _UNITS.items():
            if account["wasted"][unit] > account["read"][unit]:
                yield f"{where}: more {word} are wasted than read"
            if min(account["wasted"][unit], account["needed"][unit]) < 0:
                yield f"{where}: {word} below zero"


def _differing(
    place: str, what: str, total: Mapping[str, float], parts: Sequence[Mapping[str, float]]
) -> Iterator[str]:
    """Amounts that are not the sum of their parts, or below zero."""
    for unit, word in _UNITS.items():
        amounts = [total[unit], *(part[unit] for part in parts)]
        if not all(map(math.isfinite, amounts)):
            continue
        whole, *pieces = amounts
        if min(amounts) < 0:
            yield f"{place}: {word} below zero"
        elif whole != sum(pieces):
            yield f"{place}: {what} is {whole:,} {word}, and its parts add up to {sum(pieces):,}"
