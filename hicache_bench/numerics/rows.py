"""Cached rows as float32: how each pool packs the values of a token, or of a group of tokens, into its bytes.

Every format writes from row ``start`` on, and reads the rows that are named.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hicache_bench.errors import ConfigError
from hicache_bench.numerics.cache import IntArray, RowCache
from hicache_bench.numerics.dtypes import (
    Floats,
    RawBytes,
    decode,
    decode_fp4,
    decode_scaled_by_power,
    decode_scaled_fp8,
    encode,
    encode_fp4,
    encode_scaled_by_power,
    encode_scaled_fp8,
)
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import (
    INDEX_DTYPES,
    PACKED_FP8,
    SCALED_FP8,
    V4_ROW_BYTES,
    V4_ROW_DIMS,
    index_row_bytes,
)

_SCALE_GROUP = 128
_V4_SCALE_GROUP = 64
_FP4_SCALE_GROUP = 32


class Rows(Protocol):
    """One vector a row, of shape ``(rows, dims)``."""

    def write(self, cache: RowCache, layer: int, start: int, values: npt.NDArray[Any]) -> None:
        """Write ``values`` from row ``start`` on."""

    def read(self, cache: RowCache, layer: int, rows: IntArray) -> Floats:
        """The values of ``rows``."""


@dataclass(frozen=True, slots=True)
class KeyValueRows:
    """K and V of each token, of shape ``(tokens, heads, dim)``; ``fp8_scaled`` has its scales beside them."""

    dtype: str

    def write(
        self, cache: RowCache, layer: int, start: int, keys: npt.NDArray[Any], values: npt.NDArray[Any]
    ) -> None:
        if self.dtype != SCALED_FP8:
            cache.write_rows("k", layer, start, encode(keys, self.dtype))
            cache.write_rows("v", layer, start, encode(values, self.dtype))
            return
        key_codes, key_scales = encode_scaled_fp8(keys, keys.shape[-1])
        value_codes, value_scales = encode_scaled_fp8(values, values.shape[-1])
        cache.write_rows("k", layer, start, key_codes)
        cache.write_rows("v", layer, start, value_codes)
        scales = np.concatenate([key_scales, value_scales], axis=-1)
        cache.write_rows("scale", layer, start, encode(scales, "fp32"))

    def read(self, cache: RowCache, layer: int, tokens: IntArray) -> tuple[Floats, Floats]:
        keys, values = (cache.read_rows(component, layer, tokens) for component in ("k", "v"))
        if self.dtype != SCALED_FP8:
            return decode(keys, self.dtype), decode(values, self.dtype)
        scales = decode(cache.read_rows("scale", layer, tokens), "fp32")
        return decode_scaled_fp8(keys, scales[..., :1]), decode_scaled_fp8(values, scales[..., 1:])


@dataclass(frozen=True, slots=True)
class PlainRows:
    """One vector a token in component ``k``: an MLA latent, or an index key of block-sparse attention."""

    dtype: str

    def write(self, cache: RowCache, layer: int, start: int, values: npt.NDArray[Any]) -> None:
        cache.write_rows("k", layer, start, encode(values, self.dtype)[:, None])

    def read(self, cache: RowCache, layer: int, rows: IntArray) -> Floats:
        return decode(cache.read_rows("k", layer, rows)[:, 0], self.dtype)


@dataclass(frozen=True, slots=True)
class PackedLatentRows:
    """An MLA latent in 656 bytes: 512 fp8 codes, 4 fp32 scales, 64 bf16 dims with rope.

    Source: SGLang 0.5.23 ``kernels/ops/quantization/dsa_quant_k_cache.py``.
    """

    latent_dim: int

    def write(self, cache: RowCache, layer: int, start: int, values: npt.NDArray[Any]) -> None:
        codes, scales = encode_scaled_fp8(values[:, : self.latent_dim], _SCALE_GROUP)
        rope = encode(values[:, self.latent_dim :], "bf16")
        packed = np.concatenate([codes, encode(scales, "fp32"), rope], axis=1)
        cache.write_rows("k", layer, start, packed[:, None])

    def read(self, cache: RowCache, layer: int, rows: IntArray) -> Floats:
        packed = cache.read_rows("k", layer, rows)[:, 0]
        rope_start = self.latent_dim + self.latent_dim // _SCALE_GROUP * 4
        codes, scales = packed[:, : self.latent_dim], packed[:, self.latent_dim : rope_start]
        latent = decode_scaled_fp8(codes, decode(scales, "fp32"))
        return np.concatenate([latent, decode(packed[:, rope_start:], "bf16")], axis=1)


@dataclass(frozen=True, slots=True)
class PageRows(ABC):
    """Rows of a page that a layer packs as a whole: the data of all rows, then the scales of all rows.

    A subclass says how many bytes each takes, and turns values into both.
    """

    rows_per_page: int

    @property
    @abstractmethod
    def data_bytes(self) -> int:
        """Bytes of data of one row."""

    @property
    @abstractmethod
    def scale_bytes(self) -> int:
        """Bytes of scales of one row."""

    @abstractmethod
    def encode(self, values: npt.NDArray[Any]) -> tuple[RawBytes, RawBytes]:
        """Data and scales of each row."""

    @abstractmethod
    def decode(self, data: RawBytes, scales: RawBytes) -> Floats:
        """The inverse of :meth:`encode`."""

    def write(self, cache: RowCache, layer: int, start: int, values: npt.NDArray[Any]) -> None:
        data, scales = self.encode(values)
        rows = np.arange(start, start + len(values))
        for page in np.unique(rows // self.rows_per_page):
            content = cache.read_pages("page", layer, np.array([page]))
            inside = rows // self.rows_per_page == page
            for packed, new in zip(self._split(content), (data, scales), strict=True):
                packed[0, rows[inside] % self.rows_per_page] = new[inside]
            cache.write_page("page", layer, int(page), content[0])

    def read(self, cache: RowCache, layer: int, rows: IntArray) -> Floats:
        pages, place = np.unique(rows // self.rows_per_page, return_inverse=True)
        data, scales = self._split(cache.read_pages("page", layer, pages))
        offsets = rows % self.rows_per_page
        return self.decode(data[place, offsets], scales[place, offsets])

    def _split(self, pages: RawBytes) -> tuple[RawBytes, RawBytes]:
        """Views of ``(page, row, byte)`` into whole pages."""
        middle = self.rows_per_page * self.data_bytes
        end = middle + self.rows_per_page * self.scale_bytes
        shape = (len(pages), self.rows_per_page)
        data, scales = pages[:, :middle], pages[:, middle:end]
        return data.reshape(*shape, self.data_bytes), scales.reshape(*shape, self.scale_bytes)


@dataclass(frozen=True, slots=True)
class LatentPageRows(PageRows):
    """Rows of DeepSeek V4: 448 fp8 codes and 64 bf16 dims with rope, then 7 scale bytes and one of padding.

    Source: SGLang 0.5.23 ``kernels/ops/kvcache/dsv4_main_kv_store.py``.
    """

    @property
    def data_bytes(self) -> int:
        return V4_ROW_DIMS[0] + 2 * V4_ROW_DIMS[1]

    @property
    def scale_bytes(self) -> int:
        return V4_ROW_BYTES - self.data_bytes

    def encode(self, values: npt.NDArray[Any]) -> tuple[RawBytes, RawBytes]:
        codes, exponents = encode_scaled_by_power(values[:, : V4_ROW_DIMS[0]], _V4_SCALE_GROUP)
        rope = encode(values[:, V4_ROW_DIMS[0] :], "bf16")
        padding = np.zeros((len(values), self.scale_bytes - exponents.shape[1]), dtype=np.uint8)
        return np.concatenate([codes, rope], axis=1), np.concatenate([exponents, padding], axis=1)

    def decode(self, data: RawBytes, scales: RawBytes) -> Floats:
        codes, rope = data[:, : V4_ROW_DIMS[0]], data[:, V4_ROW_DIMS[0] :]
        latent = decode_scaled_by_power(codes, scales[:, : V4_ROW_DIMS[0] // _V4_SCALE_GROUP])
        return np.concatenate([latent, decode(rope, "bf16")], axis=1)


@dataclass(frozen=True, slots=True)
class IndexPageRows(PageRows):
    """Index keys; per 128 dims fp8 codes and an fp32 scale, or 64 bytes of fp4 codes and 4 scale bytes."""

    head_dim: int
    dtype: str

    @property
    def data_bytes(self) -> int:
        return self.head_dim // (1 if self.dtype == "fp8" else 2)

    @property
    def scale_bytes(self) -> int:
        return index_row_bytes(self.head_dim, self.dtype) - self.data_bytes

    def encode(self, values: npt.NDArray[Any]) -> tuple[RawBytes, RawBytes]:
        if self.dtype == "fp8":
            codes, scales = encode_scaled_fp8(values, _SCALE_GROUP)
            return codes, encode(scales, "fp32")
        return encode_fp4(values, _FP4_SCALE_GROUP)

    def decode(self, data: RawBytes, scales: RawBytes) -> Floats:
        if self.dtype == "fp8":
            return decode_scaled_fp8(data, decode(scales, "fp32"))
        return decode_fp4(data, scales)


def index_rows(pool: KVPoolDescriptor, head_dim: int, group_tokens: int = 1) -> Rows:
    """How ``pool`` holds index keys, one a group of tokens."""
    if pool.dtype in INDEX_DTYPES:
        return IndexPageRows(pool.unit_tokens // group_tokens, head_dim, pool.dtype)
    return PlainRows(pool.dtype)


def latent_rows(pool: KVPoolDescriptor, latent_dim: int) -> Rows:
    """How ``pool`` holds MLA latents.

    Raises:
        ConfigError: a dtype that latents do not have.
    """
    if pool.dtype == SCALED_FP8:
        raise ConfigError(f"pool {pool.name!r}: MLA rows are not {SCALED_FP8}; use fp8 or {PACKED_FP8}")
    return PackedLatentRows(latent_dim) if pool.dtype == PACKED_FP8 else PlainRows(pool.dtype)
