"""Jobs of one small prefix."""

from __future__ import annotations

from typing import Any

from hicache_bench.config.load import load_model
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.workflows.bench.job import Job, StoreJob, Task
from hicache_bench.workflows.bench.options import BenchOptions
from hicache_bench.workflows.variant import VariantOptions, apply_options

PRESET = "kitchen-sink"


def made_job(**changes: Any) -> Job:
    fields: dict[str, Any] = {
        "preset": PRESET,
        "variant": VariantOptions(),
        "tokens": 512,
        "save_policy": "state=every:4096,window=all",
        "batch_pages": 128,
        "store": StoreJob(name="local", capacity_bytes=256 << 20),
        "client": 0,
        "ranks": (0,),
        "shared_seed": 3,
        "own_seed": 4,
        "is_alone": True,
    }
    return Job(**{**fields, **changes})


def made_task(operation: str, policy: TransferPolicy | None = None, **changes: Any) -> Task:
    return Task(**{"operation": operation, "repeat": 2, "min_seconds": 1.0, "policy": policy, **changes})


def made_options(**changes: Any) -> BenchOptions:
    fields: dict[str, Any] = {
        "preset": PRESET,
        "variant": apply_options(load_model(PRESET), VariantOptions()),
        "num_tokens": 512,
        "repeat": 2,
    }
    return BenchOptions(**{**fields, **changes})
