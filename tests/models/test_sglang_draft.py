"""Draft (MTP) layers: in the target's pools, as SGLang 0.5.23 packs them, or in pools of their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from hicache_bench.config.load import list_presets, load_model
from hicache_bench.errors import ConfigError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.engine_profile import BY_KIND, SGLANG, cluster_pools, pools_of
from hicache_bench.models.spec import (
    Attention,
    FullAttention,
    LatentWindow,
    MlaAttention,
    ModelSpec,
    SlidingWindow,
    SparseIndex,
)
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.keys import KeyBuilder, NamespacedKeyBuilder, SglangKeyBuilder, has_mla_anchor
from hicache_bench.pools.names import Requirement

DRAFTED = [preset.name for preset in list_presets() if load_model(preset.name).draft_layers]
V4 = replace(load_model("deepseek-v4-flash").spec, draft_layers=(("window",),))
MTP = Deployment(with_draft=True)

# facts/geometry.md: 64 tokens of one layer. An MLA row is 512 + 64 bf16 dims, an index key 128 dims and a
# scale; K and V are 2 heads of 256 bf16 dims.
ROW, KEY, QWEN = 64 * (512 + 64) * 2, 64 * (128 + 4), 2 * 64 * 2 * 256 * 2
PACKED: dict[str, dict[str, int]] = {
    "deepseek-v3": {"kv": (61 + 1) * ROW},
    "deepseek-v3.2": {"kv": (61 + 1) * ROW, "indexer": (61 + 1) * KEY},
    "glm-5": {"kv": (78 + 1) * ROW, "indexer": (78 + 1) * KEY},
    "glm-5.2": {"kv": (78 + 1) * ROW, "indexer": (21 + 1) * KEY},
    "qwen3-next-80b-a3b": {"kv": (12 + 1) * QWEN, "mamba": 77_266_944},
    "qwen3.5-35b-a3b": {"kv": (10 + 1) * QWEN, "mamba": 64_389_120},
    "qwen3.5-397b-a17b": {"kv": (15 + 1) * QWEN, "mamba": 192_061_440},
}


def pages(
    spec: ModelSpec, deployment: Deployment, profile: str = SGLANG, rank: Rank | None = None
) -> dict[str, int]:
    """Bytes of a page of each pool."""
    pools = pools_of(spec, profile=profile, deployment=deployment, rank=rank)
    return {pool.name: pool.unit_bytes for pool in pools}


def keys_of(pools: tuple[KVPoolDescriptor, ...], builder: KeyBuilder) -> set[str]:
    return {key for pool in pools for key in builder.keys(pool, ["h0"])}


def test_every_preset_with_draft_layers_is_in_the_table() -> None:
    assert set(DRAFTED) == set(PACKED)


@pytest.mark.parametrize("name", DRAFTED)
def test_packed_layers_lie_behind_those_of_their_kind(name: str) -> None:
    assert PACKED[name] == pages(load_model(name).spec, MTP)


def test_one_larger_object_and_no_draft_key() -> None:
    """``MLATokenToKVPoolHost`` of DeepSeek-V3: 62 layers, one object a page."""
    (pool,) = pools_of(load_model("deepseek-v3").spec, profile=SGLANG, deployment=MTP)
    assert [4_571_136] == [component.object_bytes for component in pool.stored_components]
    assert ["h0__k"] == SglangKeyBuilder(mla_backend=True).keys(pool, ["h0"])
    assert pool.constrains


@pytest.mark.parametrize("name", DRAFTED)
@pytest.mark.parametrize("tp_size", [1, 2])
def test_packing_adds_layers_and_changes_nothing_else(name: str, tp_size: int) -> None:
    spec = load_model(name).spec
    rows = Counter(attention for names in spec.draft_layers for attention in names)
    pool_of = {"latent": "kv", "full": "kv", "index": "indexer"}
    more = {pool_of[attention]: count for attention, count in rows.items()}
    plain, drafted = (
        pools_of(spec, profile=SGLANG, deployment=Deployment(tp_size=tp_size, with_draft=on))
        for on in (False, True)
    )
    assert more
    assert drafted == tuple(
        replace(
            pool,
            components=tuple(
                replace(component, num_layers=component.num_layers + more.get(pool.name, 0))
                for component in pool.components
            ),
        )
        for pool in plain
    )


@pytest.mark.parametrize("name", DRAFTED)
def test_objects_with_and_without_speculation_are_never_taken_for_each_other(name: str) -> None:
    """The default keys hold the geometry; SGLang's do not, and name objects of two sizes alike."""
    spec = load_model(name).spec
    plain, drafted = (
        pools_of(spec, profile=SGLANG, deployment=Deployment(with_draft=on)) for on in (False, True)
    )
    default = NamespacedKeyBuilder(spec.digest)
    grown = {name for name in PACKED[spec.name] if name != "mamba"}
    for old, new in zip(plain, drafted, strict=True):
        assert keys_of((old,), default).isdisjoint(keys_of((new,), default)) is (old.name in grown)
    own = SglangKeyBuilder(mla_backend=has_mla_anchor(plain))
    assert keys_of(plain, own) == keys_of(drafted, own)
    assert spec.digest == replace(spec, draft_layers=()).digest


def test_the_draft_runs_behind_the_last_stage() -> None:
    """61 layers in stages of 30 and 31."""
    stages = cluster_pools(
        load_model("deepseek-v3.2").spec, profile=SGLANG, deployment=replace(MTP, pp_size=2)
    ).values()
    assert [(30, 30), (32, 32)] == [
        tuple(component.num_layers for pool in pools for component in pool.components) for pools in stages
    ]


@pytest.mark.parametrize("name", DRAFTED)
def test_by_kind_keeps_draft_layers_apart_and_they_never_constrain(name: str) -> None:
    """E28: they make decoding fast; the target's bytes and keys are the same without them."""
    spec = load_model(name).spec
    without, drafted = (
        pools_of(spec, profile=BY_KIND, deployment=Deployment(with_draft=on)) for on in (False, True)
    )
    apart = drafted[len(without) :]
    assert without == drafted[: len(without)]
    sizes = {"draft": ROW, "draft_indexer": KEY} if "indexer" in PACKED[name] else {"draft": ROW}
    assert ({"draft": QWEN} if "mamba" in PACKED[name] else sizes) == {
        pool.name: pool.unit_bytes for pool in apart
    }
    assert {Requirement.SPEED} == {pool.required_for for pool in apart}
    assert not any(pool.constrains for pool in apart)
    # Nothing is lost or added: only the pools differ.
    assert sum(PACKED[name].values()) == sum(pool.unit_bytes for pool in drafted)


def test_v4_packs_its_draft_into_the_window_and_widens_every_ring() -> None:
    """SGLang 0.5.23 ``build_deepseek_v4_hicache_stack`` and ``get_compress_state_ring_size``."""
    plain, drafted = pages(V4, Deployment()), pages(V4, MTP)
    assert {
        "swa": 43 * 149_760,
        "deepseek_v4_c4_state": 1_376_256,
        "deepseek_v4_c4_indexer_state": 344_064,
    } == {name: size for name, size in plain.items() if size != drafted[name]}
    assert {
        "swa": 44 * 149_760,
        "deepseek_v4_c4_state": 2_752_512,
        "deepseek_v4_c4_indexer_state": 688_128,
    } == {name: size for name, size in drafted.items() if size != plain[name]}


def test_v4_rings_are_wide_on_every_stage_and_the_window_grows_on_the_last() -> None:
    """21 c4 layers in stages of 21 and 22 layers; each ring has 16 slots of 4 x 512 fp32 values."""
    found = [pages(V4, replace(MTP, pp_size=2), rank=Rank(pp_rank=stage, pp_size=2)) for stage in range(2)]
    assert [21 * 149_760, (22 + 1) * 149_760] == [sizes["swa"] for sizes in found]
    assert [10 * 16 * 4 * 512 * 4, 11 * 16 * 4 * 512 * 4] == [
        sizes["deepseek_v4_c4_state"] for sizes in found
    ]


def test_by_kind_keeps_the_window_of_a_v4_draft_apart() -> None:
    pools = {pool.name: pool for pool in pools_of(V4, profile=BY_KIND, deployment=MTP)}
    swa, draft = pools["swa"], pools["draft_swa"]
    assert (149_760, 43 * 149_760) == (draft.unit_bytes, swa.unit_bytes)
    assert (draft.window_tokens, draft.hit_policy) == (swa.window_tokens, swa.hit_policy)
    assert Requirement.SPEED is draft.required_for
    assert ["h0__draft_swa"] == SglangKeyBuilder(mla_backend=True).keys(draft, ["h0"])


def test_windowed_draft_layers_lie_in_the_pool_of_windows() -> None:
    """Step-3.5 (``build_hybrid_swa_stack``): 33 windowed layers and an MTP layer of the same window."""
    spec = replace(load_model("step-3.5-flash").spec, draft_layers=(("window",),))
    plain, drafted = pages(spec, Deployment()), pages(spec, MTP)
    assert plain["kv"] == drafted["kv"]
    assert plain["swa"] * 34 == drafted["swa"] * 33
    apart = pages(spec, MTP, BY_KIND)
    assert plain["swa"] == apart["swa"] == apart["draft_swa"] * 33


@pytest.mark.parametrize(
    ("profile", "name", "engine_window"), [(SGLANG, "swa", 127), (BY_KIND, "draft_swa", 128)]
)
def test_windows_of_draft_layers_are_those_of_the_profile(
    profile: str, name: str, engine_window: int
) -> None:
    """SGLang hands its cache 127 of gpt-oss's 128 tokens; ``by_kind`` reads the whole window."""
    spec = replace(load_model("gpt-oss-20b").spec, draft_layers=(("window",),))
    pools = {pool.name: pool for pool in pools_of(spec, profile=profile, deployment=MTP)}
    assert (128, engine_window) == (pools[name].window_tokens, pools[name].engine_window_tokens)


def with_draft(name: str, *known: str, **new: Attention) -> ModelSpec:
    """The preset's model with one draft layer: attentions that the model has, and new ones."""
    spec = load_model(name).spec
    return replace(spec, attentions={**spec.attentions, **new}, draft_layers=((*known, *new),))


HEADS = FullAttention(kv_heads=8, head_dim=128)
ROWS = MlaAttention(kv_lora_rank=256, qk_rope_head_dim=64)
INDEX = SparseIndex(index_head_dim=128, top_k=2048)
WINDOW = SlidingWindow(kv_heads=8, head_dim=64, window=64)
NEAR_ROWS = LatentWindow(nope_dim=448, rope_dim=64, window=64)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (with_draft("deepseek-v3", heads=HEADS), "both full and MLA layers"),
        (with_draft("deepseek-v3", rows=ROWS), "MLA layers of different dims"),
        (with_draft("deepseek-v3", "latent", index=INDEX), "need a pool indexer besides"),
        (with_draft("deepseek-v3.2", "latent"), "1 to pool 'kv' and 0 to pool 'indexer'"),
        (
            with_draft("deepseek-v3", near=NEAR_ROWS),
            "latent_window have a pool only in a model with compressed",
        ),
        (with_draft("qwen3-next-80b-a3b", heads=HEADS), "different KV heads x dims"),
        (with_draft("gpt-oss-20b", near=WINDOW), "windows of one pool must agree"),
        (with_draft("llama-4-scout", near=WINDOW), "sliding and chunked layers"),
        (with_draft("minimax-m3", "full"), "1 to pool 'kv' and 0 to pool 'indexer'"),
        (with_draft("deepseek-v4-flash", near=NEAR_ROWS), "need a pool swa besides"),
        (with_draft("deepseek-v4-flash", heads=HEADS), "full cannot stand beside compressed ones"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else value.name,
)
def test_what_cannot_be_packed_is_refused(spec: ModelSpec, told: str) -> None:
    with pytest.raises(ConfigError, match=r"SGLang 0.5.23 packs draft layers.*leave --draft out") as refused:
        pools_of(spec, profile=SGLANG, deployment=MTP)
    assert told in str(refused.value)


@pytest.mark.parametrize("profile", [SGLANG, BY_KIND])
@pytest.mark.parametrize("kind", ["c4", "c128"])
def test_a_draft_layer_without_a_known_pool_is_refused_and_not_left_out(profile: str, kind: str) -> None:
    spec = replace(V4, draft_layers=(("window", kind),))
    with pytest.raises(ConfigError, match=r"draft layers of attention compressed.*leave --draft out"):
        pools_of(spec, profile=profile, deployment=MTP)


@pytest.mark.parametrize("profile", [SGLANG, BY_KIND])
def test_a_model_without_draft_layers_is_told_on_every_stage(profile: str) -> None:
    spec = load_model("llama-3.1-8b").spec
    for stage in range(2):
        rank = Rank(pp_rank=stage, pp_size=2)
        with pytest.raises(ConfigError, match="no draft layers; leave --draft out"):
            pools_of(spec, profile=profile, deployment=replace(MTP, pp_size=2), rank=rank)


@pytest.mark.parametrize("profile", [SGLANG, BY_KIND])
def test_decode_context_ranks_have_no_draft(profile: str) -> None:
    deployment = replace(MTP, tp_size=2, dcp_size=2)
    with pytest.raises(ConfigError, match=r"draft layers; leave --draft out, or use --dcp 1"):
        pools_of(load_model("deepseek-v3").spec, profile=profile, deployment=deployment)
