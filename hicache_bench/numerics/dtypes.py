"""float32 to the bytes of a pool and back, for each element type that a cache has.

Values are rounded to nearest even and saturated at the largest finite one, as engines do. Bytes of 0xFF, the
poison of a pool, decode to NaN in every floating type; fp4 has no NaN, so its rows show it by their scales.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hicache_bench.errors import ConfigError

Floats = npt.NDArray[np.float32]
RawBytes = npt.NDArray[np.uint8]

_FP8_MAX = 448.0
_FP4_MAX = 6.0
_DTYPES: dict[str, npt.DTypeLike] = {
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.dtype("<f2"),
    "fp32": np.dtype("<f4"),
    "fp8": ml_dtypes.float8_e4m3fn,
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
}
_LIMITS = {"fp8": _FP8_MAX, "fp16": 65504.0, "bf16": 255 * 2.0**120}
_FP8_VALUES: Floats = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
_FP4_VALUES: Floats = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
_FP4_VALUES = np.concatenate([_FP4_VALUES, -_FP4_VALUES])
# Power of two of each scale byte; 255 is the type's NaN.
_E8M0_VALUES: Floats = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
_SMALLEST_AMAX = 1e-4


def encode(values: npt.NDArray[Any], dtype: str) -> RawBytes:
    """Bytes of ``values`` as ``dtype``; the last axis grows by the bytes of one element.

    Raises:
        ConfigError: an unknown dtype.
    """
    target = _dtype(dtype)
    if dtype in _LIMITS:
        values = np.clip(values, -_LIMITS[dtype], _LIMITS[dtype])
    return np.ascontiguousarray(values).astype(target).view(np.uint8)


def decode(raw: RawBytes, dtype: str) -> Floats:
    """``raw`` as float32, the inverse of :func:`encode`.

    Raises:
        ConfigError: an unknown dtype.
    """
    target = _dtype(dtype)
    raw = np.ascontiguousarray(raw)
    if dtype == "fp8":
        return _FP8_VALUES[raw]
    if dtype == "bf16":
        # bf16 is the upper half of a float32: widening by hand is several times quicker than a cast.
        return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    return raw.view(target).astype(np.float32)


def rounded(values: npt.NDArray[Any], dtype: str) -> Floats:
    """``values`` as they come back from a cache of ``dtype``."""
    return decode(encode(values, dtype), dtype)


def encode_scaled_fp8(values: npt.NDArray[Any], group: int) -> tuple[RawBytes, Floats]:
    """fp8 codes of ``values``, and one float32 scale for each ``group`` of the last axis (amax / 448).

    Shapes: ``(..., d)`` gives ``(..., d)`` and ``(..., d / group)``.
    """
    grouped = _grouped(values, group)
    scales = _amax(grouped) / np.float32(_FP8_MAX)
    codes = encode(grouped / scales[..., None], "fp8")
    return codes.reshape(values.shape), scales


def decode_scaled_fp8(codes: RawBytes, scales: Floats) -> Floats:
    """The inverse of :func:`encode_scaled_fp8`."""
    grouped = _grouped(decode(codes, "fp8"), codes.shape[-1] // scales.shape[-1])
    return (grouped * scales[..., None]).reshape(codes.shape)


def encode_scaled_by_power(values: npt.NDArray[Any], group: int) -> tuple[RawBytes, RawBytes]:
    """fp8 codes of ``values``, and one e8m0 byte for each ``group``: the power of two above amax / 448.

    Source: SGLang 0.5.23, quantization of DeepSeek V4 rows (``test/kernels/deepseek_v4``).
    """
    grouped = _grouped(values, group)
    exponents = _exponents(_amax(grouped) / _FP8_MAX)
    codes = encode(grouped / _E8M0_VALUES[exponents][..., None], "fp8")
    return codes.reshape(values.shape), exponents


def decode_scaled_by_power(codes: RawBytes, exponents: RawBytes) -> Floats:
    """The inverse of :func:`encode_scaled_by_power`."""
    return decode_scaled_fp8(codes, _E8M0_VALUES[exponents])


def encode_fp4(values: npt.NDArray[Any], group: int) -> tuple[RawBytes, RawBytes]:
    """Two e2m1 codes a byte, the even dim in the low half, and one e8m0 byte for each ``group`` of dims.

    Source: SGLang 0.5.23 ``DeepSeekV4IndexerPool.get_index_k_dequant``.
    """
    grouped = _grouped(values, group)
    exponents = _exponents(_amax(grouped) / _FP4_MAX)
    scaled = np.clip(grouped / _E8M0_VALUES[exponents][..., None], -_FP4_MAX, _FP4_MAX)
    codes = scaled.astype(ml_dtypes.float4_e2m1fn).view(np.uint8).reshape(values.shape) & 0x0F
    packed: RawBytes = codes[..., ::2] | np.left_shift(codes[..., 1::2], 4, dtype=np.uint8)
    return packed, exponents


def decode_fp4(codes: RawBytes, exponents: RawBytes) -> Floats:
    """The inverse of :func:`encode_fp4`."""
    shape = (*codes.shape[:-1], 2 * codes.shape[-1])
    nibbles = np.stack([codes & 0x0F, codes >> 4], axis=-1)
    grouped = _grouped(_FP4_VALUES[nibbles].reshape(shape), shape[-1] // exponents.shape[-1])
    return (grouped * _E8M0_VALUES[exponents][..., None]).reshape(shape)


def _dtype(name: str) -> npt.DTypeLike:
    if name not in _DTYPES:
        raise ConfigError(f"dtype {name!r} has no arithmetic; allowed: {', '.join(_DTYPES)}")
    return _DTYPES[name]


def _grouped(values: npt.NDArray[Any], group: int) -> npt.NDArray[Any]:
    return values.reshape(*values.shape[:-1], values.shape[-1] // group, group)


def _amax(grouped: npt.NDArray[Any]) -> Floats:
    # A NaN stays one: a row computed from poison must be poison.
    largest: Floats = np.abs(grouped).max(axis=-1).astype(np.float32)
    return np.maximum(largest, np.float32(_SMALLEST_AMAX))


def _exponents(scales: npt.NDArray[Any]) -> RawBytes:
    exponents = np.ceil(np.log2(scales)) + 127
    return np.where(np.isnan(exponents), 255, np.clip(exponents, 0, 254)).astype(np.uint8)
