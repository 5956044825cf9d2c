"""Every command that the README and the docs show is run, in the order in which a page shows them.

What two pages show, or one page twice, is run once: each page gets what it said and the files that it made.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Their commands need the project's baselines: tests/cli/test_baselines.py runs them.
ELSEWHERE = {"gate", "records"}
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.stem not in ELSEWHERE),
]
CLUSTER = "10.0.0.5:50051"
_BLOCK = re.compile(r"^```console\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)

# A page may show a run that takes minutes; here it is the same run, shorter. Patterns, in this order.
SHORTER = {
    "roundtrip --preset all": "roundtrip --preset deepseek",
    "10m": "2s",
    "--min-time 1s": "--repeat 2",
    "--store mooncake --clients 2": "--store mooncake --clients 2 --repeat 2 --tokens 1k",
    "--tokens 2k --warm": "--tokens 2k --warm --repeat 2",
    "bench --preset deepseek-v4-flash --store mooncake ": "bench --preset kitchen-sink --store mooncake ",
    "bench --preset deepseek-v4-flash --store mooncake$": r"\g<0> --min-time 0.1s",
    "--faults all --injections 10000": "--faults flipped-bit --injections 50",
    "--faults all --store mooncake": "--faults calls-after-close --store mooncake",
}

# Records that a page takes from an earlier day.
MADE_BEFORE = {
    "runs/run.json": "hicache-bench run --preset kitchen-sink --tokens 1k --out results/runs/run.json",
    "runs/bench.json": "hicache-bench bench --preset kitchen-sink --tokens 1k --store mooncake --repeat 6 "
    "--out results/runs/bench.json",
}

# Nothing in a new cluster is of that prompt, and the command says so with its exit code.
FINDS_NOTHING = 1

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "max_position_embeddings": 131072,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "torch_dtype": "bfloat16",
    "vocab_size": 32000,
}


def commands_of(page: Path) -> list[str]:
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("$ hicache-bench")]
    commands = [line.removeprefix("$ ").split("  #")[0].strip() for line in lines]
    # All figures anew take half a minute: tests/report/plots/test_documents.py does that.
    return [command for command in commands if command != "hicache-bench plot --docs"]


def page_id(page: Path) -> str:
    return "-".join(page.relative_to(ROOT).with_suffix("").parts)


def pages(*, of_the_real_store: bool) -> list[Path]:
    found = [page for page in PAGES if commands_of(page)]
    texts = {page: " ".join(commands_of(page)) for page in found}
    return [
        page
        for page, text in texts.items()
        if bool(re.search("mooncake|bench.json", text)) == of_the_real_store
    ]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which a reader of any page may be: a model, a prompt, the project's baselines."""
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "models" / "mine" / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "ids.json").write_text(json.dumps(list(range(256))))
    shutil.copytree(ROOT / "results" / "baselines", tmp_path / "results" / "baselines")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.chdir(tmp_path)
    run("hicache-bench presets import models/mine/config.json -o my-model.yaml")
    return tmp_path


def check_page(page: Path, master: str = "") -> None:
    commands = commands_of(page)
    for name, command in MADE_BEFORE.items():
        if any(name in shown for shown in commands):
            commands.insert(0, command)
    for command in commands:
        finished = run_once(command, master)
        allowed = {0, FINDS_NOTHING} if "--find" in command else {0}
        assert finished.returncode in allowed, f"{command}\n{finished.stdout}\n{finished.stderr}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", pages(of_the_real_store=False), ids=page_id)
@pytest.mark.usefixtures("reader")
def test_every_command_works(page: Path) -> None:
    check_page(page)


def run(command: str, master: str = "") -> subprocess.CompletedProcess[str]:
    """What a reader's shell does with it."""
    command = shortened(command.replace(CLUSTER, master))
    return subprocess.run(
        ["/bin/sh", "-c", command], check=False, capture_output=True, text=True, timeout=300
    )


def shortened(command: str) -> str:
    for long, short in SHORTER.items():
        command = re.sub(long, short, command)
    return command


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that was run, and what it left in the reader's directory."""

    finished: subprocess.CompletedProcess[str]
    files: Mapping[Path, bytes]


RAN: dict[str, Ran] = {}
"""Commands of which every page's run is the same."""


def run_once(command: str, master: str) -> subprocess.CompletedProcess[str]:
    """Run a command, or do what it did when another page showed it."""
    if depends_on_its_page(command):
        return run(command, master)
    known = RAN.get(command)
    before = files_here()
    if known is None:
        finished = run(command, master)
        RAN[command] = Ran(finished, {path: path.read_bytes() for path in files_here() - before})
        return finished
    for path, content in known.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return known.finished


def depends_on_its_page(command: str) -> bool:
    """Whether it may find something that another page's reader or cluster does not have."""
    words = re.split(r"[\s=,:]+", command)
    return "/" in command or CLUSTER in command or any(Path(word).exists() for word in words)


def files_here() -> set[Path]:
    return {path for path in Path().rglob("*") if path.is_file()}


class TestOnce:
    @pytest.fixture
    def asked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Commands that were run; each leaves a file, and fails."""
        asked: list[str] = []

        def runs(command: str, master: str = "") -> subprocess.CompletedProcess[str]:
            asked.append(command)
            Path("made").mkdir(exist_ok=True)
            (Path("made") / str(len(asked))).write_text(command)
            return subprocess.CompletedProcess(command, 7, "said", "told")

        monkeypatch.setitem(globals(), "run", runs)
        monkeypatch.setitem(globals(), "RAN", {})
        self.go_to(tmp_path / "first", monkeypatch)
        return asked

    @staticmethod
    def go_to(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        page.mkdir()
        monkeypatch.chdir(page)

    def test_two_pages_get_what_one_run_made(
        self, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = run_once("hicache-bench doctor", "")
        self.go_to(tmp_path / "second", monkeypatch)
        second = run_once("hicache-bench doctor", "")
        assert ["hicache-bench doctor"] == asked
        assert first == second
        assert (7, "said", "told") == (second.returncode, second.stdout, second.stderr)
        assert {Path("made/1")} == files_here()
        assert "hicache-bench doctor" == Path("made/1").read_text()

    @pytest.mark.parametrize(
        "command",
        [
            "run --preset mine.yaml --json",
            "simulate --link measured:mine.yaml",
            "plot results/runs",
            "presets import ~/models/mine/config.json",
            f"run --master {CLUSTER}",
        ],
    )
    def test_what_may_find_something_else_is_run_again(self, asked: list[str], command: str) -> None:
        Path("mine.yaml").touch()
        run_once(command, "")
        run_once(command, "")
        assert [command] * 2 == asked

    def test_a_page_whose_command_failed_elsewhere_fails_too(self, asked: list[str], tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text("```console\n$ hicache-bench doctor\n```\n")
        for _ in range(2):
            with pytest.raises(AssertionError, match=r"hicache-bench doctor\s+said\s+told"):
                check_page(page)
        assert ["hicache-bench doctor"] == asked


@pytest.mark.parametrize(
    ("shown", "is_run"),
    [
        (
            "bench --preset deepseek-v4-flash --store mooncake",
            "bench --preset deepseek-v4-flash --store mooncake --min-time 0.1s",
        ),
        (
            "bench --preset deepseek-v4-flash --store mooncake --min-time 1s",
            "bench --preset kitchen-sink --store mooncake --repeat 2",
        ),
        ("roundtrip --soak 10m --seed 7", "roundtrip --soak 2s --seed 7"),
    ],
)
def test_a_long_run_is_made_shorter(shown: str, is_run: str) -> None:
    assert is_run == shortened(shown)


def test_commands_are_found() -> None:
    assert len(commands_of(ROOT / "README.md")) >= 10
