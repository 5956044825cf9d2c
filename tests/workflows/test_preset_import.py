from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from hicache_bench.config.load import load_model, parse_model
from hicache_bench.errors import ConfigError, InputError, OutputError
from hicache_bench.models.hf.importer import MAX_CONFIG_BYTES, import_config
from hicache_bench.workflows.preset_import import ImportedPreset, import_preset, write_file

QWEN3_NEXT: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "num_hidden_layers": 48,
    "full_attention_interval": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "hidden_size": 2048,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "some-model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(QWEN3_NEXT))
    return path


def geometry(imported: ImportedPreset) -> tuple[object, ...]:
    spec = imported.preset.spec
    layers = [sorted(spec.attentions[name].attention for name in names) for names in spec.layers]
    return sorted(map(str, spec.attentions.values())), layers, spec.page_tokens, spec.kv_dtype, spec.served_by


def test_a_config_becomes_the_shipped_preset(config: Path) -> None:
    imported = import_preset(str(config), name="qwen3-next-80b-a3b")
    shipped = load_model("qwen3-next-80b-a3b")
    wanted = ImportedPreset(preset=shipped, text="", notes=())
    assert geometry(wanted) == geometry(imported)


def test_the_text_is_the_model_that_was_imported(config: Path) -> None:
    imported = import_preset(str(config))
    again = parse_model(imported.text.encode(), file="again.yaml").spec
    assert import_config(QWEN3_NEXT).spec == again == imported.preset.spec
    assert "    of: [delta, delta, delta, full]" in imported.text.splitlines()


def test_a_directory_has_its_config(config: Path) -> None:
    assert import_preset(str(config)) == import_preset(str(config.parent))


def test_a_text_names_no_place_of_this_machine(config: Path) -> None:
    text = import_preset(str(config.parent)).text
    assert "some-model" not in text
    assert str(config.parent.parent) not in text
    assert text.startswith("# Imported from the config.json of Qwen3NextForCausalLM.")


def test_what_was_concluded_is_noted_in_the_file(config: Path) -> None:
    config.write_text(
        json.dumps({**QWEN3_NEXT, "architectures": ["StrangeForCausalLM"], "model_type": "strange"})
    )
    imported = import_preset(str(config))
    assert any(note.startswith("warning:") for note in imported.notes)
    head = imported.text.partition("schema: 1")[0].replace("\n# ", " ")
    assert all(note in head for note in imported.notes)
    assert () == imported.preset.served_by


def test_a_name_is_taken_or_refused(config: Path) -> None:
    assert "mine" == import_preset(str(config), name="mine").preset.name
    for name in ("Mine", "", "a b", "../x", "x" * 65, "mine\n"):
        with pytest.raises(InputError, match="lower-case"):
            import_preset(str(config), name=name)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": ', "not JSON"),
        (b"[]", "JSON object"),
        (b"\xff\xfe", "UTF-8"),
        (b" " * (MAX_CONFIG_BYTES + 1), "larger than"),
        (b"{}", "num_hidden_layers"),
        (json.dumps({**QWEN3_NEXT, "head_dim": -1}).encode(), "head_dim"),
        (json.dumps({**QWEN3_NEXT, "head_dim": 1 << 40}).encode(), "head_dim"),
    ],
    ids=["truncated", "a list", "not text", "too large", "empty", "negative", "huge"],
)
def test_what_is_no_config_is_refused(config: Path, content: bytes, reason: str) -> None:
    config.write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        import_preset(str(config))


def test_a_directory_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: no such file"):
        import_preset(str(tmp_path))


# --- writing ----------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    write_file("héllo\n", path, force=False)
    assert "héllo\n" == path.read_text(encoding="utf-8")
    assert 0o644 == stat.S_IMODE(path.stat().st_mode)
    assert [path] == list(tmp_path.iterdir())


def test_nothing_is_replaced_without_force(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("old")
    with pytest.raises(OutputError, match="--force"):
        write_file("new", path, force=False)
    assert "old" == path.read_text()
    write_file("new", path, force=True)
    assert "new" == path.read_text()
    assert [path] == list(tmp_path.iterdir())


def test_a_link_keeps_leading_to_its_file(tmp_path: Path) -> None:
    target, link = tmp_path / "target.yaml", tmp_path / "link.yaml"
    target.write_text("old")
    link.symlink_to(target)
    write_file("new", link, force=True)
    assert link.is_symlink()
    assert "new" == target.read_text()


def test_what_is_no_file_is_never_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path, fifo, Path("/dev/null")):
        with pytest.raises(OutputError, match="is no file"):
            write_file("new", path, force=True)
    assert fifo.is_fifo()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (tmp_path / "gone" / "model.yaml", tmp_path / ("x" * 300), Path("a\0b"), loop):
        with pytest.raises(OutputError, match="give"):
            write_file("new", path, force=False)
    assert [loop] == list(tmp_path.iterdir())
