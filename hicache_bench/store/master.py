"""A private ``mooncake_master`` on free loopback ports, for runs that join no cluster."""

from __future__ import annotations

import atexit
import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO

from hicache_bench.errors import ConfigError, StoreUnavailableError
from hicache_bench.store import master_guard
from hicache_bench.store.client import INSTALL_COMMAND

LOOPBACK = "127.0.0.1"
DEFAULT_LEASE_TTL_MS = 10_000
DEFAULT_EVICTION_WATERMARK = 0.90
DEFAULT_EVICTION_RATIO = 0.05
"""Defaults of ``mooncake_master --help`` (wheel 0.3.13.post1), passed explicitly: records name them."""

_MAX_START_ATTEMPTS = 5
_READY_SECONDS = 10.0
_POLL_SECONDS = 0.01
_PROBE_SECONDS = 0.5
_GUARD_STOP_SECONDS = master_guard.STOP_GRACE_SECONDS + 5.0
_PORT_TAKEN_EXIT_CODE = 1
_TCP_LISTEN = "0A"
"""State of a listening socket in ``/proc/net/tcp``."""


def find_master_binary() -> Path:
    """The ``mooncake_master`` executable of the installed wheel, found without loading its extension.

    Raises:
        StoreUnavailableError: no wheel, or a wheel without the executable.
    """
    spec = importlib.util.find_spec("mooncake")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        binary = Path(folder) / "mooncake_master"
        if os.access(binary, os.X_OK):
            return binary
    raise StoreUnavailableError(
        f"no mooncake_master executable in this Python environment; install the wheel: {INSTALL_COMMAND}"
    )


def master_command(
    binary: Path,
    rpc_port: int,
    http_port: int,
    *,
    lease_ttl_ms: int = DEFAULT_LEASE_TTL_MS,
    eviction_watermark: float = DEFAULT_EVICTION_WATERMARK,
    eviction_ratio: float = DEFAULT_EVICTION_RATIO,
) -> list[str]:
    """Command line of a quiet master that listens on loopback only."""
    return [
        str(binary),
        f"-rpc_address={LOOPBACK}",
        f"-rpc_port={rpc_port}",
        f"-metrics_host={LOOPBACK}",
        f"-metrics_port={http_port}",
        # The master logs a line for each refused put; the client answers those with a code.
        "-minloglevel=3",
        "-enable_metric_reporting=false",
        f"-default_kv_lease_ttl={lease_ttl_ms}",
        f"-eviction_high_watermark_ratio={eviction_watermark}",
        f"-eviction_ratio={eviction_ratio}",
    ]


class ManagedMaster:
    """Start a ``mooncake_master`` and stop it on exit, whatever ends this process.

    Close every client before :meth:`stop` (leave its ``with`` block first): a client that outlives its master
    needs up to 20 s to close. The master and its guard run in a session of their own, so a Ctrl-C in the
    terminal reaches this process alone, which keeps that order.

    ``find_ports`` gives the RPC and the HTTP port to try; it is asked again where one of them is taken.

    Raises:
        ConfigError: a lease below zero, or a watermark or ratio outside (0, 1].
        StoreUnavailableError: no executable, or it does not become ready.
    """

    def __init__(
        self,
        *,
        lease_ttl_ms: int = DEFAULT_LEASE_TTL_MS,
        eviction_watermark: float = DEFAULT_EVICTION_WATERMARK,
        eviction_ratio: float = DEFAULT_EVICTION_RATIO,
        find_ports: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        if lease_ttl_ms < 0:
            raise ConfigError(f"the lease must be 0 ms or longer, not {lease_ttl_ms}")
        if not (0 < eviction_watermark <= 1 and 0 < eviction_ratio <= 1):
            raise ConfigError(
                "eviction watermark and ratio must be above 0 and at most 1, "
                f"not {eviction_watermark} and {eviction_ratio}"
            )
        self._settings: dict[str, str | int | float] = {
            "lease_ttl_ms": lease_ttl_ms,
            "eviction_watermark": eviction_watermark,
            "eviction_ratio": eviction_ratio,
        }
        binary = find_master_binary()
        self._owner_pid = os.getpid()
        for _ in range(_MAX_START_ATTEMPTS):
            self._rpc_port, self._http_port = (find_ports or _free_ports)()
            command = master_command(
                binary,
                self._rpc_port,
                self._http_port,
                lease_ttl_ms=lease_ttl_ms,
                eviction_watermark=eviction_watermark,
                eviction_ratio=eviction_ratio,
            )
            if self._start(command):
                return
        raise StoreUnavailableError(
            f"mooncake_master found its ports taken {_MAX_START_ATTEMPTS} times in a row; try again, "
            "or start one yourself and give its address with --master"
        )

    @property
    def address(self) -> str:
        """``127.0.0.1:PORT`` that clients set up with."""
        return f"{LOOPBACK}:{self._rpc_port}"

    @property
    def http_address(self) -> str:
        """``127.0.0.1:PORT`` that serves ``/health`` and ``/metrics``."""
        return f"{LOOPBACK}:{self._http_port}"

    @property
    def pid(self) -> int:
        """Process id of the master itself, not of its guard."""
        return self._pid

    @property
    def is_running(self) -> bool:
        """Whether the master has not exited."""
        return self._guard.poll() is None

    @property
    def settings(self) -> dict[str, str | int | float]:
        """Effective settings, for the record."""
        return dict(self._settings)

    def stop(self) -> None:
        """Stop the master: terminate, wait, kill. Calling it again does nothing."""
        if os.getpid() != self._owner_pid:
            return
        atexit.unregister(self.stop)
        for stream in (self._guard.stdin, self._guard.stdout):
            if stream is not None:
                stream.close()
        try:
            self._guard.wait(_GUARD_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            # The kernel kills the master when its guard dies.
            self._guard.kill()
            self._guard.wait()

    def __enter__(self) -> ManagedMaster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, command: list[str]) -> bool:
        """Start the guarded master and wait until it serves; false if another process has its port."""
        with tempfile.TemporaryFile() as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", master_guard.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
            atexit.register(self.stop)
            is_ready = has_exited = False
            try:
                is_ready = self._wait_until_ready()
                has_exited = not self.is_running
            finally:
                if not is_ready:
                    self.stop()
            if is_ready:
                return True
            code = self._guard.returncode
            if has_exited and code == _PORT_TAKEN_EXIT_CODE:
                return False
            problem = f"exited with code {code}" if has_exited else f"was not ready in {_READY_SECONDS:g} s"
            raise StoreUnavailableError(f"mooncake_master {problem}. It printed: {_tail(log) or 'nothing'}")

    def _wait_until_ready(self) -> bool:
        """Wait until the master serves; false if it exits or is too slow."""
        pid_line = self._guard.stdout.readline() if self._guard.stdout else b""
        if not pid_line:
            self._guard.wait(_GUARD_STOP_SECONDS)
            return False
        self._pid = int(pid_line)
        deadline = time.monotonic() + _READY_SECONDS
        while self.is_running and time.monotonic() < deadline:
            if _listens_on(self._pid, self._rpc_port) and _reports_ready(self._http_port):
                return True
            time.sleep(_POLL_SECONDS)
        return False


def _free_ports() -> tuple[int, int]:
    """Two ports that are free now. The master has no "any free port" of its own: 0 means 50051 there."""
    with socket.socket() as first, socket.socket() as second:
        first.bind((LOOPBACK, 0))
        second.bind((LOOPBACK, 0))
        return first.getsockname()[1], second.getsockname()[1]


def _listens_on(pid: int, port: int) -> bool:
    """Whether that very process listens on the loopback port.

    A connection proves nothing: a master whose RPC port belongs to another program still reports ready over
    HTTP for 0.1 s before it gives up.
    """
    local_address = f"{int.from_bytes(socket.inet_aton(LOOPBACK), sys.byteorder):08X}:{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {row[9] for row in rows if row[1] == local_address and row[3] == _TCP_LISTEN}
    try:
        handles = {str(handle.readlink()) for handle in Path(f"/proc/{pid}/fd").iterdir()}
    except PermissionError:  # a hardened kernel hides the files of other processes: trust the port
        return bool(inodes)
    except FileNotFoundError:  # the process, or one of its files, has gone since the listing
        return False
    return any(f"socket:[{inode}]" in handles for inode in inodes)


def _reports_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", "/health")
        return json.loads(connection.getresponse().read()).get("service_ready") is True
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read()[-500:].decode(errors="replace").strip()
