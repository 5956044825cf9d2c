"""The process of a bench: its commands, its errors, its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hicache_bench.errors import InputError
from hicache_bench.workflows.bench.peer import Peer, PeerLostError
from tests.cli.command import is_alive
from tests.workflows.bench.jobs import made_job, made_task


@contextmanager
def process(**changes: Any) -> Iterator[Peer]:
    made = Peer(made_job(**changes), lambda _: None, silence_seconds=30.0)
    try:
        yield made
    finally:
        made.end()


def test_commands_and_answers() -> None:
    with process() as made:
        assert "capacity_bytes" in made.hear("settings")
        saved = made.ask({"do": "save"})
        asked = made.ask({"do": "ask", "seed": made_job().shared_seed})
        assert saved["written"] == asked["held"] == asked["asked"] > 0
        made.say({"do": "measure", "task": made_task("lookup").to_dict()})
        assert made.hear("ready")
        start = time.monotonic() + 0.3
        made.say({"start": start})
        measured = made.hear("done")
        assert 0 <= measured["starts"][0] < 5
        assert 2 == len(measured["seconds"])
        json.dumps(measured, allow_nan=False)
        assert 0 == made.ask({"do": "remove", "seeds": [made_job().shared_seed]})["remaining"]
        made.say({"do": "leave"})
        made.wait_until_left()


PRINTS = """
import os
from hicache_bench.workflows.bench.child import Channel
channel = Channel()
print("a library", flush=True)
channel.say({"settings": 1})
os._exit(0)
"""


def test_what_a_library_prints_is_no_answer() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", PRINTS], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert ('{"settings": 1}\n', "a library\n") == (child.stdout.read(), child.stderr.read())


def test_an_error_is_told() -> None:
    with process(preset="nosuch") as made, pytest.raises(InputError, match="nosuch"):
        made.hear("settings")


@pytest.mark.parametrize("is_busy", [True, False], ids=["busy", "idle"])
def test_it_goes_when_nobody_listens(is_busy: bool) -> None:
    with process() as made:
        made.hear("settings")
        if is_busy:
            made.ask({"do": "save"})
            task = made_task("lookup", repeat=None, min_seconds=60.0, by_the_clock=True)
            made.say({"do": "measure", "task": task.to_dict()})
            made.hear("ready")
            made.say({"start": time.monotonic()})
        made.hang_up()
        deadline = time.monotonic() + 10
        while is_alive(made.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not is_alive(made.pid)


def test_a_crash_is_a_loss() -> None:
    with process() as made:
        made.hear("settings")
        os.kill(made.pid, signal.SIGSEGV)
        with pytest.raises(PeerLostError, match="SIGSEGV"):
            made.ask({"do": "save"})
