"""Child processes for what may hang or crash: nothing here can time out a native call that holds the GIL."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hicache_bench

LIMIT_SECONDS = 60.0
"""Far above what the bounded calls of a test need together, far below what the library takes unbounded."""

_PREAMBLE = """
import json, os, signal, sys, threading, time
import numpy as np
from hicache_bench.errors import StoreError
from hicache_bench.store.base import EXISTS, INVALID_PARAMS, LEASED, MISS, NO_SPACE, OK
from hicache_bench.store.client import open_mooncake
from hicache_bench.store.master import ManagedMaster

memory = np.arange(16 << 20, dtype=np.uint32).view(np.uint8)
address = int(memory.ctypes.data)

def say(value):
    print(json.dumps(value), flush=True)

def hear():
    return json.loads(sys.stdin.readline())

def text(results):
    return [str(result) for result in results]


def freeze(pid):
    # A thread takes the signal when it is next scheduled, not when kill() returns.
    os.kill(pid, signal.SIGSTOP)
    while {"T"} != {
        open(f"/proc/{pid}/task/{thread}/stat").read().rsplit(")")[-1].split()[0]
        for thread in os.listdir(f"/proc/{pid}/task")
    }:
        time.sleep(0.01)


"""


def _allow_no_core_file() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Child:
    """A Python process that talks in lines of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def hear(self) -> Any:
        """The next value that the child says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the child ended with {self.process.wait(LIMIT_SECONDS)}"
        return json.loads(line)

    def say(self, value: object = None) -> None:
        """Give the child the next value that it hears."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()


@contextmanager
def child(source: str, *arguments: str, **environment: str) -> Iterator[Child]:
    """Run ``source`` in a Python process that is killed, at the latest, when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PREAMBLE + textwrap.dedent(source), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(hicache_bench.__file__).parents[1],
        env={**os.environ, **environment},
    )
    with process:
        try:
            yield Child(process)
        finally:
            process.kill()


def run(source: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``source`` to its end; fails when that takes longer than :data:`LIMIT_SECONDS`."""
    return subprocess.run(
        [sys.executable, "-c", _PREAMBLE + textwrap.dedent(source), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
        cwd=Path(hicache_bench.__file__).parents[1],
        env={**os.environ, **environment},
        preexec_fn=_allow_no_core_file,
    )
