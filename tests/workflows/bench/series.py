"""Series and records of a bench, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hicache_bench.records.bench import BenchRecord, Series
from hicache_bench.workflows.bench.analysis import compare_clients, link_points, summarise


def made_series(
    *,
    seconds: Sequence[float] = (0.1, 0.1, 0.1),
    starts: Sequence[float] = (0.0, 0.1, 0.2),
    num_bytes: int = 1 << 20,
    objects: int = 16,
    store_seconds: Sequence[float] | None = None,
    **changes: Any,
) -> Series:
    fields: dict[str, Any] = {
        "operation": "restore",
        "policy": "dense",
        "pool": None,
        "client": 0,
        "concurrent": 1,
        "rank": "the only rank",
        "store_calls": 1,
        "warmups": (0.5, 0.1),
        "key_seconds": tuple(0.001 for _ in seconds),
        "verify_seconds": 0.2,
        "busy_processors": 1.5,
        "own_processors": 1.4,
    }
    return Series(
        **{**fields, **changes},
        objects=objects,
        num_bytes=num_bytes,
        starts=tuple(starts),
        seconds=tuple(seconds),
        store_seconds=tuple(seconds if store_seconds is None else store_seconds),
        summary=summarise(seconds, num_bytes=num_bytes, objects=objects),
    )


def made_record(series: Sequence[Series], **changes: Any) -> BenchRecord:
    fields: dict[str, Any] = {
        "status": "ok",
        "created_utc": "2026-01-02T03:04:05.678901Z",
        "command": ("hicache-bench", "bench"),
        "tool_version": "0",
        "libraries": {},
        "environment": {"processors": 2},
        "load_average": 0.5,
        "preset": {"name": "kitchen-sink", "page_tokens": 64},
        "preset_digest": "0123456789abcdef",
        "profile": "by_kind",
        "deployment": {"dcp": 1},
        "key_scheme": "namespaced",
        "namespace": "0",
        "save_policy": "state=every:4096,window=all",
        "tokens": 8192,
        "pages": 128,
        "batch_pages": 128,
        "store": "mooncake",
        "store_settings": {"protocol": "tcp", "segment_bytes": 1 << 30, "lease_ttl_ms": 10_000},
        "state": "cold",
        "clients": 0,
        "memory_bytes": 1 << 30,
        "stored_bytes": 1 << 20,
        "stored_objects": 16,
        "losses": (),
        "checks": (),
        "warnings": (),
    }
    return BenchRecord(
        **{**fields, **changes},
        series=tuple(series),
        together=compare_clients(series),
        link_points=link_points(series),
    )
