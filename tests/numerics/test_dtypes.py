from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hicache_bench.errors import ConfigError
from hicache_bench.numerics.dtypes import (
    decode,
    decode_fp4,
    decode_scaled_by_power,
    decode_scaled_fp8,
    encode,
    encode_fp4,
    encode_scaled_by_power,
    encode_scaled_fp8,
    rounded,
)

FLOATS = ("bf16", "fp16", "fp32", "fp8")
ML_DTYPES = {
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
    "fp32": np.float32,
    "fp8": ml_dtypes.float8_e4m3fn,
}
VALUES = hnp.arrays(np.float32, 128, elements=st.floats(-400, 400, width=32))


def test_all_256_codes_of_fp8_are_those_of_the_format() -> None:
    """Oracle: e4m3fn by hand: bias 7, no infinity, two NaN codes."""
    decoded = decode(np.arange(256, dtype=np.uint8), "fp8")
    for code, value in enumerate(decoded):
        sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
        if (exponent, mantissa) == (15, 7):
            assert np.isnan(value)
            continue
        size = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        assert (-size if sign else size) == value


def test_all_65536_codes_of_bf16_widen_as_ml_dtypes_has_them() -> None:
    codes = np.arange(65536, dtype="<u2")
    np.testing.assert_array_equal(
        codes.view(ml_dtypes.bfloat16).astype(np.float32), decode(codes.view(np.uint8), "bf16")
    )


@pytest.mark.parametrize("dtype", FLOATS)
@given(values=VALUES)
def test_rounding_is_that_of_the_dtype(dtype: str, values: np.ndarray) -> None:
    np.testing.assert_array_equal(values.astype(ML_DTYPES[dtype]).astype(np.float32), rounded(values, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_decoded_encodes_to_the_same_bytes(dtype: str) -> None:
    raw = np.arange(1 << 16, dtype="<u2").view(np.uint8)[: 1 << 16]
    finite = decode(raw, dtype)
    finite = finite[np.isfinite(finite)]
    np.testing.assert_array_equal(finite, rounded(finite, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_poison_is_nan(dtype: str) -> None:
    assert np.isnan(decode(np.full(16, 0xFF, dtype=np.uint8), dtype)).all()


def test_poison_is_nan_in_every_scaled_row() -> None:
    poison = np.full((1, 128), 0xFF, dtype=np.uint8)
    assert np.isnan(decode_scaled_fp8(poison, decode(poison[:, :4], "fp32"))).all()
    assert np.isnan(decode_scaled_by_power(poison, poison[:, :2])).all()
    assert np.isnan(decode_fp4(poison[:, :64], poison[:, :4])).all()


@pytest.mark.parametrize(("dtype", "limit"), [("fp8", 448.0), ("fp16", 65504.0)])
def test_too_large_a_value_is_the_largest_of_its_dtype(dtype: str, limit: float) -> None:
    np.testing.assert_array_equal([limit, -limit], rounded(np.array([1e9, -1e9], np.float32), dtype))


def test_a_nan_stays_one_in_every_format() -> None:
    values = np.ones((1, 128), dtype=np.float32)
    values[0, 5] = np.nan
    assert np.isnan(decode_scaled_fp8(*encode_scaled_fp8(values, 128))).any()
    assert np.isnan(decode_scaled_by_power(*encode_scaled_by_power(values, 64))).any()
    with np.errstate(invalid="ignore"):
        assert np.isnan(decode_fp4(*encode_fp4(values, 32))).any()


@given(values=VALUES)
def test_scaled_fp8_is_within_a_sixteenth_of_each_value(values: np.ndarray) -> None:
    """e4m3 has 3 bits of mantissa; the smallest step is 2^-9 of the scale."""
    back = decode_scaled_fp8(*encode_scaled_fp8(values, 128))
    scale = max(float(np.abs(values).max()), 1e-4) / 448
    assert (np.abs(back - values) <= np.abs(values) / 16 + scale * 2.0**-10 * 1.01).all()


@given(values=VALUES)
def test_a_power_of_two_scale_never_saturates_and_is_the_smallest_such(values: np.ndarray) -> None:
    codes, exponents = encode_scaled_by_power(values, 64)
    for group, exponent in zip(np.abs(values).reshape(2, 64), exponents, strict=True):
        scale = 2.0 ** (float(exponent) - 127)
        amax = max(float(group.max()), 1e-4)
        assert amax <= 448 * scale * (1 + 1e-6)
        assert amax > 224 * scale * (1 - 1e-6)
    assert not np.isnan(decode(codes, "fp8")).any()


def test_fp4_codes_are_the_sixteen_values_of_e2m1_low_half_first() -> None:
    table = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    values = np.array([*table, *(-value for value in table)] * 2, dtype=np.float32)
    codes, exponents = encode_fp4(values, 32)
    assert [127] == exponents.tolist()
    assert [0x10, 0x32, 0x54, 0x76] == codes[:4].tolist()
    np.testing.assert_array_equal(values, decode_fp4(codes, exponents))


@pytest.mark.parametrize(("dtype", "value"), [("int32", -7), ("int64", 123456)])
def test_counters_are_kept(dtype: str, value: int) -> None:
    np.testing.assert_array_equal([value], rounded(np.array([value]), dtype))


def test_an_unknown_dtype_is_refused_with_those_allowed() -> None:
    with pytest.raises(ConfigError, match="'fp6' has no arithmetic; allowed: bf16, fp16"):
        encode(np.zeros(1, dtype=np.float32), "fp6")
