"""Every pool of every preset against what SGLang 0.5.23's own classes print (tests/golden)."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.engine.transfer import BATCH_PAGES
from hicache_bench.errors import ConfigError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.engine_profile import BY_KIND, SGLANG, pools_of
from hicache_bench.models.hf.importer import import_config
from hicache_bench.models.spec import (
    CompressedAttention,
    FullAttention,
    KimiDelta,
    LatentWindow,
    ModelSpec,
    SlidingWindow,
)
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.layout import STORABLE_LAYOUTS, page_segments
from hicache_bench.pools.names import AttentionType, HitPolicy, Layout, Sharding
from tests.golden_file import PRESET_OF, golden

GOLDEN = golden()
ROWS = GOLDEN["pools"]


def row_id(row: dict) -> str:
    parts = (row["model"], row["pool"], row["layout"], f"P{row['page_size']}", row.get("kv", ""))
    return "-".join(part for part in parts if part)


def golden_sizes(row: dict) -> list[int]:
    sizes = row.get("element_sizes_page0", [])
    return [sizes["each"]] * sizes["count"] if isinstance(sizes, dict) else sizes


def golden_spec(row: dict) -> ModelSpec:
    """The preset's model, with the dtype and page size of the row."""
    spec = load_model(PRESET_OF[row["model"]]).spec
    if row["layout"] == Layout.LAYER_FIRST.value and "state" not in row["pool"]:
        # The file prints each class by itself; beside a recurrent state SGLang refuses layer_first.
        states = {name for name, kind in spec.attentions.items() if isinstance(kind, KimiDelta)}
        spec = replace(
            spec,
            attentions={name: kind for name, kind in spec.attentions.items() if name not in states},
            layers=tuple(tuple(name for name in names if name not in states) for names in spec.layers),
        )
    if row.get("kv") == "fp8_e4m3":
        spec = replace(spec, kv_dtype="fp8_packed" if row["model"] == "DeepSeek-V3.2" else "fp8")
    # A recurrent state has page size 1 in the file whatever the page of the tier is.
    return spec if row["pool"] == "mamba" else replace(spec, page_tokens=row["page_size"])


def pool_of(spec: ModelSpec, name: str, layout: Layout = Layout.PAGE_FIRST) -> KVPoolDescriptor:
    return {pool.name: pool for pool in pools_of(spec, profile=SGLANG, deployment=Deployment(layout=layout))}[
        name
    ]


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_objects_of_a_page_are_those_of_sglang(row):
    layout = Layout(row["layout"])
    pool = pool_of(golden_spec(row), row["pool"], layout)

    actual = [
        num_bytes
        for component in pool.stored_components
        for _, num_bytes in page_segments(component, layout, slot=1, num_slots=3)
    ]

    assert golden_sizes(row) == actual
    assert row.get("n_ptrs_per_page", 0) == len(actual)
    assert row.get("bytes_per_page", 0) == pool.unit_bytes
    assert layout is pool.layout
    if layout in STORABLE_LAYOUTS:
        assert [component.object_bytes for component in pool.stored_components] == actual


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_layers_of_a_pool_are_those_of_sglang(row):
    pool = pool_of(golden_spec(row), row["pool"])

    expected = row.get("layer_num", row.get("mamba_layers"))
    assert {expected} - {0} == {component.num_layers for component in pool.components}


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_sizes_of_a_token_are_those_of_sglang(row):
    """``get_size_per_token`` is of a token; of a state for one; of a page and a layer for V4's pools."""
    pool = pool_of(golden_spec(row), row["pool"])
    whole = pool.unit_bytes
    keys = sum(part.object_bytes for part in pool.stored_components if part.name != "v")
    if row["pool"] == "mamba":
        per = 1
    elif row["model"].startswith("DeepSeek-V4"):
        per = max(row["layer_num"], 1)  # the anchor has no layer and no byte
    else:
        per = row["page_size"]
    assert (row["size_per_token"] * per, row["get_ksize_per_token"] * per) == (whole, keys)


CHECKED = {
    *("model", "pool", "layout", "page_size", "kv"),  # which row it is
    *("n_ptrs_per_page", "element_sizes_page0", "bytes_per_page", "layer_num", "mamba_layers"),
    *("size_per_token", "get_ksize_per_token"),
}
FACTORS = {
    *("host_pool_page_size", "dtype", "kv_heads", "head_dim", "v_head_dim", "kv_cache_dim", "item_bytes"),
    *("kv_lora_rank", "qk_rope_head_dim", "packed_fp8", "state_page_bytes", "ring_size", "temporal_shape"),
    *("conv_shapes", "temporal_dtype", "conv_dtype", "kind", "index_head_dim", "indexer_layers"),
}
"""What the classes were built with: factors of the sizes that are compared, and no figure of their own."""


def test_no_field_of_the_golden_file_is_passed_over():
    assert {field for row in ROWS for field in row} == CHECKED | FACTORS


NOT_COMPARED = {
    "split_heads mha_suffix": "part of the keys of 'split_heads tp1of2 lcm4', which are compared whole",
    "MHA layer_first": "an error of SGLang; here the registry refuses the layout before a byte moves",
    "MHA-class SWA pool on an MLA backend": "K and V under one key; refused under SGLang's key scheme",
    "paged (no v_buffer) SWA pool on a non-MLA backend": "an error of SGLang; refused here as well",
    "python_reference_chain": "the same hashes as 'get_hash_str([1..8], page 4)'",
}
"""Entries of the golden file that no test compares, and why."""


def test_every_key_and_hash_of_the_golden_file_is_compared_or_has_a_reason():
    tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    entries = {*GOLDEN["key_misc"], *GOLDEN["page_hash"]}
    assert {entry for entry in entries if f'["{entry}"]' not in tests} == set(NOT_COMPARED)
    compared = {"pools", "keys", "key_misc", "lookups", "page_hash", "storage_batch_size"}
    assert set(GOLDEN) == {"source", "units"} | compared
    assert GOLDEN["storage_batch_size"] == BATCH_PAGES


def test_every_model_of_the_golden_file_is_covered():
    assert {row["model"] for row in GOLDEN["pools"]} == set(PRESET_OF)


@pytest.mark.parametrize(("model", "preset"), PRESET_OF.items())
def test_a_preset_has_exactly_the_pools_of_sglang(model, preset):
    expected = {row["pool"] for row in ROWS if row["model"] == model}
    assert expected == {pool.name for pool in pools_of(load_model(preset).spec, profile=SGLANG)}


# facts/geometry.md §3: objects of one page, trailing pages of the engine (None: all pages), ranks.
TABLE: dict[str, dict[str, tuple[tuple[int, ...], int | None, Sharding]]] = {
    "llama-3.1-8b": {"kv": ((4_194_304, 4_194_304), None, Sharding.SHARDED)},
    "llama-3.1-70b": {"kv": ((10_485_760, 10_485_760), None, Sharding.SHARDED)},
    "deepseek-v3": {"kv": ((4_497_408,), None, Sharding.REPLICATED)},
    "deepseek-v3.2": {
        "kv": ((4_497_408,), None, Sharding.REPLICATED),
        "indexer": ((515_328,), None, Sharding.REPLICATED),
    },
    "deepseek-v4-flash": {
        "kv": ((), None, Sharding.REPLICATED),
        "swa": ((6_439_680,), 1, Sharding.REPLICATED),
        "deepseek_v4_c4": ((786_240,), None, Sharding.REPLICATED),
        "deepseek_v4_c4_indexer": ((177_408,), None, Sharding.REPLICATED),
        "deepseek_v4_c128": ((34_560,), None, Sharding.REPLICATED),
        "deepseek_v4_c4_state": ((1_376_256,), 1, Sharding.REPLICATED),
        "deepseek_v4_c4_indexer_state": ((344_064,), 1, Sharding.REPLICATED),
    },
    "kimi-linear-48b-a3b": {
        "kv": ((516_096,), None, Sharding.REPLICATED),
        "mamba": ((41_943_040, 1_474_560), 1, Sharding.SHARDED),
    },
    "qwen3-next-80b-a3b": {
        "kv": ((786_432, 786_432), None, Sharding.SHARDED),
        "mamba": ((75_497_472, 1_769_472), 1, Sharding.SHARDED),
    },
    "gpt-oss-120b": {
        "kv": ((1_179_648, 1_179_648), None, Sharding.SHARDED),
        "swa": ((1_179_648, 1_179_648), 2, Sharding.SHARDED),
    },
    "llama-4-scout": {
        "kv": ((1_572_864, 1_572_864), None, Sharding.SHARDED),
        "swa": ((4_718_592, 4_718_592), 128, Sharding.SHARDED),
    },
}


def trailing_pages(pool: KVPoolDescriptor) -> int | None:
    if pool.hit_policy is HitPolicy.ALL_PAGES:
        return None
    return max(1, ceil((pool.engine_window_tokens or 0) / pool.page_tokens))


@pytest.mark.parametrize("preset", TABLE)
def test_pools_agree_with_the_published_table(preset):
    pools = pools_of(load_model(preset).spec, profile=SGLANG)

    actual = {
        pool.name: (
            tuple(component.object_bytes for component in pool.stored_components),
            trailing_pages(pool),
            pool.sharding,
        )
        for pool in pools
    }

    assert TABLE[preset] == actual
    assert next(iter(TABLE[preset])) == pools[0].name, "the anchor comes first"


def test_a_full_v4_page_and_its_all_pages_part():
    pools = pools_of(load_model("deepseek-v4-flash").spec, profile=SGLANG)
    assert 9_158_208 == sum(pool.unit_bytes for pool in pools)
    assert 998_208 == sum(pool.unit_bytes for pool in pools if pool.hit_policy is HitPolicy.ALL_PAGES)


def test_the_logical_anchor_owns_nothing():
    anchor = pool_of(load_model("deepseek-v4-flash").spec, "kv")
    assert (AttentionType.LOGICAL, 0, ()) == (anchor.attention, anchor.unit_bytes, anchor.components)
    assert not anchor.constrains


@pytest.mark.parametrize(
    ("preset", "window", "engine_window"),
    [("gpt-oss-120b", 128, 127), ("llama-4-scout", 8192, 8192), ("deepseek-v4-flash", 128, 128)],
)
def test_windows_of_model_and_engine(preset, window, engine_window):
    pool = pool_of(load_model(preset).spec, "swa")
    assert (window, engine_window) == (pool.window_tokens, pool.engine_window_tokens)


@pytest.mark.parametrize(
    ("preset", "pool", "index", "top_k", "group_tokens"),
    [
        ("deepseek-v3.2", "kv", "indexer", 2048, 1),
        ("deepseek-v4-flash", "deepseek_v4_c4", "deepseek_v4_c4_indexer", 512, 4),
    ],
)
def test_an_index_selects_blocks_of_one_pool(preset, pool, index, top_k, group_tokens):
    pools = pools_of(load_model(preset).spec, profile=SGLANG)
    selected = {entry.name: entry.selection for entry in pools if entry.selection}
    assert [pool] == list(selected)
    selection = selected[pool]
    assert (index, top_k, group_tokens) == (selection.index_pool, selection.top_k, selection.group_tokens)


def test_sliding_layers_of_an_unlisted_architecture_stay_in_the_dense_pool():
    # Gemma-3: SGLang keeps its windowed layers in one pool with the full ones; by_kind takes them apart.
    spec = ModelSpec(
        name="gemma-3-27b",
        architecture="Gemma3ForConditionalGeneration",
        attentions={
            "full": FullAttention(kv_heads=16, head_dim=128),
            "window": SlidingWindow(kv_heads=16, head_dim=128, window=1024),
        },
        layers=(("window",),) * 52 + (("full",),) * 10,
        page_tokens=64,
        engine_default_page_tokens=1,
    )

    (dense,) = pools_of(spec, profile=SGLANG)
    full, window = pools_of(spec, profile=BY_KIND)

    assert ("kv", 32_505_856, None) == (dense.name, dense.unit_bytes, trailing_pages(dense))
    assert dense.unit_bytes == full.unit_bytes + window.unit_bytes
    assert ("swa", 16) == (window.name, trailing_pages(window))


def test_kitchen_sink_has_every_kind_at_once():
    preset = load_model("kitchen-sink")
    pools = {pool.name: pool for pool in pools_of(preset.spec, profile=preset.profile)}

    assert {
        "kv": AttentionType.LOGICAL,
        "mla": AttentionType.MLA,
        "swa": AttentionType.SWA,
        "mamba": AttentionType.RECURRENT,
        "indexer": AttentionType.SPARSE_INDEX,
    } == {name: pool.attention for name, pool in pools.items()}
    assert {"mla": "indexer"} == {
        pool.name: pool.selection.index_pool for pool in pools.values() if pool.selection
    }
    pages = 8192 // preset.spec.page_tokens
    assert pages * sum(pool.unit_bytes for pool in pools.values()) < 200_000_000
    with pytest.raises(ConfigError, match="cannot serve"):
        pools_of(preset.spec, profile=SGLANG)


@pytest.mark.parametrize("preset", sorted(TABLE))
@pytest.mark.parametrize("tp_size", [2, 4, 8])
def test_sharded_pools_shrink_with_ranks_and_replicated_ones_do_not(preset, tp_size):
    spec = load_model(preset).spec
    whole = pools_of(spec, profile=SGLANG)
    shard = pools_of(spec, profile=SGLANG, rank=Rank(tp_rank=tp_size - 1, tp_size=tp_size))
    kv_heads = getattr(spec.attentions.get("full"), "kv_heads", tp_size)

    for one, part in zip(whole, shard, strict=True):
        if one.sharding is Sharding.REPLICATED:
            expected = one.unit_bytes
        elif one.attention is AttentionType.RECURRENT:
            expected = one.unit_bytes // tp_size
        else:
            # Fewer heads than ranks are replicated: no rank holds less than one.
            expected = one.unit_bytes // min(tp_size, kv_heads)
        assert expected == part.unit_bytes, one.name


def test_v4_pages_of_another_size_are_refused():
    spec = replace(load_model("deepseek-v4-flash").spec, page_tokens=64)
    with pytest.raises(ConfigError, match=r"256 tokens only.*64"):
        pools_of(spec, profile=SGLANG)


@pytest.mark.parametrize("profile", [SGLANG, BY_KIND])
def test_a_stage_of_v4_without_compressed_layers_has_its_window(profile):
    """43 layers on 16 stages: the first two are windows, which SGLang builds as KV and SWA."""
    spec = load_model("deepseek-v4-flash").spec
    deployment = Deployment(pp_size=16)
    stages = [pools_of(spec, profile=profile, deployment=deployment, rank=rank) for rank in deployment.ranks]
    assert [("kv", 0), ("swa", 2 * 149_760)] == [(pool.name, pool.unit_bytes) for pool in stages[0]]
    assert 9_158_208 == sum(pool.unit_bytes for pools in stages for pool in pools)


WINDOW_ROWS = LatentWindow(nope_dim=448, rope_dim=64, window=128)
FULL = FullAttention(kv_heads=2, head_dim=8)
C128 = CompressedAttention(ratio=128, nope_dim=448, rope_dim=64)


@pytest.mark.parametrize("profile", [SGLANG, BY_KIND])
@pytest.mark.parametrize("logical_anchor", [False, True])
@pytest.mark.parametrize(
    ("attentions", "message"),
    [
        ({"full": FULL, "rows": WINDOW_ROWS}, "latent_window have a pool only in a model with compressed"),
        ({"full": FULL, "c128": C128}, "full cannot stand beside compressed ones"),
    ],
    ids=["no compressed layers", "other layers"],
)
def test_layers_without_a_pool_are_refused_and_not_left_out(profile, logical_anchor, attentions, message):
    spec = replace(
        load_model("deepseek-v4-flash").spec,
        attentions=attentions,
        layers=tuple((name,) for name in attentions),
        logical_anchor=logical_anchor,
    )
    with pytest.raises(ConfigError, match=message):
        pools_of(spec, profile=profile)


@pytest.mark.parametrize(
    ("text", "sglang", "by_kind"),
    [
        (
            {"model_type": "gemma4_text", "num_hidden_layers": 42, "num_kv_shared_layers": 18}
            | {"layer_types": [*["sliding_attention"] * 5, "full_attention"] * 7, "global_head_dim": 512},
            {"kv": 7, "swa": 35},
            {"kv": 4, "swa": 20},
        ),
        (
            {"model_type": "gemma3n_text", "num_hidden_layers": 35, "num_kv_shared_layers": 15}
            | {"layer_types": [*["sliding_attention"] * 4, "full_attention"] * 7},
            {"kv": 35},
            {"kv": 4, "swa": 16},
        ),
    ],
    ids=["gemma-4", "gemma-3n"],
)
def test_sglang_allocates_layers_that_only_read_what_others_cached(text, sglang, by_kind):
    """Its pools count attention types: configs/model_config.py (get_hybrid_layer_ids), layer_setup.py."""
    heads = {"hidden_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256}
    head = {"gemma4_text": "Gemma4", "gemma3n_text": "Gemma3n"}[text["model_type"]]
    config = {"architectures": [f"{head}ForCausalLM"], "vocab_size": 262144, "sliding_window": 512}
    spec = import_config(config | heads | text).spec
    for profile, layers in ((SGLANG, sglang), (BY_KIND, by_kind)):
        pools = pools_of(spec, profile=profile)
        assert layers == {pool.name: pool.components[0].num_layers for pool in pools}
    stages = Deployment(pp_size=2)
    found = [pools_of(spec, profile=SGLANG, deployment=stages, rank=rank) for rank in stages.ranks]
    for name, count in sglang.items():
        parts = [pool.components[0].num_layers for pools in found for pool in pools if pool.name == name]
        assert count == sum(parts)


def test_fp4_index_keys_of_v4():
    spec = replace(load_model("deepseek-v4-flash").spec, index_dtype="fp4")
    assert 21 * 64 * 68 == pool_of(spec, "deepseek_v4_c4_indexer").unit_bytes


def test_an_unknown_profile_is_refused_with_those_that_exist():
    with pytest.raises(ConfigError, match=rf"'vllm'.*{SGLANG}.*{BY_KIND}"):
        pools_of(load_model("deepseek-v3").spec, profile="vllm")
