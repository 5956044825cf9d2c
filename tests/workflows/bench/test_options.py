"""What cannot be measured is refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from hicache_bench.errors import HicacheBenchError, InputError
from tests.workflows.bench.jobs import made_options


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"store": "count"}, "moves nothing that could be timed; use local or mooncake"),
        ({"store": "redis"}, "unknown store 'redis'"),
        ({"operations": ("x",)}, "operation 'x' is unknown; allowed: save, lookup, restore"),
        ({"repeat": 3, "min_seconds": 1.0}, "--repeat and --min-time both say"),
        ({"repeat": None, "min_seconds": 3601.0}, "--min-time 3,601 s is more than the 3,600 s"),
        ({"repeat": None, "min_seconds": 1e99}, "is more than the 3,600 s"),
        ({"is_warm": True, "operations": ("save",)}, "a put of an existing key writes nothing"),
        ({"clients": 65, "store": "mooncake"}, "--clients 65 is not 1 to 64"),
        ({"clients": 2}, "--store local lives in one process"),
        ({"protocol": "rdma"}, "--protocol is for --store mooncake"),
        ({"device": "mlx5_0"}, "--device is for --store mooncake"),
        ({"master": "h:1"}, "--master is for --store mooncake"),
        ({"segment_bytes": 1}, "--segment is for --store mooncake"),
        ({"segment_bytes": 0, "store": "mooncake"}, "--segment 0 leaves a private store without room"),
        ({"store": "mooncake", "device": "mlx5_0"}, "is for the protocol rdma, not tcp"),
        ({"store": "mooncake", "protocol": "quic"}, "unknown protocol 'quic'; allowed: tcp, rdma"),
        ({"store": "mooncake", "protocol": "RDAM"}, "did you mean 'rdma'?"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:30],
)
def test_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(HicacheBenchError) as refused:
        made_options(**changes).check()
    assert isinstance(refused.value, InputError)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("save", "lookup", "restore")),
        ({"is_warm": True}, ("lookup", "restore")),
        ({"operations": ("restore", "save")}, ("save", "restore")),
    ],
    ids=["all", "warm", "in order"],
)
def test_operations(changes: dict[str, Any], expected: tuple[str, ...]) -> None:
    options = made_options(**changes)
    options.check()
    assert expected == options.chosen_operations


def test_time_is_two_seconds_unless_told() -> None:
    assert 2.0 == made_options().chosen_seconds
    assert 0.5 == made_options(repeat=None, min_seconds=0.5).chosen_seconds
