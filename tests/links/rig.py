"""Links and systems for tests, with round numbers."""

from __future__ import annotations

from collections.abc import Mapping

from hicache_bench.links.constant import Constant
from hicache_bench.links.link import Link, RatePoint
from hicache_bench.links.system import PrefillFit, System


def number(value: float, unit: str = "", low: float | None = None, high: float | None = None) -> Constant:
    return Constant(name="number", value=value, unit=unit, source="a test", low=low, high=high)


def link(
    points: Mapping[int, float] | None = None,
    *,
    op: float = 0.0,
    lookup_call: float = 0.0,
    lookup_key: float = 0.0,
    line_rate: float | None = None,
) -> Link:
    """A link of 1 GB/s at any size, unless told otherwise."""
    rates = points or {1: 1e9}
    return Link(
        name="test-link",
        summary="a link of round numbers",
        line_rate=number(line_rate or max(rates.values()), "B/s"),
        points=tuple(RatePoint(object_bytes=size, rate=number(rate, "B/s")) for size, rate in rates.items()),
        op=number(op, "s"),
        lookup_call=number(lookup_call, "s"),
        lookup_key=number(lookup_key, "s"),
    )


def fit(model: str = "m", *, c0: float = 0.5, c1: float = 1e-3, c2: float = 0.0, gpus: int = 1) -> PrefillFit:
    return PrefillFit(
        model=model,
        gpus=gpus,
        parallel=f"tp{gpus}",
        c0=c0,
        c1=c1,
        c2=c2,
        num_rows=4,
        min_tokens=1024,
        max_tokens=131072,
        max_error=0.01,
        source="a test",
    )


def system(*fits: PrefillFit, gpus: int = 8, h2d: float = 1e9, h2d_node: float | None = None) -> System:
    """A node whose GPUs get 1 GB/s each, unless told otherwise."""
    return System(
        name="test-system",
        summary="a system of round numbers",
        gpus=gpus,
        flops=number(1e12, "FLOP/s"),
        mfu=number(0.5, low=0.25, high=1.0),
        h2d=number(h2d, "B/s"),
        h2d_node=number(h2d_node or h2d * gpus, "B/s"),
        prefill_scale=number(1.0, low=0.5, high=2.0),
        prefill={entry.model: entry for entry in fits},
    )
