"""Figures as files: their bytes, their names, and never over a file that is not one of ours."""

from __future__ import annotations

import io
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hicache_bench.errors import InputError, OutputError
from hicache_bench.records.files import replace_file
from hicache_bench.records.io import check_writable
from hicache_bench.report.plots.fingerprint import fingerprint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
MARK = "hicache-bench figure"
"""Begins the description that each file carries: fingerprint of what is shown, and what drew it."""
DOCUMENT_IMAGES = Path("docs/images")
"""Where the figures of the docs are, from the top of the repository."""


def parse_formats(text: str) -> tuple[str, ...]:
    """The formats of ``png,svg``, each once.

    Raises:
        InputError: none, or another one.
    """
    formats = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",")))
    for name in formats:
        if name not in FORMATS:
            raise InputError(
                f"--format {name!r} is unknown; allowed: {', '.join(FORMATS)}, or both with a comma"
            )
    return formats


def file_bytes(figure: Figure, file_format: str) -> bytes:
    """``figure`` as a PNG or SVG file: no date in it, so that equal figures have equal bytes.

    To be called while the theme that it was drawn in still holds.
    """
    import matplotlib as mpl

    drawn_with = f"matplotlib {mpl.__version__} on {platform.system()} {platform.machine()}"
    description = f"{MARK} {fingerprint(figure)}, drawn with {drawn_with}"
    metadata: Mapping[str, str | None] = (
        {"Software": "hicache-bench", "Description": description}
        if file_format == "png"
        else {"Creator": "hicache-bench", "Description": description, "Date": None}
    )
    buffer = io.BytesIO()
    figure.savefig(buffer, format=file_format, metadata=dict(metadata))
    data = buffer.getvalue()
    if file_format == "png":
        return data
    # Matplotlib ends some lines of a path with a blank, which an editor or a commit hook would take away.
    return b"\n".join(line.rstrip() for line in data.splitlines()) + b"\n"


def check_directory(directory: Path) -> None:
    """Prove, before anything is drawn, that files can be written to ``directory``; leaves nothing there.

    Raises:
        OutputError: they cannot, or it is a file.
    """
    if directory.exists() and not directory.is_dir():
        raise OutputError(f"{str(directory)!r} is a file; give a directory with -o")
    check_writable(directory)


def write_figures(files: Mapping[str, bytes], directory: Path) -> Sequence[Path]:
    """Write each file, by name, whole or not at all; return the paths.

    A figure that is there already is replaced: the same record gives the same bytes. Anything else of that
    name stays, and then nothing is written.

    Raises:
        OutputError: it cannot be written, or a file of that name is no figure of this tool.
    """
    try:
        for name in files:
            _check_ours(directory / name)
        for name, data in files.items():
            replace_file(directory / name, data)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(
            f"cannot write figures to {str(directory)!r}: {error.strerror or error}; give a writable "
            "directory with -o"
        ) from error
    return [directory / name for name in files]


def _check_ours(path: Path) -> None:
    if path.is_dir() or (path.exists() and MARK.encode() not in path.read_bytes()):
        raise OutputError(
            f"{str(path)!r} is there, and is no figure that hicache-bench drew; move it away, or give "
            "another directory with -o"
        )
