from __future__ import annotations

from pathlib import Path

import pytest

from hicache_bench.config.catalogue import shipped_files
from hicache_bench.workflows.preset_check import FileCheck, check_files


def check(tmp_path: Path, text: str) -> FileCheck:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    (found,) = check_files([str(path)])
    return found


def shipped(name: str) -> str:
    return shipped_files()[name].read_text(encoding="utf-8")


def test_every_shipped_preset_is_whole() -> None:
    found = check_files([str(path) for path in shipped_files().values()])
    assert {} == {entry.file: entry.problems for entry in found if entry.problems}
    assert all(entry.pools and entry.keys for entry in found)


def test_pools_and_keys_of_a_page_are_counted(tmp_path: Path) -> None:
    found = check(tmp_path, shipped("deepseek-v4-flash"))
    assert (7, 6, ()) == (len(found.pools), found.keys, found.problems)


def test_a_tensor_of_a_state_that_sglang_has_no_key_for_is_named(tmp_path: Path) -> None:  # cases E25
    extra = "conv_kernel: 4\n    extra: [{name: history, shape: [2], dtype: int64}]\n"
    text = shipped("qwen3-next-80b-a3b").replace("conv_kernel: 4\n", extra)
    (problem,) = check(tmp_path, text).problems
    assert "sglang" in problem
    assert "history" in problem
    assert () == check(tmp_path, text.replace("[sglang-0.5.23]", "[]")).problems


def test_scales_that_sglang_does_not_have_are_named(tmp_path: Path) -> None:  # cases E76
    text = shipped("llama-3.1-8b").replace("kv_dtype: bf16", "kv_dtype: fp8_scaled")
    (problem,) = check(tmp_path, text).problems
    assert "SGLang 0.5.23" in problem
    assert "no scale per token" in problem
    assert () == check(tmp_path, text.replace("[sglang-0.5.23]", "[]")).problems


def test_a_sparse_model_without_its_index_is_refused(tmp_path: Path) -> None:  # cases E27
    text = shipped("deepseek-v3.2")
    start, end = text.index("  index:\n"), text.index("\nlayers:")
    without = (text[:start] + text[end:]).replace("latent + index", "latent")
    (problem,) = check(tmp_path, without).problems
    assert "index" in problem
    assert "DeepseekV32ForCausalLM" in problem


def test_layers_that_only_one_grouping_takes_are_told(tmp_path: Path) -> None:
    # Two windows in one dense pool are SGLang's way with Gemma-3; by_kind has one pool for windows.
    text = shipped("gemma-3-27b")
    start, end = text.index("  window:\n"), text.index("  full:\n")
    second = text[start:end].replace("  window:\n", "  near:\n").replace("window: 1024", "window: 512")
    text = text.replace("  full:\n", second + "  full:\n", 1)
    text = text.replace("of: [window]", "of: [near]")
    (problem,) = check(tmp_path, text).problems
    assert "profile by_kind" in problem
    assert "[512, 1024]" in problem


def test_draft_pools_are_checked_too(tmp_path: Path) -> None:
    # MLA rows of two dims cannot share the draft's pool.
    text = shipped("deepseek-v3").replace("draft_layers:\n  - latent", "draft_layers:\n  - latent\n  - other")
    other = "  other: {attention: mla, kv_lora_rank: 8, qk_rope_head_dim: 4, source: synthetic}\n"
    text = text.replace("\nlayers:", other + "\nlayers:", 1)
    problems = check(tmp_path, text).problems
    assert problems
    assert all("different dims" in problem for problem in problems)


def test_every_file_is_checked_whatever_the_others_are(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("schema: 1\nname: BAD\n")
    good = shipped_files()["llama-3.1-8b"]
    found = check_files([str(bad), str(good), str(tmp_path / "gone.yaml"), str(bad)])
    assert [True, False, True] == [bool(entry.problems) for entry in found]
    assert "bad.yaml:2:" in found[0].problems[0]
    assert "no such file" in found[2].problems[0]


@pytest.mark.parametrize("content", [b"\xff", b"", b"[", b"- 1\n", b"a: &x 1\n"])
def test_a_file_that_is_no_preset_is_a_problem_not_an_exception(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    (found,) = check_files([str(path)])
    assert found.problems
    assert found.preset is None


def test_an_engine_s_profile_that_no_engine_serves_is_named(tmp_path: Path) -> None:
    text = shipped("llama-3.1-8b").replace(
        "served_by: [sglang-0.5.23]", "served_by: []\nprofile: sglang-0.5.23"
    )
    (problem,) = check(tmp_path, text).problems
    assert "served_by is empty; use profile by_kind" in problem
    assert () == check(tmp_path, text.replace("profile: sglang-0.5.23", "profile: by_kind")).problems
