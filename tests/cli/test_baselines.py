"""The committed baselines are what this tree counts, and the ways to them that are written down work."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from hicache_bench.cli.gate import SUMMARY
from hicache_bench.records.gate import read_side
from hicache_bench.records.kinds import settings_of
from hicache_bench.records.thresholds import DEFAULT_THRESHOLDS
from hicache_bench.workflows.gate import GateOptions, gate_files
from tests.cli.command import Command
from tests.records.golden import FOLDER as KEPT
from tests.records.golden import golden_path
from tests.workflows.runs import PRESETS

ROOT = Path(__file__).parents[2]
BASELINES = ROOT / "results" / "baselines"
LENGTHS = "8k,128k"
PAGES = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("gate.md", "records.md")}


@pytest.fixture(autouse=True)
def no_job_on_github(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SUMMARY, raising=False)


def test_each_shipped_preset_has_a_baseline_and_nothing_else_has() -> None:
    found = {filed.name: filed.data for filed in read_side(BASELINES)}
    assert {f"{name}.json" for name in PRESETS} == set(found)
    assert {(8192, 131072)} == {
        tuple(result["tokens"] for result in data["results"]) for data in found.values()
    }
    assert {("count", "ok")} == {(data["store"], data["status"]) for data in found.values()}


@pytest.mark.slow
def test_they_are_what_this_tree_counts(command: Command, tmp_path: Path) -> None:
    answer = command(
        "run", "--preset", "all", "--store", "count", "--tokens", LENGTHS, "--gate", BASELINES,
        "--out", tmp_path,
    )  # fmt: skip
    assert 0 == answer.code, answer.out
    assert f"gate: pass ({len(PRESETS)} pass); exit code 0" in answer.out, (
        "if the change is meant: hicache-bench run --preset all --store count --tokens 8k,128k "
        "--gate results/baselines --update"
    )
    # Not one byte of noise: an update would leave every file alone.
    report = gate_files(
        GateOptions(
            baseline=copy_of(BASELINES, tmp_path / "copy"), thresholds=DEFAULT_THRESHOLDS, accepts=True
        ),
        tmp_path,
    )
    assert ((), len(PRESETS)) == (report.accepted, report.unchanged)


def copy_of(folder: Path, target: Path) -> Path:
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def test_the_own_ci_gates_all_presets() -> None:
    line = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    assert (
        f".venv/bin/hicache-bench run --preset all --store count --tokens {LENGTHS} --gate results/baselines"
        == line
    )


def commands_of(page: str) -> list[str]:
    return [
        line.removeprefix("$ ") for line in PAGES[page].splitlines() if line.startswith("$ hicache-bench ")
    ]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the pages assume it: baselines, results of a run, a preset of one's own."""
    copied = tmp_path / "results"
    copied.mkdir()
    copy_of(BASELINES, copied / "baselines")
    copy_of(BASELINES, copied / "runs")
    (tmp_path / "new.json").write_bytes((BASELINES / "kitchen-sink.json").read_bytes())
    preset = (ROOT / "presets" / "models" / "kitchen-sink.yaml").read_text()
    (tmp_path / "my-model.yaml").write_text(preset.replace("name: kitchen-sink", "name: my-model"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.slow) for page in PAGES])
def test_every_command_of_a_page_works(command: Command, workplace: Path, page: str) -> None:
    commands = commands_of(page)
    assert len(commands) >= 7
    for line in commands:
        text, _, redirected = line.partition(" > ")
        answer = command(*shlex.split(text)[1:])
        assert 0 == answer.code, (line, answer)
        if redirected:
            assert answer.out.startswith("preset,")


def test_the_page_of_records_names_every_file_that_a_change_touches() -> None:
    (loop,) = re.findall(r"for kind in ([\w ]+);", PAGES["records.md"])
    schemas = ROOT / "hicache_bench" / "records" / "schemas"
    assert sorted(loop.split()) == sorted({path.name.partition(".")[0] for path in schemas.iterdir()})
    assert all(golden_path(path.name.partition(".")[0]).exists() for path in KEPT.iterdir())


def test_the_excerpt_in_the_page_is_what_a_gate_prints() -> None:
    printed = (ROOT / "tests" / "golden" / "outputs" / "gate-regressed.txt").read_text()
    (excerpt,) = re.findall(r"```text\n(.*?)```", PAGES["gate.md"], flags=re.DOTALL)
    assert [line for line in excerpt.splitlines() if line not in printed.splitlines()] == []


def action() -> dict:
    return yaml.safe_load((ROOT / "action.yml").read_text())  # type: ignore[no-any-return]


def test_the_action_passes_every_input_on_as_environment() -> None:
    steps = action()["runs"]["steps"]
    for step in steps:
        assert "${{" not in step.get("run", "")
    used = {
        name for step in steps for text in {**step.get("env", {}), **step.get("with", {})}.values()
        for name in re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", text)
    }  # fmt: skip
    assert set(action()["inputs"]) == used


def test_the_workflow_that_is_shown_uses_inputs_that_exist() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGES["gate.md"], flags=re.DOTALL)
    assert len(text.splitlines()) <= 10
    (job,) = yaml.safe_load(text)["jobs"].values()
    assert set(job["steps"][1]["with"]) <= set(action()["inputs"])


@pytest.mark.slow
@pytest.mark.parametrize(("change", "code"), [(None, 0), ("calls", 1)])
def test_the_last_step_of_the_action_gates(workplace: Path, change: str | None, code: int) -> None:
    """What bash makes of it, with the tool of this environment where the action has installed its own."""
    step = action()["runs"]["steps"][-1]
    if change:
        path = workplace / "results" / "baselines" / "kitchen-sink.json"
        text = path.read_text()
        path.write_text(
            re.sub(r'"store_calls": ([0-9]+)', lambda found: f'"store_calls": {int(found[1]) - 1}', text)
        )
        assert text != path.read_text()
    binary = workplace / "hicache-bench" / "bin"
    binary.mkdir(parents=True)
    (binary / "hicache-bench").symlink_to(ROOT / ".venv" / "bin" / "hicache-bench")
    environment = {
        "RUNNER_TEMP": str(workplace), "PATH": "/usr/bin:/bin", "PRESET": "kitchen-sink", "TOKENS": LENGTHS,
        "BASELINE": "results/baselines", "MAX_REGRESSION": "bytes=0%", "STRICT": "true",
        "ARGUMENTS": "--tp=1\n\n--save-policy=state=every:4096,window=all\n",
        SUMMARY: str(workplace / "summary.md"),
    }  # fmt: skip
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(bash, env=environment, capture_output=True, text=True, check=False)
    assert code == done.returncode, done.stdout + done.stderr
    assert "## hicache-bench gate" in (workplace / "summary.md").read_text()
    assert ("::error title=kitchen-sink%3A regressed" in done.stderr) == bool(change)


def test_settings_of_baselines_are_all_different() -> None:
    settings = [repr(settings_of(filed.data)) for filed in read_side(BASELINES)]
    assert len(settings) == len(set(settings))
