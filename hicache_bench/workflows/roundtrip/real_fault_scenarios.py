"""What happens in each fault of the real store: masters and owners of segments that die or stop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping

from hicache_bench.store.base import MISS
from hicache_bench.store.client import open_mooncake
from hicache_bench.store.master import ManagedMaster
from hicache_bench.workflows.roundtrip.real_fault_clients import (
    calls_after_close,
    close_during_use,
    port_taken,
    too_many_slices,
)
from hicache_bench.workflows.roundtrip.real_fault_rig import (
    SEGMENT_BYTES,
    WAIT_SECONDS,
    SavedPrefix,
    Stage,
    freeze,
    wait_for,
)
from hicache_bench.workflows.roundtrip.real_fault_room import all_leased, eviction_burst, lease_too_short

Scenario = Callable[[Stage], None]

_DEAD_CALL_SECONDS = 12.0
"""A call to a master whose port is closed takes 4-5 s; a request makes at most two of them."""

_STOPPED_CALL_SECONDS = 4.0
"""A call to a master that does not answer takes the RPC timeout of 1 s."""

_SILENT_PEER_SECONDS = 75.0
"""The library waits 30 s for one transfer with a peer that does not answer, and 60 s for many."""


def master_killed(stage: Stage) -> None:
    """The master dies between the lookup and the read, and stays dead."""
    master = stage.master()
    saved = SavedPrefix(stage, stage.client(master, segment_bytes=SEGMENT_BYTES))
    saved.save_whole("before")
    saved.request_whole("before")
    request = saved.request(
        "master killed after the lookup",
        limit_seconds=_DEAD_CALL_SECONDS,
        between=lambda: os.kill(master.pid, signal.SIGKILL),
    )
    stage.found.equal("master killed: tokens used", 0, request.used_tokens)
    stage.found.equal("master killed: answers to the read", "error(-900)", request.answers)
    _unanswered(stage, saved, "master dead", _DEAD_CALL_SECONDS)
    saved.save_refused("save without a master", "error(-900)", 2 * _DEAD_CALL_SECONDS)
    _no_set_up(stage, master, "no Mooncake master at", "start one")


def master_stopped(stage: Stage) -> None:
    """The master stops between the lookup and the read, and goes on later: nothing is lost."""
    master = stage.master()
    saved = SavedPrefix(stage, stage.client(master, segment_bytes=SEGMENT_BYTES))
    saved.save_whole("before")
    request = saved.request(
        "master stopped after the lookup",
        limit_seconds=_STOPPED_CALL_SECONDS,
        between=lambda: freeze(master.pid),
    )
    stage.found.equal("master stopped: tokens used", 0, request.used_tokens)
    stage.found.equal("master stopped: answers to the read", "error(-901)", request.answers)
    _unanswered(stage, saved, "master silent", _STOPPED_CALL_SECONDS)
    _no_set_up(stage, master, "does not answer as a Mooncake master", "check that it is not stopped")
    os.kill(master.pid, signal.SIGCONT)
    saved.request_whole("after SIGCONT")


def master_restarted(stage: Stage) -> None:
    """The master dies and another takes its ports: it knows no key, and the client finds it by itself."""
    master = stage.master()
    saved = SavedPrefix(stage, stage.client(master, segment_bytes=SEGMENT_BYTES))
    saved.save_whole("before")

    def restart() -> None:
        os.kill(master.pid, signal.SIGKILL)
        wait_for(lambda: not master.is_running)
        stage.restarted(master)

    request = saved.request(
        "master restarted after the lookup", limit_seconds=_DEAD_CALL_SECONDS, between=restart
    )
    stage.found.equal("master restarted: tokens used", 0, request.used_tokens)
    seconds = wait_for(lambda: saved.look_up().errors == 0)
    stage.found.within("the client finds the new master", WAIT_SECONDS, seconds)
    stage.found.equal("tokens that the new master promises", 0, saved.hit_tokens(saved.look_up()))
    seconds = wait_for(lambda: saved.save().complete)
    stage.found.within("a save is whole again", WAIT_SECONDS, seconds)
    saved.request_whole("after the restart")


def owner_killed(stage: Stage) -> None:
    """One of two owners of segments dies: its objects stay promised until the master knows."""
    master = stage.master()
    owners = [stage.owner(master), stage.owner(master)]
    saved = SavedPrefix(stage, stage.client(master, segment_bytes=0))
    saved.save_whole("before")
    saved.request_whole("before")
    request = saved.request(
        "owner killed after the lookup", limit_seconds=10.0, between=owners[stage.seed % 2].kill
    )
    answers = [str(answer) for part in request.report.transfer.results.values() for answer in part]
    stage.found.at_least("objects that died with their owner", 1, answers.count("error(-800)"))
    stage.found.at_least("objects of the other owner that came", 1, answers.count("ok"))
    stage.found.equal("owner killed: answers to the read", "error(-800), ok", request.answers)
    again = saved.request("the promise is broken again", limit_seconds=10.0)
    stage.found.equal("second request: tokens used", request.used_tokens, again.used_tokens)
    seconds = wait_for(lambda: MISS in saved.store.batch_exists(saved.keys))
    stage.found.within("the master forgets what its owner held", WAIT_SECONDS, seconds)
    forgotten = saved.request("after the master forgot", limit_seconds=10.0)
    stage.found.equal(
        "hit tokens that do not come any more", 0, forgotten.report.ledger.hit_tokens - forgotten.used_tokens
    )
    saved.save_whole("saved again, on the other owner")
    saved.request_whole("after it")


def owner_stopped(stage: Stage) -> None:
    """The only owner of a segment stops between the lookup and the read, and goes on later."""
    master = stage.master()
    owner = stage.owner(master)
    saved = SavedPrefix(stage, stage.client(master, segment_bytes=0))
    saved.save_whole("before")
    request = saved.request(
        "owner stopped after the lookup", limit_seconds=_SILENT_PEER_SECONDS, between=owner.freeze
    )
    stage.found.equal("owner stopped: tokens used", 0, request.used_tokens)
    stage.found.equal("owner stopped: answers to the read", "error(-800)", request.answers)
    again = saved.request("while it is stopped", limit_seconds=10.0)
    stage.found.equal("while it is stopped: tokens used", 0, again.used_tokens)
    owner.thaw()
    seconds = wait_for(lambda: saved.save().complete)
    stage.found.within("a save is whole again", WAIT_SECONDS, seconds)
    saved.request_whole("after SIGCONT")


def _unanswered(stage: Stage, saved: SavedPrefix, label: str, limit_seconds: float) -> None:
    """A lookup without a master: errors and no miss, so that nobody takes the prefix for gone."""
    started = time.monotonic()
    lookup = saved.look_up()
    stage.found.within(f"{label}: lookup", limit_seconds, time.monotonic() - started)
    stage.found.equal(f"{label}: keys that the lookup calls errors", len(saved.keys), lookup.errors)
    stage.found.equal(f"{label}: tokens promised", 0, saved.hit_tokens(lookup))


def _no_set_up(stage: Stage, master: ManagedMaster, *parts: str) -> None:
    started = time.monotonic()
    stage.found.refused(
        "a new client says why not",
        lambda: open_mooncake(master.address, segment_bytes=0),
        "StoreUnavailableError",
        *parts,
    )
    stage.found.within("a new client gives up", _DEAD_CALL_SECONDS, time.monotonic() - started)


SCENARIOS: Mapping[str, Scenario] = {
    "master-killed": master_killed,
    "master-stopped": master_stopped,
    "master-restarted": master_restarted,
    "owner-killed": owner_killed,
    "owner-stopped": owner_stopped,
    "eviction-burst": eviction_burst,
    "all-leased": all_leased,
    "lease-too-short": lease_too_short,
    "too-many-slices": too_many_slices,
    "port-taken": port_taken,
    "close-during-use": close_during_use,
    "calls-after-close": calls_after_close,
}
