"""Availability, probing and set-up of the Mooncake client, without the wheel."""

from __future__ import annotations

import os
import platform
import re
import shlex
import socket
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from hicache_bench.errors import InputError, MemoryBudgetError, StoreUnavailableError
from hicache_bench.store import client
from hicache_bench.store.client import (
    address_towards,
    check_protocol,
    mooncake_availability,
    open_mooncake,
    probe,
)
from tests.store.fake_mooncake import FakeMooncake

NON_CUDA, CUDA = "mooncake-transfer-engine-non-cuda", "mooncake-transfer-engine"
PIP = f"{shlex.quote(sys.executable)} -m pip"
INSTALL = f"{PIP} install mooncake-transfer-engine-non-cuda"


@pytest.fixture
def listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


class FakeClient(FakeMooncake):
    """A client whose set-up answers a given code."""

    code = 0
    arguments: tuple[object, ...] = ()

    def setup(self, *arguments: object) -> int:
        FakeClient.arguments = arguments
        os.write(2, b"E1 transfer_metadata.cpp:1] Local segment descriptor not found\nE2 a real problem\n")
        return FakeClient.code


@pytest.fixture
def setup_answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Put a fake in the wheel's place."""
    monkeypatch.setattr(client, "_version", lambda name: "1.2.3" if name == NON_CUDA else None)
    monkeypatch.setattr(client, "_can_load", lambda library: True)

    def load() -> type[FakeClient]:
        for name, value in client._ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        return FakeClient

    monkeypatch.setattr(client, "_load_client_class", load)
    return lambda code: monkeypatch.setattr(FakeClient, "code", code)


class TestProbe:
    @pytest.mark.parametrize(
        "address",
        [
            "",
            "localhost",
            ":50051",
            "host:",
            "host:0",
            "host:65536",
            "host:-1",
            "host:٣",
            "http://host:1",
            "a b:1",
            f"host:{'9' * 5000}",
        ],
        ids=lambda text: text[:20],
    )
    def test_malformed_address(self, address: str) -> None:
        with pytest.raises(InputError, match="give HOST:PORT"):
            probe(address)

    def test_open_port(self, listener: socket.socket) -> None:
        with listener:
            probe(f"127.0.0.1:{listener.getsockname()[1]}")

    def test_closed_port(self, listener: socket.socket) -> None:
        port = listener.getsockname()[1]
        listener.close()
        with pytest.raises(StoreUnavailableError, match=f"no Mooncake master at 127.0.0.1:{port} .*refused"):
            probe(f"127.0.0.1:{port}")

    def test_name_that_cannot_be_a_host(self) -> None:
        with pytest.raises(StoreUnavailableError, match="no Mooncake master"):
            probe("a" * 64 + ".invalid:50051")

    def test_name_resolution_that_hangs_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answered = threading.Event()

        def resolve(*arguments: object, **options: object) -> None:
            answered.wait(60)
            raise OSError("too late")

        monkeypatch.setattr(socket, "create_connection", resolve)
        begin = time.monotonic()
        with pytest.raises(StoreUnavailableError, match=r"no answer in 0\.1 s"):
            probe("slow.example:50051", timeout=0.1)
        answered.set()
        assert time.monotonic() - begin < 30

    def test_a_master_that_never_accepts_is_given_up_after_the_bound(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every command that joins a cluster waits this long where a firewall drops what it sends."""
        over = threading.Event()
        timeouts: list[float] = []

        def connect(address: tuple[str, int], *, timeout: float) -> None:
            timeouts.append(timeout)
            over.wait(60)
            raise OSError("too late")

        monkeypatch.setattr(socket, "create_connection", connect)
        with pytest.raises(StoreUnavailableError, match=r"no answer in 1\.5 s"):
            probe("10.0.0.5:50051")
        over.set()
        assert [1.5] == timeouts


class TestAvailability:
    @pytest.fixture
    def installed(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., client.Availability]:
        def look(
            *distributions: str, missing: tuple[str, ...] = (), import_error: str | None = None
        ) -> client.Availability:
            def load() -> None:
                if import_error is not None:
                    raise ImportError(import_error)

            monkeypatch.setattr(client, "_version", lambda name: "0.3.13" if name in distributions else None)
            monkeypatch.setattr(client, "_can_load", lambda library: library not in missing)
            monkeypatch.setattr(client, "_load_client_class", load)
            return mooncake_availability()

        return look

    def test_usable(self, installed: Callable[..., client.Availability]) -> None:
        found = installed(NON_CUDA)
        assert (True, "0.3.13", (NON_CUDA,), (), None, None) == (
            found.importable,
            found.version,
            found.distributions,
            found.missing_libraries,
            found.reason,
            found.advice,
        )

    def test_no_wheel(
        self, installed: Callable[..., client.Availability], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")
        monkeypatch.setattr(sys, "version_info", (3, 13, 1))
        found = installed(missing=("libnuma.so.1",), import_error="No module named 'mooncake'")
        assert (False, None, INSTALL) == (found.importable, found.version, found.advice)
        assert "the Mooncake wheel is not installed" == found.reason

    @pytest.mark.parametrize(
        ("system", "machine", "version"),
        [("darwin", "arm64", (3, 12, 0)), ("linux", "riscv64", (3, 12, 0)), ("linux", "x86_64", (3, 14, 0))],
    )
    def test_no_wheel_for_this_machine(
        self,
        installed: Callable[..., client.Availability],
        monkeypatch: pytest.MonkeyPatch,
        system: str,
        machine: str,
        version: tuple[int, int, int],
    ) -> None:
        monkeypatch.setattr(sys, "platform", system)
        monkeypatch.setattr(platform, "machine", lambda: machine)
        monkeypatch.setattr(sys, "version_info", version)
        found = installed(import_error="No module named 'mooncake'")
        assert found.reason is not None
        assert "Python 3.10 to 3.13, not for" in found.reason
        assert "use the embedded store instead: --store local" == found.advice

    @pytest.mark.parametrize(
        ("missing", "advice"),
        [
            (("libibverbs.so.1",), "apt-get install -y libibverbs1"),
            (("libnuma.so.1", "libcurl.so.4"), "libnuma1 libcurl4 (libcurl4t64 on newer releases)"),
        ],
    )
    def test_missing_libraries(
        self, installed: Callable[..., client.Availability], missing: tuple[str, ...], advice: str
    ) -> None:
        found = installed(NON_CUDA, missing=missing, import_error=missing[0])
        assert missing == found.missing_libraries
        assert f"missing system libraries: {', '.join(missing)}" == found.reason
        assert found.advice is not None
        assert found.advice.endswith(advice)

    def test_wheel_that_does_not_load(self, installed: Callable[..., client.Availability]) -> None:
        found = installed(CUDA, import_error="libcudart.so.12: cannot open shared object file")
        assert found.reason is not None
        assert "libcudart.so.12" in found.reason
        assert f"{PIP} uninstall -y {CUDA} && {INSTALL}" == found.advice

    @pytest.mark.parametrize("import_error", [None, "undefined symbol"])
    def test_two_wheels(
        self, installed: Callable[..., client.Availability], import_error: str | None
    ) -> None:
        found = installed(NON_CUDA, CUDA, import_error=import_error)
        assert (NON_CUDA, CUDA) == found.distributions
        assert found.reason is not None
        assert "both installed" in found.reason
        assert f"{PIP} uninstall -y {NON_CUDA} {CUDA} && {INSTALL}" == found.advice


class TestOpen:
    def test_set_up_arguments_and_settings(
        self, setup_answers: Callable[[int], None], listener: socket.socket
    ) -> None:
        setup_answers(0)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with listener, open_mooncake(address, segment_bytes=1, local_hostname="10.0.0.7") as store:
            expected = ("10.0.0.7", "P2PHANDSHAKE", 16 << 20, 0, "tcp", "", address)
            assert expected == FakeClient.arguments
            assert f"{NON_CUDA} 1.2.3" == store.settings["wheel"]
            assert 16 << 20 == store.settings["segment_bytes"]
            assert "1000" == store.settings["MC_RPC_TIMEOUT_MS"]
            # A record names no host.
            assert not re.search(r"10\.0\.0\.7|127\.0", str(store.settings))

    @pytest.mark.parametrize(
        ("asked", "given"), [(0, 0), (16 << 20, 16 << 20), ((16 << 20) + 1, (16 << 20) + 1)]
    )
    def test_segments_that_mooncake_takes_stay(
        self, setup_answers: Callable[[int], None], listener: socket.socket, asked: int, given: int
    ) -> None:
        setup_answers(0)
        with listener, open_mooncake(f"127.0.0.1:{listener.getsockname()[1]}", segment_bytes=asked):
            assert given == FakeClient.arguments[2]

    @pytest.mark.parametrize(
        ("code", "segment_bytes", "error", "text"),
        [
            (-600, 1 << 40, MemoryBudgetError, "could not allocate a segment of 1.00 TiB"),
            (-600, 0, StoreUnavailableError, r"INVALID_PARAMS \(-600\)"),
            (-1, 1 << 40, StoreUnavailableError, r"INTERNAL_ERROR \(-1\); give its RPC port"),
        ],
    )
    def test_refused_set_up(
        self,
        setup_answers: Callable[[int], None],
        listener: socket.socket,
        code: int,
        segment_bytes: int,
        error: type[Exception],
        text: str,
    ) -> None:
        setup_answers(code)
        with listener, pytest.raises(error, match=text):
            open_mooncake(f"127.0.0.1:{listener.getsockname()[1]}", segment_bytes=segment_bytes)

    def test_an_interrupt_during_set_up_closes_the_client(
        self,
        setup_answers: Callable[[int], None],
        listener: socket.socket,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def interrupted(self: FakeClient, *arguments: object) -> int:
            raise KeyboardInterrupt

        setup_answers(0)
        closed: list[FakeClient] = []

        def closing(self: FakeClient) -> None:
            closed.append(self)

        monkeypatch.setattr(FakeClient, "setup", interrupted)
        monkeypatch.setattr(FakeClient, "close", closing)
        with listener, pytest.raises(KeyboardInterrupt):
            open_mooncake(f"127.0.0.1:{listener.getsockname()[1]}", segment_bytes=0)
        assert 1 == len(closed)

    def test_noise_of_set_up_is_dropped_and_nothing_else(
        self,
        setup_answers: Callable[[int], None],
        listener: socket.socket,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        setup_answers(0)
        with listener, open_mooncake(f"127.0.0.1:{listener.getsockname()[1]}", segment_bytes=0):
            os.write(2, b"afterwards\n")
        assert "E2 a real problem\nafterwards\n" == capfd.readouterr().err

    def test_a_refused_set_up_is_told_once(
        self,
        setup_answers: Callable[[int], None],
        listener: socket.socket,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        def refused(self: FakeClient, *arguments: object) -> int:
            os.write(2, b"E1 master_client.cpp:367] RPC call timed out: Connection timed out\n")
            os.write(2, b"E1 master_client.cpp:370] RPC call failed: Connection reset by peer\n")
            os.write(2, b"E1 real_client.cpp:865] Failed to create client after 1 retries\n")
            os.write(2, b"E2 rdma_context.cpp:1] No RDMA device is active\n")
            return -1

        setup_answers(0)
        monkeypatch.setattr(FakeClient, "setup", refused)
        with listener, pytest.raises(StoreUnavailableError, match="does not answer as a Mooncake master"):
            open_mooncake(f"127.0.0.1:{listener.getsockname()[1]}", segment_bytes=0)
        assert "E2 rdma_context.cpp:1] No RDMA device is active\n" == capfd.readouterr().err

    def test_bad_input_is_refused_before_anything_is_loaded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client, "mooncake_availability", lambda: pytest.fail("must not be asked"))
        with pytest.raises(InputError, match="segment must be 0 or more"):
            open_mooncake("host:1", segment_bytes=-1)
        with pytest.raises(InputError, match="unknown protocol 'bogus'; allowed: tcp, rdma"):
            open_mooncake("host:1", segment_bytes=0, protocol="bogus")

    def test_rdma_without_a_device(self, monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]) -> None:
        monkeypatch.setattr(client, "_INFINIBAND_DEVICES", tmp_path)
        with pytest.raises(StoreUnavailableError, match="no RDMA device; use the protocol tcp"):
            open_mooncake("host:1", segment_bytes=0, protocol="rdma")

    @pytest.mark.parametrize("device", ["", "mlx5_1", "mlx5_0,mlx5_1"])
    def test_rdma_devices_that_are_there(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str
    ) -> None:
        monkeypatch.setattr(client, "_INFINIBAND_DEVICES", tmp_path)
        for name in ("mlx5_0", "mlx5_1"):
            (tmp_path / name).mkdir()
        check_protocol("rdma", device)
        with pytest.raises(StoreUnavailableError, match="no RDMA device mlx9; it has mlx5_0, mlx5_1"):
            check_protocol("rdma", "mlx5_0,mlx9")

    def test_a_device_is_for_rdma(self) -> None:
        with pytest.raises(InputError, match="is for the protocol rdma, not tcp; leave it out"):
            check_protocol("tcp", "mlx5_0")

    def test_missing_wheel_says_what_to_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        missing = client.Availability(False, None, (), (), "no wheel", INSTALL)
        monkeypatch.setattr(client, "mooncake_availability", lambda: missing)
        with pytest.raises(StoreUnavailableError, match=re.escape(f"no wheel; to mend it: {INSTALL}")):
            open_mooncake("127.0.0.1:1", segment_bytes=0)


def test_environment_of_the_user_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = types.ModuleType("mooncake.store")
    wheel.MooncakeDistributedStore = FakeClient  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mooncake", types.ModuleType("mooncake"))
    monkeypatch.setitem(sys.modules, "mooncake.store", wheel)
    environment = {"MC_RPC_TIMEOUT_MS": "7000"}
    monkeypatch.setattr(os, "environ", environment)
    assert FakeClient is client._load_client_class()
    assert "7000" == environment["MC_RPC_TIMEOUT_MS"]
    assert "1" == environment["MC_STORE_CLIENT_SETUP_RETRIES"]


@pytest.mark.parametrize("address", ["127.0.0.1:50051", "localhost:50051"])
def test_the_address_towards_this_machine_is_loopback(address: str) -> None:
    assert "127.0.0.1" == address_towards(address)


def test_an_address_that_leads_nowhere_is_for_the_probe_to_tell() -> None:
    assert "127.0.0.1" == address_towards("no-such-host.invalid:1")


def test_no_address_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="is not a master address"):
        address_towards("host")
