from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from hicache_bench.records.io import load_record, read_record
from tests.cli.command import Answer, Command


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results"


def files(out: Path, suffix: str) -> list[Path]:
    return sorted(path for path in out.iterdir() if path.suffix == suffix)


def rows(out: Path) -> list[dict[str, str]]:
    (table,) = files(out, ".csv")
    with table.open() as file:
        return list(csv.DictReader(file))


def assert_fits(answer: Answer) -> None:
    assert max(map(len, answer.out.splitlines())) <= 80


def test_the_table_of_one_preset(command: Command, out: Path) -> None:
    answer = command("simulate", "--preset", "deepseek-v3", "--link", "rdma-8x400g", "--out", out)
    assert 0 == answer.code
    assert_fits(answer)
    for text in (
        "deepseek-v3 on h200: 8 ranks (TP 8); L3 over rdma-8x400g", "1k + 512 tokens", "128k + 512 tokens",
        "recompute", "[modeled]", "[counted]", "[assumed]", "fit of 4 lengths on 8 GPUs, max error 0.1%",
        "timeout 1 s + 0.25 s per 1,024 tokens", "aiconfigurator",
    ):  # fmt: skip
        assert text in answer.out
    assert "…" not in answer.out  # nothing was cut to fit
    records = files(out, ".json")
    assert 4 == len(records)
    assert f"record: {records[0]} and 3 more\n" in answer.err
    assert [1024, 8192, 32768, 131072] == [load_record(path).prefix_tokens for path in records]
    assert 16 == len(rows(out))
    assert str(out) not in records[0].read_text()


def test_a_sweep_is_a_record_a_point_and_a_tidy_table(command: Command, out: Path) -> None:
    arguments = "--prefix 1k,8k --concurrency 1,4 --link s3,tcp-25gbe --policy dense,selective"
    answer = command("simulate", "--preset", "gpt-oss-120b", *arguments.split(), "--out", out)
    assert 0 == answer.code
    found = rows(out)
    assert (8, 24) == (len(files(out, ".json")), len(found))
    assert {"recompute", "dense", "selective"} == {row["policy"] for row in found}
    assert 24 == len(
        {(row["link"], row["prefix_tokens"], row["concurrency"], row["policy"]) for row in found}
    )
    first = load_record(files(out, ".json")[0])
    assert float(found[1]["ttft_no_overlap"]) == first.policies[0].ttft.no_overlap
    assert all(row["ttft_low"] for row in found)


def test_json_is_the_records_on_disk(command: Command, out: Path) -> None:
    answer = command("simulate", "--preset", "llama-3.1-8b", "--prefix", "1k,2k", "--json", "--out", out)
    assert [read_record(path) for path in files(out, ".json")] == json.loads(answer.out)


def test_a_cut_is_told(command: Command, out: Path) -> None:
    arguments = "--link tcp-25gbe --prefix 128k --concurrency 8 --prefetch-profile sglang-main"
    answer = command("simulate", "--preset", "gpt-oss", *arguments.split(), "--out", out)
    assert_fits(answer)
    for text in (
        "dense: cut: 7 of 16 calls of a rank and 896 pages landed",
        "hit 131,072, fulfilled 57,344, used 57,344 tokens; 73,728 not used (timeout)",
        "not cut from", "landed in vain", "8 equal requests share the link", "at most 30 s",
    ):  # fmt: skip
        assert text in answer.out


def test_break_even(command: Command, out: Path) -> None:
    arguments = "--system a800,h800 --prefix 8k --break-even"
    answer = command("simulate", "--preset", "llama-3.1-70b", *arguments.split(), "--out", out)
    assert_fits(answer)
    for text in ("5.86", "18.6", "eq. 2", "speed-up over recomputing by GB/s", "no fit of this model"):
        assert text in answer.out
    assert "5859" == rows(out)[1]["break_even_at_peak"][:4]


def test_from_a_record(command: Command, out: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    command("run", "--preset", "kitchen-sink", "--tokens", "1k,2k", "--store", "count", "--out", runs)
    (record,) = runs.iterdir()
    answer = command("simulate", "--from", record, "--link", "s3", "--system", "h100", "--out", out)
    assert 0 == answer.code
    assert f"bytes of the record {record.name} [counted]" in " ".join(answer.out.split())
    assert [1024, 2048] == [load_record(path).prefix_tokens for path in files(out, ".json")]
    refused = command("simulate", "--from", record, "--tp", "2", "--kv-dtype", "fp8", "--out", out)
    refused.assert_refused(2, "--tp, --kv-dtype", "use --preset")


def test_options_of_a_variant_reach_the_plan(command: Command, out: Path) -> None:
    arguments = "--prefix 1k --kv-dtype fp8 --page-tokens 16,32 --tp 1,2 --pp 2 --save-policy state=last"
    command("simulate", "--preset", "qwen3-next", *arguments.split(), "--out", out)
    found = [load_record(path) for path in files(out, ".json")]
    assert [(1, 16), (1, 32), (2, 16), (2, 32)] == [
        (record.deployment["tp"], record.preset["page_tokens"]) for record in found
    ]
    assert {("fp8", 2, "state=last,window=all")} == {
        (record.preset["kv_dtype"], record.deployment["pp"], record.save_policy) for record in found
    }


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--link", "rdma-8x400"], ["no link is named 'rdma-8x400'", "did you mean 'rdma-8x400g'"]),
        (["--system", "h20"], ["no system is named 'h20'", "did you mean 'h200'"]),
        (["--preset", "lama-3.1-8b"], ["did you mean 'llama-3.1-8b'"]),
        (["--prefix", "63"], ["a prefix of 63 tokens is shorter than a page of 64"]),
        (["--prefix", "1k,,2k"], ["--prefix", "empty value"]),
        (["--suffix", "0"], ["--suffix 0", "at least 1"]),
        (["--suffix", "nan"], ["'nan' is not a number of tokens", "8192"]),
        (["--concurrency", "0"], ["--concurrency '0'", "at least 1"]),
        (["--queue", "-1"], ["'-1' is not a duration"]),
        (["--policy", "dens"], ["did you mean 'dense'"]),
        (["--prefetch", "best"], ["--prefetch 'best' is unknown", "best_effort"]),
        (["--prefetch-profile", "sglang"], ["--prefetch-profile 'sglang' is unknown", "sglang-main"]),
        (["--local-prefix", "256k"], ["--local-prefix 262,144 is longer than --prefix 1,024"]),
        (["--tp", "3"], ["3"]),
        (["--hidden-size", "0"], ["--hidden-size '0'"]),
        (["--active-parameters", "inf"], ["--active-parameters 'inf'"]),
        (["--link", "measured:gone.json"], ["gone.json: no such file", "a record of bench"]),
        (["--from", "gone.json"], ["--preset", "--from", "not both"]),
        (["--out", "x.json"], ["x.json", "give a directory"]),
    ],
)
def test_a_mistake_is_told(command: Command, out: Path, arguments: list[str], parts: list[str]) -> None:
    preset = [] if arguments[0] == "--preset" else ["--preset", "llama-3.1-8b"]
    where = [] if arguments[0] == "--out" else ["--out", str(out)]
    command("simulate", *preset, "--prefix", "1k", *arguments, *where).assert_refused(2, *parts)
    assert not out.exists()


def test_neither_preset_nor_record(command: Command) -> None:
    command("simulate").assert_refused(2, "--preset", "--from")


def test_links_and_systems_are_listed(command: Command) -> None:
    for what, name in (("links", "efa-p5en"), ("systems", "h200")):
        answer = command("presets", what)
        assert_fits(answer)
        assert name in answer.out
        assert name in {entry["name"] for entry in json.loads(command("presets", what, "--json").out)}
