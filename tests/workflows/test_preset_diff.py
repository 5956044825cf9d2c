from __future__ import annotations

from itertools import permutations

import pytest

from hicache_bench.config.catalogue import shipped_files
from hicache_bench.config.load import load_model, parse_model
from hicache_bench.config.schema import ModelPreset
from hicache_bench.workflows.preset_diff import Value, diff_presets
from tests.workflows.runs import PRESETS


def differences(first: str, second: str) -> dict[tuple[str, str], tuple[Value, Value]]:
    found = diff_presets(load_model(first), load_model(second))
    rows = {(entry.section, entry.field): (entry.first, entry.second) for entry in found}
    assert len(found) == len(rows), "every field once"
    return rows


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_does_not_differ_from_itself(name: str) -> None:
    assert {} == differences(name, name)


def test_names_and_prose_are_no_difference() -> None:
    text = shipped_files()["llama-3.1-8b"].read_text()
    other = text.replace("name: llama-3.1-8b", "name: mine").replace("verified", "read again")
    renamed = other.replace("  full:", "  dense:").replace("[full]", "[dense]")
    assert renamed != text
    assert () == diff_presets(load_model("llama-3.1-8b"), parse_model(renamed.encode(), file="mine.yaml"))


def sharing(number: int) -> ModelPreset:
    """Llama whose last layers read what earlier ones cached."""
    of_layers = f"  - repeat: {32 - number}\n    of: [full]\n  - repeat: {number}\n    of: [none]\n"
    text = shipped_files()["llama-3.1-8b"].read_text().partition("\nlayers:\n")[0]
    text += f"\nlayers:\n{of_layers}shared_layers:\n  - repeat: {number}\n    of: [full]\n"
    return parse_model(text.encode(), file="sharing.yaml")


def test_layers_that_share_are_told_apart() -> None:
    """SGLang allocates all of them, so that no byte differs."""
    found = {entry.field: (entry.first, entry.second) for entry in diff_presets(sharing(8), sharing(12))}
    assert {"full": (24, 20), "shared, full": (8, 12), "that cache nothing": (8, 12)} == {
        name: values for name, values in found.items() if name != "order"
    }


def test_sides_change_places() -> None:
    for first, second in permutations(("gpt-oss-20b", "llama-3.1-8b", "kimi-linear-48b-a3b"), 2):
        swapped = {field: values[::-1] for field, values in differences(second, first).items()}
        assert swapped == differences(first, second)


def test_two_sizes_of_one_model() -> None:
    assert {
        ("layers", "in all"): (24, 36),
        ("layers", "swa"): (12, 18),
        ("layers", "full"): (12, 18),
        ("layers", "order"): ("12 x (swa, full)", "18 x (swa, full)"),
        ("pool", "kv bytes of a page"): (1_572_864, 2_359_296),
        ("pool", "swa bytes of a page"): (1_572_864, 2_359_296),
        ("needed", "hit_policy bytes per token"): (24_576, 36_864),
        ("needed", "hit_policy fixed bytes"): (3_145_728, 4_718_592),
        ("needed", "selective bytes per token"): (24_576, 36_864),
        ("needed", "selective fixed bytes"): (3_145_728, 4_718_592),
    } == differences("gpt-oss-20b", "gpt-oss-120b")


def test_fewer_index_layers() -> None:
    found = differences("glm-5", "glm-5.2")
    assert (78, 21) == found["layers", "sparse_index"]
    assert (658_944, 177_408) == found["pool", "indexer bytes of a page"]
    assert ("pool", "kv bytes of a page") not in found


def test_what_one_model_lacks_is_none() -> None:
    found = differences("llama-3.1-8b", "qwen3-next-80b-a3b")
    assert (None, 36) == found["layers", "gdn"]
    assert (None, 128) == found["dimension", "gdn.key_dim"]
    assert (None, "trailing 1") == found["pool", "mamba needs"]
    assert (8, 2) == found["dimension", "full.kv_heads"]


def test_attentions_of_one_kind_are_compared_by_name() -> None:
    found = differences("deepseek-v4-flash", "deepseek-v4-pro")
    assert (21, 30) == found["layers", "compressed 'c4'"]
    assert (20, 31) == found["layers", "compressed 'c128'"]
    assert (43, 61) == found["layers", "latent_window"]


def test_one_of_a_kind_is_compared_by_name_with_several() -> None:
    text = shipped_files()["deepseek-v4-flash"].read_text()
    start, end = text.index("  c128:\n"), text.index("# compress_ratios")
    one = (text[:start] + text[end:]).replace("window + c128", "window")
    found = diff_presets(load_model("deepseek-v4-flash"), parse_model(one.encode(), file="one.yaml"))
    rows = {entry.field: (entry.first, entry.second) for entry in found if entry.section == "layers"}
    assert (20, None) == rows["compressed 'c128'"]
    assert "compressed 'c4'" not in rows


def test_a_draft_is_a_difference() -> None:
    assert {("layers", "draft, in all"), ("layers", "draft, mla")} <= set(
        differences("deepseek-v3", "kimi-k2")
    )


def test_the_order_of_layers_is_a_difference() -> None:
    text = shipped_files()["gpt-oss-20b"].read_text()
    other = text.replace("[window, full]", "[full, window]")
    assert other != text
    (found,) = diff_presets(load_model("gpt-oss-20b"), parse_model(other.encode(), file="other.yaml"))
    assert ("layers", "order", "12 x (full, swa)") == (found.section, found.field, found.second)
