"""One file, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, data: bytes, *, only_new: bool = False) -> None:
    """Make ``data`` the content of ``path``, with the directories that it needs.

    It is written aside and renamed, so that a reader never finds a half of it. Whatever goes wrong, an
    interrupt too: what was there stays, and nothing is left that was not there, no directory either.

    Raises:
        FileExistsError: ``only_new``, and something is there.
        OSError: it cannot be written.
    """
    directory = path.parent
    made = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    temporary = claimed = None
    is_done = False
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Hidden, and with a suffix that no reader of a directory looks for.
        with tempfile.NamedTemporaryFile(
            dir=directory, prefix=".hicache-bench-", suffix=".tmp", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # others read it too: the node exporter runs as a user of its own
        if only_new:
            # Claim the name first: a rename alone would replace what is there.
            with path.open("x"):
                claimed = path
        temporary.replace(path)
        is_done = True
    finally:
        if not is_done:
            for leftover in (temporary, claimed):
                if leftover is not None:
                    leftover.unlink(missing_ok=True)
            for folder in made:
                with suppress(OSError):  # never made, or somebody else has put something there
                    folder.rmdir()
