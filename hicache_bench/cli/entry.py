"""Where ``hicache-bench`` starts: an interrupt is one line and exit code 130, whatever is being imported.

This module and the packages around it import next to nothing, so that its handlers stand early.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from types import FrameType

INTERRUPTED = 130
CLEANUP_SECONDS = 10.0
"""After an interrupt, how long others are only noted: one more, while things are being stopped, would leave
them running. Later ones end a clean-up that hangs."""

_TOLD = "interrupted: what was started is stopped; a record is there whole or not at all\n"

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_received: list[float] = []
"""When this process was asked to end, in seconds of the monotonic clock."""


def main() -> None:
    """Run the command line: one line on stderr for a user's mistake, no traceback; documented exit codes."""
    _received.clear()
    # A run that is terminated, or whose terminal goes away, must close its store and stop its master too.
    for name in _ENDING:
        if signal.getsignal(name) != signal.SIG_IGN:  # as nohup asks for
            signal.signal(name, _interrupt)
    # No command does linear algebra that threads would help, and starting them slows numpy's import: 60 ms
    # where the other processors are busy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Looking for plugins reads the metadata of every installed package; none has a say in a preset.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    gc.set_threshold(100_000)  # imports alone make the collector run hundreds of times, and find nothing
    try:
        from hicache_bench.cli.app import run_app

        run_app()
    except KeyboardInterrupt:
        _leave()
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # what Typer makes of an interrupt, without a word
            _leave()
        raise
    except Exception:
        if was_interrupted():
            _leave()
        raise


def was_interrupted() -> bool:
    """Whether this process was asked to end: an error that follows may be the interrupt in other clothes.

    One that hits an import inside a class body comes out as a RuntimeError, one inside an extension's as an
    ImportError.
    """
    return bool(_received)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    _received.append(time.monotonic())
    if len(_received) == 1 or _received[-1] - _received[0] > CLEANUP_SECONDS:
        raise KeyboardInterrupt


def _leave() -> None:
    for name in _ENDING:
        signal.signal(name, signal.SIG_IGN)  # Python takes its handlers away while it ends
    if sys.stderr is not None:
        try:  # noqa: SIM105 -- contextlib would be imported before the handlers stand
            sys.stderr.write(_TOLD)
        except OSError:  # nobody can read it
            pass
    sys.exit(INTERRUPTED)
