"""Records that differ from a kept one in one way, for what compares and shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Data = dict[str, Any]


def account_of(record: Data, policy: str, pool: str) -> Data:
    """The account of a pool under a policy, of the first length on the first rank."""
    policies = record["results"][0]["ranks"][0]["policies"]
    (found,) = (one for one in policies if one["policy"] == policy)
    (account,) = (one for one in found["pools"] if one["pool"] == pool)
    return account  # type: ignore[no-any-return]


def reads_the_window(record: Data) -> None:
    """A restore that reads the pages which lie out of the window, too."""
    (result,) = record["results"]
    for name in ("hit_policy", "selective"):
        account = account_of(record, name, "swa")
        skipped = account["skipped"].pop("out_of_window")
        totals = [
            next(one for one in holder["policies"] if one["policy"] == name)
            for holder in (result, result["ranks"][0])
        ]
        for unit, number in skipped.items():
            account["read"][unit] += number
            for total in totals:
                total["read"][unit] += number


def with_times(record: Data, factor: float, *, samples: int = 6) -> None:
    """Restores slower by a factor, of which only so many samples are left."""
    for policy in record["results"][0]["ranks"][0]["policies"]:
        for field in ("seconds", "store_seconds"):
            policy[field] = [round(sample * factor, 9) for sample in policy[field][:samples]]


def counted(record: Data) -> None:
    """Nothing was moved: no samples."""
    record["store"] = "count"
    for result in record["results"]:
        result["evidence"] = "counted"
        for rank in result["ranks"]:
            for policy in rank["policies"]:
                policy["evidence"] = "counted"
                policy["seconds"], policy["store_seconds"] = [], []


def other_preset(record: Data) -> None:
    """A preset of the same name with another geometry."""
    record["preset_digest"] = "0123456789abcdef" * 4


def renamed(name: str) -> Callable[[Data], None]:
    """A record of another preset."""

    def rename(record: Data) -> None:
        record["preset"]["name"] = name

    return rename


def changed(record: Data, *changes: Callable[[Data], None]) -> Data:
    """``record`` after ``changes``."""
    for change in changes:
        change(record)
    return record


def leaf(record: Data, path: Sequence[str | int]) -> tuple[Any, str | int]:
    """The holder of a value and its key there."""
    holder: Any = record
    for step in path[:-1]:
        holder = holder[step]
    return holder, path[-1]
