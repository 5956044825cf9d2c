"""A process seen from outside: what it says, its silence, its death, its end."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hicache_bench.errors import InputError, StoreError, VerificationError
from hicache_bench.workflows.bench.peer import Peer, PeerLostError
from tests.cli.command import is_alive
from tests.workflows.bench.jobs import made_job

_PREAMBLE = """
import json, os, sys, time
def say(**line): print(json.dumps(line), flush=True)
def hear(): return json.loads(sys.stdin.readline())
assert hear()["job"]["client"] in (0, None)
"""


@contextmanager
def peer(source: str, said: list[str] | None = None, **changes: Any) -> Iterator[Peer]:
    """A process that runs ``source`` in place of a bench's own."""
    silence = changes.pop("silence_seconds", 30.0)
    made = Peer(
        made_job(**changes),
        (said if said is not None else []).append,
        silence_seconds=silence,
        command=[sys.executable, "-c", _PREAMBLE + textwrap.dedent(source)],
    )
    try:
        yield made
    finally:
        made.end()
        assert not is_alive(made.pid)


def test_answers_and_notes() -> None:
    said: list[str] = []
    with peer("say(note='busy'); say(settings={'a': 1}); say(done=hear()); time.sleep(60)", said) as made:
        assert {"a": 1} == made.hear("settings")
        assert {"do": "x"} == made.ask({"do": "x"})
    assert "client 0: busy" in said


def test_a_line_in_pieces_is_one_line() -> None:
    with peer("""
        text = json.dumps({"done": "long " * 50_000}) + "\\n"
        for start in range(0, len(text), 70_001):
            sys.stdout.write(text[start:start + 70_001]); sys.stdout.flush(); time.sleep(0.02)
        say(next=2); time.sleep(60)
    """) as made:
        assert 250_000 == len(made.hear("done"))
        assert 2 == made.hear("next")


@pytest.mark.parametrize(
    ("source", "words", "signal"),
    [
        ("sys.exit(7)", "client 0 ended with exit code 7", None),
        ("os.kill(os.getpid(), 9)", "client 0 ended with SIGKILL", "SIGKILL"),
        ("sys.stderr.write('why it died'); sys.stderr.flush(); os._exit(1)", "it printed: why it died", None),
    ],
    ids=["exit", "signal", "printed"],
)
def test_a_death_is_told(source: str, words: str, signal: str | None) -> None:
    with peer(source) as made:
        with pytest.raises(PeerLostError, match=words):
            made.hear("done")
        assert signal == made.killed_by


def test_silence_is_bounded_and_shown() -> None:
    said: list[str] = []
    started = time.monotonic()
    with (
        peer("time.sleep(60)", said, silence_seconds=1.2, client=None) as made,
        pytest.raises(PeerLostError, match="writer said nothing for") as lost,
    ):
        made.hear("done")
    assert time.monotonic() - started < 10
    assert lost.value.client is None
    assert any("silent for" in step and "of at most 1.2" in step for step in said)


def test_notes_break_the_silence() -> None:
    source = "[(say(note=str(i)), time.sleep(0.6)) for i in range(4)]; say(done=1); time.sleep(60)"
    with peer(source, silence_seconds=1.5) as made:
        assert 1 == made.hear("done")


@pytest.mark.parametrize(
    ("code", "lost", "kind"),
    [
        (3, True, PeerLostError),
        (3, False, StoreError),
        (2, False, InputError),
        (4, False, VerificationError),
        (99, False, StoreError),
    ],
)
def test_a_failure_is_the_error_that_it_was(code: int, lost: bool, kind: type[Exception]) -> None:
    source = f"say(failed='what went wrong', code={code}, lost={lost}); time.sleep(60)"
    with peer(source) as made, pytest.raises(kind, match="what went wrong") as failed:
        made.hear("done")
    assert lost == isinstance(failed.value, PeerLostError)


def test_leaving_waits_for_a_farewell() -> None:
    with peer("assert hear() == {'do': 'leave'}; say(done={}); time.sleep(60)") as made:
        made.say({"do": "leave"})
        made.wait_until_left()


def test_who_does_not_leave_is_ended() -> None:
    said: list[str] = []
    with peer("hear(); os._exit(3)", said) as made:
        made.say({"do": "leave"})
        made.wait_until_left()
    assert "client 0 did not leave the cluster, and is ended" in said


def test_patience_ends() -> None:
    said: list[str] = []
    with peer("time.sleep(60)", said) as made:
        made.end(0.3)
    assert "client 0 is killed" in said


def test_a_command_to_the_dead_is_no_error() -> None:
    with peer("sys.stdin.close(); os._exit(0)") as made:
        with pytest.raises(PeerLostError):
            made.hear("done")
        made.say({"do": "x" * 1_000_000})
