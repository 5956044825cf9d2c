"""``hicache-bench bench`` on the command line; on the real store in ``tests/integration``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Command, run_apart

BENCH = ("bench", "--preset", "kitchen-sink", "--tokens", "512", "--repeat", 2)


def test_a_bench_prints_tables_and_writes_its_record(command: Command, tmp_path: Path) -> None:
    answer = command(*BENCH, "--op", "restore,lookup", "--policy", "selective", "--out", tmp_path)
    assert 0 == answer.code, answer.err
    (path,) = tmp_path.iterdir()
    record = json.loads(path.read_text())
    assert ["lookup", "restore"] == sorted(
        {item["operation"] for item in record["series"]} - {"copy", "call"}
    )
    assert f"record: {path}" in " ".join(answer.err.split())
    assert "restore selective" in answer.out
    assert max(map(len, answer.out.split("\n"))) <= 80


def test_json_is_the_record_alone(tmp_path: Path) -> None:
    answer = run_apart(*BENCH, "--op", "save", "--json", "--out", tmp_path)
    assert 0 == answer.code, answer.err
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text()) == json.loads(answer.out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--cold", "--warm"), "--cold and --warm contradict each other"),
        (("--policy", "sparse"), "--policy 'sparse' is unknown; allowed: dense, hit_policy, selective"),
        (("--policy", "selectiv"), "did you mean 'selective'?"),
        (("--op", "restor"), "did you mean 'restore'?"),
        (("--min-time", "soon"), "'soon' is not a duration"),
        (("--min-time", "5s"), "--repeat and --min-time both say"),
        (("--clients", "2"), "--clients is for --store mooncake"),
        (("--store", "count"), "moves nothing that could be timed"),
        (("--tokens", "8"), "shorter than a page"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_message(command: Command, arguments: tuple[str, ...], words: str) -> None:
    command(*BENCH, *arguments).assert_refused(2, words)


def test_rdma_without_a_device_is_refused(command: Command) -> None:
    command(*BENCH, "--store", "mooncake", "--protocol", "rdma").assert_refused(3, "no RDMA device")
