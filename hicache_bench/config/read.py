"""Reading what a user names: a file, or ``-`` for standard input, bounded and never waiting for a pipe."""

from __future__ import annotations

import sys
from pathlib import Path

from hicache_bench.config.document import shorten
from hicache_bench.errors import ConfigError

STDIN = "-"


def shown_name(name: str) -> str:
    """What messages call an input."""
    return "standard input" if name == STDIN else shorten(name, 200)


def read_input(name: str, *, limit: int, what: str) -> bytes:
    """The bytes of the file ``name``, or of standard input; ``what`` is expected there, as ``a preset file``.

    Raises:
        ConfigError: nothing that can be read, or more than ``limit`` bytes.
    """
    shown = shown_name(name)
    advice = f"give {what}, or {STDIN} for standard input"
    try:
        content = _read_stdin(limit + 1) if name == STDIN else _read_file(Path(name), limit + 1)
    except FileNotFoundError as error:
        raise ConfigError(f"{shown}: no such file; {advice}") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{shown} is a directory; {advice}") from error
    # ValueError: a NUL byte in the path.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{shown!r} cannot be read: {reason}; {advice}") from error
    if len(content) > limit:
        raise ConfigError(f"{shown} is larger than {limit:,} bytes; {advice}")
    return content


def _read_stdin(num_bytes: int) -> bytes:
    # Python leaves no stream where the process was started without one.
    return sys.stdin.buffer.read(num_bytes) if sys.stdin else b""


def _read_file(path: Path, num_bytes: int) -> bytes:
    if path.is_fifo():  # opening one waits for a writer, who may never come
        raise OSError("it is a pipe")
    with path.open("rb") as stream:
        # Bounded, since the path may be a device that never ends.
        return stream.read(num_bytes)
