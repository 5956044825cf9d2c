"""Metrics as Prometheus text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of :func:`to_prometheus`, for an HTTP answer. Prometheus 3 refuses a scrape that names none."""

Labels = tuple[tuple[str, str], ...]
"""Label names with their values, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramValue:
    """Observations of one series. ``counts`` has one number for each bucket, and one for what lies beyond."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def buckets(self) -> dict[str, int]:
        """Observations up to each bound, by its text; the last is ``+Inf`` and counts all."""
        return dict(zip([*map(str, self.bounds), "+Inf"], accumulate(self.counts), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric with all its series. ``kind`` is Prometheus's type: ``counter`` or ``histogram``."""

    name: str
    help: str
    kind: str
    samples: tuple[tuple[Labels, int | HistogramValue], ...]


def to_prometheus(families: Iterable[Family]) -> str:
    """Prometheus text exposition format 0.0.4.

    https://prometheus.io/docs/instrumenting/exposition_formats/
    """
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        for labels, value in family.samples:
            lines += _sample_lines(family.name, labels, value)
    return "".join(f"{line}\n" for line in lines)


def to_json(families: Iterable[Family]) -> str:
    """One JSON object: families by name, with the samples that the text has."""
    data = {
        family.name: {
            "type": family.kind,
            "help": family.help,
            "samples": [{"labels": dict(labels), **_json_value(value)} for labels, value in family.samples],
        }
        for family in families
    }
    return json.dumps(data, indent=1, allow_nan=False)


def _sample_lines(name: str, labels: Labels, value: int | HistogramValue) -> Iterator[str]:
    if isinstance(value, int):
        yield f"{name}{_label_text(labels)} {value}"
        return
    for bound, count in value.buckets.items():
        yield f"{name}_bucket{_label_text((*labels, ('le', bound)))} {count}"
    yield f"{name}_sum{_label_text(labels)} {value.total}"
    yield f"{name}_count{_label_text(labels)} {sum(value.counts)}"


def _json_value(value: int | HistogramValue) -> dict[str, Any]:
    if isinstance(value, int):
        return {"value": value}
    return {"count": sum(value.counts), "sum": value.total, "buckets": value.buckets}


def _label_text(labels: Labels) -> str:
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{inner}}}" if inner else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
