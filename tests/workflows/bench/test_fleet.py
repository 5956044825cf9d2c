"""Who does what in a bench of several processes."""

from __future__ import annotations

from typing import Any

from hicache_bench.workflows.bench.fleet import FleetPlan
from hicache_bench.workflows.bench.job import StoreJob
from tests.workflows.bench.jobs import made_job

STORE = StoreJob(name="mooncake", capacity_bytes=1 << 30, master="h:1")


def plan(**changes: Any) -> FleetPlan:
    fields: dict[str, Any] = {"model": made_job(), "num_clients": 0, "num_ranks": 1, "master": None}
    return FleetPlan(**{**fields, **changes})


def test_one_process_does_everything() -> None:
    (job,) = plan().jobs(STORE, 7)
    assert (0, (0,), 7, 7, True) == (job.client, job.ranks, job.shared_seed, job.own_seed, job.is_alone)
    assert STORE == job.store


def test_on_a_cluster_of_others_nobody_is_alone() -> None:
    (job,) = plan(master="h:1").jobs(STORE, 7)
    assert not job.is_alone


def test_the_writer_has_the_segment_and_every_rank_that_is_read() -> None:
    writer, *clients = plan(num_clients=3, num_ranks=2).jobs(STORE, 7)
    assert (None, (0, 1), STORE) == (writer.client, writer.ranks, writer.store)
    assert [(0, (0,)), (1, (1,)), (2, (0,))] == [(job.client, job.ranks) for job in clients]
    assert {0} == {job.store.capacity_bytes for job in clients}
    assert 3 == len({job.own_seed for job in clients} - {writer.shared_seed})
    assert {7} == {job.shared_seed for job in (writer, *clients)}
    assert not any(job.is_alone for job in (writer, *clients))


def test_fewer_clients_than_ranks_need_no_other_rank() -> None:
    writer, *_ = plan(num_clients=2, num_ranks=8).jobs(STORE, 0)
    assert (0, 1) == writer.ranks
