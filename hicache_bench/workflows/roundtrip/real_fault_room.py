"""Faults of the real store's room: evicted under a burst, all of it leased, leases that end too early."""

from __future__ import annotations

import time

import numpy as np

from hicache_bench.store.base import LEASED, MISS, NO_SPACE, OK
from hicache_bench.store.mooncake import MooncakeStoreBackend
from hicache_bench.workflows.roundtrip.real_fault_rig import (
    SEGMENT_BYTES,
    WAIT_SECONDS,
    SavedPrefix,
    Stage,
    wait_for,
)

_FILLER_BYTES = 1 << 20
_NUM_FILLERS = SEGMENT_BYTES // _FILLER_BYTES
_LEASE_MS = 5000


class _Filler:
    """Objects that take room; one buffer serves them all."""

    def __init__(self, store: MooncakeStoreBackend) -> None:
        self._store = store
        self._memory = np.zeros(_FILLER_BYTES, dtype=np.uint8)
        self._address = int(self._memory.ctypes.data)
        store.register_buffer(self._address, _FILLER_BYTES)

    def put(self, keys: list[str], num_bytes: int = _FILLER_BYTES) -> list[str]:
        """Put an object under each key, in one call; the answers."""
        results = self._store.batch_put_from(keys, [self._address] * len(keys), [num_bytes] * len(keys))
        return [str(result) for result in results]

    def fill_up(self) -> list[str]:
        """Leave no room for any object of the prefix, and lease everything; the keys."""
        keys: list[str] = []
        for num_bytes in (_FILLER_BYTES, _FILLER_BYTES // 8, _FILLER_BYTES // 64):
            while self.put([key := f"filler-{len(keys)}"], num_bytes) == ["ok"]:
                keys.append(key)
                self._store.batch_exists([key])  # which takes the lease
        return keys

    def wait_for_room(self, key: str) -> float:
        """Seconds until an object under ``key`` is stored."""
        return wait_for(lambda: self.put([key]) != ["no_space"])


def eviction_burst(stage: Stage) -> None:
    """Others fill the store between the lookup and the read, once the lookup's leases have ended."""
    master = stage.master(lease_ttl_ms=500)
    store = stage.client(master, segment_bytes=SEGMENT_BYTES)
    saved, filler = SavedPrefix(stage, store), _Filler(store)
    saved.save_whole("before")
    saved.request_whole("before")

    def burst() -> None:
        time.sleep(0.7)
        answers = filler.put([f"burst-{index}" for index in range(_NUM_FILLERS)])
        stage.found.at_least("burst: puts that find no room", 1, answers.count("no_space"))
        stage.found.equal(
            "burst: other failures", 0, len(answers) - answers.count("no_space") - answers.count("ok")
        )
        # The prefix has the oldest objects. Room for the seed's share of it remains.
        num_paced = _NUM_FILLERS // 2 + stage.seed % 8
        seconds = sum(filler.wait_for_room(f"paced-{index}") for index in range(num_paced))
        stage.found.within("puts that wait for room get it", WAIT_SECONDS, seconds)

    request = saved.request("evicted after the lookup", limit_seconds=10.0, between=burst)
    answers = [answer for part in request.report.transfer.results.values() for answer in part]
    stage.found.at_least("objects evicted after they were promised", 1, answers.count(MISS))
    stage.found.equal(
        "evicted after the lookup: answers that are neither",
        0,
        len(answers) - answers.count(MISS) - answers.count(OK),
    )
    again = saved.request("next request", limit_seconds=10.0)
    stage.found.equal(
        "next request: hit tokens that do not come", 0, again.report.ledger.hit_tokens - again.used_tokens
    )
    seconds = wait_for(lambda: saved.save().complete)
    stage.found.within("saved again", WAIT_SECONDS, seconds)
    saved.request_whole("after the burst")


def all_leased(stage: Stage) -> None:
    """Every object is leased: none can be removed or evicted, and none is lost. Later all of them can."""
    master = stage.master(lease_ttl_ms=_LEASE_MS)
    store = stage.client(master, segment_bytes=SEGMENT_BYTES)
    saved, other, filler = SavedPrefix(stage, store), SavedPrefix(stage, store, number=1), _Filler(store)
    saved.save_whole("before")
    saved.look_up()
    fillers = filler.fill_up()
    leased = saved.keys + fillers
    stage.found.equal("objects that the leases hold", len(leased), store.batch_exists(leased).count(OK))
    before = store.stats
    stage.found.equal("a put of what exists", "exists", ", ".join(filler.put(saved.keys[:1])))
    stage.found.equal("bytes written by it", 0, store.stats.put_bytes - before.put_bytes)
    stage.found.equal("puts that did nothing", 1, store.stats.put_noops - before.put_noops)
    results = [store.remove(key) for key in saved.keys[:16]]
    stage.found.equal("leased objects that a remove refuses", len(results), results.count(LEASED))
    stage.found.equal("leased objects that a clearing removes", 0, store.remove_all())
    other.save_refused("save into a store that is all leased", str(NO_SPACE), 10.0)
    stage.found.equal("objects still there", len(leased), store.batch_exists(leased).count(OK))
    saved.request_whole("all leased")
    time.sleep(_LEASE_MS / 1000 + 0.5)
    # Not all of them: the master evicts down to its watermark as soon as the leases end.
    stage.found.at_least("objects that a clearing removes after the leases", 1, store.remove_all())
    stage.found.equal("objects there after it", 0, len(leased) - store.batch_exists(leased).count(MISS))
    stage.found.equal("a removed object is a miss", MISS, store.remove(saved.keys[0]))
    other.save_whole("saved after it")
    other.request_whole("after it")


def lease_too_short(stage: Stage) -> None:
    """Leases end before a batch has moved: what came too late does not count, whatever its bytes are."""
    master = stage.master(lease_ttl_ms=1)
    stage.owner(master)
    saved = SavedPrefix(stage, stage.client(master, segment_bytes=0))
    saved.save_whole("before")
    num_late = 0
    for attempt in range(10):
        request = saved.request(f"attempt {attempt + 1}", limit_seconds=10.0)
        answers = [str(answer) for part in request.report.transfer.results.values() for answer in part]
        num_late += answers.count("error(-707)")
        stage.found.equal(
            f"attempt {attempt + 1}: answers that are neither",
            0,
            len(answers) - answers.count("error(-707)") - answers.count("ok"),
        )
        if num_late:
            break
    stage.found.at_least("objects whose lease ended too early", 1, num_late)
