from __future__ import annotations

import copy
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.config import catalogue, load
from hicache_bench.config.catalogue import shipped_files
from hicache_bench.config.document import read_document
from hicache_bench.config.load import MAX_FILE_BYTES, list_presets, load_model, parse_model
from hicache_bench.errors import ConfigError, PresetNotFoundError

GOOD = """\
schema: 1
name: tiny
summary: a model
architecture: Tiny
served_by: []
page_tokens: 16
engine_default_page_tokens: 1
attentions:
  full: {attention: full, kv_heads: 2, head_dim: 8, source: here}
layers:
  - repeat: 2
    of: [full]
"""


def message(content: str | bytes, file: str = "my.yaml") -> str:
    with pytest.raises(ConfigError) as error:
        parse_model(content.encode() if isinstance(content, str) else content, file=file)
    return str(error.value)


# --- shipped presets ------------------------------------------------------------------------------------


def test_presets_are_listed_by_name():
    names = [preset.name for preset in list_presets()]
    assert sorted(names) == names
    assert {
        "deepseek-v3",
        "deepseek-v3.2",
        "deepseek-v4-flash",
        "gpt-oss-120b",
        "kimi-linear-48b-a3b",
        "kitchen-sink",
        "llama-3.1-8b",
        "llama-3.1-70b",
        "llama-4-scout",
        "qwen3-next-80b-a3b",
    } <= set(names)


def test_a_preset_is_named_like_its_file():
    files = shipped_files()
    assert list(files) == [preset.name for preset in list_presets()]


def test_no_name_finds_two_presets():
    names = [name for preset in list_presets() for name in (preset.name, *preset.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("preset", list_presets(), ids=lambda preset: preset.name)
def test_every_name_and_alias_finds_its_preset(preset):
    for name in (preset.name, preset.name.upper(), *preset.aliases, *map(str.title, preset.aliases)):
        assert preset.name == load_model(name).name


def test_deepseek_is_v4_flash():
    assert "deepseek-v4-flash" == load_model("deepseek").name


@pytest.mark.parametrize("preset", list_presets(), ids=lambda preset: preset.name)
def test_every_attention_says_whether_its_source_was_verified(preset):
    for source in load_model(preset.name).sources.values():
        assert any(word in source for word in ("verified", "synthetic"))


def test_models_that_no_engine_serves_say_so():
    expected = {"jamba-1.5-mini", "kitchen-sink", "minimax-text-01"}
    assert expected == {preset.name for preset in list_presets() if not preset.served_by}


def test_one_preset_is_loaded_without_reading_the_others(monkeypatch):
    read = []

    def counting(text):
        read.append(text)
        return read_document(text)

    for module in (load, catalogue):
        monkeypatch.setattr(module, "read_document", counting)
    load_model("llama-3.1-8b")
    assert 1 == len(read)


def test_presets_are_found_in_an_installed_package(monkeypatch, tmp_path):
    shipped = tmp_path / "hicache_bench" / "presets" / "models"
    shipped.mkdir(parents=True)
    (shipped / "tiny.yaml").write_text(GOOD)
    monkeypatch.setattr(catalogue, "__file__", str(tmp_path / "hicache_bench" / "config" / "catalogue.py"))
    assert ["tiny"] == [preset.name for preset in list_presets()]


def test_reading_presets_imports_nothing_heavy():
    program = (
        "import sys; from hicache_bench.config.load import load_model; load_model('deepseek');"
        "print(sorted({'numpy', 'pandas', 'matplotlib', 'rich', 'typer', 'mooncake'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert "[]" == result.stdout.strip()


# --- names that find nothing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("deepseek-v4-flsh", "deepseek-v4-flash"),
        ("gptoss", "gpt-oss-120b' or 'gpt-oss-20b"),
        ("deepseek-v4", "deepseek-v4-flash' or 'deepseek-v4-pro"),
        ("depseek-v4", "deepseek-v4-flash' or 'deepseek-v4-pro"),
        ("lama", "llama-3.1-70b' or 'llama-3.1-8b' or 'llama-4-scout"),
        ("LLAMA-3.1-8", "llama-3.1-8b"),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2"),
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
    ],
)
def test_an_unknown_name_gets_the_nearest_one(name, nearest):
    with pytest.raises(PresetNotFoundError, match=f"did you mean '{nearest}'") as error:
        load_model(name)
    assert "kitchen-sink" in str(error.value)
    assert isinstance(error.value, LookupError)


@pytest.mark.parametrize("name", ["", " ", "zzzzzz", "a\nb", "a\0b", "x" * 5000, "../..", "no/such"])
def test_a_name_like_no_other_gets_the_list(name):
    with pytest.raises(ConfigError) as error:
        load_model(name)
    assert len(str(error.value)) < 900


# --- files that cannot be read ----------------------------------------------------------------------------


def test_a_file_is_read_from_its_path(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    assert "tiny" == load_model(str(path)).name
    assert "tiny" == load_model(str(path.rename(tmp_path / "mine.YML"))).name
    assert "tiny" == load_model(str(path.with_suffix(".YML").rename(tmp_path / "mine"))).name


def test_messages_name_the_file_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text("schema: 2")
    with pytest.raises(ConfigError) as error:
        load_model("bad.yaml")
    assert str(tmp_path) not in str(error.value)
    assert "bad.yaml:1:1: schema: given 2; allowed: 1" in str(error.value)


@pytest.mark.parametrize("name", ["none.yaml", "a/b.yml", "\0.yaml", "x" * 5000 + ".yaml"])
def test_a_file_that_is_not_there(name):
    with pytest.raises(ConfigError):
        load_model(name)


def test_a_directory(tmp_path):
    (tmp_path / "d.yaml").mkdir()
    with pytest.raises(ConfigError, match="is a directory"):
        load_model(str(tmp_path / "d.yaml"))
    with pytest.raises(ConfigError, match="is a directory"):
        load_model(f"{tmp_path}/")


def test_a_file_that_may_not_be_read(monkeypatch):
    def refuse(*arguments):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    # Root may read any file, so that a mode of 0 proves nothing.
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError, match=r"'mine.yaml' cannot be read: Permission denied"):
        load_model("mine.yaml")


def test_a_device_that_never_ends_is_not_read_to_its_end():
    with pytest.raises(ConfigError, match="larger than 1,048,576 bytes"):
        load_model("/dev/zero")


def test_a_file_that_is_too_large():
    comment = b"# " + b"x" * MAX_FILE_BYTES
    assert "larger than 1,048,576 bytes" in message(GOOD.encode() + comment)
    assert "tiny" == parse_model(GOOD.encode() + comment[: MAX_FILE_BYTES - len(GOOD)], file="x").name


def test_a_file_that_is_not_utf_8():
    assert message("name: é\n".encode("latin-1")).startswith("my.yaml:1:7: byte 0xe9 is not UTF-8")
    assert message("name: x\n".encode("utf-16")).startswith("my.yaml:1:1: byte 0xff is not UTF-8")


def test_a_byte_order_mark_is_no_error():
    assert "tiny" == parse_model(GOOD.encode("utf-8-sig"), file="x").name


# --- models that cannot be --------------------------------------------------------------------------------


def test_a_combination_that_no_pool_can_hold_names_the_file():
    latent = "  latent: {attention: mla, kv_lora_rank: 8, qk_rope_head_dim: 4, source: x}\n"
    mixed = GOOD.replace("layers:", latent + "layers:").replace("[full]", "[full + latent]")
    assert message(mixed).startswith("my.yaml: model 'tiny'")


def test_the_geometry_of_a_page_is_checked_when_it_is_loaded():
    text = shipped_files()["deepseek-v4-flash"].read_text()
    refused = message(text.replace("page_tokens: 256", "page_tokens: 64"))
    assert refused.startswith("my.yaml: model 'deepseek-v4-flash'")
    assert "256" in refused


# --- hostile content --------------------------------------------------------------------------------------


def loads_or_refuses(content: bytes) -> None:
    try:
        parse_model(content, file="x.yaml")
    except ConfigError as error:
        assert str(error).startswith("x.yaml")  # noqa: PT017  loading well is right, too


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused_in_words(content):
    loads_or_refuses(content)


@settings(deadline=None)
@given(st.text(max_size=300))
def test_random_text_is_refused_in_words(text):
    loads_or_refuses(text.encode("utf-8", errors="surrogatepass"))


GOOD_DATA = yaml.safe_load(GOOD)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["full", "none", "swa", "full + full", "dims", "<group>", "bf16", "sglang-0.5.23"])
)
KEYS = st.sampled_from(
    [
        "attention",
        "dims",
        "source",
        "repeat",
        "of",
        "full",
        "layers",
        "attentions",
        "kv_heads",
        "schema",
        "[key]",
    ]
)
VALUES = st.recursive(
    LEAVES, lambda children: st.lists(children, max_size=3) | st.dictionaries(KEYS, children, max_size=4)
)
PATHS = [
    ("attentions",),
    ("attentions", "full"),
    ("attentions", "full", "attention"),
    ("attentions", "full", "kv_heads"),
    ("attentions", "full", "v_head_dim"),
    ("attentions", "full", "full"),
    ("attentions", "full", "dims"),
    ("attentions", "other"),
    ("layers",),
    ("layers", 0),
    ("layers", 0, "of"),
    ("layers", 0, "repeat"),
    ("served_by",),
    ("profile",),
    ("kv_dtype",),
    ("schema",),
    ("dims",),
]


def put(data: Any, path: tuple[Any, ...], value: Any) -> None:
    """Set one value, unless an earlier change took away what it belongs to."""
    for step in path[:-1]:
        if not (isinstance(data, dict) and step in data) and not (
            isinstance(data, list) and data and step == 0
        ):
            return
        data = data[step]
    if isinstance(data, dict) or (isinstance(data, list) and data and path[-1] == 0):
        data[path[-1]] = value


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), VALUES), min_size=1, max_size=3))
def test_any_wrong_value_anywhere_is_refused_in_words(changes):
    data = copy.deepcopy(GOOD_DATA)
    for path, value in changes:
        put(data, path, value)
    loads_or_refuses(yaml.safe_dump(data).encode())
