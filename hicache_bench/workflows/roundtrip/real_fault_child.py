"""The process in which one fault of the real store happens, or in which a segment lives.

Run as a module with ``fault NAME SEED`` it says what it finds on standard output, in lines of JSON, and goes
when standard input closes. With ``owner HOST:PORT BYTES`` it adds a segment to a cluster for as long as
standard input is open. :mod:`hicache_bench.workflows.roundtrip.real_faults` starts it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from hicache_bench.errors import HicacheBenchError
from hicache_bench.store.client import open_mooncake
from hicache_bench.workflows.roundtrip.real_fault_rig import Findings, Say, Stage
from hicache_bench.workflows.roundtrip.real_fault_scenarios import SCENARIOS
from hicache_bench.workflows.roundtrip.real_faults import GRACE_SECONDS, MODULE, REAL_FAULTS


def main(arguments: Sequence[str]) -> int:
    """Play the part that the arguments name; return the exit code."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    part, *rest = arguments
    if part == "owner":
        return _own(*rest)
    name, seed = rest
    return _try(name, int(seed), _speaker())


def _own(address: str, segment_bytes: str) -> int:
    with open_mooncake(address, segment_bytes=int(segment_bytes)):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.read()
    return 0


def _try(name: str, seed: int, say: Say) -> int:
    fault = REAL_FAULTS[name]
    # Even a native call that never lets go of the GIL cannot outlive this, should the parent be gone.
    faulthandler.dump_traceback_later(fault.limit_seconds + GRACE_SECONDS, exit=True)
    threading.Thread(target=_leave_with_parent, name="parent-watch", daemon=True).start()
    stage = Stage(seed, Findings(say), [sys.executable, "-m", MODULE, "owner"])
    try:
        SCENARIOS[name](stage)
        if fault.is_killed:
            say({"done": True})
            time.sleep(fault.limit_seconds + GRACE_SECONDS)
    except HicacheBenchError as problem:
        say({"stopped": f"{type(problem).__name__}: {problem}"})
        return problem.exit_code
    finally:
        stage.close()
    say({"done": True})
    return 0


def _leave_with_parent() -> None:
    """End with the parent, however it ended; a stopped owner goes with the process group."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(0, signal.SIGKILL)


def _speaker() -> Say:
    """Standard output for our lines alone: whatever a library prints goes to standard error."""
    sys.stdout.flush()
    lines: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(line: Mapping[str, Any]) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()

    return say


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
