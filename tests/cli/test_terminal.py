"""What reaches stdout and stderr, whatever they can take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.cli.terminal import visible
from hicache_bench.config.catalogue import shipped_files
from tests.cli.command import ENTRY, Command, start

GOOD = str(shipped_files()["glm-5"])
CONTROLS = {chr(code) for code in (*range(32), *range(127, 160))} - set("\t\n")
COMMANDS = [
    ["run", "--preset", "kitchen-sink", "--tokens", "1k", "--repeat", "1"],
    ["presets", "list"],
    ["presets", "show", "deepseek"],
    ["presets", "check", GOOD],
    ["presets", "diff", "deepseek-v3", "glm-5"],
    ["presets", "schema"],
    ["keys", "--preset", "deepseek"],
    ["doctor"],
]


def answer_of(
    arguments: list[str], tmp_path: Path, *, redirected: str = "", **environment: str
) -> tuple[int, bytes, str]:
    """Exit code, stdout and stderr of a process of its own; a shell redirects it."""
    out = ["--out", str(tmp_path / "runs")] if arguments[0] in ("run", "doctor") else []
    command = [sys.executable, "-c", ENTRY, *arguments, *out]
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONUTF8", "LC_ALL")}
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirected}', "sh", *command],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**inherited, **environment},
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_stream_of_ascii_costs_no_result(arguments: list[str], tmp_path: Path) -> None:
    c_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for environment in ({"PYTHONIOENCODING": "ascii"}, c_locale):
        code, out, err = answer_of(arguments, tmp_path, **environment)
        assert (0, True) == (code, bool(out)), err
        assert "Traceback" not in err


def test_what_ascii_lacks_is_replaced_in_a_table(tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text(Path(GOOD).read_text().replace("summary: ", "summary: modèle "), encoding="utf-8")
    code, out, _ = answer_of(["presets", "show", str(preset)], tmp_path, PYTHONIOENCODING="ascii")
    assert 0 == code
    assert b"mod?le" in out
    assert out.isascii()


@pytest.mark.parametrize(
    "arguments", [*COMMANDS, ["--version"], ["roundtrip", "--preset", "glm-5"]], ids=" ".join
)
def test_a_closed_stdout_is_told_before_any_work(arguments: list[str], tmp_path: Path) -> None:
    code, _, err = answer_of(arguments, tmp_path, redirected=">&-")
    assert (2, 1) == (code, len(err.splitlines()))
    assert err.startswith("error: stdout is closed")
    assert [] == list(tmp_path.iterdir())


def test_a_closed_stderr_costs_no_result(tmp_path: Path) -> None:
    code, out, _ = answer_of(COMMANDS[0], tmp_path, redirected="2>&-")
    assert (0, True) == (code, b"checks passed" in out)
    code, out, _ = answer_of(["run", "--preset", "gone"], tmp_path, redirected="2>&-")
    assert (2, b"") == (code, out)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_piped_line_ends_with_blanks(arguments: list[str], tmp_path: Path) -> None:
    code, out, err = answer_of(arguments, tmp_path, PYTHONIOENCODING="utf-8")
    assert 0 == code, err
    assert [] == [line for line in out.decode().splitlines() if line != line.rstrip()]


# --- control characters -----------------------------------------------------------------------------------


@given(st.text() | st.text(st.sampled_from(sorted(CONTROLS | set("ab\t\n")))))
def test_visible_text_has_no_control_character_and_loses_nothing(text: str) -> None:
    shown = visible(text)
    assert not CONTROLS & set(shown)
    assert len(shown) == len(text) + 3 * sum(character in CONTROLS for character in text)
    if not CONTROLS & set(text):
        assert text == shown


def test_a_file_s_name_cannot_move_the_cursor(command: Command, tmp_path: Path) -> None:
    odd = tmp_path / "a\x1b[31m\x9bb.yaml"
    odd.write_text(Path(GOOD).read_text())
    for arguments in (
        ["presets", "check", odd],
        ["presets", "check", f"{odd}.gone"],
        ["presets", "show", f"{odd}.gone.yaml"],
        ["presets", "diff", odd, "glm-5"],
        ["keys", "--preset", "glm-5", "--prompt", odd],
        ["doctor", "--out", tmp_path / "\x1b[31m"],
        ["run", "--preset", "glm-5", "--tokens", "1k", "--store", "count", "--out", tmp_path / "\x1b[31m"],
    ):
        answer = command(*arguments)
        assert not CONTROLS & set(answer.out + answer.err)
    assert "a\\x1b[31m\\x9bb.yaml" in "".join(command("presets", "check", odd).out.split())


@pytest.mark.parametrize("field", ["summary", "source", "architecture", "revision"])
@pytest.mark.parametrize("code", ["\\e", "\\0", "\\x07", "\\r", "\\x7f", "\\x85", "\\x9b"])
def test_a_text_in_a_preset_has_none(command: Command, tmp_path: Path, field: str, code: str) -> None:
    lines = [line for line in Path(GOOD).read_text().splitlines() if not line.startswith("revision:")]
    lines.insert(5, "revision: r1")
    (number, line), *_ = ((i, line) for i, line in enumerate(lines) if line.strip().startswith(f"{field}:"))
    lines[number] = line.split(":")[0] + f': "x{code}y"'
    bad = tmp_path / "bad.yaml"
    bad.write_text("\n".join(lines))
    answer = command("presets", "check", bad)
    answer.assert_refused(2, f"bad.yaml:{number + 1}:", field, "without control characters")
    assert not CONTROLS & set(answer.err)


def on_a_terminal(*arguments: str, columns: int, **environment: str) -> bytes:
    """What a terminal of so many columns is sent."""
    reader, writer = os.openpty()
    with os.fdopen(reader, "rb", buffering=0) as screen:
        done = subprocess.run(
            [sys.executable, "-c", ENTRY, *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ, "TERM": "xterm", "COLUMNS": str(columns), **environment},
        )
        os.close(writer)
        assert 0 == done.returncode
        return screen.read(1 << 16)


def test_a_narrow_terminal_gets_whole_words() -> None:
    """It wraps lines itself; a table in 30 columns would have names of one letter a line."""
    narrow = on_a_terminal("presets", "list", columns=30, NO_COLOR="1").decode()
    assert "deepseek-v4-flash" in narrow
    assert narrow == on_a_terminal("presets", "list", columns=80, NO_COLOR="1").decode()


def test_a_terminal_gets_colours_and_still_no_foreign_sequence(tmp_path: Path) -> None:
    odd = tmp_path / "a\x1b]0;b\x07.yaml"
    odd.write_text(Path(GOOD).read_text())
    shown = on_a_terminal("presets", "check", str(odd), columns=200)
    assert b"\x1b[1m" in shown
    assert b"\x1b]" not in shown
    assert b"a\\x1b]0;b" in shown


def test_a_reader_that_stops_reading_a_table_is_no_fault() -> None:
    with start("presets", "list") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert ("", 0) == (process.stderr.read(), process.wait())


def test_a_key_is_whole_on_any_stream(tmp_path: Path) -> None:
    options = ["--key-scheme", "sglang", "--model-name", "modèle", "--hash", "ab"]
    code, out, _ = answer_of(
        ["keys", "--preset", "llama-3.1-8b", *options], tmp_path, PYTHONIOENCODING="ascii"
    )
    assert (0, True) == (code, "  modèle_ab_0_k\n" in out.decode())


def test_json_is_ascii_and_stays_json(tmp_path: Path) -> None:
    code, out, _ = answer_of(["presets", "list", "--json"], tmp_path, PYTHONIOENCODING="ascii")
    assert (0, len(shipped_files())) == (code, len(json.loads(out)))
