"""Every shipped preset against numbers: the golden file, products, published figures, docs/catalogue.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hicache_bench.config.load import list_presets, load_model
from hicache_bench.config.schema import ModelPreset
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.engine_profile import BY_KIND, SGLANG, cluster_pools, pools_of
from hicache_bench.models.spec import CompressedAttention, ModelSpec
from hicache_bench.planning.policy import TransferPolicy, first_needed_at, trailing_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.layout import page_segments
from hicache_bench.pools.names import HitPolicy, Layout
from tests.golden_file import PRESET_OF, golden

PAGE = (Path(__file__).parents[1] / "docs" / "catalogue.md").read_text(encoding="utf-8")
NAMES = tuple(preset.name for preset in list_presets())
preset_of = cache(load_model)

# Issue 3: models that people serve.
WANTED = (
    *("deepseek-v3", "deepseek-r1", "deepseek-v3.2", "deepseek-v4-flash", "deepseek-v4-pro", "kimi-k2"),
    *("kimi-linear-48b-a3b", "glm-5", "glm-5.2", "qwen3-32b", "qwen3-235b-a22b", "qwen3-next-80b-a3b"),
    *("qwen3.5-35b-a3b", "qwen3.5-397b-a17b", "gpt-oss-20b", "gpt-oss-120b", "llama-3.1-8b", "llama-3.1-70b"),
    *("llama-4-scout", "gemma-3-27b", "nemotron-h-8b", "nemotron-3-nano-30b-a3b", "falcon-h1-1.5b"),
    *("jamba-1.5-mini", "minimax-text-01", "minimax-m2", "minimax-m3", "mistral", "ministral"),
    *("step-3.5-flash", "mimo-v2-flash"),
)


def pools(name: str, profile: str = SGLANG, **changes: Any) -> dict[str, KVPoolDescriptor]:
    return {pool.name: pool for pool in pools_of(replace(spec_of(name), **changes), profile=profile)}


def spec_of(name: str) -> ModelSpec:
    return preset_of(name).spec


def per_token(pool: KVPoolDescriptor) -> int:
    whole, rest = divmod(pool.unit_bytes, pool.page_tokens)
    assert not rest, "bytes of a page divide by its tokens"
    return whole


def object_sizes(pool: KVPoolDescriptor) -> tuple[int, ...]:
    return tuple(component.object_bytes for component in pool.stored_components)


@pytest.mark.parametrize("name", WANTED)
def test_every_model_of_the_issue_has_a_preset(name: str) -> None:
    assert preset_of(name).name in NAMES


# --- the golden file, from the presets ----------------------------------------------------------------------

GOLDEN = golden()["pools"]


def golden_pool(row: Mapping[str, Any]) -> KVPoolDescriptor:
    """The preset's pool of a row; no layout is asked for, since one of them SGLang refuses beside states."""
    changes: dict[str, Any] = {}
    if row.get("kv") == "fp8_e4m3":
        changes["kv_dtype"] = "fp8_packed" if row["model"] == "DeepSeek-V3.2" else "fp8"
    if row["pool"] != "mamba":  # whose page is one state in the file, whatever the page of the tier is
        changes["page_tokens"] = row["page_size"]
    return pools(PRESET_OF[row["model"]], **changes)[row["pool"]]


def test_every_model_of_the_golden_file_has_a_preset() -> None:
    assert {row["model"] for row in GOLDEN} == set(PRESET_OF)


@pytest.mark.parametrize(
    "row",
    GOLDEN,
    ids=lambda row: "-".join(str(row.get(key)) for key in ("model", "pool", "layout", "page_size", "kv")),
)
def test_a_preset_allocates_what_sglang_does(row: Mapping[str, Any]) -> None:
    pool = golden_pool(row)
    segments = [
        num_bytes
        for component in pool.stored_components
        for _, num_bytes in page_segments(component, Layout(row["layout"]), slot=0, num_slots=2)
    ]
    sizes = row.get("element_sizes_page0", [])
    assert ([sizes["each"]] * sizes["count"] if isinstance(sizes, dict) else sizes) == segments
    assert row.get("bytes_per_page", 0) == pool.unit_bytes
    expected_layers = {row.get("layer_num", row.get("mamba_layers"))} - {0}
    assert expected_layers == {component.num_layers for component in pool.components}


# --- products of literal numbers ----------------------------------------------------------------------------

# Objects of a page of 64 tokens (V4: 256), or of one state: facts/geometry.md §2 and §3, "compute it".
COMPUTED: dict[str, dict[str, tuple[int, ...]]] = {
    "deepseek-v4-pro": {
        "kv": (),
        # 256 rows of 584 bytes in multiples of 576, then 64 rows, then 2.
        "swa": (61 * 260 * 576,),
        "deepseek_v4_c4": (30 * 65 * 576,),
        "deepseek_v4_c4_indexer": (30 * 64 * (128 + 4),),
        "deepseek_v4_c128": (31 * 3 * 576,),
        "deepseek_v4_c4_state": (30 * 8 * 2 * 2 * 512 * 4,),
        "deepseek_v4_c4_indexer_state": (30 * 8 * 2 * 2 * 128 * 4,),
    },
    "glm-5": {"kv": (64 * 78 * (512 + 64) * 2,), "indexer": (64 * 78 * (128 + 4),)},
    "glm-5.2": {"kv": (64 * 78 * (512 + 64) * 2,), "indexer": (64 * 21 * (128 + 4),)},
    "qwen3-235b-a22b": {"kv": (64 * 94 * 4 * 128 * 2,) * 2},
    "qwen3.5-397b-a17b": {
        "kv": (64 * 15 * 2 * 256 * 2,) * 2,
        "mamba": (45 * 64 * 128 * 128 * 4, 45 * (16 * 128 + 16 * 128 + 64 * 128) * 3 * 2),
    },
    "gpt-oss-20b": {"kv": (64 * 12 * 8 * 64 * 2,) * 2, "swa": (64 * 12 * 8 * 64 * 2,) * 2},
    "nemotron-3-nano-30b-a3b": {
        "kv": (64 * 6 * 2 * 128 * 2,) * 2,
        "mamba": (23 * 64 * 64 * 128 * 4, 23 * (64 * 64 + 2 * 8 * 128) * 3 * 2),
    },
    "falcon-h1-1.5b": {
        "kv": (64 * 24 * 2 * 128 * 2,) * 2,
        "mamba": (24 * 48 * 64 * 256 * 4, 24 * (48 * 64 + 2 * 1 * 256) * 3 * 2),
    },
    "minimax-m3": {"kv": (64 * 60 * 4 * 128 * 2,) * 2, "indexer": (64 * 57 * 128 * 2,)},
    "step-3.5-flash": {"kv": (64 * 12 * 8 * 128 * 2,) * 2, "swa": (64 * 33 * 8 * 128 * 2,) * 2},
    "mimo-v2-flash": {
        "kv": (64 * 9 * 4 * 192 * 2, 64 * 9 * 4 * 128 * 2),
        "swa": (64 * 39 * 8 * 192 * 2, 64 * 39 * 8 * 128 * 2),
    },
    "jamba-1.5-mini": {
        "kv": (64 * 4 * 8 * 128 * 2,) * 2,
        "mamba": (28 * 8192 * 16 * 4, 28 * 8192 * 3 * 2),
    },
    "minimax-text-01": {"kv": (64 * 10 * 8 * 128 * 2,) * 2, "mamba": (70 * 64 * 128 * 128 * 4,)},
    "mistral-7b-v0.3": {"kv": (64 * 32 * 8 * 128 * 2,) * 2},
    "ministral-3-8b": {"kv": (64 * 34 * 8 * 128 * 2,) * 2},
}


@pytest.mark.parametrize("name", COMPUTED)
def test_pools_are_the_products_of_their_dimensions(name: str) -> None:
    found = pools(name, preset_of(name).profile)
    assert COMPUTED[name] == {pool: object_sizes(descriptor) for pool, descriptor in found.items()}


def test_every_preset_is_held_to_the_golden_file_or_to_products() -> None:
    # kitchen-sink is synthetic: nothing but its own file says what it is.
    assert set(NAMES) == {*PRESET_OF.values(), *COMPUTED, "kitchen-sink"}


def test_pools_in_fp8() -> None:
    assert (64 * 78 * 656,) == object_sizes(pools("glm-5", kv_dtype="fp8_packed")["kv"])
    assert (64 * 60 * 4 * 128,) * 2 == object_sizes(pools("minimax-m3", kv_dtype="fp8")["kv"])


# --- layers in the model's own order: pipeline stages cut it ------------------------------------------------

WORDS = "mamba|full|||window|delta|lightning|full index|latent index|latent|window c128|window c4"
LETTERS = dict(zip("M*-Ewdliosc4", WORDS.split("|"), strict=True))
ORDER = {
    "nemotron-h-8b": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "nemotron-3-nano-30b-a3b": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "gemma-3-27b": "wwwww*" * 10 + "ww",
    "gpt-oss-20b": "w*" * 12,
    "step-3.5-flash": "*www" * 11 + "*",
    "mimo-v2-flash": "".join("w*"[layer in {0, 5, 11, 17, 23, 29, 35, 41, 47}] for layer in range(48)),
    "jamba-1.5-mini": "".join("M*"[layer % 8 == 4] for layer in range(32)),
    "minimax-text-01": "".join("l*"[layer % 8 == 7] for layer in range(80)),
    "minimax-m3": "***" + "i" * 57,
    # index_topk_freq 4, index_skip_topk_offset 3
    "glm-5.2": "".join("so"[max(layer - 2, 0) % 4 == 0] for layer in range(78)),
    "deepseek-v4-pro": "".join("c4"[ratio == 4] for ratio in [128, 128, *[4, 128] * 29, 4]),
    "qwen3.5-397b-a17b": "ddd*" * 15,
    "qwen3.5-35b-a3b": "ddd*" * 10,
}


@pytest.mark.parametrize("name", ORDER)
def test_layers_come_in_the_order_of_the_model(name: str) -> None:
    assert tuple(tuple(LETTERS[letter].split()) for letter in ORDER[name]) == spec_of(name).layers


def test_one_mtp_layer_is_counted_apart() -> None:
    found = {name: spec_of(name).draft_layers for name in NAMES if spec_of(name).draft_layers}
    assert {
        "deepseek-v3": (("latent",),),
        **dict.fromkeys(["deepseek-v3.2", "glm-5", "glm-5.2"], (("latent", "index"),)),
        **dict.fromkeys(["qwen3-next-80b-a3b", "qwen3.5-35b-a3b", "qwen3.5-397b-a17b"], (("full",),)),
    } == found


# --- published figures --------------------------------------------------------------------------------------


def test_deepseek_v3_is_one_latent_row_a_token() -> None:
    """E69, and 1.7 MB a token in a published calculator."""
    assert 70_272 == per_token(pools("deepseek-v3")["kv"])


def test_v32_in_packed_fp8_counts_its_index() -> None:
    """E70: a server's log says 43.67 GiB for 975,424 tokens, and 65.49 for 1,462,784."""
    found = pools("deepseek-v3.2", kv_dtype="fp8_packed")
    num_bytes = sum(map(per_token, found.values()))
    assert (40_016, 48_068) == (per_token(found["kv"]), num_bytes)
    assert 43.67 == round(975_424 * num_bytes / 2**30, 2)
    assert 65.48 == round(1_462_784 * num_bytes / 2**30, 2)


def test_gpt_oss_20b_needs_half_of_what_a_dense_cache_reserves() -> None:
    """E71: 32 sequences of 8,192 tokens."""
    found = pools("gpt-oss-20b")
    full, window = per_token(found["kv"]), per_token(found["swa"])
    reserved = 32 * 8192 * (full + window)
    windowed = 32 * (8192 * full + (found["swa"].window_tokens or 0) * window)
    assert (6.09, 12.0) == (round(windowed / 2**30, 2), round(reserved / 2**30, 2))


def test_glm_52_has_99_tensors_and_not_156() -> None:
    """E78: 78 layers of latents, 21 of index keys."""
    assert [78, 21] == [pool.components[0].num_layers for pool in pools("glm-5.2").values()]


def test_qwen3_235b_at_tp8_stores_each_of_its_4_heads_twice() -> None:
    """Mooncake's own benchmark: 12.62 GB for 32,768 tokens."""
    cluster = cluster_pools(
        spec_of("qwen3-235b-a22b"), profile=SGLANG, deployment=Deployment(tp_size=8)
    ).values()
    num_bytes = sum(per_token(pool) for rank in cluster for pool in rank)
    assert (192_512, 2 * 192_512) == (per_token(pools("qwen3-235b-a22b")["kv"]), num_bytes)
    assert 12.62 == round(32_768 * num_bytes / 1e9, 2)


@pytest.mark.parametrize(
    ("name", "page_bytes", "state_bytes"),
    [
        ("jamba-1.5-mini", 1_048_576, 16_056_320),
        ("minimax-text-01", 2_621_440, 293_601_280),
        ("falcon-h1-1.5b", 1_572_864, 76_013_568),
    ],
)
def test_a_page_and_a_state(name: str, page_bytes: int, state_bytes: int) -> None:
    found = pools(name, BY_KIND)
    assert (page_bytes, state_bytes) == (found["kv"].unit_bytes, found["mamba"].unit_bytes)


@pytest.mark.parametrize(
    ("name", "window", "engine_window", "trailing"),
    [
        ("gpt-oss-20b", 128, 127, 2),
        ("mimo-v2-flash", 129, 128, 2),
        ("step-3.5-flash", 512, 512, 8),
        ("deepseek-v4-pro", 128, 128, 1),
    ],
)
def test_windows_count_the_own_token_and_the_engine_has_its_own_view(
    name: str, window: int, engine_window: int, trailing: int
) -> None:
    pool = pools(name)["swa"]
    found = (pool.window_tokens, pool.engine_window_tokens, trailing_units(pool))
    assert (window, engine_window, trailing) == found


# --- docs/catalogue.md --------------------------------------------------------------------------------------


def catalogue_row(name: str) -> str:
    """The line of ``name`` in the page's first table."""
    preset = preset_of(name)
    profiles = [SGLANG] if SGLANG in preset.served_by else []
    figures = {}
    for profile in [*profiles, BY_KIND]:
        found = pools(name, profile).values()
        policy = TransferPolicy.SELECTIVE if profile == BY_KIND else TransferPolicy.HIT_POLICY
        whole = [pool for pool in found if pool.hit_policy is HitPolicy.ALL_PAGES]
        rest = [pool for pool in found if pool.hit_policy is not HitPolicy.ALL_PAGES]
        figures[profile] = (
            sum(pool.unit_bytes for pool in whole) / preset.page_tokens,
            sum(pool.unit_bytes * most_units(pool, policy) for pool in rest),
        )
    (engine, engine_fixed), (kind, kind_fixed) = (
        tuple(map(number, figures[profile])) if profile in figures else ("–", "–")
        for profile in (SGLANG, BY_KIND)
    )
    columns = [f"`{name}`", layers_text(preset.spec), preset.kv_dtype, engine, kind, engine_fixed, kind_fixed]
    return "| " + " | ".join([*columns, verified_text(preset)]) + " |"


def most_units(pool: KVPoolDescriptor, policy: TransferPolicy) -> int:
    """Units of a trailing pool that ``policy`` reads at the endpoint that needs most of them."""
    period = -(-(pool.window_tokens or 1) // pool.page_tokens)
    ends = range(period, 2 * period + 1)
    return max(end - first_needed_at(pool, policy, end) for end in ends)


def layers_text(spec: ModelSpec) -> str:
    counts = spec.layer_counts
    parts = []
    for name, attention in spec.attentions.items():
        ratio = f" {attention.ratio}:1" if isinstance(attention, CompressedAttention) else ""
        parts.append(f"{counts[name]} {attention.attention}{ratio}")
    if empty := sum(not names for names in spec.layers):
        parts.append(f"{empty} without cache")
    if spec.draft_layers:
        parts.append(f"{len(spec.draft_layers)} draft")
    return ", ".join(parts)


def verified_text(preset: ModelPreset) -> str:
    sources = preset.sources.values()
    if all("synthetic" in source for source in sources):
        return "synthetic"
    doubts = [name for name, source in preset.sources.items() if "unverified" in source]
    return f"in part ({', '.join(doubts)})" if doubts else "yes"


# What kvcache-simulator 0.1.3 computes with its defaults (pip install kvcache-simulator==0.1.3;
# calculate_cache_size(...).bytes_per_token, V4 at 1,048,576 tokens), and the product that this is.
THEIRS: dict[str, tuple[float, float]] = {
    "deepseek-v3": (70_272, 61 * (512 + 64) * 2),
    "deepseek-v3.2": (85_888, 61 * (512 + 64) * 2 + 61 * 128 * 2),
    "deepseek-v4-flash": (3_106.6875, (21 / 4 + 20 / 128 + 43 * 128 / 1_048_576) * 512 + 21 / 4 * 64),
    "deepseek-v4-pro": (4_447.8125, (30 / 4 + 31 / 128 + 61 * 128 / 1_048_576) * 512 + 30 / 4 * 64),
    "glm-5": (109_824, 78 * (512 + 64) * 2 + 78 * 128 * 2),
    "glm-5.2": (95_232, 78 * (512 + 64) * 2 + 21 * 128 * 2),
    "kimi-k2": (70_272, 61 * (512 + 64) * 2),
    "llama-3.1-8b": (131_072, 32 * 2 * 8 * 128 * 2),
    "llama-3.1-70b": (327_680, 80 * 2 * 8 * 128 * 2),
    "minimax-m2": (253_952, 62 * 2 * 8 * 128 * 2),
    "minimax-m3": (137_472, 60 * 2 * 4 * 128 * 2 + 57 * 128 * 2),
    "qwen3-32b": (262_144, 64 * 2 * 8 * 128 * 2),
    "qwen3-235b-a22b": (192_512, 94 * 2 * 4 * 128 * 2),
    "qwen3.5-35b-a3b": (20_480, 10 * 2 * 2 * 256 * 2),
    "qwen3.5-397b-a17b": (30_720, 15 * 2 * 2 * 256 * 2),
}


def number(value: float) -> str:
    return f"{value:,.2f}".removesuffix(".00")


def compared_row(name: str) -> str:
    """The start of the line of ``name`` in the page's second table: ours, theirs, and whether they agree."""
    whole = [pool for pool in pools(name).values() if pool.hit_policy is HitPolicy.ALL_PAGES]
    ours = number(sum(pool.unit_bytes for pool in whole) / preset_of(name).page_tokens)
    theirs = number(THEIRS[name][0])
    other = "kimi-k2.5" if name == "kimi-k2" else name
    return f"| `{name}` | `{other}` | {ours} | {theirs} | {'equal' if ours == theirs else 'differ'} | "


def table(heading: str) -> list[str]:
    section = PAGE.split(f"\n## {heading}")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| `")]


def test_the_page_has_every_preset_with_its_figures() -> None:
    assert [catalogue_row(name) for name in NAMES] == table("All presets")


def test_the_page_compares_with_the_other_calculator_as_it_is() -> None:
    lines = table("Compared with kvcache-simulator 0.1.3")
    assert len(THEIRS) == len(lines)
    for name, line in zip(THEIRS, lines, strict=True):
        assert line.startswith(compared_row(name)), name


@pytest.mark.parametrize("name", THEIRS)
def test_their_figures_are_the_products_that_the_page_explains(name: str) -> None:
    figure, product = THEIRS[name]
    assert figure == product


def test_states_are_those_of_the_other_calculator() -> None:
    """What it calls the linear-attention state of Qwen3.5, an option there."""
    assert 64_389_120 == pools("qwen3.5-35b-a3b")["mamba"].unit_bytes
    assert 192_061_440 == pools("qwen3.5-397b-a17b")["mamba"].unit_bytes
