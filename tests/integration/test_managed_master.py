"""The private master: it serves, it keeps out of the way, and nothing of it stays behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hicache_bench.errors import StoreUnavailableError
from hicache_bench.store import master
from hicache_bench.store.client import open_mooncake, probe
from hicache_bench.store.master import ManagedMaster
from tests.integration.processes import LIMIT_SECONDS, child, run

pytestmark = pytest.mark.mooncake


@pytest.fixture
def started() -> Iterator[ManagedMaster]:
    with ManagedMaster(lease_ttl_ms=123, eviction_watermark=0.5, eviction_ratio=0.25) as started:
        yield started


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_gone(pid: int, *addresses: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while is_alive(pid):
        assert time.monotonic() < deadline, f"master {pid} is still there"
        time.sleep(0.02)
    for address in addresses:
        with pytest.raises(StoreUnavailableError):
            probe(address)


def test_it_serves_and_stops(started: ManagedMaster) -> None:
    probe(started.address)
    probe(started.http_address)
    assert started.is_running
    command = Path(f"/proc/{started.pid}/cmdline").read_bytes().split(b"\0")
    assert command[0].endswith(b"mooncake_master")
    assert {b"-default_kv_lease_ttl=123", b"-eviction_ratio=0.25"} <= set(command)
    expected = {"lease_ttl_ms": 123, "eviction_watermark": 0.5, "eviction_ratio": 0.25}
    assert expected == started.settings
    started.stop()
    started.stop()
    assert_gone(started.pid, started.address, started.http_address)


def test_two_at_once(started: ManagedMaster) -> None:
    with ManagedMaster() as other:
        addresses = {started.address, started.http_address, other.address, other.http_address}
        assert 4 == len(addresses)
        probe(started.address)
    probe(started.address)


def test_terminal_signals_do_not_reach_it(started: ManagedMaster) -> None:
    assert os.getsid(0) != os.getsid(started.pid)


def test_stopped_process_is_stopped_for_good(started: ManagedMaster) -> None:
    os.kill(started.pid, signal.SIGSTOP)
    started.stop()
    assert_gone(started.pid)


def test_death_of_the_master_shows(started: ManagedMaster) -> None:
    os.kill(started.pid, signal.SIGKILL)
    assert_gone(started.pid)
    deadline = time.monotonic() + LIMIT_SECONDS
    while started.is_running:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("taken", ["rpc", "http"])
def test_port_taken_in_the_meantime(taken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A master whose RPC port is taken reports ready over HTTP for a moment: that must not be believed."""
    find_free_ports = master._free_ports
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        rpc_port, http_port = find_free_ports()
        attempts = [(port, http_port) if taken == "rpc" else (rpc_port, port)]
        monkeypatch.setattr(master, "_free_ports", lambda: attempts.pop() if attempts else find_free_ports())
        with ManagedMaster() as started:
            assert [] == attempts
            assert f"127.0.0.1:{port}" not in (started.address, started.http_address)
            open_mooncake(started.address, segment_bytes=0).close()


def test_http_port_is_no_master(started: ManagedMaster) -> None:
    with pytest.raises(StoreUnavailableError, match=r"does not answer as a Mooncake master.*RPC port"):
        open_mooncake(started.http_address, segment_bytes=0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_does_not_survive_its_parent(number: signal.Signals) -> None:
    source = """
        with ManagedMaster() as master, open_mooncake(master.address, segment_bytes=16 << 20):
            say([master.pid, master.address, master.http_address])
            time.sleep(300)
        """
    with child(source) as parent:
        pid, *addresses = parent.hear()
        probe(addresses[0])
        parent.process.send_signal(number)
        parent.process.wait(LIMIT_SECONDS)
        assert_gone(pid, *addresses)


def test_exit_without_closing_anything_is_clean_and_quiet() -> None:
    ended = run(
        """
        master = ManagedMaster()
        store = open_mooncake(master.address, segment_bytes=16 << 20)
        store.register_buffer(address, memory.nbytes)
        assert store.batch_put_from(["key"], [address], [10]) == [OK]
        say([master.pid, master.address])
        sys.exit(7)
        """
    )
    assert (7, "") == (ended.returncode, ended.stderr)
    pid, address = json.loads(ended.stdout)
    assert_gone(pid, address)


def test_interrupt_closes_the_client_before_the_master() -> None:
    source = """
        with ManagedMaster() as master, open_mooncake(master.address, segment_bytes=16 << 20) as store:
            try:
                say([master.pid, master.address])  # inside: the interrupt may come at once
                while True:  # nor does it end a sleep that it came just before
                    time.sleep(0.1)
            finally:
                say([str(result) for result in store.batch_exists(["key"])])
        """
    with child(source) as interrupted:
        pid, address = interrupted.hear()
        interrupted.process.send_signal(signal.SIGINT)
        assert ["miss"] == interrupted.hear()
        assert 0 != interrupted.process.wait(LIMIT_SECONDS)
        assert_gone(pid, address)
