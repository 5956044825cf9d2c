"""Every command that the README and the docs show is run, in the order in which a page shows them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
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

# A page may show a run that takes minutes; here it is the same run, shorter.
SHORTER = {
    "roundtrip --preset all": "roundtrip --preset deepseek",
    "10m": "2s",
    "--min-time 1s": "--repeat 2",
    "--store mooncake --clients 2": "--store mooncake --clients 2 --repeat 2 --tokens 1k",
    "bench --preset deepseek-v4-flash --store mooncake ": "bench --preset kitchen-sink --store mooncake ",
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
        finished = run(command, master)
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
    command = command.replace(CLUSTER, master)
    for long, short in SHORTER.items():
        command = command.replace(long, short)
    return subprocess.run(
        ["/bin/sh", "-c", command], check=False, capture_output=True, text=True, timeout=300
    )


def test_commands_are_found() -> None:
    assert len(commands_of(ROOT / "README.md")) >= 10
