"""The faults by name: what breaks, what must hold, and which fault reports of the field each stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from hicache_bench.errors import InputError


class SeenBy(str, Enum):
    """Who can see that something is wrong.

    ``store``: its answer tells. ``digest``: the answer is ``OK``, a checksum turns it into a failure.
    ``content``: the bytes were wrong when they were put, and only a comparison with the source finds them.
    """

    STORE = "store"
    DIGEST = "digest"
    CONTENT = "content"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCase:
    """One fault. ``backends`` are the stores that it can be tried on; none named: all that move bytes."""

    name: str
    breaks: str
    holds: str
    cases: tuple[str, ...]
    seen_by: SeenBy = SeenBy.STORE
    backends: tuple[str, ...] = ()


FAULT_CASES = (
    FaultCase(
        name="evicted-before-read",
        breaks="an object is evicted between lookup and read, in each pool in turn",
        holds="the endpoint is resolved again with what arrived, in all pools together",
        cases=("E05", "E60"),
    ),
    FaultCase(
        name="index-evicted",
        breaks="the index page 5 of 8 is gone, before the lookup or after it",
        holds="5 pages are used, though the latents of all 8 are there",
        cases=("E27",),
    ),
    FaultCase(
        name="draft-missing",
        breaks="the draft pool is gone, before the lookup or after it",
        holds="the prefix is as long as before, and reported as degraded",
        cases=("E28",),
    ),
    FaultCase(
        name="lookup-lies",
        breaks="the lookup promises objects that are not there",
        holds="nothing is fulfilled of what did not arrive; the promise counts as missed",
        cases=("E54",),
    ),
    FaultCase(
        name="lease-expired",
        breaks="the lease of some objects of a batch ends before their turn (-707)",
        holds="these pages failed and the others did not; a second request works",
        cases=("E53",),
    ),
    FaultCase(
        name="failed-batch-read",
        breaks="batch 2 of 3 fails as a whole while 257 pages are read",
        holds="128 pages are used, and no later batch is sent",
        cases=("E14",),
    ),
    FaultCase(
        name="failed-batch-write",
        breaks="batch 2 of 3 fails once while 300 pages are saved",
        holds="with a retry 300 pages are stored; without, 128, and 172 are reported as failed",
        cases=("E14", "E58"),
    ),
    FaultCase(
        name="short-read",
        breaks="a read answers OK, and its last bytes never came",
        holds="no page of it counts as restored with a checksum; without, the comparison finds it",
        cases=("E49",),
        seen_by=SeenBy.DIGEST,
    ),
    FaultCase(
        name="empty-read",
        breaks="a read answers OK, and no byte came",
        holds="no page of it counts as restored with a checksum; without, the comparison finds it",
        cases=("E49",),
        seen_by=SeenBy.DIGEST,
    ),
    FaultCase(
        name="wrong-length",
        breaks="a call answers with one result too few, or one too many",
        holds="the call is refused: no result is taken for that of another key",
        cases=("E49",),
    ),
    FaultCase(
        name="flipped-bit",
        breaks="one bit of an object is wrong, on its way or in the store",
        holds="no page of it counts as restored with a checksum; without, the comparison finds it",
        cases=("E20",),
        seen_by=SeenBy.DIGEST,
    ),
    FaultCase(
        name="truncated-object",
        breaks="an object in the store has lost its last bytes",
        holds="its page failed, and the next request says so until the object is replaced",
        cases=("E49",),
    ),
    FaultCase(
        name="oversized-object",
        breaks="an object in the store has more bytes than its page",
        holds="its page failed, and nothing is written past its buffer",
        cases=("E49",),
    ),
    FaultCase(
        name="foreign-pool",
        breaks="the right key holds the object of another pool, of the same size",
        holds="no page of it counts as restored with a checksum; without, the comparison finds it",
        cases=("E20", "E33"),
        seen_by=SeenBy.DIGEST,
    ),
    FaultCase(
        name="foreign-dtype",
        breaks="the right key holds the page in a dtype of half the bytes",
        holds="its page failed; keys of this tool name the dtype, and cannot meet",
        cases=("E20", "E33"),
    ),
    FaultCase(
        name="foreign-layout",
        breaks="a writer put the page in another order of its axes under the right key",
        holds="the comparison finds it; keys of this tool name the layout, and cannot meet",
        cases=("E20", "E33"),
        seen_by=SeenBy.CONTENT,
    ),
    FaultCase(
        name="stale-object",
        breaks="wrong bytes were put under the right keys; the right ones follow and change nothing",
        holds="the second save writes 0 bytes and says that all existed; the comparison finds every page",
        cases=("E20", "E50"),
        seen_by=SeenBy.CONTENT,
    ),
    FaultCase(
        name="null-state",
        breaks="the host has a state at page 6 of 8 only; then the window before it has a hole",
        holds="one state is published; with the hole no endpoint is legal, though each pool has some",
        cases=("E20",),
    ),
    FaultCase(
        name="zero-size-component",
        breaks="a component of the states has 0 bytes, and one of the others is evicted",
        holds="no key and no buffer for it; the state is whole without it, and lost without the other",
        cases=("E26",),
    ),
    FaultCase(
        name="killed-writer",
        breaks="the writer is killed in the middle of a put",
        holds="what it had put is found and right, nothing else is; the next save completes it",
        cases=("E58", "E60"),
    ),
    FaultCase(
        name="duplicate-writers",
        breaks="a second writer of the same namespace saves between two batches of the first",
        holds="each object is written once, the rest exists; every byte is right",
        cases=("E50", "E56"),
    ),
    FaultCase(
        name="store-full",
        breaks="the store has no room for the third batch",
        holds="the save ends there and says so; what was stored is restored; later the rest fits",
        cases=("E58",),
    ),
    FaultCase(
        name="arena-full",
        breaks="a store smaller than the prefix, whose objects are leased, then evicted",
        holds="no object is half there: pages are right or missing",
        cases=("E53", "E58"),
        backends=("local",),
    ),
)

BY_NAME = {case.name: case for case in FAULT_CASES}


def chosen_cases(names: Sequence[str]) -> tuple[FaultCase, ...]:
    """The faults of these names, in the catalogue's order; ``all`` stands for every one.

    Raises:
        InputError: no name, or one that is not in the catalogue.
    """
    if not names:
        raise InputError(f"no fault was named; use all, or some of: {', '.join(BY_NAME)}")
    for name in names:
        if name != "all" and name not in BY_NAME:
            nearest = get_close_matches(name, BY_NAME, n=1)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise InputError(f"unknown fault {name!r}{hint}; allowed: all, {', '.join(BY_NAME)}")
    return tuple(case for case in FAULT_CASES if "all" in names or case.name in names)
