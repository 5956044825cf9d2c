"""Counters that an operator reads, as JSON or Prometheus text."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from hicache_bench.planning.ledger import Ledger, Volume

PREFIX = "mooncake_hicache"
LATENCY_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Upper bounds of the restore-latency histogram, in seconds."""

_EVENTS = {
    "read": "restored from the store",
    "skipped": "left in the store, by reason",
    "missed": "promised or needed, and absent",
    "failed": "failed while being read",
    "wasted": "read and not usable",
    "written": "written to the store",
}


@dataclass(slots=True)
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BUCKETS) + 1))
    total: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(LATENCY_BUCKETS, value)] += 1
        self.total += value


class MetricsSink:
    """Accumulates what restores and saves did. Counters never fall; labels come from closed sets only."""

    def __init__(self) -> None:
        self._counters: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self._latency: dict[str, _Histogram] = {}

    def record_restore(self, ledger: Ledger, seconds: float) -> None:
        """Add one restore."""
        policy = ledger.policy.value
        for pool in ledger.pools:
            labels = {"pool": pool.pool, "policy": policy}
            self.record("read", pool.read, **labels)
            self.record("missed", pool.missed, **labels)
            self.record("failed", pool.failed, **labels)
            self.record("wasted", pool.wasted, **labels)
            for reason, skipped in pool.skipped.items():
                self.record("skipped", skipped, reason=reason.value, **labels)
        for stage in ("hit", "fulfilled", "used"):
            tokens = getattr(ledger, f"{stage}_tokens")
            self._add(f"endpoint_{stage}_tokens", tokens, {"policy": policy})
        self._latency.setdefault(policy, _Histogram()).observe(seconds)

    def record_write(self, pool: str, written: Volume) -> None:
        """Add what a save wrote of one pool."""
        self.record("written", written, pool=pool)

    def record(self, event: str, amount: Volume, **labels: str) -> None:
        """Add ``amount`` to the page and byte counters of ``event``."""
        self._add(f"{event}_pages", amount.units, labels)
        self._add(f"{event}_bytes", amount.num_bytes, labels)

    def _add(self, name: str, amount: int, labels: dict[str, str]) -> None:
        if amount < 0:
            raise ValueError(f"counter {name} cannot fall by {-amount}")
        self._counters[name, tuple(sorted(labels.items()))] += amount

    def to_json(self) -> str:
        """Counters and histograms as one JSON object."""
        return json.dumps(
            {
                "counters": [
                    {"name": f"{PREFIX}_{name}_total", "labels": dict(labels), "value": value}
                    for (name, labels), value in sorted(self._counters.items())
                ],
                "restore_seconds": {
                    policy: {"buckets": LATENCY_BUCKETS, "counts": latency.counts, "sum": latency.total}
                    for policy, latency in sorted(self._latency.items())
                },
            },
            indent=2,
        )

    def to_prometheus(self) -> str:
        """Prometheus text exposition format 0.0.4."""
        lines: list[str] = []
        for name in sorted({name for name, _ in self._counters}):
            event, _, unit = name.rpartition("_")
            meaning = _EVENTS.get(event, event.replace("_", " "))
            lines += [
                f"# HELP {PREFIX}_{name}_total {unit} {meaning}",
                f"# TYPE {PREFIX}_{name}_total counter",
            ]
            lines += [
                f"{PREFIX}_{name}_total{_labels(labels)} {value}"
                for (counter, labels), value in sorted(self._counters.items())
                if counter == name
            ]
        if self._latency:
            histogram = f"{PREFIX}_restore_seconds"
            lines += [f"# HELP {histogram} seconds of one restore", f"# TYPE {histogram} histogram"]
            for policy, latency in sorted(self._latency.items()):
                running = 0
                bounds = [*map(str, LATENCY_BUCKETS), "+Inf"]
                for bound, count in zip(bounds, latency.counts, strict=True):
                    running += count
                    label = _labels((("policy", policy), ("le", bound)))
                    lines.append(f"{histogram}_bucket{label} {running}")
                label = _labels((("policy", policy),))
                lines += [f"{histogram}_sum{label} {latency.total}", f"{histogram}_count{label} {running}"]
        return "\n".join(lines) + "\n"


def _labels(pairs: Iterable[tuple[str, str]]) -> str:
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{inner}}}" if inner else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
