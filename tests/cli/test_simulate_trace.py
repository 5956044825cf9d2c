from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from hicache_bench.records.io import load_record, read_record
from tests.cli.command import Command
from tests.cli.test_simulate import assert_fits, files, rows

PRESET = ("simulate", "--preset", "deepseek-v4-flash")
TRACE = (*PRESET, "--trace", "multi-turn")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_a_replay_is_a_record_and_a_table(command: Command, out: Path) -> None:
    answer = command(*TRACE, "--capacity", "1GiB,inf", "--out", out)
    assert 0 == answer.code
    assert_fits(answer)
    text = " ".join(answer.out.split())
    for part in (
        "multi-turn.jsonl: 300 requests", "hits [counted]: the longest prefix of whole pages",
        "save B: state=every:4096,window=trailing:+2", "decode KV is not modelled", "deepseek_v4_c4_state",
    ):  # fmt: skip
        assert part in text
    assert "milliseconds" not in answer.out
    (path,) = files(out, ".json")
    record = load_record(path)
    assert (2 * 4, None) == (len(record.results), record.timing)
    assert f"record: {path}\n" in answer.err
    found = rows(out)
    assert 8 == len(found)
    assert {"dense", "hit_policy", "selective"} == {row["policy"] for row in found}
    assert {"1073741824", ""} == {row["capacity_bytes"] for row in found}
    assert {""} == {row["ttft_no_overlap_p50"] for row in found}


def test_a_link_or_a_system_asks_for_seconds(command: Command, out: Path) -> None:
    answer = command(*TRACE, "--capacity", "inf", "--link", "tcp-25gbe", "--concurrency", "16", "--out", out)
    assert_fits(answer)
    for text in (
        "milliseconds to the first token [modeled]: 4 ranks on h200, L3 over tcp-25gbe; 16 equal requests",
        "fit of 2 lengths on 4 GPUs", "constants, with their bands", "aiconfigurator", "recompute",
    ):  # fmt: skip
        assert text in " ".join(answer.out.split())
    (path,) = files(out, ".json")
    record = load_record(path)
    assert ("tcp-25gbe", "h200", 16) == (
        record.timing.link,
        record.timing.system,
        record.timing.concurrency,
    )
    assert all(float(row["ttft_no_overlap_p50"]) > 0 for row in rows(out))


def test_a_system_alone_takes_the_default_link(command: Command, out: Path) -> None:
    options = ("--capacity", "inf", "--system", "b200", "--policy", "dense", "--json")
    (record,) = json.loads(command(*TRACE, *options, "--out", out).out)
    assert ("rdma-4x200g", "b200") == (record["timing"]["link"], record["timing"]["system"])


def test_every_option_of_a_replay_reaches_it(command: Command, out: Path) -> None:
    options = (
        "--eviction lru,fifo --policy selective --save-policy window=trailing:+0|+1 --measure last:50% "
        "--hit-definition trace --include-output attention --local-prefix 512 --host-capacity 8k "
        "--threshold 1k --capacity 1GiB --trace-block-tokens 512 --page-tokens 128 --on-error skip"
    )
    answer = command(
        "simulate", "--preset", "gpt-oss", "--trace", "multi-turn", *options.split(), "--out", out
    )
    assert 0 == answer.code
    record = load_record(files(out, ".json")[0])
    assert ("trace", "attention", 50, 128) == (
        record.hit_definition,
        record.outputs,
        record.measured_percent,
        record.page_tokens,
    )
    assert {"local_tokens": 512, "host_capacity_tokens": 8192, "threshold_tokens": 1024} == record.limits
    assert ["lru", "lru", "fifo", "fifo"] == [result.eviction for result in record.results]
    assert "simulate" == record.command[1]


def test_a_sweep_is_a_record_a_point(command: Command, out: Path) -> None:
    options = ("--capacity", "inf", "--policy", "selective", "--threshold", "0,2k", "--tp", "1,2")
    answer = command(*TRACE, *options, "--json", "--out", out)
    paths = files(out, ".json")
    assert [read_record(path) for path in paths] == json.loads(answer.out)
    assert ["1of4", "2of4", "3of4", "4of4"] == [path.stem.rpartition("-")[2] for path in paths]
    assert ["1", "1", "2", "2"] == [row["tp"] for row in rows(out)][::2]
    shown = command("records", "show", paths[0])
    assert (0, True) == (shown.code, "hits [counted]" in shown.out)
    exported = list(csv.DictReader(command("records", "export", out).out.splitlines()))
    assert rows(out) == exported


def test_a_sweep_is_printed_point_by_point(command: Command, out: Path) -> None:
    options = ("--capacity", "inf", "--policy", "selective", "--threshold", "0,2k")
    answer = command(*TRACE, *options, "--out", out)
    assert_fits(answer)
    assert "point 1 of 2\nmulti-turn.jsonl" in answer.out
    assert "\n\npoint 2 of 2\n" in answer.out
    assert "and 1 more\n" in answer.err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--trace", "multi-turn", "--break-even"], ["--break-even", "the prompts are those of --trace"]),
        (["--trace", "multi-turn", "--prefix", "1k", "--suffix", "1"], ["--prefix, --suffix"]),
        (["--trace", "multi-turn", "--from", "x.json"], ["--from", "--trace", "give one"]),
        (["--capacity", "1GiB"], ["--capacity", "replay of a trace", "--trace"]),
        (["--measure", "last:5%", "--eviction", "lru"], ["--eviction, --measure"]),
        (["--threshold", "0"], ["--threshold", "--trace"]),
        (["--trace", "multi-turn", "--queue", "1"], ["--queue", "no seconds", "--link or --system"]),
        (["--trace", "multi-turn", "--prefetch", "best_effort"], ["--prefetch", "--link or --system"]),
        (["--trace", "multi-turn", "--concurrency", "2"], ["--concurrency", "--link or --system"]),
        (["--trace", "multitrun"], ["did you mean 'multi-turn'"]),
        (["--trace", "gone.jsonl"], ["gone.jsonl"]),
        (["--trace", "multi-turn", "--capacity", "0"], ["--capacity 0 holds nothing"]),
        (["--trace", "multi-turn", "--capacity", "nan"], ["--capacity 'nan' is no size"]),
        (["--trace", "multi-turn", "--eviction", "lur"], ["did you mean 'lru'"]),
        (["--trace", "multi-turn", "--threshold", "-1"], ["'-1' is not a number of tokens"]),
        (["--trace", "multi-turn", "--page-tokens", "96"], ["with pages of 256 tokens only, not 96"]),
        (["--trace", "multi-turn", "--link", "rdma-8x400"], ["did you mean 'rdma-8x400g'"]),
        (["--trace", "multi-turn", "--link", "s3", "--prefetch", "x"], ["--prefetch 'x' is unknown"]),
        (["--trace", "multi-turn", "--out", "x.json"], ["x.json", "give a directory"]),
    ],
)
def test_a_mistake_is_told(command: Command, out: Path, arguments: list[str], parts: list[str]) -> None:
    where = [] if "--out" in arguments else ["--out", str(out)]
    command(*PRESET, *arguments, *where).assert_refused(2, *parts)
    assert not out.exists()


def test_a_trace_needs_a_model(command: Command) -> None:
    command("simulate", "--trace", "multi-turn").assert_refused(2, "--trace", "--preset")
