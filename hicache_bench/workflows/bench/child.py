"""A process of a bench: hears commands in lines of JSON, and says what came of them.

:mod:`hicache_bench.workflows.bench.peer` starts it. When its standard input closes it goes: at once where it
is on a private store, after taking its objects out of a cluster that goes on.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import resource
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from hicache_bench.errors import HicacheBenchError, StoreUnavailableError
from hicache_bench.workflows.bench.job import Job, Task
from hicache_bench.workflows.bench.side import ClientLostError
from hicache_bench.workflows.bench.worker import Worker

FAREWELL_SECONDS = 20.0
"""How long a process may take to leave a cluster once nobody listens any more."""

_NOTE_SECONDS = 0.5


class Channel:
    """Lines of JSON to and from the process that started this one."""

    def __init__(self) -> None:
        # Standard output for our lines alone: whatever a library prints goes to standard error.
        sys.stdout.flush()
        self._lines: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._heard: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._last_note = 0.0
        self.is_joined = False
        self.has_ended = False
        threading.Thread(target=self._listen, name="commands", daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._heard.put(json.loads(line))
        if not self.is_joined:
            os._exit(0)
        # Even a native call that never lets go of the GIL cannot outlive this.
        faulthandler.dump_traceback_later(FAREWELL_SECONDS, exit=True)
        self.has_ended = True
        self._heard.put(None)

    def say(self, line: Mapping[str, Any]) -> None:
        """Say something; nobody may be there to hear it any more."""
        with suppress(BrokenPipeError):
            self._lines.write(json.dumps(line, allow_nan=False) + "\n")
            self._lines.flush()

    def note(self, step: str) -> None:
        """Say what is being done, often enough to show that something is."""
        if self.has_ended:
            raise KeyboardInterrupt
        now = time.monotonic()
        if now - self._last_note >= _NOTE_SECONDS:
            self._last_note = now
            self.say({"note": step})

    def hear(self) -> dict[str, Any]:
        """The next command.

        Raises:
            KeyboardInterrupt: there will be none.
        """
        command = self._heard.get()
        if command is None:
            raise KeyboardInterrupt
        return command

    def wait_for_start(self) -> float:
        """Say that the warm-ups are over, and wait for the moment at which everyone begins."""
        self.say({"ready": True})
        start: float = self.hear()["start"]
        time.sleep(max(0.0, start - time.monotonic()))
        return start


def main() -> int:
    """Serve until told to leave; return the exit code."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = Channel()
    try:
        job = Job.from_dict(channel.hear()["job"])
        channel.is_joined = job.store.is_joined
        worker = Worker(job, channel.note, channel.wait_for_start)
        channel.say({"settings": worker.store.settings})
        try:
            _serve(worker, channel)
        except KeyboardInterrupt:
            worker.close()
            raise
    except HicacheBenchError as problem:
        # Said first, and the store is left as it is: to close the client of a lost master takes 20 s.
        lost = isinstance(problem, (ClientLostError, StoreUnavailableError))
        channel.say({"failed": str(problem), "code": problem.exit_code, "lost": lost})
        return problem.exit_code
    except KeyboardInterrupt:
        return 0
    channel.note("leaving the cluster")
    worker.close()
    channel.say({"done": {}})
    return 0


def _serve(worker: Worker, channel: Channel) -> None:
    try:
        while (command := channel.hear())["do"] != "leave":
            channel.say({"done": _obey(worker, command)})
    except KeyboardInterrupt:
        # Objects of this run would stay in a cluster that goes on.
        channel.has_ended = False
        worker.remove(sorted(worker.owned_seeds))
        raise


def _obey(worker: Worker, command: Mapping[str, Any]) -> Mapping[str, Any]:
    match command["do"]:
        case "cluster":
            return worker.describe_cluster()
        case "save":
            return worker.save_shared()
        case "ask":
            return worker.ask(command["seed"])
        case "remove":
            return worker.remove(command["seeds"])
        case _:
            return worker.measure(Task.from_dict(command["task"])).to_dict()


if __name__ == "__main__":
    # Ours alone: threads of the native client may still run, and its own exit handlers take seconds.
    code = main()
    sys.stderr.flush()
    os._exit(code)
