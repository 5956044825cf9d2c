"""Variants of a preset on the command line of ``run``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hicache_bench.records.io import read_record
from tests.cli.command import Command

RUN = ("run", "--store", "count", "--tokens", "1k")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_every_option_reaches_the_deployment(command: Command, out: Path) -> None:
    options = (
        "--preset deepseek-v3.2 --tp 4 --pp 2 --cp 2:replicated --kv-dtype fp8-packed --page-tokens 64 "
        "--layout page_first_direct --draft --key-scheme sglang --model-name org/model "
        "--extra-backend-tag blue --adapter law --json"
    )
    answer = command(*RUN, *options.split(), "--out", out)
    assert 0 == answer.code, answer.err
    record = json.loads(answer.out)
    assert {
        "tp": 4, "pp": 2, "cp": 2, "cp_sharded": False, "dcp": 1, "tp_lcm": None,
        "layout": "page_first_direct", "draft": True,
    } == record["deployment"]  # fmt: skip
    assert ("sglang", "org/model", "blue") == tuple(
        record[name] for name in ("key_scheme", "model_name", "extra_backend_tag")
    )
    assert (64, "fp8_packed") == (record["preset"]["page_tokens"], record["preset"]["kv_dtype"])
    (result,) = record["results"]
    assert 16 == len(result["ranks"])
    # Stages of 30 and 31 layers; the draft layer is packed behind the last one. 656 B a row.
    assert [("kv", 656 * 30), ("indexer", 132 * 30), ("kv", 656 * 32), ("indexer", 132 * 32)] == [
        (pool["name"], pool["unit_bytes"] // 64) for pool in record["pools"]
    ]
    assert {8} == {len(pool["ranks"]) for pool in record["pools"]}
    assert all(check["passed"] for check in result["checks"])


def test_dtypes_of_states_and_index_and_the_profile(command: Command, out: Path) -> None:
    def unit_bytes(preset: str, *options: str) -> dict[str, int]:
        record = json.loads(command(*RUN, "--preset", preset, *options, "--json", "--out", out).out)
        return {pool["name"]: pool["unit_bytes"] for pool in record["pools"]}

    plain, halved = (unit_bytes("qwen3-next", *options) for options in ((), ("--state-dtype", "bf16")))
    assert plain["kv"] == halved["kv"]
    assert 75_497_472 // 2 == plain["mamba"] - halved["mamba"]
    ideal = ("--profile", "by_kind")
    fp8, fp4 = (
        unit_bytes("deepseek-v3.2", *ideal, "--index-dtype", dtype)["indexer"] for dtype in ("fp8", "fp4")
    )
    assert 132 * fp4 == 68 * fp8
    assert {"kv", "swa"} == set(unit_bytes("gemma-3-27b", "--profile", "by_kind"))
    assert {"kv"} == set(unit_bytes("gemma-3-27b"))


@pytest.mark.parametrize("given", [["--salt", "hunter2/x"], ["--salt=hunter2/x"]])
def test_a_salt_is_printed_nowhere(command: Command, out: Path, given: list[str]) -> None:
    answer = command(*RUN, "--preset", "deepseek", *given, "--json", "--out", out)
    assert 0 == answer.code
    (path,) = out.iterdir()
    assert "hunter2" not in answer.out + answer.err + path.read_text()
    record = read_record(path)
    assert 16 == len(record["salt"])
    assert "SALT" in " ".join(record["command"])


def test_heads_that_other_tp_sizes_share(command: Command, out: Path) -> None:
    options = "--preset llama-3.1-8b --tp 2 --tp-lcm 8 --layout page_head --json"
    record = json.loads(command(*RUN, *options.split(), "--out", out).out)
    (pool,) = record["pools"]
    # 4 heads a rank, each an object of K and one of V.
    assert (8, 8, "page_head") == (pool["unit_objects"], record["deployment"]["tp_lcm"], pool["layout"])
    assert {8_388_608 // 16} == set(pool["object_bytes"].values())
    assert 16 * 8 * 2 == record["results"][0]["stored"]["objects"]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ("--preset deepseek --page-tokens 64", ["pages of 256 tokens only, not 64"]),
        ("--preset deepseek --kv-dtype bf16", ["use --kv-dtype fp8"]),
        ("--preset qwen3-next --layout layer_first", ["layer_first", "'mamba'", "page_first"]),
        ("--preset llama-3.1-8b --tp 3", ["8 KV heads", "TP 3"]),
        ("--preset qwen3-235b-a22b --tp 6", ["4 KV heads", "TP 6"]),
        ("--preset llama-3.1-8b --cp 8", ["8:sharded", "8:replicated"]),
        ("--preset llama-3.1-8b --cp 0:sharded", ["'0:sharded'", "8:sharded"]),
        ("--preset llama-3.1-8b --cp 8:sharded", ["--cp N:replicated", "--profile by_kind"]),
        ("--preset llama-3.1-8b --cp 3:sharded --profile by_kind", ["64 tokens", "3", "page size"]),
        ("--preset llama-3.1-8b --tp 2 --dcp 2", ["pool 'kv'", "use --dcp 1"]),
        ("--preset deepseek-v3 --tp 2 --dcp 3", ["DCP 3 does not divide TP 2"]),
        ("--preset llama-3.1-8b --tp 2 --tp-lcm 4", ["use --layout page_head"]),
        ("--preset llama-3.1-8b --tp 2 --tp-lcm 3 --layout page_head", ["--tp-lcm 3", "multiple of TP 2"]),
        (
            "--preset qwen3-235b-a22b --tp 4 --tp-lcm 8 --layout page_head",
            ["into 2 objects", "allowed here: 4"],
        ),
        ("--preset llama-3.1-8b --tp 2 --tp-lcm 32 --layout page_head", ["allowed here: 2, 4, 8"]),
        ("--preset deepseek-v3 --layout page_head", ["page_head", "'kv'", "use page_first"]),
        ("--preset minimax-m3 --pp 2", ["one pipeline stage", "use --pp 1"]),
        ("--preset llama-3.1-8b --pp 64", ["32 layers cannot fill 64 pipeline stages"]),
        ("--preset llama-3.1-8b --tp 8192", ["8,192 workers", "4,096 allowed"]),
        ("--preset llama-3.1-8b --tp 0", ["--tp"]),
        ("--preset llama-3.1-8b --pp -1", ["--pp"]),
        ("--preset llama-3.1-8b --kv-dtype int3", ["'int3'", "bf16", "fp8-scaled, fp8-packed"]),
        ("--preset llama-3.1-8b --kv-dtype fp8_packed", ["fp8-packed is a format of MLA rows", "fp8-scaled"]),
        ("--preset deepseek-v3 --kv-dtype fp8_scaled", ["fp8-scaled is a format of K and V", "fp8-packed"]),
        ("--preset deepseek --kv-dtype fp8_packed", ["fp8 instead of fp8-packed"]),
        ("--preset deepseek-v3 --state-dtype bf16", ["--state-dtype", "'deepseek-v3'", "leave it out"]),
        ("--preset deepseek-v3 --index-dtype fp4", ["--index-dtype", "'deepseek-v3'", "leave it out"]),
        ("--preset minimax-m3 --index-dtype fp4", ["--index-dtype", "leave it out"]),
        ("--preset jamba --profile sglang-0.5.23", ["no engine serves", "use --profile by_kind"]),
        ("--preset jamba --key-scheme sglang", ["no engine serves", "use --key-scheme namespaced"]),
        ("--preset llama-3.1-8b --page-tokens 16777217", ["--page-tokens 16777217", "1 to 16,777,216"]),
        ("--preset llama-3.1-8b --cp 2:", ["use 2:sharded", "2:replicated"]),
        (f"--preset llama-3.1-8b --cp {'9' * 5000}:sharded", ["is not a number of ranks", "4,096"]),
        ("--preset llama-3.1-8b --salt a\x1b[31m", ["--salt", "control character '\\x1b' at position 2"]),
        ("--preset llama-3.1-8b --adapter \x9b31m", ["--adapter", "control character '\\x9b' at position 1"]),
        (
            "--preset llama-3.1-8b --key-scheme sglang --model-name a\x7f",
            ["--model-name", "control character '\\x7f'"],
        ),
        (
            "--preset llama-3.1-8b --key-scheme sglang --extra-backend-tag a\x1b]0;b\x07",
            ["--extra-backend-tag", "control character '\\x1b'"],
        ),
        ("--preset llama-3.1-8b --state-dtype int3", ["--state-dtype", "'int3'"]),
        ("--preset deepseek-v3.2 --index-dtype bf16", ["--index-dtype", "fp8, fp4"]),
        ("--preset llama-3.1-8b --profile vllm", ["'vllm'", "sglang-0.5.23, by_kind"]),
        ("--preset llama-3.1-8b --draft", ["no draft layers", "leave --draft out"]),
        ("--preset llama-3.1-8b --key-scheme sg", ["'sg'", "namespaced, sglang"]),
        ("--preset llama-3.1-8b --model-name x", ["--model-name", "--key-scheme sglang"]),
        ("--preset llama-3.1-8b --extra-backend-tag x", ["--extra-backend-tag", "--key-scheme sglang"]),
        (
            "--preset deepseek-v3 --cp 8:sharded --profile by_kind --key-scheme sglang",
            ["no key for pool 'kv'", "use --key-scheme namespaced"],
        ),
        (
            "--preset deepseek-v3.2 --cp 2:sharded --profile by_kind --queries 1",
            ["--queries", "--cp N:replicated"],
        ),
    ],
)
def test_what_cannot_be_deployed_is_refused(
    command: Command, out: Path, options: str, parts: list[str]
) -> None:
    answer = command(*RUN, *options.split(), "--out", out)
    answer.assert_refused(2, *parts)
    assert not out.exists()
    if answer.err.startswith("error:"):
        assert 1 == len(answer.err.splitlines())
