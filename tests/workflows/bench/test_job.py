"""Jobs and tasks survive the way through JSON."""

from __future__ import annotations

import json

import pytest

from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.workflows.bench.job import Job, StoreJob, Task
from hicache_bench.workflows.variant import VariantOptions
from tests.workflows.bench.jobs import made_job, made_task


def test_a_job_is_the_same_on_the_other_side() -> None:
    job = made_job(
        variant=VariantOptions(tp=8, salt="ten\u00e4nt"),
        store=StoreJob(
            name="mooncake",
            capacity_bytes=0,
            master="h:1",
            is_joined=True,
            master_http_port=1,
            protocol="rdma",
            device="d",
        ),
        client=None,
        ranks=(0, 3),
    )
    assert job == Job.from_dict(json.loads(json.dumps(job.to_dict())))


@pytest.mark.parametrize("policy", [None, *TransferPolicy])
def test_a_task_is_the_same_on_the_other_side(policy: TransferPolicy | None) -> None:
    task = made_task("lookup", policy, pool="kv", concurrent=3, pids=(7, 8))
    assert task == Task.from_dict(json.loads(json.dumps(task.to_dict())))


def test_the_model_is_that_of_the_variant() -> None:
    variant = made_job(variant=VariantOptions(page_tokens=32)).load_variant()
    assert 32 == variant.page_tokens


def test_labels() -> None:
    assert (
        "restore dense of kv by 2 clients"
        == made_task("restore", TransferPolicy.DENSE, pool="kv", concurrent=2).label
    )
    assert "save" == made_task("save").label
