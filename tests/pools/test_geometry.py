"""Bytes of a page against what SGLang 0.5.23's host-pool classes print, from dims alone (tests/golden)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.errors import ConfigError
from hicache_bench.pools import geometry
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.layout import page_segments
from hicache_bench.pools.names import Layout

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "sglang-0.5.23.json").read_text())
TORCH_DTYPES = {"torch.bfloat16": "bf16", "torch.float32": "fp32", "torch.uint8": "fp8"}
V4_RATIOS = {"swa": 1, "deepseek_v4_c4": 4, "deepseek_v4_c128": 128}
V4_STATE_DIMS = {"deepseek_v4_c4_state": 512, "deepseek_v4_c4_indexer_state": 128}


def row_id(row: dict) -> str:
    return "-".join([row["model"], row["pool"], row["layout"], f"P{row['page_size']}", row.get("kv", "")])


def components_of(row: dict[str, Any]) -> tuple[Component, ...]:
    """The row's pool, from the dims that the golden file gives beside the sizes."""
    page, pool = row["page_size"], row["pool"]
    if "temporal_shape" in row:
        return geometry.state_components(
            num_layers=row["mamba_layers"],
            temporal_shape=tuple(row["temporal_shape"]),
            conv_shapes=tuple(map(tuple, row["conv_shapes"])),
            temporal_dtype=TORCH_DTYPES[row["temporal_dtype"]],
            conv_dtype=TORCH_DTYPES[row["conv_dtype"]],
        )
    num_layers = row["layer_num"]
    if pool in V4_STATE_DIMS:
        return geometry.compressor_state_components(
            num_layers=num_layers, dim=V4_STATE_DIMS[pool], overlap=True
        )
    if pool == "deepseek_v4_c4_indexer":
        return geometry.index_components(num_layers=num_layers, index_head_dim=128, page_tokens=page // 4)
    if "item_bytes" in row:
        return geometry.compressed_components(num_layers=num_layers, ratio=V4_RATIOS[pool], page_tokens=page)
    if pool == "indexer":
        return geometry.index_components(
            num_layers=row["indexer_layers"], index_head_dim=row["index_head_dim"], page_tokens=page
        )
    if "kv_heads" in row:
        return geometry.kv_components(
            num_layers=num_layers,
            kv_heads=row["kv_heads"],
            head_dim=row["head_dim"],
            v_head_dim=row["v_head_dim"],
            page_tokens=page,
            dtype=TORCH_DTYPES[row["dtype"]],
        )
    if "kv_cache_dim" in row:
        return geometry.mla_components(
            num_layers=num_layers,
            kv_lora_rank=512,
            qk_rope_head_dim=64,
            page_tokens=page,
            dtype="fp8_packed" if row.get("packed_fp8") else TORCH_DTYPES[row["dtype"]],
        )
    return ()


def sizes_of(row: dict) -> list[int]:
    sizes = row.get("element_sizes_page0", [])
    return [sizes["each"]] * sizes["count"] if isinstance(sizes, dict) else sizes


@pytest.mark.parametrize("row", GOLDEN["pools"], ids=row_id)
def test_every_row_of_the_golden_file(row):
    components = components_of(row)
    segments = [
        num_bytes
        for component in components
        for _, num_bytes in page_segments(component, Layout(row["layout"]), slot=0, num_slots=2)
    ]

    assert sizes_of(row) == segments
    assert row.get("n_ptrs_per_page", 0) == len(segments)
    assert row.get("bytes_per_page", 0) == sum(component.object_bytes for component in components)


@pytest.mark.parametrize("row", GOLDEN["pools"], ids=row_id)
def test_sizes_per_token_of_the_golden_file(row):
    components = components_of(row)
    num_bytes = sum(component.object_bytes for component in components)
    first = components[0].object_bytes if components else 0
    if "item_bytes" in row or "state_page_bytes" in row:
        # SGLang's "token" of these pools is a page of one layer.
        assert row["size_per_token"] == num_bytes // row["layer_num"]
    elif "temporal_shape" in row:
        assert row["size_per_token"] == row["get_ksize_per_token"] == num_bytes
    else:
        assert row["size_per_token"] * row["page_size"] == num_bytes
        assert row["get_ksize_per_token"] * row["page_size"] == first


def test_no_row_of_the_golden_file_is_empty_by_mistake():
    without_bytes = {(row["model"], row["pool"]) for row in GOLDEN["pools"] if not components_of(row)}
    assert {("DeepSeek-V4-Flash", "kv")} == without_bytes


# --- kinds that the golden file has no row for --------------------------------------------------------------


def kv(**changes: Any) -> tuple[Component, ...]:
    fields: dict[str, Any] = {
        "num_layers": 1,
        "kv_heads": 8,
        "head_dim": 128,
        "page_tokens": 1,
        "dtype": "bf16",
    }
    return geometry.kv_components(**{**fields, **changes})


def sizes(components: tuple[Component, ...]) -> dict[str, int]:
    return {component.name: component.object_bytes for component in components}


@pytest.mark.parametrize(
    ("num_layers", "kv_heads", "expected"),
    [
        (9, 4, {"k": 64 * 9 * 4 * 192 * 2, "v": 64 * 9 * 4 * 128 * 2}),
        (39, 8, {"k": 64 * 39 * 8 * 192 * 2, "v": 64 * 39 * 8 * 128 * 2}),
    ],
    ids=["full", "swa"],
)
def test_keys_and_values_of_different_dims(num_layers, kv_heads, expected):
    """MiMo-V2-Flash: K 192, V 128."""
    actual = kv(num_layers=num_layers, kv_heads=kv_heads, head_dim=192, v_head_dim=128, page_tokens=64)
    assert expected == sizes(actual)


def test_external_scales_are_64_bytes_a_token_and_layer_for_8_heads():
    """E76: fp32 for each head of K and of V."""
    assert {"k": 1024, "v": 1024, "scale": 64} == sizes(kv(dtype="fp8_scaled"))
    many = kv(dtype="fp8_scaled", num_layers=3, page_tokens=16)
    assert 64 * 3 * 16 == sizes(many)["scale"]
    assert 32 == sizes(kv(dtype="fp8_scaled", tp_size=2))["scale"]


def test_packed_rows_carry_their_scales_inline():
    """E76: 656 bytes add no component. E70: with the index 48,068 bytes a token, 40,016 without."""
    latent = geometry.mla_components(
        num_layers=61, kv_lora_rank=512, qk_rope_head_dim=64, page_tokens=1, dtype="fp8_packed"
    )
    index = geometry.index_components(num_layers=61, index_head_dim=128, page_tokens=1)
    assert {"k": 40_016} == sizes(latent)
    assert 48_068 == latent[0].object_bytes + index[0].object_bytes


def test_an_mla_latent_is_one_row_and_never_two():
    """E69: DeepSeek-V3 is 70,272 bytes a token; counting K and V apart gives 124,928 or more."""
    latent = geometry.mla_components(
        num_layers=61, kv_lora_rank=512, qk_rope_head_dim=64, page_tokens=1, dtype="bf16"
    )
    assert {"k": 70_272} == sizes(latent)


@pytest.mark.parametrize(("tp_size", "heads"), [(1, 4), (2, 2), (4, 1), (8, 1), (16, 1)], ids=str)
def test_heads_split_until_there_is_one_and_are_replicated_from_there(tp_size, heads):
    assert heads == geometry.heads_per_rank(4, tp_size)
    assert heads * 128 * 2 == kv(kv_heads=4, tp_size=tp_size)[0].object_bytes


@pytest.mark.parametrize(("kv_heads", "tp_size"), [(8, 3), (4, 6), (10, 4)])
def test_heads_that_do_not_divide_are_refused(kv_heads, tp_size):
    with pytest.raises(ConfigError, match=f"{kv_heads} KV heads.*TP {tp_size}"):
        geometry.heads_per_rank(kv_heads, tp_size)


def test_a_state_of_convolutions_only_has_no_temporal_bytes():
    """E26: an empty temporal tensor is 0 bytes, hence no key; three convolutions remain three objects."""
    components = geometry.state_components(
        num_layers=2,
        temporal_shape=(),
        conv_shapes=((4, 3), (8, 3), (2, 3)),
        temporal_dtype="fp32",
        conv_dtype="bf16",
    )
    assert {"temporal": 0, "conv_0": 48, "conv_1": 96, "conv_2": 24} == sizes(components)
    empty_axis = geometry.state_components(
        num_layers=2, temporal_shape=(0, 4), conv_shapes=(), temporal_dtype="fp32", conv_dtype="bf16"
    )
    assert {"temporal": 0} == sizes(empty_axis)


@pytest.mark.parametrize(("dtype", "row_bytes"), [("fp8", 132), ("fp4", 68)])
def test_index_rows_hold_one_scale_for_128_dims(dtype, row_bytes):
    assert row_bytes == geometry.index_row_bytes(128, dtype)
    assert 2 * row_bytes == geometry.index_row_bytes(256, dtype)
    (component,) = geometry.index_components(num_layers=3, index_head_dim=128, page_tokens=64, dtype=dtype)
    assert 3 * 64 * row_bytes == component.object_bytes


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(1, 149_760), (4, 37_440), (128, 1_728), (2, 74_880), (256, 1_152)],
)
def test_compressed_rows_are_padded_once_for_a_layer(ratio, expected):
    (component,) = geometry.compressed_components(num_layers=1, ratio=ratio, page_tokens=256)
    assert expected == component.object_bytes
    assert 0 == expected % geometry.V4_ROW_ALIGNMENT
    assert 0 <= expected - 256 // ratio * geometry.V4_ROW_BYTES < geometry.V4_ROW_ALIGNMENT


def test_a_compressed_row_is_fp8_and_rope_and_scales():
    """The golden sizes are padded, and would hide a byte."""
    assert 448 + 64 * 2 + 7 + 1 == geometry.V4_ROW_BYTES


@pytest.mark.parametrize(
    ("dim", "overlap", "expected"), [(512, True, 65_536), (128, True, 16_384), (512, False, 32_768)]
)
def test_a_compressor_state_is_a_ring_of_fp32(dim, overlap, expected):
    (component,) = geometry.compressor_state_components(num_layers=1, dim=dim, overlap=overlap)
    assert expected == component.object_bytes
    (speculative,) = geometry.compressor_state_components(
        num_layers=1, dim=dim, overlap=overlap, ring=geometry.V4_SPECULATIVE_RING
    )
    assert 2 * expected == speculative.object_bytes


@pytest.mark.parametrize("tp_size", [1, 2, 4, 8, 16])
def test_recurrent_states_are_shared_out(tp_size):
    temporal, convs = geometry.gdn_state_shapes(
        key_heads=16, value_heads=32, key_dim=128, value_dim=128, conv_kernel=4, tp_size=tp_size
    )
    assert ((32 // tp_size, 128, 128), ((8192 // tp_size, 3),)) == (temporal, convs)
    temporal, convs = geometry.kda_state_shapes(heads=32, head_dim=128, conv_kernel=4, tp_size=tp_size)
    assert ((32 // tp_size, 128, 128), ((3, 12_288 // tp_size),)) == (temporal, convs)


@pytest.mark.parametrize(
    ("dims", "tp_size", "temporal", "conv"),
    [
        # (heads, head_dim, state_dim, groups), printed by SGLang 0.5.23's Mamba2StateShape.create, kernel 4.
        ((128, 64, 128, 8), 1, (128, 64, 128), (10_240, 3)),
        ((128, 64, 128, 8), 8, (16, 64, 128), (1280, 3)),
        ((128, 64, 128, 8), 16, (8, 64, 128), (768, 3)),
        ((64, 64, 128, 8), 2, (32, 64, 128), (3072, 3)),
        ((64, 64, 128, 8), 16, (4, 64, 128), (512, 3)),
        ((48, 64, 256, 1), 1, (48, 64, 256), (3584, 3)),
        ((48, 64, 256, 1), 2, (24, 64, 256), (2048, 3)),
        ((48, 64, 256, 1), 8, (6, 64, 256), (896, 3)),
    ],
)
def test_mamba2_groups_are_padded_to_one_a_rank(dims, tp_size, temporal, conv):
    heads, head_dim, state_dim, groups = dims
    assert (temporal, (conv,)) == geometry.mamba2_state_shapes(
        heads=heads,
        head_dim=head_dim,
        state_dim=state_dim,
        groups=groups,
        conv_kernel=4,
        tp_size=tp_size,
    )


def test_a_gated_delta_state_is_a_mamba2_one_with_key_heads_as_groups():
    """As printed by SGLang 0.5.23: values before keys, and 16 key heads padded to 32 ranks."""
    dims = {"value_heads": 32, "key_dim": 64, "value_dim": 128, "conv_kernel": 4}
    assert ((32, 128, 64), ((5120, 3),)) == geometry.gdn_state_shapes(key_heads=8, **dims)
    assert ((2, 128, 64), ((384, 3),)) == geometry.gdn_state_shapes(key_heads=8, tp_size=16, **dims)


def test_states_of_the_other_recurrences():
    assert ((2048, 1, 16), ((2048, 3),)) == geometry.mamba1_state_shapes(
        inner_dim=8192, state_dim=16, conv_kernel=4, tp_size=4
    )
    assert ((16, 128, 128), ()) == geometry.lightning_state_shapes(heads=64, head_dim=128, tp_size=4)
    assert ((), ((512, 2),)) == geometry.short_conv_state_shapes(channels=1024, conv_kernel=3, tp_size=2)


def test_a_block_index_is_one_head_in_the_kv_dtype():
    """MiniMax-M3, facts/geometry.md §2: P·L·1·Di·E."""
    (component,) = geometry.block_index_components(num_layers=57, index_head_dim=128, page_tokens=64)
    assert 64 * 57 * 128 * 2 == component.object_bytes


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: geometry.state_components(
                num_layers=1,
                temporal_shape=(),
                conv_shapes=(),
                temporal_dtype="fp32",
                conv_dtype="bf16",
                extra=[("history", (2,), "int65")],
            ),
            "'int65'.*int64",
        ),
        (
            lambda: geometry.split_heads(kv(kv_heads=4), tp_rank=0, tp_size=2, tp_lcm=5),
            "--tp-lcm 5 is not a multiple of TP 2",
        ),
        (
            lambda: geometry.split_heads(kv(kv_heads=4), tp_rank=0, tp_size=1, tp_lcm=8),
            "4 KV heads of a rank into 8 objects; allowed here: 1, 2, 4$",
        ),
        (lambda: geometry.dtype_bytes("int3"), "'int3'.*bf16"),
        (lambda: kv(dtype="fp8_packed"), "fp8-packed is a format of MLA rows.* fp8-scaled$"),
        (
            lambda: geometry.mla_components(
                num_layers=1, kv_lora_rank=512, qk_rope_head_dim=64, page_tokens=1, dtype="fp8_scaled"
            ),
            "fp8-scaled is a format of K and V.* fp8-packed$",
        ),
        (
            lambda: geometry.mla_components(
                num_layers=1, kv_lora_rank=256, qk_rope_head_dim=64, page_tokens=1, dtype="fp8_packed"
            ),
            r"512\+64.*256\+64",
        ),
        (lambda: geometry.index_row_bytes(100, "fp8"), "100.*128"),
        (lambda: geometry.index_row_bytes(128, "bf16"), "'bf16'.*fp8, fp4"),
        (
            lambda: geometry.compressed_components(num_layers=1, ratio=128, page_tokens=64),
            "64 tokens.*groups of 128",
        ),
        (
            lambda: geometry.gdn_state_shapes(
                key_heads=16, value_heads=32, key_dim=1, value_dim=1, conv_kernel=4, tp_size=64
            ),
            "32 state heads.*TP 64",
        ),
        (lambda: geometry.kda_state_shapes(heads=32, head_dim=1, conv_kernel=4, tp_size=3), "TP 3"),
    ],
)
def test_impossible_dims_are_refused_with_the_reason(call, words):
    with pytest.raises(ConfigError, match=words):
        call()


@settings(deadline=None)
@given(
    layers=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    kv_heads=st.sampled_from([1, 2, 4, 8]),
    head_dim=st.integers(1, 256),
    tp_size=st.sampled_from([1, 2, 4, 8]),
)
def test_bytes_add_up_over_layers_and_ranks(layers, kv_heads, head_dim, tp_size):
    shape = {"kv_heads": kv_heads, "head_dim": head_dim, "page_tokens": 16}
    whole = kv(num_layers=sum(layers), **shape)[0].object_bytes
    assert whole == sum(kv(num_layers=count, **shape)[0].object_bytes for count in layers)
    shard = kv(num_layers=sum(layers), tp_size=tp_size, **shape)[0].object_bytes
    # With fewer heads than ranks, the cluster holds each head more than once.
    assert whole * max(1, tp_size // kv_heads) == shard * tp_size
