"""``--quiet``: what is no result is left out, errors stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Command

RUN = ("run", "--preset", "kitchen-sink", "--store", "count", "--tokens", "1k")
BASELINE = "results/baselines/kitchen-sink.json"


@pytest.mark.parametrize(
    "arguments",
    [
        [*RUN, "--out", "{}"],
        ["simulate", "--preset", "kitchen-sink", "--prefix", "1k", "--out", "{}"],
        ["records", "merge", BASELINE, "--out", "{}/merged.json"],
        ["keys", "--preset", "glm-5", "--hash", "ab", "--salt", "s"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_notes_are_left_out(command: Command, tmp_path: Path, arguments: list[str]) -> None:
    loud, quiet = (
        [argument.replace("{}", str(tmp_path / name)) for argument in arguments] for name in ("loud", "quiet")
    )
    for folder in ("loud", "quiet"):
        (tmp_path / folder).mkdir()
    answer = command(*loud)
    assert (0, True) == (answer.code, bool(answer.err))
    for option in ("-q", "--quiet"):
        silent = command(*(part.replace("merged", option) for part in quiet), option)
        assert (0, "") == (silent.code, silent.err)
        assert bool(answer.out) is bool(silent.out)


def test_errors_stay(command: Command, tmp_path: Path) -> None:
    command("run", "--preset", "gone", "-q").assert_refused(2, "error:", "gone")
    command("plot", "-q", tmp_path / "gone.json").assert_refused(2, "error:")


def test_the_verdict_of_a_gate_beside_json_stays(command: Command, tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    answer = command(*RUN, "--out", baseline, "--json", "-q")
    assert (0, "") == (answer.code, answer.err)
    gated = command(*RUN, "--out", tmp_path / "runs", "--gate", baseline, "--json", "-q")
    assert (0, True) == (gated.code, "pass" in gated.err)
