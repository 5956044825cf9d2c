from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hicache_bench.errors import ConfigError
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.geometry import Component, split_heads
from hicache_bench.pools.keys import (
    KeyBuilder,
    NamespacedKeyBuilder,
    SglangKeyBuilder,
    has_mla_anchor,
    namespace_seed,
    page_hashes,
)
from hicache_bench.pools.names import AttentionType, Layout, PoolName, Sharding
from tests.golden_file import golden
from tests.pool_builders import pool, window_pool

K_AND_V = (Component("k", 1, 1, 64), Component("v", 1, 1, 64))
STATE = (Component("temporal", 1, 1, 64), Component("conv_0", 1, 1, 8))
LATENT = (Component("k", 1, 1, 64),)


def tokens(*values: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.array(values, dtype=np.uint32)


def test_page_hashes_and_seeds_are_sglangs() -> None:
    expected = golden()["page_hash"]
    assert expected["get_hash_str([1..8], page 4)"] == page_hashes(tokens(*range(1, 9)), 4)
    assert [expected["get_hash_str([1..4])"]] == page_hashes(tokens(1, 2, 3, 4, 5), 4)
    assert expected["namespace_seed(None,None)"] is namespace_seed(None, None)
    assert expected["namespace_seed('lora-a',None)"] == namespace_seed("lora-a", None)
    assert expected["namespace_seed(None,'salt')"] == namespace_seed(None, "salt")


def test_a_hash_is_the_documented_chain() -> None:
    first = hashlib.sha256(b"\x05\0\0\0\x06\0\0\0").digest()
    second = hashlib.sha256(first + b"\x07\0\0\0\xff\xff\xff\xff").hexdigest()
    assert [first.hex(), second] == page_hashes(tokens(5, 6, 7, 2**32 - 1), 2)


def test_a_chain_continues_from_its_parent_only() -> None:  # cases E10
    whole = page_hashes(tokens(*range(64)), 4)
    assert whole[4:] == page_hashes(tokens(*range(16, 64)), 4, parent=whole[3])
    assert not set(whole) & set(page_hashes(tokens(*range(16, 64)), 4))


def test_adapter_and_salt_seed_every_descendant() -> None:  # cases E41
    seeds = [(None, None), ("a", None), (None, "a"), ("", None), (None, ""), ("a", "bc"), ("ab", "c")]
    chains = [set(page_hashes(tokens(*range(64)), 4, parent=namespace_seed(*pair))) for pair in seeds]
    assert all(not a & b for a, b in combinations(chains, 2))


def test_keys_do_not_depend_on_the_process() -> None:  # cases E43
    script = (
        "import numpy as np; from hicache_bench.pools.keys import *;"
        "print(NamespacedKeyBuilder('d', salt='s').namespace, page_hashes(np.arange(8, dtype=np.uint32), 4))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert 1 == len(outputs)


SGLANG_POOLS = {
    "kv": (AttentionType.FULL, K_AND_V),
    "mamba": (AttentionType.RECURRENT, STATE),
    "swa": (AttentionType.SWA, K_AND_V),
    "draft": (AttentionType.FULL, K_AND_V),
    "draft_swa": (AttentionType.FULL, K_AND_V),
}


def golden_pool(name: str, *, is_mla: bool, rank: Rank) -> KVPoolDescriptor:
    kind, components = SGLANG_POOLS.get(name, (AttentionType.COMPRESSED, (Component("page", 1, 1, 64),)))
    fields: dict[str, Any] = {"window_tokens": 16} if kind is AttentionType.SWA else {}
    if is_mla and name == "kv":
        kind, components = AttentionType.MLA, LATENT
    if is_mla and name == "swa":
        components = (Component("page", 1, 1, 64),)
    if name == "draft(MLA draft pool)":
        name, kind, components = "draft", AttentionType.MLA, LATENT
    return pool(name, kind, components=components, rank=rank, **fields)


def row_name(row: dict[str, Any]) -> str:
    return f"mla={row['is_mla']} tp{row['tp_rank']} pp{row['pp_rank']}of{row['pp_size']}"


@pytest.mark.parametrize("row", golden()["keys"], ids=row_name)
def test_sglang_keys_are_byte_for_byte_those_of_sglang(row: dict[str, Any]) -> None:
    rank = Rank(
        tp_rank=row["tp_rank"], tp_size=row["tp_size"], pp_rank=row["pp_rank"], pp_size=row["pp_size"]
    )
    builder = SglangKeyBuilder(mla_backend=row["is_mla"])
    names = [name for name, value in row.items() if isinstance(value, list)]
    assert {str(name) for name in PoolName} - {"mla", "full", "chunked"} <= {*names, "draft(MLA draft pool)"}
    for name in names:
        assert row[name] == builder.keys(golden_pool(name, is_mla=row["is_mla"], rank=rank), ["h0"]), name


def test_sglang_prefixes() -> None:
    expected = golden()["key_misc"]
    tagged = SglangKeyBuilder(
        mla_backend=True, extra_backend_tag="tagA", model_name="deepseek-ai/DeepSeek-V3"
    )
    assert expected["prefix tag+model (MLA)"] == tagged.keys(
        pool("kv", AttentionType.MLA, components=LATENT), ["h0"]
    )
    named = SglangKeyBuilder(mla_backend=False, model_name="meta-llama/Llama-3.1-8B")
    assert expected["prefix model (MHA)"] == named.keys(
        pool("kv", AttentionType.FULL, components=K_AND_V), ["h0"]
    )


@pytest.mark.parametrize(
    ("tag", "model", "expected"),
    [
        (None, None, "h0__k"),
        ("", None, "_h0__k"),
        ("", "o/m", "_o-m_h0__k"),
        ("t", "", "t_h0__k"),
        (None, "o/m", "o-m_h0__k"),
    ],
)
def test_an_empty_tag_is_a_tag_to_sglang_and_an_empty_model_name_is_none(
    tag: str | None, model: str | None, expected: str
) -> None:
    """SGLang 0.5.23 ``mooncake_store.py``: ``is not None`` for the one, truth for the other."""
    builder = SglangKeyBuilder(mla_backend=True, extra_backend_tag=tag, model_name=model)
    assert [expected] == builder.keys(pool("kv", AttentionType.MLA, components=LATENT), ["h0"])


def test_sglang_splits_heads_chunk_by_chunk() -> None:
    expected = golden()["key_misc"]
    rank = Rank(tp_rank=1, tp_size=2)
    heads = (Component("k", 1, 1, 64, heads=4), Component("v", 1, 1, 64, heads=4))
    chunks = split_heads(heads, tp_rank=1, tp_size=2, tp_lcm=4)
    cut = pool("kv", AttentionType.FULL, components=chunks, rank=rank, sharding=Sharding.SHARDED)
    builder = SglangKeyBuilder(mla_backend=False)
    assert expected["split_heads tp1of2 lcm4"] == builder.keys(cut, ["h0"])
    with pytest.raises(ConfigError, match="splits the heads of pool 'kv' alone"):
        builder.templates(replace(cut, name="draft"))


def test_sglang_writes_the_topology_of_decode_context_ranks() -> None:
    suffix, prefix = golden()["key_misc"]["dcp2 suffix/prefix"]
    rank = Rank(tp_rank=1, tp_size=2, dcp_rank=1, dcp_size=2)
    latent = pool("kv", AttentionType.MLA, components=LATENT, rank=rank, page_tokens=8, dcp_sharded=True)
    builder = SglangKeyBuilder(mla_backend=True, model_name="o/m")
    assert [f"{prefix}_h0_{suffix}_k"] == builder.keys(latent, ["h0"])


def test_what_sglang_cannot_key_is_refused() -> None:
    builder = SglangKeyBuilder(mla_backend=True)
    for name in ("mla", "full", "chunked"):
        with pytest.raises(ConfigError, match="no pool of that name"):
            builder.templates(pool(name, AttentionType.MLA, components=LATENT))
    with pytest.raises(ConfigError, match="context-parallel ranks apart"):
        builder.templates(pool("kv", AttentionType.MLA, components=LATENT, cp_sharded=True))

    paged = window_pool("swa", 16)
    with pytest.raises(ConfigError, match="key-scheme namespaced"):
        SglangKeyBuilder(mla_backend=False).templates(paged)
    with pytest.raises(ConfigError, match="key-scheme namespaced"):
        SglangKeyBuilder(mla_backend=True).templates(replace(paged, components=K_AND_V))
    scaled = pool("kv", AttentionType.FULL, components=(*K_AND_V, Component("scale", 1, 1, 8)))
    with pytest.raises(ConfigError, match="scale"):
        SglangKeyBuilder(mla_backend=False).templates(scaled)


@pytest.mark.parametrize(
    ("kind", "is_mla"),
    [(AttentionType.MLA, True), (AttentionType.LOGICAL, True), (AttentionType.FULL, False)],
)
def test_the_anchor_decides_whether_a_backend_is_an_mla_one(kind: AttentionType, is_mla: bool) -> None:
    assert is_mla == has_mla_anchor([pool("kv", kind), pool("indexer", AttentionType.SPARSE_INDEX)])
    assert not has_mla_anchor([pool("indexer", AttentionType.SPARSE_INDEX)])


BASE = pool("kv", AttentionType.FULL, components=K_AND_V, sharding=Sharding.SHARDED, rank=Rank(0, 4))


def keys_of(subject: KVPoolDescriptor, digest: str = "model", salt: str | None = None) -> set[str]:
    return set(NamespacedKeyBuilder(digest, salt=salt).keys(subject, ["h0", "h1"]))


def test_any_change_of_identity_changes_every_key() -> None:  # cases E33
    variants = [
        keys_of(BASE),
        keys_of(replace(BASE, dtype="fp8")),
        keys_of(replace(BASE, layout=Layout.PAGE_HEAD)),
        keys_of(replace(BASE, page_tokens=32)),
        keys_of(replace(BASE, unit_pages=2)),
        keys_of(replace(BASE, attention=AttentionType.MLA)),
        keys_of(replace(BASE, name="draft")),
        keys_of(replace(BASE, rank=Rank(1, 4))),
        keys_of(replace(BASE, rank=Rank(0, 8))),
        keys_of(replace(BASE, rank=Rank(0, 4, pp_rank=0, pp_size=2))),
        keys_of(replace(BASE, rank=Rank(0, 4, pp_rank=1, pp_size=2))),
        keys_of(replace(BASE, cp_sharded=True, rank=Rank(0, 4, cp_rank=0, cp_size=2))),
        keys_of(replace(BASE, cp_sharded=True, rank=Rank(0, 4, cp_rank=1, cp_size=2))),
        keys_of(replace(BASE, dcp_sharded=True, rank=Rank(0, 4, dcp_rank=0, dcp_size=2))),
        keys_of(replace(BASE, dcp_sharded=True, rank=Rank(0, 4, dcp_rank=1, dcp_size=2))),
        keys_of(replace(BASE, components=(Component("k", 2, 1, 64), Component("v", 2, 1, 64)))),
        keys_of(replace(BASE, components=(Component("k", 1, 2, 32), Component("v", 1, 2, 32)))),
        keys_of(BASE, digest="another revision"),
        keys_of(BASE, salt="tenant"),
        keys_of(BASE, salt=""),
    ]
    assert all(4 == len(keys) for keys in variants)
    assert all(not a & b for a, b in combinations(variants, 2))


def test_a_replicated_pool_has_one_key_on_any_tp_size_and_a_sharded_one_a_key_per_rank() -> None:  # E35
    latent = pool("kv", AttentionType.MLA, components=LATENT)
    state = pool("mamba", AttentionType.RECURRENT, components=STATE, sharding=Sharding.SHARDED)
    ranks = [Rank(rank, size) for size in (1, 2, 8) for rank in range(size)]
    assert 2 == len(set().union(*(keys_of(replace(latent, rank=rank)) for rank in ranks)))
    assert 2 * 2 * len(ranks) == len(set().union(*(keys_of(replace(state, rank=rank)) for rank in ranks)))


def test_pipeline_stages_never_share_a_key() -> None:  # cases E36: MLA, TP8 x PP2 -> 2 keys a page
    latent = pool("kv", AttentionType.MLA, components=LATENT)
    ranks = [Rank(tp, 8, pp, 2) for tp in range(8) for pp in range(2)]
    builders: list[KeyBuilder] = [NamespacedKeyBuilder("m"), SglangKeyBuilder(mla_backend=True)]
    for builder in builders:
        assert 2 == len({key for rank in ranks for key in builder.keys(replace(latent, rank=rank), ["h0"])})


@pytest.mark.parametrize(
    ("first", "second"),
    [(("a/b", "c"), ("a", "b/c")), (("a%2Fb", "c"), ("a/b", "c")), (("a", ""), ("a/", "x"))],
)
def test_a_separator_in_a_field_is_not_a_separator(first: tuple[str, str], second: tuple[str, str]) -> None:
    builder = NamespacedKeyBuilder("m")
    one, two = (
        builder.keys(pool(name, AttentionType.MLA, dtype=dtype or "-", components=LATENT), ["h"])
        for name, dtype in (first, second)
    )
    assert one != two
    assert 12 == one[0].count("/") == two[0].count("/")


TEXT = st.text(alphabet=st.sampled_from("ab/%_ é.\n\ud800"), min_size=1, max_size=4)


@given(first=st.tuples(TEXT, TEXT, TEXT), second=st.tuples(TEXT, TEXT, TEXT))
def test_no_two_tuples_give_one_key_whatever_characters_they_hold(
    first: tuple[str, str, str], second: tuple[str, str, str]
) -> None:
    assume(first != second)
    builder = NamespacedKeyBuilder("m")
    one, two = (
        builder.keys(
            pool(name, AttentionType.MLA, dtype=dtype, components=(Component(part, 1, 1, 64),)), ["h"]
        )
        for name, dtype, part in (first, second)
    )
    assert one != two


def test_a_component_without_bytes_has_no_key() -> None:  # cases E26
    convs = tuple(Component(f"conv_{i}", 1, 1, 8) for i in range(3))
    state = pool("mamba", AttentionType.RECURRENT, components=(Component("temporal", 1, 1, 0), *convs))
    assert 3 == len(NamespacedKeyBuilder("m").keys(state, ["h0"]))
    assert ["h0_0_conv_0", "h0_0_conv_1", "h0_0_conv_2"] == SglangKeyBuilder(mla_backend=False).keys(
        state, ["h0"]
    )


def test_a_logical_pool_has_no_key() -> None:
    assert [] == NamespacedKeyBuilder("m").keys(pool("kv", AttentionType.LOGICAL), ["h0", "h1"])


def test_keys_come_page_by_page() -> None:
    builder = SglangKeyBuilder(mla_backend=False)
    assert ["h0_0_k", "h0_0_v", "h1_0_k", "h1_0_v"] == builder.keys(
        replace(BASE, rank=Rank(0, 4)), ["h0", "h1"]
    )
    assert ["h0_0_k", "h0_0_v"] == [template.key("h0") for template in builder.templates(BASE)]


def test_namespaced_keys_are_stable_across_releases() -> None:
    """Objects outlive processes: a changed literal here makes every stored prefix a miss."""
    key = NamespacedKeyBuilder("m").keys(pool("kv", AttentionType.MLA, components=LATENT), ["h0"])
    assert [
        "hcb1/592d6a217a7ba7b9da529309e790ad1b/page_first/mla/kv/bf16/p16u1/l1r1b64h1/tp-/pp0of1/cp-/k/h0"
    ] == key
