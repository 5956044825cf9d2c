from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hicache_bench.config.read import read_input, shown_name
from hicache_bench.errors import ConfigError


def refusal(name: object, limit: int = 10) -> str:
    with pytest.raises(ConfigError) as error:
        read_input(str(name), limit=limit, what="a thing")
    assert "give a thing, or - for standard input" in str(error.value)
    return str(error.value)


def test_a_file_up_to_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ten"
    path.write_bytes(b"0123456789")
    assert b"0123456789" == read_input(str(path), limit=10, what="a thing")
    assert "larger than 9 bytes" in refusal(path, 9)


def test_standard_input_up_to_the_limit_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"0123456789")))
    assert b"0123456789" == read_input("-", limit=10, what="a thing")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"0123456789a")))
    assert refusal("-").startswith("standard input is larger than 10 bytes")
    monkeypatch.setattr(sys, "stdin", None)
    assert b"" == read_input("-", limit=10, what="a thing")


def test_what_never_ends_is_left_alone() -> None:
    assert "larger than 10 bytes" in refusal("/dev/zero")


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert "it is a pipe" in refusal(fifo)
    assert "is a directory" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "gone")
    assert "cannot be read" in refusal("a\0b")
    assert "cannot be read" in refusal(tmp_path / ("x" * 300))


def test_names_in_messages_are_short() -> None:
    assert "standard input" == shown_name("-")
    assert 200 == len(shown_name("x" * 5000))
