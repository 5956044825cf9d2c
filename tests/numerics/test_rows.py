from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import ConfigError
from hicache_bench.numerics.cache import PagedCache
from hicache_bench.numerics.rows import (
    IndexPageRows,
    KeyValueRows,
    LatentPageRows,
    PackedLatentRows,
    PlainRows,
    Rows,
    index_rows,
    latent_rows,
)
from hicache_bench.pools import geometry
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.names import AttentionType
from tests.pool_builders import pool

GENERATOR = np.random.default_rng(0)


def cache_of(components: tuple[Component, ...], page_tokens: int, num_pages: int = 3) -> PagedCache:
    return PagedCache.in_memory(
        pool("kv", AttentionType.FULL, page_tokens=page_tokens, components=components), num_pages
    )


def index_components(dtype: str) -> tuple[Component, ...]:
    return geometry.index_components(num_layers=2, index_head_dim=128, page_tokens=8, dtype=dtype)


V4_COMPONENTS = geometry.compressed_components(num_layers=2, ratio=4, page_tokens=32)
MLA = {"num_layers": 2, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "page_tokens": 8}
FORMATS: dict[str, tuple[Rows, tuple[Component, ...], int]] = {
    "plain": (PlainRows("bf16"), geometry.mla_components(**MLA, dtype="bf16"), 576),
    "packed": (PackedLatentRows(512), geometry.mla_components(**MLA, dtype="fp8_packed"), 576),
    "v4": (LatentPageRows(8), V4_COMPONENTS, 512),
    "fp8 index": (IndexPageRows(8, 128, "fp8"), index_components("fp8"), 128),
    "fp4 index": (IndexPageRows(8, 128, "fp4"), index_components("fp4"), 128),
}
RELATIVE = {"plain": 2**-8, "packed": 2**-4, "v4": 2**-4, "fp8 index": 2**-4, "fp4 index": 2**-2}


@pytest.mark.parametrize("name", FORMATS)
@given(cut=st.integers(1, 19))
def test_rows_come_back_rounded_however_they_were_written(name: str, cut: int) -> None:
    rows, components, dim = FORMATS[name]
    values = GENERATOR.standard_normal((20, dim)).astype(np.float32)
    once, twice = cache_of(components, 8), cache_of(components, 8)
    rows.write(once, 1, 2, values)
    rows.write(twice, 1, 2, values[:cut])
    rows.write(twice, 1, 2 + cut, values[cut:])
    back = rows.read(once, 1, np.arange(2, 22))
    np.testing.assert_array_equal(back, rows.read(twice, 1, np.arange(2, 22)))
    assert (np.abs(back - values) <= RELATIVE[name] * np.abs(values).max()).all()
    assert not np.array_equal(back, values)
    order = np.array([17, 3, 9])
    np.testing.assert_array_equal(back[order - 2], rows.read(once, 1, order))


@pytest.mark.parametrize("name", FORMATS)
def test_rows_that_were_not_written_are_nan(name: str) -> None:
    rows, components, dim = FORMATS[name]
    cache = cache_of(components, 8)
    rows.write(cache, 1, 4, np.ones((4, dim), dtype=np.float32))
    assert np.isfinite(rows.read(cache, 1, np.arange(4, 8))).all()
    for untouched in (rows.read(cache, 1, np.arange(4)), rows.read(cache, 0, np.arange(4, 8))):
        assert np.isnan(untouched).all()


def test_a_packed_latent_is_codes_then_scales_then_rope() -> None:
    """By hand: 656 bytes, with the largest of each 128 dims at 448."""
    cache = cache_of(FORMATS["packed"][1], 8)
    values = np.ones((1, 576), dtype=np.float32)
    values[0, :512] *= np.repeat([448, 896, 1792, 3584], 128)
    values[0, 512:] = 3
    PackedLatentRows(512).write(cache, 0, 0, values)
    raw = cache.read_rows("k", 0, np.array([0]))[0, 0]
    assert 656 == raw.size
    assert (raw[:512].view(ml_dtypes.float8_e4m3fn).astype(np.float32) == 448).all()
    assert [1, 2, 4, 8] == raw[512:528].view("<f4").tolist()
    assert (raw[528:].view(ml_dtypes.bfloat16).astype(np.float32) == 3).all()


def test_a_v4_page_has_all_rows_before_all_scales_and_is_padded() -> None:
    cache = cache_of(V4_COMPONENTS, 32)
    values = np.full((8, 512), 448, dtype=np.float32)
    values[3, :64] = 1792
    LatentPageRows(8).write(cache, 0, 0, values)
    raw = cache.read_pages("page", 0, np.array([0]))[0]
    assert V4_COMPONENTS[0].row_bytes == raw.size == 5184
    scales = raw[8 * 576 : 8 * 584].reshape(8, 8)
    assert [129, *[127] * 6, 0] == scales[3].tolist()
    assert (np.delete(scales, 3, axis=0) == [*[127] * 7, 0]).all()
    assert (raw[8 * 584 :] == 0xFF).all()


@pytest.mark.parametrize(("dtype", "row_bytes"), [("fp8", 132), ("fp4", 68)])
def test_an_index_page_has_keys_before_scales(dtype: str, row_bytes: int) -> None:
    cache = cache_of(index_components(dtype), 8)
    values = np.full((8, 128), 448 if dtype == "fp8" else 6, dtype=np.float32)
    IndexPageRows(8, 128, dtype).write(cache, 0, 0, values)
    raw = cache.read_pages("page", 0, np.array([0]))[0]
    assert 8 * row_bytes == raw.size
    scales = raw[8 * (row_bytes - 4) :]
    expected = [1.0] * 8 if dtype == "fp8" else [127] * 32
    assert expected == scales.view("<f4" if dtype == "fp8" else np.uint8).tolist()


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp8_scaled"])
def test_keys_and_values_of_unequal_heads_come_back(dtype: str) -> None:
    components = geometry.kv_components(
        num_layers=2, kv_heads=3, head_dim=16, v_head_dim=8, page_tokens=8, dtype=dtype
    )
    cache = cache_of(components, 8)
    keys = GENERATOR.standard_normal((10, 3, 16)).astype(np.float32)
    values = 1000 * GENERATOR.standard_normal((10, 3, 8)).astype(np.float32)
    if dtype == "fp8":
        values /= 1000
    KeyValueRows(dtype).write(cache, 1, 5, keys, values)
    back_keys, back_values = KeyValueRows(dtype).read(cache, 1, np.arange(5, 15))
    assert np.abs(back_keys - keys).max() <= np.abs(keys).max() / 16
    assert np.abs(back_values - values).max() <= np.abs(values).max() / 16
    assert np.isnan(
        np.concatenate([part.ravel() for part in KeyValueRows(dtype).read(cache, 0, np.arange(3))])
    ).all()


def test_the_format_follows_the_pool() -> None:
    page_pool = pool("indexer", AttentionType.SPARSE_INDEX, dtype="fp4", page_tokens=64)
    assert IndexPageRows(16, 128, "fp4") == index_rows(page_pool, 128, group_tokens=4)
    assert PlainRows("bf16") == index_rows(pool("indexer", AttentionType.SPARSE_INDEX), 128)
    packed = pool("kv", AttentionType.MLA, dtype="fp8_packed")
    assert PackedLatentRows(512) == latent_rows(packed, 512)
    with pytest.raises(ConfigError, match="MLA rows are not fp8_scaled; use fp8 or fp8_packed"):
        latent_rows(pool("kv", AttentionType.MLA, dtype="fp8_scaled"), 512)
