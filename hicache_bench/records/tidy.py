"""Run records as one tidy table: a row for each preset, length, rank, policy, pool and reason."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

COLUMNS = (
    "preset", "preset_digest", "profile", "deployment", "save_policy", "store", "tokens", "evidence", "rank",
    "policy", "pool", "reason", "pages", "objects", "bytes", "created_utc",
)  # fmt: skip
"""``reason`` is ``read``, ``missed`` or ``failed``, or the reason for which it was skipped: over these the
bytes of a pool add up to what the store held of it. Every row is of one policy on one rank, with the
``evidence`` of that policy."""


def tidy_rows(records: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows of plain ``run`` records, by :data:`COLUMNS`."""
    for record in records:
        of_record = {
            "preset": record["preset"]["name"],
            "preset_digest": record["preset_digest"],
            "profile": record["profile"],
            "deployment": _deployment(record["deployment"]),
            "save_policy": record["save_policy"],
            "created_utc": record["created_utc"],
        }
        for result in record["results"]:
            for rank in result["ranks"]:
                for policy in rank["policies"]:
                    of_policy = {
                        **of_record,
                        "store": result["store"],
                        "tokens": result["tokens"],
                        "evidence": policy["evidence"],
                        "rank": rank["rank"],
                        "policy": policy["policy"],
                    }
                    for account in policy["pools"]:
                        yield from _account_rows(of_policy, account)


def _account_rows(of_policy: Mapping[str, Any], account: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    amounts = {"read": account["read"], **account["skipped"]}
    amounts |= {name: account[name] for name in ("missed", "failed") if any(account[name].values())}
    for reason, amount in amounts.items():
        row = {
            **of_policy,
            "pool": account["pool"],
            "reason": reason,
            "pages": amount["pages"],
            "objects": amount["objects"],
            "bytes": amount["num_bytes"],
        }
        yield {column: row[column] for column in COLUMNS}


def _deployment(deployment: Mapping[str, Any]) -> str:
    """``tp=8 layout=page_first``: what is set, and not 1 or off."""
    parts = [f"{name}={value}" for name, value in deployment.items() if value not in (None, False, 1)]
    return " ".join(parts)


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = COLUMNS) -> str:
    """The rows as CSV, the header first."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
