"""Who does what in a bench of several processes."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from hicache_bench.errors import StoreUnavailableError
from hicache_bench.store import client
from hicache_bench.workflows.bench import fleet as module
from hicache_bench.workflows.bench.fleet import Fleet, FleetPlan
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


def test_what_the_client_lacks_is_told_before_a_master_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = client.Availability(False, "1", ("wheel",), ("lib",), "missing system libraries: lib", "get it")
    monkeypatch.setattr(client, "mooncake_availability", lambda: lacks)
    monkeypatch.setattr(module, "ManagedMaster", lambda: pytest.fail("a master was started"))
    model = made_job(store=STORE)
    with pytest.raises(StoreUnavailableError, match=r"^missing system libraries: lib; to mend it: get it$"):
        Fleet(plan(model=model), lambda: 0, lambda _: None, 1.0).start()


@dataclass
class Fallen:
    """A process, as far as its end goes."""

    client: int | None
    killed_by: str | None

    @property
    def name(self) -> str:
        return "writer" if self.client is None else f"client {self.client}"


class Master:
    """A master whose end shows at the third look, as that of a guard does."""

    looks = 0

    @property
    def is_running(self) -> bool:
        self.looks += 1
        return self.looks < 3


def fleet(*peers: Fallen, master: Master | None = None) -> Fleet:
    made = Fleet(plan(), lambda: 0, lambda _: None, 1.0)
    made._peers, made._master = list(peers), master  # type: ignore[arg-type, assignment]
    return made


@pytest.mark.parametrize(
    ("noticed_by", "expected"),
    [(1, "; writer ended with SIGKILL"), (None, "")],
    ids=["by another", "by itself"],
)
def test_a_loss_names_who_was_killed_not_only_who_noticed(
    monkeypatch: pytest.MonkeyPatch, noticed_by: int | None, expected: str
) -> None:
    monkeypatch.setattr(module, "_CASUALTY_SECONDS", 0.0)
    made = fleet(Fallen(None, "SIGKILL"), Fallen(0, None), Fallen(1, None))
    assert expected == made.casualties(noticed_by)


def joined(address: str, said: list[str]) -> Fleet:
    return Fleet(plan(master=address), lambda: 0, said.append, 1.0)


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def test_a_master_that_comes_back_is_waited_for() -> None:
    address = free_address()
    returned: list[socket.socket] = []
    said: list[str] = []

    def come_back() -> None:
        returned.append(socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))))

    timer = threading.Timer(0.2, come_back)
    timer.start()
    joined(address, said).wait_for_master()
    timer.join()
    returned.pop().close()
    assert said[0].startswith("the master is gone: waiting for it, 0 s of at most 15")


def test_a_master_that_does_not_come_back_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MASTER_SECONDS", 0.6)
    with pytest.raises(StoreUnavailableError, match=r"was lost, and did not come back in 1 s: no Mooncake"):
        joined(free_address(), []).wait_for_master()


def test_a_private_master_is_started_anew_and_not_waited_for() -> None:
    fleet().wait_for_master()


def test_a_master_that_is_found_dead_a_moment_later_is_named() -> None:
    assert "; the private master has ended" == fleet(Fallen(0, None), master=Master()).casualties(0)
