"""Counters that an operator reads: what became of bytes, of endpoints, and of the calls of a store.

``docs/metrics.md`` lists them; :mod:`hicache_bench.engine.metrics_text` writes them down.
"""

from __future__ import annotations

import difflib
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hicache_bench.engine.metrics_text import Family, HistogramValue, Labels, to_json, to_prometheus
from hicache_bench.errors import ConfigError
from hicache_bench.planning.ledger import Ledger, Volume
from hicache_bench.store.wrappers import Operation

PREFIX = "mooncake_hicache"
STORE_PREFIX = "mooncake_store"
LATENCY_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Upper bounds of the latency histograms, in seconds: a call on shared memory takes 0.1 ms, a call to a
stopped peer 30 s (both measured with Mooncake 0.3.13)."""

MAX_LABEL_VALUES = 64
"""Different values that one label may take in one sink. The largest model shipped has 9 pools."""
OTHER = "_other"
"""Label value under which everything beyond :data:`MAX_LABEL_VALUES` is counted, so that sums stay right."""

_EVENTS = {
    "read": "restored from the store",
    "skipped": "left in the store, by reason",
    "missed": "promised or needed, and absent",
    "failed": "failed while being read",
    "wasted": "read and not usable",
    "written": "written to the store",
}
_STAGES = {
    "hit": "promised by lookup",
    "fulfilled": "whole with the bytes that arrived",
    "used": "from which the model resumes",
}
_STORE_COUNTS = {
    Operation.EXISTS: {
        "keys": "looked up",
        "hits": "looked up and there",
        "misses": "looked up and absent",
        "failures": "whose look-up failed",
    },
    Operation.GET: {
        "keys": "asked for",
        "hits": "read whole",
        "misses": "asked for and absent",
        "failures": "that could not be read",
    },
    Operation.PUT: {
        "keys": "given to be stored",
        "hits": "that existed and kept their bytes",
        "misses": "that were absent and are now stored",
        "failures": "that could not be stored",
    },
}

TRANSFER_SECONDS = f"{PREFIX}_transfer_seconds"
CALL_SECONDS = f"{STORE_PREFIX}_call_seconds"
_FOLDED = f"{PREFIX}_folded_label_values_total"

FAMILIES: Mapping[str, str] = {
    **{
        f"{PREFIX}_{event}_{unit}_total": f"{unit.capitalize()} {meaning}."
        for event, meaning in _EVENTS.items()
        for unit in ("pages", "bytes")
    },
    **{
        f"{PREFIX}_endpoint_{stage}_tokens_total": f"Tokens up to the endpoint {meaning}."
        for stage, meaning in _STAGES.items()
    },
    f"{PREFIX}_unused_tokens_total": "Hit tokens that are not used, each under its one reason.",
    f"{PREFIX}_query_tokens_total": "Tokens of prompts beyond their local prefix.",
    f"{PREFIX}_query_hit_tokens_total": "Tokens beyond the local prefix that lookup promised.",
    TRANSFER_SECONDS: "Seconds of one restore or save, scoring of an index apart.",
    **{
        f"{STORE_PREFIX}_{operation.value}_{what}_total": f"Keys {meaning}."
        for operation, counts in _STORE_COUNTS.items()
        for what, meaning in counts.items()
    },
    f"{STORE_PREFIX}_get_bytes_total": "Bytes of the keys that were read whole.",
    f"{STORE_PREFIX}_put_bytes_total": "Bytes of the keys that are newly stored.",
    CALL_SECONDS: "Seconds of one batched call of the store.",
    _FOLDED: f"Samples counted under {OTHER}, since their label had too many values.",
}
"""Every family that a sink can have, in the order in which they are written, with its help text."""


@dataclass(slots=True)
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BUCKETS) + 1))
    total: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(LATENCY_BUCKETS, value)] += 1
        self.total += value

    def value(self) -> HistogramValue:
        return HistogramValue(bounds=LATENCY_BUCKETS, counts=tuple(self.counts), total=self.total)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAnswer:
    """What a store made of one batched call. ``num_bytes`` are those of the keys that moved, no others."""

    backend: str
    operation: Operation
    hits: int
    misses: int
    failures: int
    num_bytes: int
    seconds: float


_Increment = tuple[str, int, dict[str, str]]


class MetricsSink:
    """Accumulates what restores, saves and stores did. Counters never fall.

    Safe to read from another thread: each ``record...`` appears as a whole or not at all. Label names come
    from a closed set. A label takes at most :data:`MAX_LABEL_VALUES` values; what comes with a further one is
    counted under :data:`OTHER`, and in ``mooncake_hicache_folded_label_values_total``. An empty value is no
    label, as Prometheus has it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, Counter[Labels]] = {}
        self._histograms: dict[str, dict[Labels, _Histogram]] = {}
        self._values: dict[str, set[str]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded yet."""
        return not self._counters

    def record_restore(
        self, ledger: Ledger, seconds: float, *, prompt_tokens: int, local_tokens: int = 0
    ) -> None:
        """Add one restore of a prompt whose first ``local_tokens`` were there already.

        Tokens that are local are no query to the store, so they are neither asked for nor hit. A request for
        which the store has nothing is a restore too (of an empty plan): leave it out, and the hit rate lies.
        """
        policy = ledger.policy.value
        increments: list[_Increment] = []
        for pool in ledger.pools:
            labels = {"pool": pool.pool, "policy": policy}
            for event in ("read", "missed", "failed", "wasted"):
                increments += _amounts(event, getattr(pool, event), labels)
            for reason, skipped in pool.skipped.items():
                increments += _amounts("skipped", skipped, {**labels, "reason": reason.value})
        by_policy = {"policy": policy}
        increments += (
            (f"{PREFIX}_endpoint_{stage}_tokens_total", getattr(ledger, f"{stage}_tokens"), by_policy)
            for stage in _STAGES
        )
        increments += (
            (f"{PREFIX}_unused_tokens_total", tokens, {**by_policy, "reason": reason.value})
            for reason, tokens in ledger.unused_tokens.items()
        )
        asked = max(0, prompt_tokens - local_tokens)
        found = min(asked, max(0, ledger.hit_tokens - local_tokens))
        increments.append((f"{PREFIX}_query_tokens_total", asked, by_policy))
        increments.append((f"{PREFIX}_query_hit_tokens_total", found, by_policy))
        self._add(increments, TRANSFER_SECONDS, seconds, {"operation": "restore", **by_policy})

    def record_save(self, written: Mapping[str, Volume], seconds: float) -> None:
        """Add one save: what it wrote, by pool. What existed already was not written."""
        increments = [
            increment
            for pool, amount in written.items()
            for increment in _amounts("written", amount, {"pool": pool})
        ]
        self._add(increments, TRANSFER_SECONDS, seconds, {"operation": "save"})

    def record(self, event: str, amount: Volume, *, pool: str, policy: str = "", reason: str = "") -> None:
        """Add ``amount`` to the page and byte counters of ``event``.

        Raises:
            ConfigError: no such event.
        """
        if event not in _EVENTS:
            near = difflib.get_close_matches(event, _EVENTS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"unknown event {event!r}; allowed: {', '.join(_EVENTS)}{hint}")
        self._add(_amounts(event, amount, {"pool": pool, "policy": policy, "reason": reason}))

    def record_store_call(self, answer: StoreAnswer) -> None:
        """Add one batched call of a store. Every key of it is a hit, a miss or a failure."""
        name = f"{STORE_PREFIX}_{answer.operation.value}"
        by_backend = {"backend": answer.backend}
        counts = {"hits": answer.hits, "misses": answer.misses, "failures": answer.failures}
        increments: list[_Increment] = [(f"{name}_keys_total", sum(counts.values()), by_backend)]
        increments += ((f"{name}_{what}_total", count, by_backend) for what, count in counts.items())
        if answer.operation is not Operation.EXISTS:
            increments.append((f"{name}_bytes_total", answer.num_bytes, by_backend))
        labels = {"operation": answer.operation.value, **by_backend}
        self._add(increments, CALL_SECONDS, answer.seconds, labels)

    def collect(self) -> list[Family]:
        """Everything so far, at one instant: families that have samples, in the order of :data:`FAMILIES`."""
        with self._lock:
            found = []
            for name, text in FAMILIES.items():
                if name in self._counters:
                    samples = tuple(sorted(self._counters[name].items()))
                    found.append(Family(name=name, help=text, kind="counter", samples=samples))
                elif name in self._histograms:
                    values = sorted(self._histograms[name].items())
                    histograms = tuple((labels, histogram.value()) for labels, histogram in values)
                    found.append(Family(name=name, help=text, kind="histogram", samples=histograms))
            return found

    def to_json(self) -> str:
        """Counters and histograms as one JSON object."""
        return to_json(self.collect())

    def to_prometheus(self) -> str:
        """Prometheus text exposition format 0.0.4."""
        return to_prometheus(self.collect())

    def _add(
        self,
        increments: Iterable[_Increment],
        histogram: str | None = None,
        seconds: float = 0.0,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Add all increments and the observation, or nothing."""
        wanted = list(increments)
        for name, amount, _ in wanted:
            if amount < 0:
                raise ValueError(f"counter {name} cannot fall by {-amount}")
        with self._lock:
            for name, amount, given in wanted:
                self._counters.setdefault(name, Counter())[self._labels(given)] += amount
            if histogram is not None:
                found = self._histograms.setdefault(histogram, {})
                # An injected clock, or rounding, may give less than nothing; a sum must not fall.
                found.setdefault(self._labels(labels or {}), _Histogram()).observe(max(0.0, seconds))

    def _labels(self, given: Mapping[str, str]) -> Labels:
        return tuple(sorted((name, self._value(name, value)) for name, value in given.items() if value))

    def _value(self, name: str, value: str) -> str:
        # A lone surrogate has no UTF-8, and what is scraped is UTF-8.
        value = value.encode("utf-8", "backslashreplace").decode()
        known = self._values.setdefault(name, set())
        if value not in known:
            if len(known) == MAX_LABEL_VALUES:
                self._counters.setdefault(_FOLDED, Counter())[("label", name),] += 1
                return OTHER
            known.add(value)
        return value


def _amounts(event: str, amount: Volume, labels: dict[str, str]) -> list[_Increment]:
    return [
        (f"{PREFIX}_{event}_pages_total", amount.units, labels),
        (f"{PREFIX}_{event}_bytes_total", amount.num_bytes, labels),
    ]
