"""What a full disk, an interrupt or another program leaves of a write."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hicache_bench.records.files import replace_file


@contextmanager
def full_after(num_bytes: int) -> Iterator[None]:
    """A file that grows beyond so many bytes ends like one on a full disk: with an error of ``write``."""
    before, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def test_a_file_is_written_with_its_directories_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.json"
    for data in (b"one", b"two"):
        replace_file(path, data)
        assert data == path.read_bytes()
    assert [path] == list(path.parent.iterdir())
    assert 0o644 == stat.S_IMODE(path.stat().st_mode)


def test_it_is_written_beside_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A rename from another file system fails, and the directory of temporary files often is one.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    replace_file(tmp_path / "c.json", b"one")
    assert [tmp_path / "c.json"] == list(tmp_path.iterdir())


def test_what_is_there_can_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    replace_file(path, b"one", only_new=True)
    with pytest.raises(FileExistsError):
        replace_file(path, b"two", only_new=True)
    assert (b"one", [path]) == (path.read_bytes(), list(tmp_path.iterdir()))


def test_a_write_that_does_not_fit_leaves_no_file_and_no_directory(tmp_path: Path) -> None:
    with full_after(1000), pytest.raises(OSError, match="File too large"):
        replace_file(tmp_path / "a" / "b" / "c.json", bytes(2000))
    assert [] == list(tmp_path.iterdir())


def test_a_write_that_does_not_fit_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    replace_file(path, b"one")
    with full_after(1000), pytest.raises(OSError, match="File too large"):
        replace_file(path, bytes(2000))
    assert (b"one", [path]) == (path.read_bytes(), list(tmp_path.iterdir()))


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.chmod", "pathlib.Path.replace"])
@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
@pytest.mark.parametrize("only_new", [False, True])
def test_whatever_goes_wrong_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, fault: BaseException, only_new: bool
) -> None:
    def fail(*_: object) -> None:
        raise fault

    monkeypatch.setattr(step, fail)
    with pytest.raises(type(fault)):
        replace_file(tmp_path / "a" / "b" / "c.json", b"one", only_new=only_new)
    assert [] == list(tmp_path.iterdir())


def test_a_directory_that_somebody_else_uses_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        (tmp_path / "a" / "theirs").touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "a" / "b" / "c.json", b"one")
    assert ["theirs"] == [path.name for path in (tmp_path / "a").iterdir()]
