"""Sizes, durations and token counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import UnitError
from hicache_bench.units import (
    GIB,
    KIB,
    MIB,
    TIB,
    format_seconds,
    format_size,
    format_tokens,
    parse_seconds,
    parse_size,
    parse_tokens,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096B", 4096),
        ("64GiB", 64 * 2**30),
        ("64GB", 64 * 10**9),
        ("64e9", 64 * 10**9),
        ("64gib", 64 * 2**30),
        (" 1.5 KiB ", 1536),
        ("0.5MB", 500_000),
        ("1TiB", 2**40),
        ("2tb", 2 * 10**12),
    ],
)
def test_size(text: str, expected: int) -> None:
    assert expected == parse_size(text)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "GiB", "-1", "+1", "1.5", "1.0001KiB", "64Gi", "64G", "1e400", "1e30", "nan", "inf",
        "0x10", "1_000", "64 GiB 1", "1,000", "٣",
    ],
)  # fmt: skip
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UnitError) as failure:
        parse_size(text)
    assert repr(text) in str(failure.value)
    assert "64GiB" in str(failure.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8192", 8192), ("8k", 8192), ("8K", 8192), ("1M", 1_048_576), ("0.5k", 512), ("1e3", 1000)],
)
def test_tokens(text: str, expected: int) -> None:
    assert expected == parse_tokens(text)


@pytest.mark.parametrize("text", ["", "8kb", "8KiB", "-8k", "0.3k", "1.5", "k", "1G"])
def test_what_is_no_token_count(text: str) -> None:
    with pytest.raises(UnitError, match="k = 1,024"):
        parse_tokens(text)


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (KIB, "1.00 KiB"),
        (40_098_580, "38.24 MiB"),
        (150 * MIB, "150.0 MiB"),
        (1023 * GIB, "1023 GiB"),
        (2 * TIB, "2.00 TiB"),
        (-MIB, "-1.00 MiB"),
    ],
)
def test_size_as_text(num_bytes: int, expected: str) -> None:
    assert expected == format_size(num_bytes)


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [
        (0, "0"), (1, "1"), (1000, "1,000"), (8192, "8k"), (1_048_576, "1M"), (1_048_577, "1,048,577"),
        (3 << 19, "1536k"),
    ],
)  # fmt: skip
def test_tokens_as_text(num_tokens: int, expected: str) -> None:
    assert expected == format_tokens(num_tokens)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1.25, "1.25 s"), (0.0123, "12.3 ms"), (85e-6, "85 µs"), (0.0, "0 µs")]
)
def test_seconds_as_text(seconds: float, expected: str) -> None:
    assert expected == format_seconds(seconds)


@given(st.integers(0, 1 << 52))
def test_bytes_survive_being_written_out(num_bytes: int) -> None:
    assert num_bytes == parse_size(str(num_bytes)) == parse_size(f"{num_bytes}B")


@given(st.integers(0, 1 << 42))
def test_token_counts_survive_being_formatted(num_tokens: int) -> None:
    assert num_tokens == parse_tokens(format_tokens(num_tokens).replace(",", ""))


@given(st.integers(1, 1 << 50))
def test_formatted_size_is_close(num_bytes: int) -> None:
    number, unit = format_size(num_bytes).split()
    factor = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}[unit]
    assert pytest.approx(num_bytes, rel=0.006) == float(number) * factor


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("60s", 60), ("1.5m", 90), ("2h", 7200), ("0.2 S", 0.2)]
)
def test_duration(text: str, expected: float) -> None:
    assert expected == parse_seconds(text)


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1d", "1 s s", "s"])
def test_not_a_duration(text: str) -> None:
    with pytest.raises(UnitError, match=r"1\.5m"):
        parse_seconds(text)


@pytest.mark.parametrize("parse", [parse_size, parse_tokens, parse_seconds])
def test_thousands_of_digits_are_refused_as_any_other_text(parse: Callable[[str], object]) -> None:
    for text in ("1" * 5000, f"1.{'1' * 5000}", f"0.{'0' * 5000}1"):
        with pytest.raises(UnitError, match="is not a"):
            parse(text)
