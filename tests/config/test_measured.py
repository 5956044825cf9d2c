from __future__ import annotations

import json
from pathlib import Path

import pytest

from hicache_bench.config.deployments import load_link
from hicache_bench.errors import ConfigError

POINTS = [
    {"object_bytes": 65536, "bytes_per_second": 1e9, "op_seconds": 1e-4},
    {"object_bytes": 1048576, "bytes_per_second": 4e9, "op_seconds": 3e-4},
]


def written(tmp_path: Path, content: object, name: str = "m.json") -> str:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return f"measured:{path}"


def bench(store: str = "mooncake", **fields: object) -> dict[str, object]:
    return {
        "kind": "bench",
        "created_utc": "2026-11-29T00:00:00Z",
        "store": store,
        "link_points": POINTS,
    } | fields


def lookup(keys: int, calls: int, seconds: float, concurrent: int = 1) -> dict[str, object]:
    return {
        "operation": "lookup",
        "concurrent": concurrent,
        "objects": keys,
        "store_calls": calls,
        "store_seconds": [seconds, seconds / 2, seconds * 2],
    }


def test_a_record_of_bench_is_fitted_to_its_samples(tmp_path: Path) -> None:
    link = load_link(written(tmp_path, bench()))
    assert "measured:m.json" == link.name
    assert (1e9, 2.5e9, 4e9, 4e9) == tuple(
        link.bytes_per_second(size << 10) for size in (64, 256, 1024, 4096)
    )
    assert pytest.approx(2e-4) == link.op.value
    assert 4e9 == link.line_rate.value
    source = "fitted to the samples of m.json: bench of 2026-11-29T00:00:00Z, store mooncake"
    assert (f"{source}: the median there", source) == (link.op.source, link.points[0].rate.source)
    assert all(constant.is_fitted for constant in (link.line_rate, link.op, link.points[0].rate))
    assert str(tmp_path) not in repr(link)


def test_what_is_not_in_the_file_is_taken_as_nothing_and_says_so(tmp_path: Path) -> None:
    points = [{**point, "op_seconds": None} for point in POINTS]
    link = load_link(written(tmp_path, bench(link_points=points)))
    assert (0.0, 0.0) == (link.op.value, link.lookup_seconds(1000, 10))
    absent = (link.op, link.lookup_call, link.lookup_key)
    assert {("not in the file: taken as 0", False)} == {(found.source, found.is_fitted) for found in absent}


@pytest.mark.parametrize(
    ("lookups", "per_call", "per_key"),
    [
        ([lookup(100, 1, 30e-6), lookup(100, 4, 60e-6), lookup(50, 3, 40e-6)], 10e-6, 0.2e-6),
        ([lookup(100, 1, 30e-6), lookup(100, 1, 50e-6)], 0.0, 0.4e-6),  # nothing tells the two apart
        ([lookup(100, 1, 30e-6), lookup(50, 2, 10e-6)], 0.0, 0.28e-6),  # calls would cost less than nothing
        ([lookup(100, 1, 10e-6), lookup(50, 1, 30e-6)], 20e-6, 0.0),  # and so would keys
    ],
    ids=["both", "alike", "no-call", "no-key"],
)
def test_existence_queries_are_fitted_to_the_lookups_of_a_record(
    tmp_path: Path, lookups: list[object], per_call: float, per_key: float
) -> None:
    others = [lookup(100, 1, 1.0, concurrent=2), {**lookup(9, 1, 1.0), "operation": "restore"}]
    link = load_link(written(tmp_path, bench(series=[*lookups, *others])))
    assert pytest.approx(per_call) == link.lookup_call.value
    assert pytest.approx(per_key) == link.lookup_key.value
    for constant in (link.lookup_call, link.lookup_key):
        assert constant.is_fitted
        assert constant.source.endswith("store mooncake: its lookups of one client")


@pytest.mark.parametrize(
    "series", [3, [3], [{}], [lookup(1, 1, -1.0)]], ids=["number", "list", "empty", "less"]
)
def test_series_that_are_not_those_of_bench_are_refused(tmp_path: Path, series: object) -> None:
    with pytest.raises(ConfigError, match=r"series are not those of bench|store_seconds is -1"):
        load_link(written(tmp_path, bench(series=series)))


@pytest.mark.parametrize(
    "content", [bench("local"), POINTS, {"link_points": POINTS}], ids=["local", "list", "map"]
)
def test_only_the_real_store_counts_as_samples(tmp_path: Path, content: object) -> None:
    link = load_link(written(tmp_path, content))
    assert not any(constant.is_fitted for constant in link.constants)
    assert 4e9 == link.bytes_per_second(1 << 20)


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    text = "object_bytes, bytes_per_second\n1048576,4e9\n65536,1e9\n65536,2e9\n65536,9e9\n"
    link = load_link(written(tmp_path, text, "m.csv"))
    assert (2e9, 9e9, False) == (link.bytes_per_second(65536), link.line_rate.value, link.op.is_fitted)
    assert "m.csv, as given" == link.points[0].rate.source


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ({"kind": "run"}, "has no field 'link_points'"),
        ({"link_points": 3}, "the points are 3"),
        ([1], "the points are a list"),
        ([], "has no point"),
        ("size,rate\n1,2\n", "has the columns size, rate"),
        ("", "has the columns none"),
        ([{"object_bytes": 0, "bytes_per_second": 1e9}], "point 1: object_bytes is 0; allowed: finite"),
        ([{"object_bytes": 1, "bytes_per_second": -1}], "point 1: bytes_per_second is -1"),
        ([{"object_bytes": 1, "bytes_per_second": "nan"}], r"bytes_per_second is 'nan' \(text\)"),
        ('[{"object_bytes": 1, "bytes_per_second": NaN}]', "bytes_per_second is nan"),
        ('[{"object_bytes": 1, "bytes_per_second": Infinity}]', "bytes_per_second is inf"),
        ([{"object_bytes": 1, "bytes_per_second": True}], "bytes_per_second is true"),
        ([{"object_bytes": 1}], "bytes_per_second is nothing"),
        ([{"object_bytes": 1, "bytes_per_second": 1e9, "op_seconds": -1}], "op_seconds is -1"),
        ("object_bytes,bytes_per_second\n1,\n", "bytes_per_second is nothing"),
    ],
)
def test_what_is_no_table_of_points_is_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_link(written(tmp_path, content))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file; give the path of a record of bench"):
        load_link(f"measured:{tmp_path / 'gone.json'}")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_link(f"measured:{path}")
