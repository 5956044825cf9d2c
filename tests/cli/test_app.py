from __future__ import annotations

import re
import subprocess
import sys

import pytest

import hicache_bench
from hicache_bench.cli.app import COMMANDS
from tests.cli.command import ENTRY, Command, run_apart

HEAVY = ("numpy", "pandas", "matplotlib", "mooncake", "yaml", "torch", "sglang")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["run", "presets", "doctor"]),
        (["-h"], ["run", "presets", "doctor"]),
        (["run", "--help"], ["--preset", "--tokens", "--save-policy", "--local-prefix", "--store", "--master",
                             "--key-scheme", "--json", "--out"]),
        (["presets", "--help"], ["list", "show"]),
        (["presets", "list", "--help"], ["--json"]),
        (["presets", "show", "--help"], ["--json"]),
        (["doctor", "--help"], ["--json", "--out"]),
    ],
    ids=" ".join,
)  # fmt: skip
def test_help(command: Command, arguments: list[str], words: list[str]) -> None:
    answer = command(*arguments)
    assert (0, "") == (answer.code, answer.err)
    for word in words:
        assert word in answer.out


@pytest.mark.parametrize("group", [[], ["records"], ["presets"], ["trace"]], ids=str)
def test_a_list_of_commands_cuts_no_sentence_off(
    command: Command, monkeypatch: pytest.MonkeyPatch, group: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = command(*group, "--help").out.partition("Commands:")[2].splitlines()[1:]
    assert len(listed) >= 2
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


def test_version(command: Command) -> None:
    answer = command("--version")
    assert (0, f"hicache-bench {hicache_bench.__version__}\n", "") == (answer.code, answer.out, answer.err)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", hicache_bench.__version__)


@pytest.mark.parametrize(
    "arguments", [["runn"], ["run", "--presett", "x"], ["run"], ["presets", "shows"]], ids=str
)
def test_a_command_that_does_not_exist_is_a_usage_error(command: Command, arguments: list[str]) -> None:
    command(*arguments).assert_refused(2)


def test_no_arguments_print_the_help(command: Command) -> None:
    answer = command()
    assert "doctor" in answer.out + answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["presets", "list", "--help"]], ids=str)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    script = f"""
import atexit, sys
atexit.register(lambda: print(*sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr))
{ENTRY}
"""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    assert "\n" == done.stderr


def test_errors_of_a_real_process_are_one_line() -> None:
    run_apart("run", "--preset", "deepseek", "--tokens", "eight").assert_refused(2, "'eight'", "8k")
    run_apart("run", "--presett", "deepseek").assert_refused(2, "--presett")


def test_memory_that_runs_out_is_told_in_one_line(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("hicache_bench.workflows.run.run", full)
    answer = command("run", "--preset", "kitchen-sink", "--store", "count")
    answer.assert_refused(2, "more memory than there is; use fewer tokens")


def test_a_command_imports_no_other_one() -> None:
    """Building the options of all commands would be most of a short start."""
    script = f"""
import atexit, sys
atexit.register(lambda: print(*sorted(m for m in sys.modules if m.startswith("hicache_bench.cli."))))
{ENTRY}
"""
    done = subprocess.run(
        [sys.executable, "-c", script, "doctor", "-h"], capture_output=True, text=True, check=True
    )
    others = set(COMMANDS) - {"doctor"}
    loaded = {name.rpartition(".")[2] for name in done.stdout.splitlines()[-1].split()}
    assert "doctor" in loaded
    assert not others & loaded


def test_help_has_every_command_in_order(command: Command) -> None:
    lines = command("--help").out.partition("Commands:\n")[2].splitlines()
    assert list(COMMANDS) == [line.split()[0] for line in lines]


def test_a_slip_gets_the_nearest_command(command: Command) -> None:
    command("bnech").assert_refused(2, "No such command 'bnech'. Did you mean 'bench'?")
