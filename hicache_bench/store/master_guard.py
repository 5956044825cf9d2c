"""Run a command that must not outlive the process which started this script.

``python -I -S master_guard.py COMMAND...`` with a pipe on standard input: prints the command's process id,
stops it when the pipe closes, and exits with its exit code. Standard library only; never imported.

Why a process of its own: asking the kernel for a death signal (``PR_SET_PDEATHSIG``) from the benchmark would
run Python code between fork and exec of a program full of native threads, and the signal would also come
when merely the *thread* that forked ends. Here there is one thread, and it lives as long as the command. The
pipe covers the other half: however the benchmark dies (``SIGKILL`` included), the kernel closes its end.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
STOP_GRACE_SECONDS = 3.0
PARENT_CHECK_SECONDS = 1.0
CANNOT_START_EXIT_CODE = 126
"""Not 1, which is the master's own answer to a port in use."""


def main(command: list[str]) -> int:
    """Run ``command`` until it exits or the parent goes; return its exit code (128 + n for signal n)."""
    parent_pid, guard_pid, libc = os.getppid(), os.getpid(), ctypes.CDLL(None)

    def die_with_guard() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard_pid:  # the guard died before the request was made
            os._exit(1)

    # The child holds the only write end of this pipe, so its end of life is readable without polling.
    child_ended, held_by_child = os.pipe()
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            pass_fds=(held_by_child,),
            preexec_fn=die_with_guard,  # noqa: PLW1509 - unsafe with threads, and here is only one
        )
    except OSError as problem:
        sys.stderr.write(f"cannot start {command[0]}: {problem.strerror}\n")
        return CANNOT_START_EXIT_CODE
    os.close(held_by_child)
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()
    stdin = sys.stdin.fileno()
    # A forked sibling may keep the pipe open after the parent is gone; its process id tells too.
    while os.getppid() == parent_pid:
        readable, _, _ = select.select([stdin, child_ended], [], [], PARENT_CHECK_SECONDS)
        if readable:
            break
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
