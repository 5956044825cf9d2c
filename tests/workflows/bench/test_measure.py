"""A whole bench on the embedded store; several processes are in ``tests/integration``."""

from __future__ import annotations

import json
import os
import signal
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import MemoryBudgetError, StoreError
from hicache_bench.records.bench import BenchRecord
from hicache_bench.workflows.bench import measure
from hicache_bench.workflows.bench.job import Task
from hicache_bench.workflows.bench.measure import MAX_LOSSES, bench
from hicache_bench.workflows.bench.peer import PeerLostError
from hicache_bench.workflows.variant import VariantOptions, apply_options
from tests.cli.command import descendants
from tests.workflows.bench.jobs import PRESET, made_options, made_task


def quiet(_step: str) -> None:
    """Nobody watches."""


@cache
def measured() -> BenchRecord:
    return bench(made_options(command=("hicache-bench", "bench")), quiet)


def test_every_series_is_there() -> None:
    whole = [(item.operation, item.policy) for item in measured().series if item.pool is None]
    policies = ("dense", "hit_policy", "selective")
    assert [
        ("copy", None),
        ("save", None),
        ("lookup", None),
        *(("lookup", policy) for policy in policies),
        *(("restore", policy) for policy in policies),
    ] == whole
    assert {2} == {item.summary.samples for item in measured().series}
    assert {2} == {len(item.warmups) for item in measured().series}


def test_state_and_bytes_are_proven() -> None:
    record = measured()
    assert ("ok", "cold", "local") == (record.status, record.state, record.store)
    cold, warm, *compared = record.checks
    assert cold.actual.startswith("0 of ")
    assert warm.actual == warm.expected
    assert all("differ from the saved ones" in check.name for check in compared)
    dense = next(item for item in record.series if (item.operation, item.policy) == ("restore", "dense"))
    assert record.stored_bytes == dense.num_bytes
    assert record.stored_objects == dense.objects


def test_a_store_in_one_process_is_no_link() -> None:
    assert () == measured().link_points


def test_a_record_is_plain_data() -> None:
    text = json.dumps(measured().to_dict(), allow_nan=False)
    assert os.uname().nodename not in text
    assert str(Path.cwd()) not in text


def test_a_rank_of_many_reads_its_own_part() -> None:
    options = made_options(
        variant=apply_options(load_model(PRESET), VariantOptions(tp=2)), operations=("restore",)
    )
    record = bench(options, quiet)
    assert record.stored_bytes < measured().stored_bytes
    assert "ok" == record.status


def test_wrong_bytes_fail_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lying(measure._Measuring):
        def _add(self, task, peers, found):
            for part in found:
                part["mismatched"] = ["kv:3"]
            super()._add(task, peers, found)

    monkeypatch.setattr(measure, "_Measuring", Lying)
    record = bench(made_options(operations=("restore",)), quiet)
    assert "failed" == record.status
    assert "1: kv:3" == record.failed_checks[0].actual


def test_too_little_memory_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "usable_memory_bytes", lambda: 1 << 20)
    with pytest.raises(MemoryBudgetError, match=r"this needs .* use fewer --tokens or --clients"):
        bench(made_options(), quiet)


@pytest.mark.parametrize(("clients", "sets"), [(0, 2), (1, 3), (4, 9)])
def test_each_client_needs_a_source_and_a_target_and_the_writer_a_source(clients: int, sets: int) -> None:
    cluster: Any = SimpleNamespace(host_bytes=10)
    assert sets * 10 + 7 == measure._memory_bytes(made_options(clients=clients), cluster, 7)


def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    record = bench(made_options(operations=("lookup",), policies=()), quiet)
    assert "1000.0 processes wanted the" in record.warnings[0]


def test_a_lost_process_is_replaced() -> None:
    killed: list[int] = []

    def kill_once(step: str) -> None:
        if "filling" in step and not killed:
            killed.extend(descendants(os.getpid()))
            os.kill(killed[-1], signal.SIGKILL)

    record = bench(made_options(operations=("restore",)), kill_once)
    (loss,) = record.losses
    assert (0, "copy") == (loss.client, loss.doing)
    assert "SIGKILL" in loss.reason
    assert ("ok", 3) == (
        record.status,
        sum(item.operation == "restore" for item in record.series if item.pool is None),
    )


def test_losses_end() -> None:
    def kill(step: str) -> None:
        if "filling" in step:
            os.kill(list(descendants(os.getpid()))[-1], signal.SIGKILL)

    with pytest.raises(StoreError, match=f"{MAX_LOSSES + 1} times in one run a process was lost"):
        bench(made_options(operations=("lookup",)), kill)
    assert [] == list(descendants(os.getpid()))


class Troubled:
    """The processes of a run in which things break; nothing is started."""

    def __init__(self) -> None:
        self.progress = quiet
        self.num_ends = 0

    def end(self) -> None:
        self.num_ends += 1

    def casualties(self, _noticed_by: int | None) -> str:
        return "; the private master has ended"

    def wait_for_master(self) -> None:
        """It is back."""


def keep_going(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[Exception | None], master: str | None
) -> measure._Measuring:
    """Take one series of which each attempt ends as ``outcomes`` say."""

    class Scripted(measure._Measuring):
        def _make_ready(self) -> None:
            self._was_up = True

        def _measure(self, task: Task) -> None:
            outcome = outcomes.pop(0)
            if outcome is not None:
                raise outcome

    monkeypatch.setattr(measure, "_RETRY_SECONDS", 0.0)
    options = made_options(store="mooncake", master=master)
    measuring = Scripted(options, None, Troubled())  # type: ignore[arg-type]
    measuring._keep_going(made_task("lookup"))
    return measuring


def test_owners_of_segments_may_take_longer_than_their_master(monkeypatch: pytest.MonkeyPatch) -> None:
    full = StoreError("no_space")
    outcomes: list[Exception | None] = [PeerLostError(0, "no answer"), full, full, None]
    measuring = keep_going(monkeypatch, outcomes, "h:1")
    assert ["no answer; the private master has ended"] == [loss.reason for loss in measuring.losses]
    assert [] == outcomes


@pytest.mark.parametrize(
    ("before", "master"), [([], "h:1"), ([PeerLostError(0, "no answer")], None)], ids=["no loss", "private"]
)
def test_a_store_without_room_ends_a_run_at_once(
    monkeypatch: pytest.MonkeyPatch, before: list[Exception | None], master: str | None
) -> None:
    with pytest.raises(StoreError, match="no_space"):
        keep_going(monkeypatch, [*before, StoreError("no_space"), None], master)


def test_a_store_that_stays_without_room_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MASTER_SECONDS", -1.0)
    with pytest.raises(StoreError, match="no_space"):
        keep_going(monkeypatch, [PeerLostError(0, "no answer"), StoreError("no_space"), None], "h:1")
