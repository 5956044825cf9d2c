"""``bench`` on the real store: what it measures, what it survives, what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import StoreError, StoreUnavailableError
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.records.bench import BenchRecord
from hicache_bench.store.client import open_mooncake
from hicache_bench.store.master import ManagedMaster
from hicache_bench.store.mooncake import MooncakeStoreBackend
from hicache_bench.workflows.bench.measure import bench
from hicache_bench.workflows.bench.options import BenchOptions
from hicache_bench.workflows.variant import VariantOptions, apply_options
from tests.cli.command import descendants, finish, is_alive, start, wait_until

pytestmark = pytest.mark.mooncake
PRESET = "kitchen-sink"


def options(**changes: Any) -> BenchOptions:
    defaults: dict[str, Any] = {
        "preset": PRESET,
        "variant": apply_options(load_model(PRESET), VariantOptions()),
        "num_tokens": 1024,
        "store": "mooncake",
        "policies": (TransferPolicy.DENSE,),
        "repeat": 3,
    }
    return BenchOptions(**{**defaults, **changes})


def run(progress: Callable[[str], None] = lambda _: None, **changes: Any) -> BenchRecord:
    before = set(descendants(os.getpid()))
    record = bench(options(**changes), progress)
    assert set(descendants(os.getpid())) <= before
    return record


class Saboteur:
    """Does something once, when the progress first says ``words``."""

    def __init__(self, words: str, act: Callable[[], None]) -> None:
        self._words = words
        self._act = act
        self.said: list[str] = []

    def __call__(self, step: str) -> None:
        self.said.append(step)
        if self._words in step:
            self._words = "\0"
            self._act()


def workers() -> list[int]:
    """Processes of the bench that this process runs, oldest first."""
    found = descendants(os.getpid())
    return sorted(
        (pid for pid in found if "bench.child" in Path(f"/proc/{pid}/cmdline").read_text()), key=started
    )


def started(pid: int) -> int:
    """When a process began, in ticks: numbers of processes start again at the lowest."""
    return int(_status(pid)[19])


def _status(pid: int) -> list[str]:
    """Fields 3 and on of ``/proc/PID/stat``."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def newest_master(part: str = "mooncake_master") -> int:
    """The master, or its guard; not that of a fixture."""
    masters = [pid for pid, name in descendants(os.getpid()).items() if name.startswith("mooncake_master")]
    pid = max(masters, key=started)
    return int(_status(pid)[1]) if part == "guard" else pid  # the guard's only child is the master


def names(record: BenchRecord) -> list[tuple[str, str | None, int]]:
    return [(item.operation, item.policy, item.concurrent) for item in record.series if item.pool is None]


def test_one_process_on_a_store_of_its_own() -> None:
    record = run(policies=(TransferPolicy.DENSE, TransferPolicy.SELECTIVE))
    assert ("ok", "cold", 0) == (record.status, record.state, record.clients)
    assert [
        ("copy", None, 1),
        ("save", None, 1),
        ("lookup", None, 1),
        ("lookup", "dense", 1),
        ("lookup", "selective", 1),
        ("restore", "dense", 1),
        ("restore", "selective", 1),
    ] == names(record)
    dense = next(item for item in record.series if item.policy == "dense" and item.operation == "restore")
    assert (record.stored_bytes, record.stored_objects) == (dense.num_bytes, dense.objects)
    pools = [item for item in record.series if item.pool and item.operation == "restore"]
    assert dense.num_bytes == sum(item.num_bytes for item in pools)
    assert len(pools) == len(record.link_points)
    assert {"lease_ttl_ms", "eviction_watermark", "segment_bytes", "protocol", "wheel"} <= set(
        record.store_settings
    )
    assert (0, []) == (len(record.losses), list(record.failed_checks))


@pytest.mark.slow
def test_readers_of_another_process() -> None:
    record = run(clients=2)
    assert [(("restore", "dense", count)) for count in (1, 2, 2)] == names(record)[-3:]
    (restore,) = [item for item in record.together if item.operation == "restore"]
    assert 2 == len(restore.client_rates)
    assert restore.rate == pytest.approx(sum(restore.client_rates))
    assert restore.speed_up == pytest.approx(restore.rate / restore.alone_rate)
    assert 0.5 <= restore.fairness <= 1
    assert [] == list(record.failed_checks)


@pytest.mark.slow
def test_a_warm_store_is_proven_to_be() -> None:
    record = run(is_warm=True)
    assert "warm" == record.state
    assert "save" not in {operation for operation, _, _ in names(record)}
    assert any(check.name.startswith("warm") and check.passed for check in record.checks)


def test_a_joined_cluster_keeps_nothing_of_a_run(
    mooncake_store: MooncakeStoreBackend, managed_master: ManagedMaster
) -> None:
    http_port = int(managed_master.http_address.rpartition(":")[2])
    record = run(master=managed_master.address, master_http_port=http_port, clients=1)
    assert "ok" == record.status
    assert 0 == mooncake_store.remove_all(force=True)
    # What the master tells, and that it does not tell how it was started.
    settings = record.store_settings
    assert ("unknown", "unknown") == (settings["lease_ttl_ms"], settings["eviction_watermark"])
    assert (f"port {http_port}", 1, 64 << 20, 0) == (
        settings["master_http"], settings["cluster_segments"], settings["cluster_capacity_bytes"],
        settings["cluster_keys"],
    )  # fmt: skip
    assert 0 == settings["segment_bytes"]


@pytest.mark.slow
def test_what_was_there_before_stays(
    mooncake_store: MooncakeStoreBackend, managed_master: ManagedMaster
) -> None:
    # A warm run that finds nothing writes it, and takes it away again.
    asked: dict[str, Any] = {"master": managed_master.address, "is_warm": True, "operations": ("lookup",)}
    run(**asked)
    assert 0 == mooncake_store.remove_all(force=True)
    left: list[int] = []

    def run_another() -> None:
        left.append(run(**asked).stored_objects)

    record = run(Saboteur("lookup", run_another), **asked)
    assert [record.stored_objects] == left
    assert 0 == mooncake_store.remove_all(force=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "doing"),
    [(0, "restore dense"), (1, "lookup dense"), (2, "lookup dense by 2 clients")],
    ids=["writer", "first reader", "second reader"],
)
def test_a_killed_process_is_replaced_and_the_loss_told(victim: int, doing: str) -> None:
    killer = Saboteur(f"{doing}: warming up", lambda: os.kill(workers()[victim], signal.SIGKILL))
    record = run(killer, clients=2, operations=(doing.split(maxsplit=1)[0],))
    (loss,) = record.losses
    assert doing == loss.doing
    assert f"{['writer', 'client 0', 'client 1'][victim]} ended with SIGKILL" in loss.reason
    assert "ok" == record.status
    assert (doing.split(maxsplit=1)[0], "dense", 2) == names(record)[-1]


@pytest.mark.parametrize("victim", ["mooncake_master", "guard"])
def test_a_dead_master_is_replaced(victim: str) -> None:
    killer = Saboteur("lookup dense", lambda: os.kill(newest_master(victim), signal.SIGKILL))
    record = run(killer, operations=("lookup",))
    (loss,) = record.losses
    assert "lookup dense" == loss.doing
    assert loss.reason.endswith("; the private master has ended")
    assert "ok" == record.status


@pytest.mark.slow
def test_a_stopped_master_is_replaced() -> None:
    stopper = Saboteur("lookup dense", lambda: os.kill(newest_master(), signal.SIGSTOP))
    record = run(stopper, operations=("lookup",))
    assert ["lookup dense"] == [loss.doing for loss in record.losses]
    assert "ok" == record.status


@pytest.mark.slow
def test_a_silent_process_is_replaced() -> None:
    stopper = Saboteur("lookup dense", lambda: os.kill(workers()[0], signal.SIGSTOP))
    record = run(stopper, operations=("lookup",), silence_seconds=4.0)
    (loss,) = record.losses
    assert "said nothing for" in loss.reason
    assert any("silent for" in step for step in stopper.said)


@pytest.mark.slow
def test_a_run_that_breaks_again_and_again_ends() -> None:
    def kill(step: str) -> None:
        if "filling" in step:
            os.kill(workers()[0], signal.SIGKILL)

    with pytest.raises(StoreError, match="4 times in one run a process was lost"):
        run(kill, operations=("save",))


def test_a_store_without_room_is_an_error() -> None:
    with pytest.raises(StoreError, match=r"no_space.*Give it more room"):
        run(segment_bytes=16 << 20, num_tokens=8192)


def test_rdma_without_a_device_is_refused_before_anything_starts() -> None:
    with pytest.raises(StoreUnavailableError, match="no RDMA device; use the protocol tcp"):
        run(protocol="rdma")


def test_a_master_that_is_not_there() -> None:
    with pytest.raises(StoreError, match=r"no Mooncake master at 127\.0\.0\.1:1 "):
        run(master="127.0.0.1:1")


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda end: end.name)
def test_whatever_ends_it_leaves_nothing(end: signal.Signals, tmp_path: Path) -> None:
    arguments = ("--preset", PRESET, "--store", "mooncake", "--clients", 2, "--min-time", "20s")
    with start("bench", *arguments, "--out", tmp_path / "results") as process:
        wait_until(lambda: len(descendants(process.pid)) >= 5, process)
        # Two of the master, two of each client: every process has joined.
        wait_until(lambda: len(listening(descendants(process.pid))) >= 8, process)
        children = descendants(process.pid)
        sockets, shared = listening(children), shared_files(children)
        process.send_signal(end)
        answer = finish(process)
    assert answer.code == (-end if end is signal.SIGKILL else 130)
    deadline = time.monotonic() + 15
    while any(map(is_alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [] == [name for pid, name in children.items() if is_alive(pid)]
    assert not sockets & {row[9] for row in listeners()}
    assert not any(path.exists() for path in shared)
    assert not (tmp_path / "results").exists()


def listeners() -> list[list[str]]:
    """Rows of every listening socket; the tenth column is its inode."""
    tables = [Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return [row for row in rows if row[3] == "0A"]


def listening(pids: Iterable[int]) -> set[str]:
    """Inodes of the sockets on which these processes listen."""
    held: set[str] = set()
    for pid in pids:
        for handle in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):  # closed since
                held.add(str(handle.readlink()).removeprefix("socket:[").removesuffix("]"))
    return held & {row[9] for row in listeners()}


def shared_files(pids: Iterable[int]) -> set[Path]:
    """Files of shared memory that these processes map."""
    maps = "\n".join(Path(f"/proc/{pid}/maps").read_text() for pid in pids)
    return {Path(word) for word in maps.split() if word.startswith("/dev/shm/")}  # noqa: S108 - looked at only


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=lambda end: end.name)
def test_whatever_ends_it_takes_everything_out_of_a_joined_cluster(
    end: signal.Signals, tmp_path: Path
) -> None:
    with ManagedMaster() as master, open_mooncake(master.address, segment_bytes=256 << 20):
        arguments = ("--preset", PRESET, "--store", "mooncake", "--master", master.address, "--op", "restore")
        with start("bench", *arguments, "--min-time", "20s", "--out", tmp_path) as process:
            wait_until(lambda: _num_keys(master) > 0, process)
            children = descendants(process.pid)
            time.sleep(0.5)
            process.send_signal(end)
            assert finish(process).code in (130, -end)
        deadline = time.monotonic() + 20
        while any(map(is_alive, children)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert 0 == _num_keys(master)


def _num_keys(master: ManagedMaster) -> int:
    """Keys that the master knows of, by its own count."""
    with urlopen(f"http://{master.http_address}/metrics") as answer:
        text = answer.read().decode()
    (line,) = [line for line in text.splitlines() if line.startswith("master_key_count ")]
    return int(float(line.split()[1]))


def test_json_on_stdout_is_the_record(tmp_path: Path) -> None:
    arguments = ("--preset", PRESET, "--store", "mooncake", "--tokens", "1k", "--repeat", 2, "--json")
    with start("bench", *arguments, "--out", tmp_path) as process:
        answer = finish(process)
    assert 0 == answer.code, answer.err
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text()) == json.loads(answer.out)
