"""A process of a bench, as the one that started it sees it. Every wait is bounded and has a progress line."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from hicache_bench.errors import HicacheBenchError, InputError, StoreError, VerificationError
from hicache_bench.workflows.bench.job import Job
from hicache_bench.workflows.meter import Progress

MODULE = "hicache_bench.workflows.bench.child"
SILENCE_SECONDS = 100.0
"""A process says something at least this often: the longest native call takes 60-90 s (a stopped peer)."""

LEAVE_SECONDS = 25.0
"""A clean close takes up to 20 s where the master does not answer."""

_POLL_SECONDS = 0.5
_QUIET_SECONDS = 1.0
_MAX_PRINTED = 500
_ERRORS: Mapping[int, type[HicacheBenchError]] = {
    kind.exit_code: kind for kind in (InputError, StoreError, VerificationError)
}


class PeerLostError(StoreError):
    """A process has died, is silent, or says that its client cannot go on; another one may."""

    def __init__(self, client: int | None, reason: str) -> None:
        super().__init__(reason)
        self.client = client


class Peer:
    """A child process with its own store client, in a session of its own: a Ctrl-C reaches us alone."""

    def __init__(
        self,
        job: Job,
        progress: Progress,
        *,
        silence_seconds: float = SILENCE_SECONDS,
        command: Sequence[str] = (sys.executable, "-m", MODULE),
    ) -> None:
        self.client = job.client
        self.name = "writer" if job.client is None else f"client {job.client}"
        self._progress = progress
        self._silence_seconds = silence_seconds
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            start_new_session=True,
        )
        self._unread = b""
        self._lines: list[bytes] = []
        self.say({"job": job.to_dict()})

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def killed_by(self) -> str | None:
        """The signal that has ended it."""
        code = self._process.poll()
        return signal.Signals(-code).name if code is not None and code < 0 else None

    def say(self, command: Mapping[str, Any]) -> None:
        """Give the process a command."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # its end shows when it is listened to
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()

    def hear(self, word: str) -> Any:
        """The value of the next line with ``word`` in it; notes on the way are passed on.

        Raises:
            PeerLostError: the process has died, says nothing for too long, or cannot go on.
            HicacheBenchError: what it says went wrong.
        """
        started = time.monotonic()
        while True:
            line = self._next_line()
            if line is None:
                silent = time.monotonic() - started
                if silent > self._silence_seconds:
                    raise PeerLostError(self.client, f"{self.name} said nothing for {silent:.0f} s")
                if silent > _QUIET_SECONDS:
                    self._progress(
                        f"{self.name}: silent for {silent:.0f} s of at most {self._silence_seconds:g}"
                    )
                continue
            said = json.loads(line)
            started = time.monotonic()
            if "note" in said:
                self._progress(f"{self.name}: {said['note']}")
            elif "failed" in said:
                if said["lost"]:
                    raise PeerLostError(self.client, f"{self.name}: {said['failed']}")
                raise _ERRORS.get(said["code"], StoreError)(said["failed"])
            elif word in said:
                return said[word]

    def ask(self, command: Mapping[str, Any]) -> Any:
        """Give a command and wait until it is done."""
        self.say(command)
        return self.hear("done")

    def wait_until_left(self) -> None:
        """Wait for the farewell of a process that was told to leave; :meth:`end` is still to be called."""
        self._silence_seconds = LEAVE_SECONDS
        try:
            self.hear("done")
        except (PeerLostError, StoreError):
            self._progress(f"{self.name} did not leave the cluster, and is ended")

    def hang_up(self) -> None:
        """Close its input, which tells it to go."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def end(self, patience_seconds: float = 0.0) -> None:
        """Hang up, wait, kill."""
        assert self._process.stdout is not None
        self.hang_up()
        try:
            if patience_seconds:
                self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self._progress(f"{self.name} is killed")
        finally:
            if self._process.poll() is None:  # else its number may be another's by now
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process.stdout.close()
            self._printed.close()

    def _next_line(self) -> bytes | None:
        """A line, or None if there was none for a moment."""
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        if not self._lines:
            readable, _, _ = select.select([output], [], [], _POLL_SECONDS)
            if not readable:
                return None
            part = os.read(output, 1 << 16)
            if not part:
                raise PeerLostError(self.client, self._obituary())
            *self._lines, self._unread = (self._unread + part).split(b"\n")
        return self._lines.pop(0) if self._lines else None

    def _obituary(self) -> str:
        code = self._process.wait()
        ended = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        self._printed.seek(0)
        printed = self._printed.read().decode(errors="replace").strip()[-_MAX_PRINTED:]
        return f"{self.name} ended with {ended}" + (f"; it printed: {printed}" if printed else "")
