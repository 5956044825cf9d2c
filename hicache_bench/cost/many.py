"""Times to first token of many requests, of which many read the same: a read is modelled once.

What a single request takes is :func:`hicache_bench.cost.ttft.first_token`; a test holds the two equal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hicache_bench.cost.prefetch import PrefetchPolicy, PrefetchProfile, Usable, call_ends, usable
from hicache_bench.cost.ttft import Scene
from hicache_bench.cost.volumes import RankRead
from hicache_bench.engine.lookup import LOOKUP_KEYS_PER_CALL

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Prompts, each with what it reads: ``read_of`` is an index into ``reads``.

    ``lookup_keys`` are those that the rank with the most of them asks for. A read says nothing of its lookup:
    prompts that read the same ask for different keys.
    """

    prompt_tokens: Counts = field(repr=False)
    lookup_keys: Counts = field(repr=False)
    read_of: Counts = field(repr=False)
    reads: Sequence[tuple[RankRead, ...]] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokens:
    """Seconds to the first token of each request, with nothing hidden and with all but one layer's load.

    ``is_cut`` tells those whose prefetch did not end in time.
    """

    full: Floats = field(repr=False)
    none: Floats = field(repr=False)
    is_cut: npt.NDArray[np.bool_] = field(repr=False)


class Landings:
    """What is usable of reads of which some calls landed: the same in every scene of one prefetch profile."""

    def __init__(self, profile: PrefetchProfile) -> None:
        self._profile = profile
        self._known: dict[tuple[int, tuple[int, ...], bool], tuple[tuple[RankRead, ...], Usable]] = {}

    def usable(self, ranks: tuple[RankRead, ...], calls: tuple[int, ...], *, is_complete: bool) -> Usable:
        """As :func:`hicache_bench.cost.prefetch.usable`, remembered."""
        key = id(ranks), calls, is_complete
        found = self._known.get(key)
        if found is None:
            # The ranks are kept, so that no other have their id.
            found = self._known[key] = ranks, usable(ranks, calls, self._profile, is_complete=is_complete)
        return found[1]


class ManyTimes:
    """Models requests in one scene, whose own prompt is not looked at; remembers every read."""

    def __init__(self, scene: Scene, landings: Landings | None = None) -> None:
        self._scene = scene
        self._landings = landings or Landings(scene.prefetch.profile)
        self._known: dict[int, _Read] = {}

    def first_tokens(self, requests: Requests) -> FirstTokens:
        """Model every request."""
        scene, options = self._scene, self._scene.prefetch
        reads = [self._read(ranks) for ranks in requests.reads]
        calls = -(-requests.lookup_keys // LOOKUP_KEYS_PER_CALL)
        lookup = scene.link.lookup_call.value * calls + scene.link.lookup_key.value * requests.lookup_keys

        def each(values: Sequence[float]) -> Floats:
            return np.array(values, dtype=np.float64)[requests.read_of]

        finish = lookup + each([read.seconds for read in reads])
        stop = finish
        if options.policy is PrefetchPolicy.BEST_EFFORT:
            stop = np.minimum(finish, options.queue_seconds)
        elif options.policy is PrefetchPolicy.TIMEOUT:
            limit = options.queue_seconds + each([read.timeout_seconds for read in reads])
            if not options.profile.cuts_side_pools:
                kv_landed = lookup + each([read.kv_seconds for read in reads]) <= limit
                limit = np.where(kv_landed, np.inf, limit)
            stop = np.minimum(finish, limit)
        is_cut = stop < finish
        used = np.array([read.used_tokens for read in reads], dtype=np.int64)[requests.read_of]
        h2d = each([read.h2d_seconds for read in reads])
        for request in np.flatnonzero(is_cut).tolist():
            read = reads[requests.read_of[request]]
            used[request], h2d[request] = read.after_cut(float(stop[request] - lookup[request]))
        # The last page of a trace's prompt may be partial: the prompt ends before it.
        used = np.minimum(used, requests.prompt_tokens)
        asked = zip(requests.prompt_tokens.tolist(), used.tolist(), h2d.tolist(), strict=True)
        behind = [
            scene.loaded(h2d_seconds, scene.compute.seconds(tokens, prefix))
            for tokens, prefix, h2d_seconds in asked
        ]
        admitted = np.maximum(options.queue_seconds, stop)
        return FirstTokens(
            full=admitted + np.array([overlap.full for overlap in behind]),
            none=admitted + np.array([overlap.none for overlap in behind]),
            is_cut=is_cut,
        )

    def _read(self, ranks: tuple[RankRead, ...]) -> _Read:
        found = self._known.get(id(ranks))  # what is known holds its ranks, so that no other has this id
        if found is None:
            found = self._known[id(ranks)] = _Read(ranks, self._scene, self._landings)
        return found


class _Read:
    """One read in one scene; seconds count from the end of the lookup."""

    def __init__(self, ranks: tuple[RankRead, ...], scene: Scene, landings: Landings) -> None:
        self._ranks = ranks
        self._landings = landings
        self._scene = scene
        self._ends = [call_ends(rank, scene.link, sharers=scene.sharers) for rank in ranks]
        self._cut: dict[tuple[int, ...], tuple[int, float]] = {}
        self.seconds = max((ends[-1] for ends in self._ends if ends), default=0.0)
        self.kv_seconds = max(
            (ends[rank.kv_calls - 1] for rank, ends in zip(ranks, self._ends, strict=True) if rank.kv_calls),
            default=0.0,
        )
        self.timeout_seconds = scene.prefetch.profile.timeout_seconds(ranks[0].plan.loaded_tokens)
        self.used_tokens, self.h2d_seconds = self._usable(tuple(map(len, self._ends)), is_complete=True)

    def after_cut(self, seconds: float) -> tuple[int, float]:
        """Tokens that can be used, and seconds from host to GPU, of what landed within ``seconds``."""
        landed = tuple(bisect_right(ends, seconds) for ends in self._ends)
        found = self._cut.get(landed)
        if found is None:
            found = self._cut[landed] = self._usable(landed, is_complete=False)
        return found

    def _usable(self, landed: tuple[int, ...], *, is_complete: bool) -> tuple[int, float]:
        found = self._landings.usable(self._ranks, landed, is_complete=is_complete)
        return found.used_tokens, self._scene.h2d_seconds(self._ranks, found.rank_bytes)
