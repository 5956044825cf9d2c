from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hicache_bench.config.catalogue import shipped_files
from hicache_bench.config.load import load_model, parse_model
from hicache_bench.config.schema import ModelPreset
from hicache_bench.errors import ConfigError, InputError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.engine_profile import BY_KIND, pools_of
from hicache_bench.pools.keys import page_hashes
from hicache_bench.pools.names import Layout
from hicache_bench.workflows.variant import Variant, VariantOptions, apply_options

TOKENS = np.arange(256, dtype=np.uint32)


def variant(preset: str | ModelPreset, **options: object) -> Variant:
    model = load_model(preset) if isinstance(preset, str) else preset
    return apply_options(model, VariantOptions(**options))  # type: ignore[arg-type]


def with_revision(revision: str | None) -> ModelPreset:
    path = Path(__file__).parents[2] / "presets" / "models" / "llama-3.1-8b.yaml"
    line = f"revision: {revision}\n" if revision else ""
    return parse_model((path.read_text() + line).encode(), file="revised.yaml")


def keys_of(model: Variant) -> list[str]:
    """Keys of the first page on every rank."""
    page_tokens = next(iter(model.pools.values()))[0].page_tokens
    hashes = page_hashes(TOKENS, page_tokens, parent=model.chain_seed)[:1]
    return [key for pools in model.pools.values() for pool in pools for key in model.keys.keys(pool, hashes)]


def test_keys_are_distinct_over_the_whole_product_of_identities() -> None:
    """E33: dtype, layout, page size, revision, salt, adapter, TP shard, stage, context shard, component."""
    keys = [
        key
        for revision, kv_dtype, layout, page_tokens, salt, adapter in product(
            (None, "r2"), ("bf16", "fp8"), ("page_first", "page_first_direct"), (64, 128),
            (None, "tenant"), (None, "lora"),
        )
        for key in keys_of(
            variant(
                with_revision(revision),
                kv_dtype=kv_dtype,
                layout=layout,
                page_tokens=page_tokens,
                salt=salt,
                adapter=adapter,
                profile="by_kind",
                tp=2,
                pp=2,
                cp="2:sharded",
            )
        )
    ]  # fmt: skip
    assert 2**6 * (2 * 2 * 2) * 2 == len(keys) == len(set(keys))


@pytest.mark.parametrize("scheme", ["namespaced", "sglang"])
def test_a_replicated_pool_has_the_same_keys_on_any_tp_size(scheme: str) -> None:
    keys = [set(keys_of(variant("deepseek-v3.2", tp=tp, key_scheme=scheme))) for tp in (1, 2, 8, 16)]
    assert keys[0] == keys[1] == keys[2] == keys[3]
    assert 2 == len(keys[0])


def test_sglang_keys_take_the_server_s_names() -> None:
    model = variant("llama-3.1-8b", key_scheme="sglang", model_name="meta/llama", extra_backend_tag="t")
    (key, _) = keys_of(model)
    assert key == f"t_meta-llama_{page_hashes(TOKENS, 64)[0]}_0_k"


def test_options_change_the_model_and_leave_the_rest() -> None:
    plain = variant("qwen3-next")
    changed = variant(
        "qwen3-next", kv_dtype="fp8", state_dtype="bf16", page_tokens=128, profile="by_kind", tp=2
    )
    assert load_model("qwen3-next").spec == plain.spec
    assert ("sglang-0.5.23", Deployment()) == (plain.profile, plain.deployment)
    spec = changed.spec
    assert ("fp8", "bf16", 128, "by_kind") == (
        spec.kv_dtype,
        spec.state_dtype,
        spec.page_tokens,
        changed.profile,
    )
    assert 2 == len(changed.pools)
    assert "fp8_packed" == variant("deepseek-v3.2", kv_dtype="fp8-packed").spec.kv_dtype
    assert "fp4" == variant("deepseek-v4-flash", index_dtype="fp4").spec.index_dtype
    assert Layout.PAGE_HEAD is variant("llama-3.1-8b", layout="page_head").deployment.layout


def test_fp4_index_rows_are_68_bytes() -> None:
    """facts/geometry.md §2: 132 B a token as fp8, 68 as fp4; V4 has one row for four tokens."""
    sizes = [
        next(
            pool.unit_bytes
            for pool in next(iter(variant("deepseek-v4-flash", index_dtype=dtype).pools.values()))
            if pool.name == "deepseek_v4_c4_indexer"
        )
        for dtype in ("fp8", "fp4")
    ]
    assert [64 * 132 * 21, 64 * 68 * 21] == sizes


def test_fp8_halves_keys_and_values_and_leaves_states_alone() -> None:
    """E66 and E75: the precision of weights or KV says nothing of a recurrent state."""
    full, half = (
        {
            pool.name: pool.unit_bytes
            for pool in next(iter(variant("qwen3-next", kv_dtype=dtype).pools.values()))
        }
        for dtype in ("bf16", "fp8")
    )
    assert full["kv"] == 2 * half["kv"]
    assert full["mamba"] == half["mamba"]


@pytest.mark.parametrize(
    ("preset", "options", "words"),
    [
        ("llama-3.1-8b", {"kv_dtype": "int3"}, "--kv-dtype 'int3'.*bf16"),
        ("qwen3-next", {"state_dtype": "fp8_packed"}, "--state-dtype 'fp8_packed'"),
        ("deepseek-v3.2", {"index_dtype": "bf16"}, "--index-dtype 'bf16'.*fp8, fp4"),
        ("llama-3.1-8b", {"profile": "vllm"}, "--profile 'vllm'.*by_kind"),
        ("llama-3.1-8b", {"layout": "diagonal"}, "unknown layout 'diagonal'"),
        ("llama-3.1-8b", {"cp": "8"}, "--cp 8 does not say.*8:sharded.*8:replicated"),
        ("llama-3.1-8b", {"cp": "0:sharded"}, "not a number of ranks"),
        ("llama-3.1-8b", {"cp": "8:halved"}, "not a number of ranks"),
        ("llama-3.1-8b", {"key_scheme": "vllm"}, "unknown key scheme 'vllm'"),
        ("llama-3.1-8b", {"salt": "\udcff"}, "--salt is not UTF-8"),
        ("llama-3.1-8b", {"adapter": "\udcff"}, "--adapter is not UTF-8"),
        ("llama-3.1-8b", {"model_name": "x"}, "--model-name.*--key-scheme sglang"),
        ("llama-3.1-8b", {"extra_backend_tag": "x"}, "--extra-backend-tag.*--key-scheme sglang"),
        ("llama-3.1-8b", {"tp": 3}, "8 KV heads cannot be split over TP 3"),
        ("llama-3.1-8b", {"kv_dtype": "fp8_packed"}, "fp8-packed is a format of MLA rows"),
        ("llama-3.1-8b", {"page_tokens": 0}, "--page-tokens 0.*allowed: 1 to 16,777,216"),
        ("llama-3.1-8b", {"page_tokens": (1 << 24) + 1}, "--page-tokens 16777217.*allowed: 1 to 16,777,216"),
        ("llama-3.1-8b", {"cp": "2:"}, "--cp 2: does not say.*use 2:sharded.*2:replicated"),
        ("llama-3.1-8b", {"state_dtype": "fp32"}, "--state-dtype .*'llama-3.1-8b'"),
        ("deepseek-v4-flash", {"state_dtype": "bf16"}, "--state-dtype"),
        ("llama-3.1-8b", {"index_dtype": "fp8"}, "--index-dtype .*'llama-3.1-8b'"),
        (
            "kitchen-sink",
            {"profile": "sglang-0.5.23"},
            "^--profile sglang-0.5.23 is .*no engine serves.*--profile by_kind",
        ),
        (
            "minimax-text-01",
            {"key_scheme": "sglang"},
            "^--key-scheme sglang is .*no engine serves.*--key-scheme namespaced",
        ),
        ("kimi-linear", {"tp": 64}, "32 state heads cannot be split over TP 64"),
        ("deepseek-v4-flash", {"page_tokens": 64}, "pages of 256 tokens only, not 64"),
        ("deepseek-v4-flash", {"kv_dtype": "bf16"}, "--kv-dtype fp8 instead of bf16"),
        ("deepseek-v4-flash", {"cp": "2:sharded", "profile": "by_kind"}, "compressed pools cannot be shared"),
        ("deepseek-v3", {"tp": 8, "pp": 62}, "61 layers cannot fill 62"),
        ("kimi-linear", {"pp": 27}, "neither full nor MLA layers"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(preset: str, options: dict[str, object], words: str) -> None:
    with pytest.raises((InputError, ConfigError), match=words):
        _ = variant(preset, **options).pools


@pytest.mark.parametrize("option", ["salt", "adapter", "model_name", "extra_backend_tag"])
@pytest.mark.parametrize("code", [*range(32), *range(127, 160)])
def test_a_control_character_is_refused_and_the_text_not_told(option: str, code: int) -> None:
    with pytest.raises(InputError, match=r"control character .* at position 7") as refused:
        variant("llama-3.1-8b", key_scheme="sglang", **{option: f"secret{chr(code)}"})
    assert "secret" not in str(refused.value)
    assert chr(code) not in str(refused.value)


@pytest.mark.parametrize("preset", sorted(shipped_files()))
def test_a_dtype_is_refused_where_it_changes_no_byte(preset: str) -> None:
    """The two dtypes are tried on every preset; the oracle is the bytes of its pools, not its layers."""
    model = load_model(preset)
    for option, dtype in (("state_dtype", "fp16"), ("index_dtype", "fp4")):
        fields: dict[str, Any] = {option: dtype}
        changed = replace(model.spec, **fields)
        # DeepSeek V4 alone has fp4 index keys in SGLang.
        profile = BY_KIND if option == "index_dtype" else model.profile
        sizes = [
            [pool.unit_bytes for pool in pools_of(spec, profile=profile)] for spec in (model.spec, changed)
        ]
        if sizes[0] != sizes[1]:
            assert changed == variant(model, **{option: dtype}).spec
            continue
        with pytest.raises(ConfigError, match="leave it out"):
            variant(model, **{option: dtype})


def test_the_page_of_decode_context_ranks_is_the_tier_s() -> None:
    model = variant("deepseek-v3", tp=8, dcp=8)
    assert {512} == {
        model.page_tokens,
        *(pool.page_tokens for pools in model.pools.values() for pool in pools),
    }
