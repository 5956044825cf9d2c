"""Bytes to seconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import ConfigError
from hicache_bench.links.bandwidth import BandwidthModel


def test_each_term_is_paid_once_for_what_it_counts() -> None:
    link = BandwidthModel(bytes_per_second=10e9, op_seconds=0.125, object_seconds=0.25)
    assert pytest.approx(3 * 0.125 + 8 * 0.25 + 2.5) == link.seconds(25 * 10**9, num_objects=8, num_calls=3)


def test_one_call_with_one_object_is_the_default() -> None:
    link = BandwidthModel(bytes_per_second=100.0, op_seconds=1.0, object_seconds=2.0)
    assert pytest.approx(1 + 2 + 0.5) == link.seconds(50)


def test_a_call_that_moves_nothing_still_costs_its_latency() -> None:
    link = BandwidthModel(bytes_per_second=100.0, op_seconds=1.0, object_seconds=2.0)
    assert pytest.approx(1.0) == link.seconds(0, num_objects=0)


@given(
    num_bytes=st.integers(0, 1 << 44),
    more_bytes=st.integers(0, 1 << 44),
    rate=st.floats(1.0, 1e12),
)
def test_bandwidth_alone_is_linear_and_rises(num_bytes: int, more_bytes: int, rate: float) -> None:
    link = BandwidthModel(bytes_per_second=rate)
    together = link.seconds(num_bytes + more_bytes)
    assert pytest.approx(together) == link.seconds(num_bytes) + link.seconds(more_bytes)
    assert together >= link.seconds(num_bytes)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_bandwidth_must_be_positive(rate: float) -> None:
    with pytest.raises(ConfigError, match="above zero"):
        BandwidthModel(bytes_per_second=rate)


@pytest.mark.parametrize(("op_seconds", "object_seconds"), [(-1.0, 0.0), (0.0, -1.0)])
def test_latencies_cannot_be_negative(op_seconds: float, object_seconds: float) -> None:
    with pytest.raises(ConfigError, match="negative"):
        BandwidthModel(bytes_per_second=1.0, op_seconds=op_seconds, object_seconds=object_seconds)
