"""Summaries, several clients against one, a store as a link: from samples written by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.workflows.bench.analysis import common_window, compare_clients, link_points, summarise
from tests.workflows.bench.series import made_series


def test_a_summary_is_of_the_median() -> None:
    summary = summarise([0.1, 0.2, 0.3, 0.4, 10.0], num_bytes=600, objects=3)
    found = (summary.samples, summary.median, summary.mad, summary.p50)
    assert (5, 0.3, 0.1, 0.3) == pytest.approx(found)
    assert (2000, 10) == pytest.approx((summary.bytes_per_second, summary.objects_per_second))
    assert summary.low <= summary.median <= summary.high
    assert summary.p95 <= summary.p99 <= summary.p99_9 <= 10.0


def test_the_common_window_is_where_all_were_at_work() -> None:
    early = made_series(starts=[0.0, 1.0, 2.0], seconds=[1.0, 1.0, 1.0])
    late = made_series(starts=[0.5, 1.5, 2.5], seconds=[1.0, 1.0, 1.0])
    assert (0.5, 3.0) == common_window([early, late])


def test_rates_are_of_the_common_window() -> None:
    alone = made_series(starts=[0, 1], seconds=[1, 1], num_bytes=100)
    at_once = [
        # Half of the first sample and all of the second lie in [0.5, 2].
        made_series(client=0, concurrent=2, starts=[0, 1], seconds=[1, 1], num_bytes=100),
        # Of the last one, half is past the end.
        made_series(client=1, concurrent=2, starts=[0.5, 1.5], seconds=[1, 1], num_bytes=100),
    ]
    (together,) = compare_clients([alone, *at_once])
    assert 1.5 == together.window_seconds
    assert (100, 100) == pytest.approx(together.client_rates)
    found = (
        together.rate, together.alone_rate, together.speed_up, together.efficiency, together.fairness
    )  # fmt: skip
    assert (200, 100, 2, 1, 1) == pytest.approx(found)


def test_a_client_that_pauses_is_slower_than_its_samples() -> None:
    # E65: bytes of all over the time of one call would be a rate above the link's.
    alone = made_series(starts=[0, 1], seconds=[1, 1], num_bytes=100)
    at_once = [
        made_series(client=client, concurrent=2, starts=[0, 3], seconds=[1, 1], num_bytes=100)
        for client in (0, 1)
    ]
    (together,) = compare_clients([alone, *at_once])
    assert (50, 50) == pytest.approx(together.client_rates)


def test_clients_that_never_met_have_no_rate() -> None:
    alone = made_series(starts=[0], seconds=[1])
    at_once = [
        made_series(client=0, concurrent=2, starts=[0], seconds=[1]),
        made_series(client=1, concurrent=2, starts=[5], seconds=[1]),
    ]
    (together,) = compare_clients([alone, *at_once])
    assert (0, 0) == together.client_rates


def test_a_lookup_is_counted_in_keys() -> None:
    parts = [
        made_series(operation="lookup", concurrent=count, client=client, num_bytes=0, objects=10)
        for count, client in ((1, 0), (2, 0), (2, 1))
    ]
    (together,) = compare_clients(parts)
    assert "objects" == together.unit
    assert 2 == pytest.approx(together.speed_up)


def test_one_client_is_compared_with_nothing() -> None:
    assert () == compare_clients([made_series()])


@settings(max_examples=25)
@given(
    st.floats(1e6, 1e11),
    st.floats(1e-6, 1e-2),
    st.integers(1, 1 << 24),
    st.integers(2, 128),
)
def test_a_link_is_found_again(rate: float, op_seconds: float, object_bytes: int, objects: int) -> None:
    def store_seconds(num_objects: int) -> float:
        return op_seconds + num_objects * object_bytes / rate

    whole = made_series(
        pool="kv", num_bytes=objects * object_bytes, objects=objects, store_seconds=[store_seconds(objects)]
    )
    call = made_series(
        operation="call", pool="kv", num_bytes=object_bytes, objects=1, store_seconds=[store_seconds(1)]
    )
    (point,) = link_points([whole, call])
    assert object_bytes == point.object_bytes
    found = point.op_seconds + objects * object_bytes / point.bytes_per_second
    assert found == pytest.approx(store_seconds(objects), rel=1e-6)
    if (objects - 1) * object_bytes / rate > 1e-3 * op_seconds:
        assert point.bytes_per_second == pytest.approx(rate, rel=1e-3)


def test_a_batch_that_is_no_slower_than_one_call_is_all_rate() -> None:
    whole = made_series(pool="kv", num_bytes=1000, objects=10, store_seconds=[0.001])
    call = made_series(operation="call", pool="kv", num_bytes=100, objects=1, store_seconds=[0.002])
    (point,) = link_points([whole, call])
    assert (1e6, 0) == pytest.approx((point.bytes_per_second, point.op_seconds))


def test_points_rise_with_the_object_size_and_are_of_single_pools() -> None:
    series = [made_series()]
    for pool, size in (("big", 1000), ("small", 10)):
        series += [
            made_series(pool=pool, num_bytes=10 * size, objects=10),
            made_series(operation="call", pool=pool, num_bytes=size, objects=1),
        ]
    assert [10, 1000] == [point.object_bytes for point in link_points(series)]
    assert all(math.isfinite(point.bytes_per_second) for point in link_points(series))
