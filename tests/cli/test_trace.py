from __future__ import annotations

import json
from pathlib import Path

import pytest

from hicache_bench.trace.generate import GenerateOptions, generate
from tests.cli.command import Command


def test_a_trace_is_generated_and_shown(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    made = command(
        "trace", "generate", "--kind", "agent", "--requests", 60, "--seed", 5, "--out", path, "--json"
    )
    assert 0 == made.code
    written = json.loads(made.out)
    assert ("t.jsonl.gz", 60, True) == (written["file"], written["requests"], written["has_outputs"])
    seen = command("trace", "show", path, "--blocks", "10,all", "--json")
    assert 0 == seen.code
    figures = json.loads(seen.out)
    assert written["digest"] == figures["trace"]["digest"]
    assert [10, None] == [row["capacity_blocks"] for row in figures["hits"]]


def test_a_generated_trace_is_called_as_its_file(command: Command, tmp_path: Path) -> None:
    made = command("trace", "generate", "--requests", 3, "--out", tmp_path / "mine.jsonl")
    assert made.out.startswith("mine.jsonl: 3 requests, ")


def test_what_is_not_asked_for_is_as_the_library_has_it(command: Command, tmp_path: Path) -> None:
    made = json.loads(command("trace", "generate", "--out", tmp_path / "t.jsonl", "--json").out)
    assert generate(GenerateOptions()).digest == made["digest"]


def test_a_shipped_trace_is_shown_as_text(command: Command) -> None:
    answer = command("trace", "show", "multi-turn")
    assert (0, "") == (answer.code, answer.err)
    assert "blocks held" in answer.out


def test_a_file_is_never_overwritten(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    assert 0 == command("trace", "generate", "--requests", 3, "--out", path).code
    command("trace", "generate", "--requests", 3, "--out", path).assert_refused(2, "exists already")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "multiturn"), "did you mean 'multi-turn'?"),
        (("show", "multi-turn", "--blocks", "x"), "--blocks 'x' is no number of blocks"),
        (("show", "multi-turn", "--measure", "half"), "allowed: all, or last:P%"),
        (("show", "multi-turn", "--on-error", "ignore"), "allowed: refuse, skip"),
        (("show", "multi-turn", "--trace-block-tokens", 64), "contradicts 64 of --trace-block-tokens"),
        (("generate", "--out", "t.json"), "end it in .jsonl or .jsonl.gz"),
        (("generate", "--out", "t.jsonl", "--kind", "agnet"), "did you mean 'agent'?"),
        (("generate", "--out", "t.jsonl", "--rate", "nan"), "give a rate above 0"),
        (("generate", "--out", "t.jsonl", "--system-tokens", "0"), "system_tokens 0 cannot be generated"),
    ],
)
def test_mistakes_are_told_in_one_line(command: Command, arguments: tuple[object, ...], message: str) -> None:
    command("trace", *arguments).assert_refused(2, message)
