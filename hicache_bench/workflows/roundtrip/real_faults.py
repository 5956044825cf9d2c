"""Faults of the real store, with real processes: each in a child that can be killed, its claims as checks.

A child has a private master, a deadline and a process group of its own. What it finds arrives line by line;
this process adds what only it can see: that the child came back in time, how it ended, and what it left.
"""

from __future__ import annotations

import difflib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from hicache_bench.errors import InputError
from hicache_bench.records.proof import Proof
from hicache_bench.records.schema import Check
from hicache_bench.store.client import require_mooncake
from hicache_bench.workflows.rank import equal, none_of

MODULE = "hicache_bench.workflows.roundtrip.real_fault_child"
GRACE_SECONDS = 15.0
"""How much later than its deadline a child ends itself, should its parent be gone."""

_LEAVE_SECONDS = 10.0
"""The guard of a master gives it 3 s to end, and learns of its parent's death at once."""

_POLL_SECONDS = 0.05
_TOKEN_NAME = "HICACHE_BENCH_FAULT"  # noqa: S105 -- marks processes; no secret
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 -- looked at, never written to
_PORT_STATES = ("0A",)
_MAX_PRINTED = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RealFault:
    """One fault of the real store.

    ``limit_seconds`` is the child's deadline. ``is_killed``: the child is killed once it has said all, since
    a client that outlives its master takes up to 20 s to close and cannot be hurried.
    """

    breaks: str
    holds: str
    cases: tuple[str, ...]
    limit_seconds: float
    is_killed: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


REAL_FAULTS: Mapping[str, RealFault] = {
    "master-killed": RealFault(
        breaks="the master gets SIGKILL between lookup and read",
        holds="nothing is used; reads, lookups and saves end within seconds with error(-900), no miss",
        cases=("E49", "E54", "E58", "E60"),
        limit_seconds=90.0,
        is_killed=True,
    ),
    "master-stopped": RealFault(
        breaks="the master gets SIGSTOP between lookup and read, and SIGCONT later",
        holds="every call ends after the RPC timeout with error(-901); later nothing is lost",
        cases=("E49", "E54", "E60"),
        limit_seconds=60.0,
    ),
    "master-restarted": RealFault(
        breaks="the master dies and a new one takes its ports; all keys are lost",
        holds="no token is used or promised; the client finds the new master; a new save is whole",
        cases=("E54", "E60"),
        limit_seconds=120.0,
    ),
    "owner-killed": RealFault(
        breaks="one of two owners of segments gets SIGKILL between lookup and read",
        holds="used is the endpoint of what the other owner delivered, in all pools; no wrong byte",
        cases=("E54", "E60"),
        limit_seconds=90.0,
    ),
    "owner-stopped": RealFault(
        breaks="the only owner of a segment gets SIGSTOP between lookup and read, and SIGCONT later",
        holds="the read ends with error(-800) and nothing is used; later a save is whole again",
        cases=("E54", "E60"),
        limit_seconds=150.0,
    ),
    "eviction-burst": RealFault(
        breaks="a burst of others' objects evicts promised ones between lookup and read",
        holds="evicted objects are misses and shorten used; a put without room says no_space",
        cases=("E54", "E58", "E60"),
        limit_seconds=90.0,
    ),
    "all-leased": RealFault(
        breaks="every object in a full store is leased",
        holds="remove answers leased, a save says no_space and what failed; nothing is lost",
        cases=("E50", "E51", "E58"),
        limit_seconds=90.0,
    ),
    "lease-too-short": RealFault(
        breaks="leases of 1 ms end while a batch moves",
        holds="what came too late fails with error(-707) and is not used",
        cases=("E53", "E60"),
        limit_seconds=60.0,
    ),
    "too-many-slices": RealFault(
        breaks="calls have more slices than the queue to a peer takes",
        holds="they are cut: all objects arrive, in seconds, and the client works on",
        cases=(),
        limit_seconds=120.0,
        environment={"MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "1024"},
    ),
    "port-taken": RealFault(
        breaks="other programs have the ports",
        holds="a private master takes others; a client says that no master is there",
        cases=(),
        limit_seconds=60.0,
    ),
    "close-during-use": RealFault(
        breaks="the store is closed while threads read from it",
        holds="running calls end with the right bytes; later ones are refused; no crash",
        cases=(),
        limit_seconds=60.0,
    ),
    "calls-after-close": RealFault(
        breaks="every call is made on a closed store",
        holds="each is refused with what to do; no crash; a new client works",
        cases=(),
        limit_seconds=60.0,
    ),
}
"""The faults that need the real store, by name, in the order in which ``all`` runs them."""


def real_fault_proofs(names: Sequence[str], seed: int, progress: Callable[[str], None]) -> tuple[Proof, ...]:
    """Try the faults; ``("all",)`` are all of them, in about two minutes.

    Raises:
        InputError: an unknown name.
        StoreUnavailableError: the Mooncake client cannot be used here.
    """
    chosen = tuple(REAL_FAULTS) if tuple(names) == ("all",) else tuple(dict.fromkeys(names))
    for name in chosen:
        if name not in REAL_FAULTS:
            close = difflib.get_close_matches(name, REAL_FAULTS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise InputError(f"unknown fault {name!r}; allowed: all, {', '.join(REAL_FAULTS)}{hint}")
    require_mooncake()
    proofs = []
    for name in chosen:
        progress(f"real store: {REAL_FAULTS[name].breaks}")
        command = [sys.executable, "-m", MODULE, "fault", name, str(seed)]
        proofs.append(try_fault(name, REAL_FAULTS[name], command))
    return tuple(proofs)


def try_fault(name: str, fault: RealFault, command: Sequence[str]) -> Proof:
    """Run one fault's child to its end, or kill it; then look for what it left."""
    before = _shared_files()
    token = secrets.token_hex(8)
    started = time.monotonic()
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryDirectory() as scratch:
        # The library's settings are ours, so that the limits are those of the tool, not of this shell.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MC_")}
        environment |= {**fault.environment, _TOKEN_NAME: token, "TMPDIR": scratch}
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=printed,
            env=environment,
            start_new_session=True,
        )
        try:
            heard = _Heard.of(process, started + fault.limit_seconds, is_killed=fault.is_killed)
            if not fault.is_killed:
                _wait(process, started + fault.limit_seconds)
            seconds = time.monotonic() - started
            ended_by = process.poll()
        finally:
            _end_group(process)
        left = _processes_left(token)
        checks = (
            *heard.checks,
            _in_time(fault, heard, ended_by, seconds),
            _ending(fault, heard, ended_by),
            none_of("tracebacks", _tracebacks(printed)),
            none_of("processes left", left),
            none_of("ports left open", _ports_left(heard.ports)),
            none_of("files left", [*_files_left(before), *(path.name for path in Path(scratch).iterdir())]),
        )
    return Proof(
        section="fault",
        name=fault.holds,
        subject=name,
        checks=checks,
        cases=fault.cases,
        figures=heard.figures,
        seconds=seconds,
    )


@dataclass(slots=True)
class _Heard:
    """What a child said, line by line."""

    checks: list[Check] = field(default_factory=list)
    figures: dict[str, int | float | str] = field(default_factory=dict)
    ports: list[int] = field(default_factory=list)
    is_done: bool = False
    is_clear: bool = True
    stopped_by: str | None = None

    @classmethod
    def of(cls, process: subprocess.Popen[bytes], deadline: float, *, is_killed: bool) -> _Heard:
        """Listen until the child ends, has said all and waits to be killed, or is late."""
        heard, rest = cls(), b""
        assert process.stdout is not None
        output = process.stdout.fileno()
        while not (heard.is_done and is_killed):
            # A process that the child leaves behind may hold the output open: its end shows elsewhere.
            has_ended = process.poll() is not None
            readable, _, _ = select.select([output], [], [], 0 if has_ended else _POLL_SECONDS)
            if not readable and not has_ended and time.monotonic() < deadline:
                continue
            part = os.read(output, 1 << 16) if readable else b""
            if not part:
                break
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                heard.take(line)
        heard.is_clear = heard.is_clear and not rest
        return heard

    def take(self, text: bytes) -> None:
        """One line: a check, a figure, a port in use, the end, or why there is none."""
        try:
            line: dict[str, Any] = json.loads(text)
        except ValueError:
            self.is_clear = False
            return
        if "check" in line:
            self.checks.append(Check(**line["check"]))
        elif "figure" in line:
            name, value = line["figure"]
            self.figures[name] = value
        elif "port" in line:
            self.ports.append(line["port"])
        elif "stopped" in line:
            self.stopped_by = line["stopped"]
        else:
            self.is_done = True


def _in_time(fault: RealFault, heard: _Heard, ended_by: int | None, seconds: float) -> Check:
    came_back = ended_by is not None or (fault.is_killed and heard.is_done)
    actual = f"{seconds:.1f} s" if came_back else f"killed after {seconds:.1f} s"
    expected = f"at most {fault.limit_seconds:g} s"
    return Check("the process comes back", expected, actual, came_back and seconds <= fault.limit_seconds)


def _ending(fault: RealFault, heard: _Heard, ended_by: int | None) -> Check:
    if heard.is_done:
        said = "all said"
    else:
        said = f"stopped by {heard.stopped_by}" if heard.stopped_by else "not all said"
    if ended_by is None:
        ended = "then killed"
    elif ended_by < 0:
        ended = f"ended by {signal.Signals(-ended_by).name}"
    else:
        ended = f"exit code {ended_by}"
    expected = f"all said, {'then killed' if fault.is_killed else 'exit code 0'}"
    return equal(
        "how the process ends", expected, f"{said}, {ended}{'' if heard.is_clear else ', and something else'}"
    )


def _wait(process: subprocess.Popen[bytes], deadline: float) -> None:
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the child's group, stopped processes too; the master's guard then ends itself."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _processes_left(token: str) -> list[str]:
    """Processes that still carry the child's token once they have had time to go; they are killed."""
    deadline = time.monotonic() + _LEAVE_SECONDS
    while (left := _carriers(token)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"{name} ({pid})" for pid, name in left.items()]


def _carriers(token: str) -> dict[int, str]:
    found = {}
    marker = f"{_TOKEN_NAME}={token}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if marker in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "comm").read_text().strip()
            except OSError:  # another's process, or one that has just ended
                continue
    return found


def _ports_left(ports: Sequence[int]) -> list[str]:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] in _PORT_STATES}
    return [str(port) for port in ports if port in listening]


def _shared_files() -> frozenset[str]:
    return (
        frozenset(path.name for path in _SHARED_MEMORY.iterdir()) if _SHARED_MEMORY.is_dir() else frozenset()
    )


def _files_left(before: frozenset[str]) -> list[str]:
    """New names in shared memory that no process holds; others' files come and go meanwhile."""
    return [name for name in sorted(_shared_files() - before) if not _is_held(_SHARED_MEMORY / name)]


def _is_held(path: Path) -> bool:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if str(path) in (folder / "maps").read_text():
                    return True
                if any(str(handle.readlink()) == str(path) for handle in (folder / "fd").iterdir()):
                    return True
            except OSError:  # another's process, or one that has just ended
                continue
    return False


def _tracebacks(printed: IO[bytes]) -> list[str]:
    printed.seek(0)
    text = printed.read().decode(errors="replace")
    if "Traceback (most recent call last)" not in text and "Fatal Python error" not in text:
        return []
    return [text.strip()[-_MAX_PRINTED:]]
