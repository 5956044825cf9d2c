from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
import yaml

from hicache_bench.config.catalogue import list_presets, shipped_files
from hicache_bench.config.load import load_model
from tests.cli.command import Command
from tests.workflows.test_preset_import import QWEN3_NEXT

LLAMA = shipped_files()["llama-3.1-8b"]
GOOD, NEXT = str(LLAMA), str(shipped_files()["qwen3-next-80b-a3b"])


def give(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Put ``content`` on standard input."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN3_NEXT))
    return path


# --- list and show ----------------------------------------------------------------------------------------


def test_list(command: Command) -> None:
    answer = command("presets", "list")
    assert (0, "") == (answer.code, answer.err)
    assert all(preset.name in answer.out for preset in list_presets())
    assert widest(answer.out) <= 80


def test_list_as_json(command: Command) -> None:
    answer = command("presets", "list", "--json")
    assert [preset.name for preset in list_presets()] == [preset["name"] for preset in json.loads(answer.out)]


def test_list_loads_no_arrays_and_no_models() -> None:
    """What keeps it quick: half a second for the whole process is the bound."""
    program = (
        "import sys; from hicache_bench.cli.app import app; app(['presets', 'list'], standalone_mode=False);"
        "print(sorted({'numpy', 'hicache_bench.config.schema'} & set(sys.modules)), file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[]" == answer.stderr.strip()
    assert "deepseek-v3" in answer.stdout


def test_show(command: Command) -> None:
    answer = command("presets", "show", "deepseek")
    assert (0, "") == (answer.code, answer.err)
    assert "3,899.25 B" in answer.out
    assert "8,160,000 B" in answer.out
    assert widest(answer.out) <= 80


def test_show_as_json(command: Command) -> None:
    data = json.loads(command("presets", "show", "llama-3.1-8b", "--json").out)
    assert (64, 8_388_608) == (data["page_tokens"], data["pools"][0]["unit_bytes"])
    assert {"tokens": 32768, "stored": 4 << 30, "hit_policy": 4 << 30, "selective": 4 << 30} in data["bytes"]
    numbers = {"bytes_per_token": 131_072, "fixed_bytes": 0}
    assert {"hit_policy": numbers, "selective": numbers} == data["cluster"] == data["largest_rank"]
    assert {"sglang-0.5.23", "by_kind"} == set(data["profiles"]["bytes"])


def test_show_takes_a_variant(command: Command) -> None:
    options = ("--tp", 8, "--kv-dtype", "fp8", "--key-scheme", "sglang")
    data = json.loads(command("presets", "show", "qwen3-235b-a22b", *options, "--json").out)
    assert (8, "fp8", "sglang") == (data["deployment"]["ranks"], data["kv_dtype"], data["key_scheme"])
    assert 192_512 == data["cluster"]["hit_policy"]["bytes_per_token"]
    assert "<page hash>_0_k" == data["pools"][0]["objects"][0]["key"]


def test_what_the_engine_refuses_is_refused(command: Command) -> None:
    command("presets", "show", "deepseek", "--page-tokens", 64).assert_refused(2, "256")
    command("presets", "show", "llama-3.1-8b", "--layout", "layer_first").assert_refused(2, "layer_first")


def test_a_name_that_is_nearly_right_gets_the_right_one(command: Command) -> None:
    answer = command("presets", "show", "lama-3.1-8b")
    answer.assert_refused(2, "no preset is named 'lama-3.1-8b'", "did you mean", "llama-3.1-8b")


def test_a_file_of_ones_own(command: Command, tmp_path: Path) -> None:
    source = shipped_files()["kitchen-sink"]
    mine = tmp_path / "mine.yaml"
    mine.write_text(source.read_text().replace("name: kitchen-sink", "name: mine"))
    assert "mine" == json.loads(command("presets", "show", mine, "--json").out)["name"]
    command("presets", "show", tmp_path / "gone.yaml").assert_refused(2, "gone.yaml")


# --- check ------------------------------------------------------------------------------------------------


def test_check_good_files(command: Command) -> None:
    answer = command("presets", "check", GOOD, NEXT)
    assert (0, "") == (answer.code, answer.err)
    assert "8,388,608" in answer.out
    assert "78,839,808" in answer.out


def test_check_tells_everything_that_is_bad(command: Command, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(LLAMA.read_text().replace("kv_heads: 8", "kv_heads: 0"))
    gone = tmp_path / "gone.yaml"
    answer = command("presets", "check", bad, GOOD, gone)
    assert 2 == answer.code
    assert "8,388,608" in answer.out
    assert "bad.yaml" not in answer.out
    assert "bad.yaml:" in answer.err
    assert "kv_heads: given 0" in answer.err
    assert "gone.yaml: no such file" in answer.err
    assert "2 of 3 files bad" in answer.err
    assert 1 == answer.err.count("error:")


def test_check_names_a_component_without_a_key(command: Command, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    extra = "conv_kernel: 4\n    extra: [{name: history, shape: [2], dtype: int64}]\n"
    bad.write_text(shipped_files()["qwen3-next-80b-a3b"].read_text().replace("conv_kernel: 4\n", extra))
    command("presets", "check", bad).assert_refused(2, "SGLang has no key", "history")


def test_check_as_json(command: Command, tmp_path: Path) -> None:
    answer = command("presets", "check", GOOD, tmp_path, "--json")
    assert 2 == answer.code
    assert [True, False] == [entry["ok"] for entry in json.loads(answer.out)]


def test_check_reads_standard_input(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, LLAMA.read_bytes())
    answer = command("presets", "check", "-")
    assert (0, True) == (answer.code, "standard input" in answer.out)
    give(monkeypatch, b"schema: 1\n")
    command("presets", "check", "-").assert_refused(2, "standard input has", "missing")


def test_check_wants_a_file(command: Command, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command("presets", "check").assert_refused(2, "'files'")
    command("presets", "check", fifo).assert_refused(2, "it is a pipe")
    command("presets", "check", "/dev/zero").assert_refused(2, "larger than")


# --- diff -------------------------------------------------------------------------------------------------


def test_diff(command: Command) -> None:
    answer = command("presets", "diff", "llama-3.1-8b", "gpt-oss")
    assert (0, "") == (answer.code, answer.err)
    assert ["full.head_dim", "128", "64"] in [line.split() for line in answer.out.splitlines()]
    assert widest(answer.out) <= 80
    same = command("presets", "diff", "deepseek", "deepseek-v4-flash")
    assert (0, True) == (same.code, same.out.startswith("no difference"))


def test_diff_as_json(command: Command) -> None:
    data = json.loads(command("presets", "diff", "deepseek-v3", "deepseek-v3.2", "--json").out)
    assert ["deepseek-v3", "deepseek-v3.2"] == data["presets"]
    rows = {(row["section"], row["field"]): (row["first"], row["second"]) for row in data["differences"]}
    assert (None, 515_328) == rows["pool", "indexer bytes of a page"]
    same = json.loads(command("presets", "diff", "deepseek", "deepseek", "--json").out)
    assert [] == same["differences"]


def test_a_diff_of_equal_names_tells_the_files_apart(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(LLAMA.read_text().replace("head_dim: 128", "head_dim: 64"))
    heading = command("presets", "diff", "llama-3.1-8b", "mine.yaml").out.split("───")[0]
    assert "(llama-3.1-8b)" in heading
    assert "llama-3.1-8b (mine.yaml)" in heading


def test_diff_of_a_name_that_is_none(command: Command) -> None:
    command("presets", "diff", "deepseek", "nothing-of-the-kind").assert_refused(2, "no preset is named")


# --- import -----------------------------------------------------------------------------------------------


def test_import_prints_a_preset_that_can_be_shown(command: Command, config: Path, tmp_path: Path) -> None:
    answer = command("presets", "import", config, "--name", "mine")
    assert 0 == answer.code
    mine = tmp_path / "mine.yaml"
    mine.write_text(answer.out)
    shown = json.loads(command("presets", "show", mine, "--json").out)
    assert 77_266_944 == shown["cluster"]["hit_policy"]["fixed_bytes"]
    assert 24_576 == shown["cluster"]["hit_policy"]["bytes_per_token"]


def test_import_writes_a_file_once(command: Command, config: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    answer = command("presets", "import", config.parent, "-o", out)
    assert 0 == answer.code
    (line,) = answer.out.splitlines()
    digest = load_model(str(out)).spec.digest[:16]
    assert f"{out}: qwen3_next, 48 layers of Qwen3NextForCausalLM, digest {digest}" == line
    text = out.read_text()
    out.write_text("mine")
    command("presets", "import", config, "-o", out).assert_refused(2, "exists", "--force")
    assert "mine" == out.read_text()
    assert 0 == command("presets", "import", config, "-o", out, "--force").code
    assert text == out.read_text()


def test_import_to_a_dash_is_stdout(
    command: Command, config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("presets", "import", config) == command("presets", "import", config, "-o", "-")
    assert [config] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["config.json", "link.json", "hard.json", "sub/../config.json"])
def test_import_never_replaces_its_source(command: Command, config: Path, name: str) -> None:
    (config.parent / "sub").mkdir()
    (config.parent / "link.json").symlink_to(config)
    (config.parent / "hard.json").hardlink_to(config)
    before = config.read_bytes()
    for source in (config, config.parent):
        answer = command("presets", "import", source, "-o", config.parent / name, "--force")
        answer.assert_refused(2, "is the config that is imported", "give another path")
    assert before == config.read_bytes()


def test_import_reads_standard_input(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, json.dumps(QWEN3_NEXT).encode())
    assert "name: qwen3_next" in command("presets", "import", "-").out


def test_import_tells_what_it_concluded_apart_from_the_result(command: Command, config: Path) -> None:
    config.write_text(json.dumps({key: value for key, value in QWEN3_NEXT.items() if key != "torch_dtype"}))
    answer = command("presets", "import", config)
    assert "note: dtype is absent" in answer.err
    assert "bf16" == yaml.safe_load(answer.out)["kv_dtype"]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b'{"architectures": ["X', "is the file whole?"),
        (b"{}", "num_hidden_layers"),
        (b'{"vision_config": {"hidden_size": 8}, "image_size": 4}', "num_hidden_layers"),
        (b"\0" * 100, "not JSON"),
    ],
)
def test_import_refuses_in_one_line(command: Command, config: Path, content: bytes, part: str) -> None:
    config.write_bytes(content)
    answer = command("presets", "import", config)
    answer.assert_refused(2)
    assert 1 == len(answer.err.splitlines())
    assert part in answer.err or "vision" in answer.err


def test_import_refuses_what_is_no_config(command: Command, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command("presets", "import", tmp_path).assert_refused(2, "config.json: no such file")
    command("presets", "import", tmp_path / "gone").assert_refused(2, "no such file")
    command("presets", "import", fifo).assert_refused(2, "it is a pipe")
    command("presets", "import", "/dev/zero").assert_refused(2, "larger than")


# --- schema -----------------------------------------------------------------------------------------------


def test_schema_prints_what_editors_need(command: Command) -> None:
    schema = json.loads(command("presets", "schema").out)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(yaml.safe_load(LLAMA.read_text()))
    assert not validator.is_valid({})
