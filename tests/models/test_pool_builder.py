"""Pools over ranks: what each holds, what the cluster holds, and what stays apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.config.load import list_presets, load_model
from hicache_bench.errors import ConfigError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.engine_profile import BY_KIND, SGLANG, cluster_pools, pools_of
from hicache_bench.models.spec import FullAttention, Mamba2, ModelSpec, ShortConv, SparseIndex, StateTensor
from hicache_bench.planning.policy import TransferPolicy, first_needed_at
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.keys import NamespacedKeyBuilder, SglangKeyBuilder
from hicache_bench.pools.names import Layout, Sharding

PRESETS = [preset.name for preset in list_presets()]


def named(pools: tuple[KVPoolDescriptor, ...]) -> dict[str, KVPoolDescriptor]:
    return {pool.name: pool for pool in pools}


def cluster_bytes(spec: ModelSpec, profile: str, deployment: Deployment) -> dict[str, int]:
    """Bytes that a page of each pool takes in the store: every distinct shard once."""
    shards = {
        (pool.name, component.name, pool.shard_of(component)): component.object_bytes
        for pools in cluster_pools(spec, profile=profile, deployment=deployment).values()
        for pool in pools
        for component in pool.stored_components
    }
    totals: dict[str, int] = {}
    for (name, _, _), num_bytes in shards.items():
        totals[name] = totals.get(name, 0) + num_bytes
    return totals


@settings(deadline=None, max_examples=150)
@given(
    name=st.sampled_from(PRESETS),
    by_kind=st.booleans(),
    tp_size=st.sampled_from([1, 2, 4, 8]),
    pp_size=st.sampled_from([1, 2, 3]),
)
def test_ranks_sum_to_the_whole_model(name, by_kind, tp_size, pp_size):
    """K, V and states are shared out, rows that every rank needs are stored once; stages hold layers each."""
    preset = load_model(name)
    profile = BY_KIND if by_kind else preset.profile
    whole = named(pools_of(preset.spec, profile=profile))
    try:
        found = cluster_bytes(preset.spec, profile, Deployment(tp_size=tp_size, pp_size=pp_size))
    except ConfigError:
        # Stages without an anchor, heads that do not divide, MiniMax-M3 on two stages.
        assert tp_size * pp_size > 1
        return
    assert set(found) == {name for name, pool in whole.items() if not pool.is_logical}
    for pool_name, num_bytes in found.items():
        pool = whole[pool_name]
        if pool.sharding is Sharding.REPLICATED or pool_name != "mamba":
            heads = min(component.heads for component in pool.components)
            copies = max(1, tp_size // heads) if pool.sharding is Sharding.SHARDED else 1
            assert num_bytes == copies * pool.unit_bytes, pool_name
        else:  # groups that ranks do not divide are padded
            assert num_bytes >= pool.unit_bytes


@settings(deadline=None, max_examples=150)
@given(name=st.sampled_from(PRESETS), by_kind=st.booleans(), data=st.data())
def test_bytes_are_additive_over_layers(name, by_kind, data):
    """Any two parts of a model hold what the whole holds, pool by pool."""
    preset = load_model(name)
    profile = BY_KIND if by_kind else preset.profile
    layers = preset.spec.layers
    cut = data.draw(st.integers(1, len(layers) - 1))
    try:
        parts = [
            named(pools_of(replace(preset.spec, layers=part), profile=profile))
            for part in (layers[:cut], layers[cut:])
        ]
    except ConfigError:
        # A part of windows or states alone has no pool to anchor it, or no index of its own.
        assert len(preset.spec.attentions) > 1
        return
    for pool_name, pool in named(pools_of(preset.spec, profile=profile)).items():
        assert pool.unit_bytes == sum(part[pool_name].unit_bytes for part in parts if pool_name in part)


@settings(deadline=None, max_examples=150)
@given(
    name=st.sampled_from(PRESETS),
    page_tokens=st.sampled_from([1, 7, 16, 64, 100]),
    end=st.integers(1, 5000),
)
def test_by_kind_never_needs_more_at_any_endpoint(name, page_tokens, end):
    """The ideal grouping reads no byte more than the engine's, whichever of the two policies that has."""
    preset = load_model(name)
    kinds = {type(attention) for attention in preset.spec.attentions.values()}
    one_page_size = preset.spec.logical_anchor or SparseIndex in kinds
    spec = preset.spec if one_page_size else replace(preset.spec, page_tokens=page_tokens)
    ideal, selective, hit = (
        sum(
            pool.unit_bytes * (end - first_needed_at(pool, policy, end))
            for pool in pools
            if not pool.is_logical
        )
        for pools, policy in (
            (pools_of(spec, profile=BY_KIND), TransferPolicy.SELECTIVE),
            (pools_of(spec, profile=preset.profile), TransferPolicy.SELECTIVE),
            (pools_of(spec, profile=preset.profile), TransferPolicy.HIT_POLICY),
        )
    )
    assert 0 < ideal <= min(selective, hit)


def test_kv_heads_fewer_than_ranks_are_stored_more_than_once():
    """Qwen3-235B at TP 8 (12.62 GB at 32,768 tokens in Mooncake's own benchmark), and E38."""
    spec = replace(load_model("qwen3-235b-a22b").spec, page_tokens=1)
    assert {"kv": 192_512} == cluster_bytes(spec, SGLANG, Deployment())
    assert {"kv": 2 * 192_512} == cluster_bytes(spec, SGLANG, Deployment(tp_size=8))
    assert 12.62 == round(2 * 192_512 * 32_768 / 1e9, 2)
    eight_heads = load_model("llama-3.1-8b").spec
    once = cluster_bytes(eight_heads, SGLANG, Deployment())["kv"]
    assert once == cluster_bytes(eight_heads, SGLANG, Deployment(tp_size=8))["kv"]
    assert 2 * once == cluster_bytes(eight_heads, SGLANG, Deployment(tp_size=16))["kv"]


def test_a_latent_is_stored_once_and_a_state_by_every_rank():
    """E35 and E36: a replication factor of the pool, never of the model."""
    spec = load_model("kimi-linear").spec
    deployment = Deployment(tp_size=2)
    builder = SglangKeyBuilder(mla_backend=True)
    keys: dict[str, set[str]] = {}
    for pools in cluster_pools(spec, profile=SGLANG, deployment=deployment).values():
        for pool in pools:
            keys.setdefault(pool.name, set()).update(builder.keys(pool, ["h0"]))
    assert {"h0__k"} == keys["kv"]
    assert {f"h0_{rank}_{part}" for rank in (0, 1) for part in ("temporal", "conv_0")} == keys["mamba"]


@pytest.mark.parametrize(("cp_sharded", "shards"), [(True, 8), (False, 1)])
def test_context_parallel_ranks_share_out_or_hold_copies(cp_sharded, shards):
    """E37: eight keys and writers, or one."""
    deployment = Deployment(cp_size=8, cp_sharded=cp_sharded)
    pools = cluster_pools(load_model("deepseek-v3").spec, profile=BY_KIND, deployment=deployment)
    keys = {key for (pool,) in pools.values() for key in NamespacedKeyBuilder("m").keys(pool, ["h0"])}
    assert shards == len(keys)
    assert 4_497_408 == sum(pool.unit_bytes for (pool,) in pools.values()) * shards // 8


def test_decode_context_ranks_share_a_longer_page():
    """SGLang widens the tier's page to P x DCP; each rank holds P rows of it under its own key."""
    deployment = Deployment(tp_size=4, dcp_size=2)
    pools = cluster_pools(load_model("kimi-linear").spec, profile=SGLANG, deployment=deployment)
    builder = SglangKeyBuilder(mla_backend=True)
    found = {
        key: pool.unit_bytes
        for kv, _ in pools.values()
        for pool in (kv,)
        for key in builder.keys(pool, ["h"])
    }
    prefix = "tp4_dcp2_page128_pp1_cp1_h_"
    assert {f"{prefix}dcp0_cp0_k": 516_096, f"{prefix}dcp1_cp0_k": 516_096} == found
    assert {128} == {pool.page_tokens for both in pools.values() for pool in both}
    states = {key for _, state in pools.values() for key in builder.keys(state, ["h"])}
    assert 4 * 2 == len(states)


def test_split_heads_are_objects_that_two_tp_sizes_share():
    """E40: with an LCM of 4, rank 0 of TP 2 writes what ranks 0 and 1 of TP 4 read."""
    spec = load_model("llama-3.1-8b").spec
    builder = NamespacedKeyBuilder("m")

    def keys(tp_size: int) -> list[list[str]]:
        deployment = Deployment(tp_size=tp_size, tp_lcm=4, layout=Layout.PAGE_HEAD)
        ranks = cluster_pools(spec, profile=SGLANG, deployment=deployment).values()
        assert {8_388_608 // tp_size} == {pool.unit_bytes for (pool,) in ranks}
        return [builder.keys(pool, ["h0"]) for (pool,) in ranks]

    two, four = keys(2), keys(4)
    assert [two[0], two[1]] == [four[0] + four[1], four[2] + four[3]]
    assert two == [keys(1)[0][:4], keys(1)[0][4:]]


def hybrid(**state: object) -> ModelSpec:
    fields: dict[str, object] = {"heads": 4, "head_dim": 8, "state_dim": 16, "groups": 1, "conv_kernel": 4}
    return ModelSpec(
        name="tiny",
        architecture="Tiny",
        attentions={
            "full": FullAttention(kv_heads=2, head_dim=8),
            "state": Mamba2(**{**fields, **state}),  # type: ignore[arg-type]
        },
        layers=(("full",), ("state",)),
        page_tokens=4,
        engine_default_page_tokens=1,
        served_by=(SGLANG,),
    )


def test_every_tensor_of_a_state_counts():
    """E25: a convolution window and a history besides, 184,336 bytes a slot."""
    extra = (
        StateTensor(name="conv_ext", shape=(10_240, 9), dtype="bf16"),
        StateTensor(name="history", shape=(2,), dtype="int64"),
    )
    plain, more = (named(pools_of(hybrid(extra=tensors), profile=SGLANG))["mamba"] for tensors in ((), extra))
    assert 184_336 == more.unit_bytes - plain.unit_bytes
    assert 2 + len(plain.stored_components) == len(NamespacedKeyBuilder("m").keys(more, ["h0"]))
    with pytest.raises(ConfigError, match="no conv_ext, history of a state"):
        SglangKeyBuilder(mla_backend=False).templates(more)


def test_a_state_that_is_a_convolution_alone_has_one_object():
    """E26: a temporal component of 0 bytes has no key, and blocks no hit."""
    spec = replace(
        hybrid(),
        attentions={
            "full": FullAttention(kv_heads=2, head_dim=8),
            "state": ShortConv(channels=64, conv_kernel=3),
        },
    )
    state = named(pools_of(spec, profile=SGLANG))["mamba"]
    assert [("conv_0", 64 * 2 * 2)] == [(part.name, part.object_bytes) for part in state.stored_components]
    assert ["h0_0_conv_0"] == SglangKeyBuilder(mla_backend=False).keys(state, ["h0"])


def test_pools_of_one_model_differ_in_their_layers():
    """E78: 78 latents and 21 index tensors, never one number for all pools."""
    pools = named(pools_of(load_model("glm-5.2").spec, profile=SGLANG))
    assert {"kv": 78, "indexer": 21} == {
        name: component.num_layers for name, pool in pools.items() for component in pool.components
    }


def test_external_scales_are_stored_and_known_to_no_sglang_key():
    """E76: fp8 whose scales lie apart is wrong without them."""
    spec = replace(load_model("llama-3.1-8b").spec, kv_dtype="fp8_scaled", page_tokens=1)
    (pool,) = pools_of(spec, profile=BY_KIND)
    scales = {component.name: component.object_bytes for component in pool.stored_components}["scale"]
    assert 64 * 32 == scales
    assert 3 == len(NamespacedKeyBuilder("m").keys(pool, ["h0"]))
    with pytest.raises(ConfigError, match="no components k, v, scale"):
        SglangKeyBuilder(mla_backend=False).templates(pool)
