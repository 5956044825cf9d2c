from __future__ import annotations

import csv
import io
from collections import defaultdict

from hicache_bench.records.tidy import COLUMNS, csv_text, tidy_rows
from tests.records.golden import golden_record
from tests.workflows.runs import cached_run


def test_a_row_for_each_pool_and_reason() -> None:
    rows = list(tidy_rows([golden_record("run")]))
    swa = [row for row in rows if (row["policy"], row["pool"]) == ("selective", "swa")]
    assert [("read", 8, 16, 1_048_576), ("out_of_window", 120, 240, 15_728_640)] == [
        (row["reason"], row["pages"], row["objects"], row["bytes"]) for row in swa
    ]
    assert ("kitchen-sink", 8192, "measured", "the only rank", "layout=page_first") == tuple(
        swa[0][column] for column in ("preset", "tokens", "evidence", "rank", "deployment")
    )
    assert {COLUMNS} == {tuple(row) for row in rows}


def test_the_rows_of_a_pool_add_up_to_its_total() -> None:
    record = cached_run("deepseek-v4-flash", 8192, 131072, tp=2).to_dict()
    rows = list(tidy_rows([record]))
    found: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        sums = found[tuple(row[name] for name in ("tokens", "rank", "policy", "pool"))]
        for index, name in enumerate(("pages", "objects", "bytes")):
            sums[index] += row[name]
    expected = {
        (result["tokens"], rank["rank"], policy["policy"], account["pool"]): list(account["total"].values())
        for result in record["results"]
        for rank in result["ranks"]
        for policy in rank["policies"]
        for account in policy["pools"]
    }
    assert expected == found
    assert {"tp=2 layout=page_first"} == {row["deployment"] for row in rows}


def test_what_was_missed_or_failed_has_its_rows() -> None:
    record = golden_record("run")
    account = record["results"][0]["ranks"][0]["policies"][0]["pools"][0]
    account["missed"] = {"pages": 1, "objects": 2, "num_bytes": 3}
    reasons = [row["reason"] for row in tidy_rows([record])]
    assert 1 == reasons.count("missed")
    assert 0 == reasons.count("failed")


def test_csv_reads_back() -> None:
    rows = list(tidy_rows([golden_record("run")]))
    text = csv_text(rows)
    assert [{name: str(value) for name, value in row.items()} for row in rows] == list(
        csv.DictReader(io.StringIO(text))
    )
    assert ",".join(COLUMNS) + "\n" == csv_text([])
