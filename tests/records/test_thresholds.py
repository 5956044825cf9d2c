from __future__ import annotations

import pytest

from hicache_bench.errors import InputError
from hicache_bench.records.thresholds import DEFAULT_THRESHOLDS, parse_thresholds


def test_what_is_not_named_keeps_its_default() -> None:
    assert {**DEFAULT_THRESHOLDS, "time": 0.25} == parse_thresholds("time=25%")
    assert {**DEFAULT_THRESHOLDS, "bytes": 0.005, "objects": 2.0} == parse_thresholds(
        " bytes = 0.5% , objects=200%"
    )


def test_only_time_may_get_worse_by_default() -> None:
    assert {"time"} == {name for name, allowed in DEFAULT_THRESHOLDS.items() if allowed}
    assert DEFAULT_THRESHOLDS == parse_thresholds("bytes=0%,time=10%")


@pytest.mark.parametrize(
    "text",
    [
        "", ",", "bytes", "bytes=", "bytes=1", "=1%", "bytes=-1%", "bytes=nan%", "bytes=inf%", "bytes=1e3%",
        "bytes=1%%", "bytes=one%", "bytes=1%,", "bytes=.5%", "bytes=1.%", "bytes:1%", "bytes=1 %", "bytes=١%",
    ],
)  # fmt: skip
def test_what_is_no_threshold_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a threshold; allowed: NAME=PERCENT%.*bytes=0%,time=10%"):
        parse_thresholds(text)


def test_an_unknown_group_is_told_its_neighbour() -> None:
    with pytest.raises(InputError, match=r"'byte' is unknown; allowed: bytes, .*did you mean 'bytes'"):
        parse_thresholds("byte=1%")
    with pytest.raises(InputError, match="'latency' is unknown"):
        parse_thresholds("latency=1%")


def test_a_group_is_named_once() -> None:
    with pytest.raises(InputError, match="'time' twice"):
        parse_thresholds("time=1%,time=2%")


@pytest.mark.parametrize("percent", ["1000001", "9" * 400])
def test_a_growth_beyond_all_bounds_is_no_threshold(percent: str) -> None:
    assert 1e4 == parse_thresholds("bytes=1000000%")["bytes"]
    with pytest.raises(InputError, match=r"bytes allows anything; give at most 1,000,000%"):
        parse_thresholds(f"bytes={percent}%")


def test_a_rate_cannot_be_allowed_to_vanish() -> None:
    with pytest.raises(InputError, match="less than 100%"):
        parse_thresholds("rate=100%")
