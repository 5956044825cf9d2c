"""Metrics as a Prometheus server sees them."""

from __future__ import annotations

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from hicache_bench.engine.metrics import PREFIX, MetricsSink

NAME = PREFIX


def families(sink: MetricsSink) -> dict[str, Metric]:
    """What a Prometheus server would scrape, by name; counters lose their ``_total`` there."""
    found = list(text_string_to_metric_families(sink.to_prometheus()))
    assert len({family.name for family in found}) == len(found)
    for family in found:
        series = [(sample.name, *sorted(sample.labels.items())) for sample in family.samples]
        assert len(set(series)) == len(series)
    return {family.name: family for family in found}


def value(sink: MetricsSink, name: str, *, prefix: str = NAME, **labels: str) -> float | None:
    """A counter by its name without prefix and ``_total``; None where it was never written."""
    family = families(sink).get(f"{prefix}_{name}")
    if family is None:
        return None
    assert family.type == "counter"
    found = [sample.value for sample in family.samples if sample.labels == labels]
    assert len(found) <= 1
    return found[0] if found else None
