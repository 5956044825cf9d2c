"""Open a Mooncake Store client: is the wheel usable, is the master there, and set-up within bounds."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import os
import platform
import queue
import shlex
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, cast

from hicache_bench.errors import InputError, MemoryBudgetError, StoreError, StoreUnavailableError
from hicache_bench.store.mooncake import MooncakeStoreBackend
from hicache_bench.store.mooncake_codes import describe_code
from hicache_bench.units import MIB, format_size

_Answer = TypeVar("_Answer")

PIP = f"{shlex.quote(sys.executable)} -m pip"
"""Of this very environment: the system's own pip refuses to install, and another one would not help."""

INSTALL_COMMAND = f"{PIP} install mooncake-transfer-engine-non-cuda"
MIN_SEGMENT_BYTES = 16 * MIB
"""Smallest segment that Mooncake mounts; a smaller one answers INVALID_PARAMS (0 is a client without one)."""

_ENVIRONMENT = {
    # Set-up, every RPC and close wait this long for a master that accepts connections but does not answer.
    # The library's own 30 s, times 20 retries of set-up, hold the GIL for ten minutes.
    "MC_RPC_TIMEOUT_MS": "1000",
    "MC_STORE_CLIENT_SETUP_RETRIES": "1",
    # Upper case only. Read when the extension loads; 16 lines for each client otherwise.
    "MC_LOG_LEVEL": "ERROR",
    # All threads share the queue to one peer, and each call is cut to 1,024 slices; at the default of 1,024 a
    # third thread breaks it for good.
    "MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "16384",
}
_DISTRIBUTIONS = ("mooncake-transfer-engine-non-cuda", "mooncake-transfer-engine")
_PACKAGE_OF_LIBRARY = {
    "libibverbs.so.1": "libibverbs1",
    "libnuma.so.1": "libnuma1",
    "libcurl.so.4": "libcurl4",
}
_PROTOCOLS = ("tcp", "rdma")
_INFINIBAND_DEVICES = Path("/sys/class/infiniband")
_SETUP_NOISE = (
    b"Local segment descriptor not found",
    b"Logging before InitGoogleLogging()",
    # The error of a set-up that failed says these, and what to do.
    b"] RPC call failed",
    b"] RPC call timed out",
    b"] Failed to create client after",
)


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether the Mooncake client can be used here, and if not, why and what to do.

    ``reason`` and ``advice`` are ``None`` when nothing is wrong. Two wheels that own the same files are
    reported even when the import works: whose code runs is then an accident of install order.
    """

    importable: bool
    version: str | None
    distributions: tuple[str, ...]
    missing_libraries: tuple[str, ...]
    reason: str | None
    advice: str | None


def mooncake_availability() -> Availability:
    """Look for the wheel and for the system libraries it needs, and load its extension."""
    distributions = tuple(name for name in _DISTRIBUTIONS if _version(name))
    missing = tuple(library for library in _PACKAGE_OF_LIBRARY if not _can_load(library))
    import_error = None
    try:
        _load_client_class()
    except ImportError as problem:
        import_error = str(problem)
    reason, advice = _diagnose(distributions, missing, import_error)
    return Availability(
        importable=import_error is None,
        version=_version(distributions[0]) if distributions else None,
        distributions=distributions,
        missing_libraries=missing,
        reason=reason,
        advice=advice,
    )


def require_mooncake() -> Availability:
    """What :func:`mooncake_availability` finds; to be asked before a private master is started.

    A master that lacks a system library exits with the words of the loader, which name no package.

    Raises:
        StoreUnavailableError: the client cannot be used here; says why and what to do.
    """
    availability = mooncake_availability()
    if not availability.importable:
        raise StoreUnavailableError(f"{availability.reason}; to mend it: {availability.advice}")
    return availability


def probe(address: str, timeout: float = 1.5) -> None:
    """Check that something accepts TCP connections at ``HOST:PORT``, within ``timeout`` seconds in all.

    Set-up against a closed port would hold the GIL for 4-90 s.

    Raises:
        InputError: not a HOST:PORT.
        StoreUnavailableError: nothing answers, or the name does not resolve in time.
    """
    host, port = split_address(address)
    try:
        answer_within(timeout, lambda: socket.create_connection((host, port), timeout=timeout).close())
    # A host name with an empty or overlong label is a UnicodeError.
    except (OSError, UnicodeError) as problem:
        raise StoreUnavailableError(
            f"no Mooncake master at {address} ({problem}); start one, correct the address, "
            "or leave it out for a private master"
        ) from problem


def answer_within(seconds: float, question: Callable[[], _Answer]) -> _Answer:
    """The answer to a question over the network, or what it raises.

    It is asked in a thread, which is left behind: name resolution has no timeout, a name may have several
    addresses to try, and a socket's timeout holds for each part of an answer alone.

    Raises:
        TimeoutError: no answer in time.
    """
    outcome: queue.SimpleQueue[tuple[_Answer, None] | tuple[None, Exception]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            outcome.put((question(), None))
        except Exception as problem:  # noqa: BLE001 -- raised again, in the thread that asks
            outcome.put((None, problem))

    threading.Thread(target=ask, name="mooncake-question", daemon=True).start()
    try:
        answer, problem = outcome.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer in {seconds:g} s") from None
    if problem is not None:
        raise problem
    return cast("_Answer", answer)


def open_mooncake(
    master_address: str,
    *,
    segment_bytes: int,
    local_hostname: str = "127.0.0.1",
    protocol: str = "tcp",
    device: str = "",
) -> MooncakeStoreBackend:
    """Join the cluster of a running master.

    Args:
        master_address: ``HOST:PORT`` of the master's RPC port.
        segment_bytes: memory that this process adds to the cluster; 0 for none, below 16 MiB is rounded up.
        local_hostname: name by which the other clients reach this process.
        protocol: ``tcp`` or ``rdma``.
        device: name of the RDMA device; empty lets the library choose.

    The client's data plane listens on all interfaces, without authentication, whatever ``local_hostname`` is.

    Raises:
        InputError: a malformed address, a negative segment, an unknown protocol.
        MemoryBudgetError: the segment cannot be allocated.
        StoreUnavailableError: no usable wheel, no master, no RDMA device.
    """
    if segment_bytes < 0:
        raise InputError(f"the segment must be 0 or more bytes, not {segment_bytes}")
    check_protocol(protocol, device)
    availability = require_mooncake()
    probe(master_address)
    if segment_bytes:
        segment_bytes = max(segment_bytes, MIN_SEGMENT_BYTES)
    client = _load_client_class()()
    try:
        with _setup_noise_removed():
            # Metadata by peer-to-peer handshake needs no other server. No local buffer: calls are zero copy.
            code = client.setup(
                local_hostname, "P2PHANDSHAKE", segment_bytes, 0, protocol, device, master_address
            )
    except KeyboardInterrupt:
        # It waited for set-up to return; a client that outlives its master takes 10 s to go, and is loud.
        client.close()
        raise
    if code == -600 and segment_bytes:
        raise MemoryBudgetError(
            f"Mooncake could not allocate a segment of {format_size(segment_bytes)}; ask for a smaller one"
        )
    if code != 0:
        raise StoreUnavailableError(
            f"{master_address} accepts connections but does not answer as a Mooncake master: "
            f"{describe_code(code)}; give its RPC port, not its HTTP port, and check that it is not stopped"
        )
    try:
        return MooncakeStoreBackend(
            client, _effective_settings(availability, protocol, device, segment_bytes)
        )
    except StoreError:
        client.close()
        raise


def check_protocol(protocol: str, device: str = "") -> None:
    """Refuse what set-up would accept: with rdma it reports success without a device, and transfers fail.

    Raises:
        InputError: an unknown protocol, or a device for tcp.
        StoreUnavailableError: no RDMA device, or not the one that is asked for.
    """
    if protocol not in _PROTOCOLS:
        nearest = get_close_matches(protocol.casefold(), _PROTOCOLS, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise InputError(f"unknown protocol {protocol!r}; allowed: {', '.join(_PROTOCOLS)}{hint}")
    if protocol != "rdma":
        if device:
            raise InputError(f"a device ({device}) is for the protocol rdma, not {protocol}; leave it out")
        return
    found = (
        sorted(path.name for path in _INFINIBAND_DEVICES.iterdir()) if _INFINIBAND_DEVICES.is_dir() else []
    )
    if not found:
        raise StoreUnavailableError("this machine has no RDMA device; use the protocol tcp")
    missing = [name for name in device.split(",") if name and name not in found]
    if missing:
        raise StoreUnavailableError(
            f"this machine has no RDMA device {', '.join(missing)}; it has {', '.join(found)}"
        )


def address_towards(master_address: str) -> str:
    """The address by which other machines of the master's network reach this one; sends nothing.

    Raises:
        InputError: not a HOST:PORT.
    """
    host, port = split_address(master_address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as route:
        try:
            route.connect((host, port))
        except OSError:
            return "127.0.0.1"  # the probe of set-up says what is wrong with the address
        name: str = route.getsockname()[0]
        return name


def _effective_settings(
    availability: Availability, protocol: str, device: str, segment_bytes: int
) -> dict[str, str | int | float]:
    wheels = " + ".join(availability.distributions)
    return {
        "wheel": f"{wheels} {availability.version}" if wheels else "built from source",
        "protocol": protocol,
        **({"device": device} if device else {}),
        "segment_bytes": segment_bytes,
        "local_buffer_bytes": 0,
        "MC_STORE_MEMCPY": os.environ.get("MC_STORE_MEMCPY", "auto"),
        **{name: os.environ[name] for name in _ENVIRONMENT},
    }


def _load_client_class() -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    return importlib.import_module("mooncake.store").MooncakeDistributedStore


def _diagnose(
    distributions: tuple[str, ...], missing: tuple[str, ...], import_error: str | None
) -> tuple[str | None, str | None]:
    """Reason and advice for the first thing that is wrong, or ``None`` twice."""
    if import_error is not None and not distributions:
        on_linux = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
        if on_linux and (3, 10) <= sys.version_info[:2] <= (3, 13):
            return "the Mooncake wheel is not installed", INSTALL_COMMAND
        reason = (
            "Mooncake has wheels for Linux on x86_64 and aarch64 with Python 3.10 to 3.13, not for "
            f"{sys.platform} on {platform.machine()} with Python {platform.python_version()}"
        )
        return reason, "use the embedded store instead: --store local"
    reinstall = f"{PIP} uninstall -y {' '.join(distributions)} && {INSTALL_COMMAND}"
    if len(distributions) > 1:
        return f"{' and '.join(distributions)} are both installed and overwrite each other's files", reinstall
    if import_error is not None and missing:
        packages = " ".join(_PACKAGE_OF_LIBRARY[library] for library in missing)
        renamed = " (libcurl4t64 on newer releases)" if "libcurl.so.4" in missing else ""
        return f"missing system libraries: {', '.join(missing)}", f"apt-get install -y {packages}{renamed}"
    if import_error is not None:
        return f"the Mooncake wheel does not load: {import_error}", reinstall
    return None, None


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def split_address(address: str) -> tuple[str, int]:
    """Host and port of a ``HOST:PORT``.

    Raises:
        InputError: it is none.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16
    if not host or not is_port or "/" in host or host.split() != [host]:
        raise InputError(f"{address!r} is not a master address; give HOST:PORT, for example 10.0.0.5:50051")
    return host, int(port)


@contextmanager
def _setup_noise_removed() -> Iterator[None]:
    """Hold back what the extension prints while it sets up, then print it without lines that help nobody.

    No other Python thread loses output to this: set-up holds the GIL.
    """
    try:
        saved = os.dup(2)
    except OSError:  # a process without standard error has nothing to filter
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            with suppress(OSError):
                for line in held:
                    if not any(noise in line for noise in _SETUP_NOISE):
                        os.write(2, line)
