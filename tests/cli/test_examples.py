"""The example in the help of every command runs as typed, and ``--json`` prints what its schema says."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.main import get_command

from hicache_bench.cli.app import COMMANDS, app
from hicache_bench.cli.output_schemas import output_kinds, output_schema_text
from hicache_bench.config.catalogue import shipped_files
from hicache_bench.records.json_schema import WRITERS, schema_text
from hicache_bench.records.self_test import SelfTest
from hicache_bench.workflows.gate import SelfTested
from hicache_bench.workflows.key_inventory import Inventory, PoolInventory
from tests.cli.command import Command

ROOT = Path(__file__).parents[2]
KITCHEN_SINK = ROOT / "results" / "baselines" / "kitchen-sink.json"
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
PRINTS = {
    "run": "run", "roundtrip": "roundtrip", "simulate": "simulate", "bench": "bench", "gate": "gate",
    "records show": "run",
} | {kind.replace("-", " ", 1): kind for kind in output_kinds()}  # fmt: skip
"""What ``--json`` prints, by command."""


def leaves(commands: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in commands.items():
        inner = getattr(command, "commands", None)
        yield from [(before + name, command)] if inner is None else leaves(inner, f"{before}{name} ")


LEAVES = dict(leaves(get_command(app).commands))  # type: ignore[attr-defined]


def example_of(name: str) -> str:
    """The paragraph of the help that is the example."""
    (found,) = (part for part in str(LEAVES[name].help).split("\n\n") if part.startswith("Example: "))
    return " ".join(found.removeprefix("Example: ").split())


def has_option(name: str, option: str) -> bool:
    return any(option in parameter.opts for parameter in LEAVES[name].params)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Path:
    """A directory with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    for name in ("baselines", "runs"):
        target = tmp_path / "results" / name
        target.mkdir(parents=True)
        shutil.copy(KITCHEN_SINK, target)
    (tmp_path / "presets" / "models").mkdir(parents=True)
    shutil.copy(shipped_files()["glm-5"], tmp_path / "presets" / "models")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def test_every_command_has_an_example() -> None:
    assert len(LEAVES) >= 22
    assert {name.split()[0] for name in LEAVES} == set(COMMANDS)
    for name in LEAVES:
        assert example_of(name).startswith(f"hicache-bench {name}")


@pytest.mark.parametrize("name", LEAVES)
def test_an_example_runs_as_it_is_typed(command: Command, folder: Path, name: str) -> None:
    if name == "records merge":
        for tokens, day in (("1k", "monday"), ("2k", "tuesday")):
            arguments = ["--preset", "kitchen-sink", "--store", "count", "--tokens", tokens]
            assert 0 == command("run", *arguments, "--out", f"{day}.json").code
    words = shlex.split(example_of(name))[1:]
    if ">" in words:  # of the shell
        words = words[: words.index(">")]
    if has_option(name, "--json"):
        words.append("--json")
    answer = command(*words)
    assert 0 == answer.code, answer.err
    if answer.err:
        assert has_option(name, "--quiet")
    if has_option(name, "--json"):
        check(PRINTS[name], json.loads(answer.out))


def check(kind: str, printed: Any) -> None:
    """``run`` of several presets, and ``simulate``, print a list of records."""
    schema = json.loads(schema_text(kind) if kind in WRITERS else output_schema_text(kind))
    validator = jsonschema.Draft202012Validator(schema)
    for one in printed if kind in WRITERS and isinstance(printed, list) else [printed]:
        validator.validate(one)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("keys-describe", ["keys", "--preset", "kitchen-sink", "--describe"]),
        ("keys", ["keys", "--preset", "glm-5", "--hash", "ab", "--key-scheme", "sglang", "--json"]),
        ("records-export", ["records", "export", "results/baselines/kitchen-sink.json", "--json"]),
        ("trace-show", ["trace", "show", "multi-turn", "--blocks", "all", "--measure", "last:50%", "--json"]),
        *(("presets-show", ["presets", "show", preset, "--json"]) for preset in shipped_files()),
        ("presets-show", ["presets", "show", "qwen3-next-80b-a3b", "--json", "--draft"]),
        (
            "presets-show",
            ["presets", "show", "qwen3-32b", "--json", "--layout", "page_head", "--tp-lcm", "8"],
        ),
        ("presets-diff", ["presets", "diff", "kitchen-sink", "qwen3-next-80b-a3b", "--json"]),
    ],
    ids=lambda value: " ".join(map(str, value[:3])) if isinstance(value, list) else value,
)  # fmt: skip
def test_what_is_printed_in_other_ways(command: Command, kind: str, arguments: list[object]) -> None:
    answer = command(*arguments)
    assert 0 == answer.code, answer.err
    check(kind, json.loads(answer.out))


def test_a_bad_file_and_a_bad_record_are_printed_as_the_schema_says(command: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "bad.yaml").write_text("name: [")
    check("records-list", json.loads(command("records", "list", tmp_path, "--json").out))
    check("presets-check", json.loads(command("presets", "check", tmp_path / "bad.yaml", "--json").out))


def test_rows_of_simulate_and_of_replays_are_printed_as_the_schema_says(
    command: Command, tmp_path: Path
) -> None:
    common = ["--preset", "llama-3.1-8b", "--out", tmp_path]
    for options in (["--prefix", "8k", "--break-even"], ["--trace", "multi-turn", "--capacity", "64GiB,inf"]):
        answer = command("simulate", *common, *options, "--json")
        assert 0 == answer.code, answer.err
        kind = "replay" if "--trace" in options else "simulate"
        check(kind, json.loads(answer.out))
        for path in tmp_path.glob("*.json"):
            check("records-export", json.loads(command("records", "export", path, "--json").out))
            path.unlink()


def test_an_inventory_is_printed_as_the_schema_says() -> None:
    pool = PoolInventory(
        pool="kv", shards=1, expected_pages=2, found_pages=1, other_pages=0, expected_keys=4, found_keys=2
    )
    found = Inventory(num_pages=2, restorable_pages=1, pools=(pool,), keys_found=2, keys_asked=4)
    for hint in (None, "the keys were saved under another salt"):
        check("keys-find", json.loads(json.dumps({**asdict(found), "hint": hint})))


def test_a_self_test_is_printed_as_the_schema_says() -> None:
    tested = SelfTested(tests={"a.json": SelfTest(perturbations=2, missed=("results: gone",))})
    check("gate-self-test", json.loads(json.dumps(tested.to_dict())))


@pytest.mark.parametrize("kind", output_kinds())
def test_a_schema_can_fail(kind: str) -> None:
    """No object of it takes a field that it does not name, or lacks one that it does."""
    schema = json.loads(output_schema_text(kind))
    jsonschema.Draft202012Validator.check_schema(schema)
    closed = 0
    for node in nodes(schema):
        if node.get("type") == "object" and "properties" in node:
            closed += 1
            assert node["additionalProperties"] is False
            assert list(node["properties"]) == node["required"]
    assert closed or kind == "plot"
    validator = jsonschema.Draft202012Validator(schema)
    assert not validator.is_valid({"extra": 1})
    assert not validator.is_valid([{"extra": 1}])


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(inner)


def test_a_schema_is_printed_by_its_name(command: Command) -> None:
    for kind in output_kinds():
        answer = command("records", "schema", kind)
        assert (0, output_schema_text(kind)) == (answer.code, answer.out)
    command("records", "schema", "preset-list").assert_refused(2, "did you mean 'presets-list'?")


def test_every_json_that_is_no_record_has_a_schema() -> None:
    assert {name for name in LEAVES if has_option(name, "--json")} <= set(PRINTS)
