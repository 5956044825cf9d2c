"""The constants of a simulation: value, band and source of each, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Protocol

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hicache_bench.records.schema import Evidence
from hicache_bench.records.simulation import ConstantRecord

_HEADING = f"constants, with their bands, [{Evidence.ASSUMED.value}] if not said otherwise"


class Cited(Protocol):
    """What rests on constants: a simulated point, or the seconds of a replay."""

    @property
    def constants(self) -> tuple[ConstantRecord, ...]:
        """Each with its source."""


def render_constants(records: Sequence[Cited]) -> Group:
    """A paragraph for the constants of one source, below what they belong to."""
    parts: list[RenderableType] = [Text(f"\n{_HEADING}", style="bold")]
    for owner, paragraphs in groupby(_paragraphs(records), itemgetter(0)):
        parts.append(Text(owner))
        parts += [Padding(Text(text), (0, 0, 0, 2)) for _, text in paragraphs]
    return Group(*parts)


def constant_lines(records: Sequence[Cited]) -> list[str]:
    """The same as lines that stand alone, such as those of a chart's caption."""
    return [f"{owner}: {text}" for owner, text in _paragraphs(records)]


def _paragraphs(records: Sequence[Cited]) -> Iterator[tuple[str, str]]:
    """What the constants belong to, and those of one source with their values."""
    constants = dict.fromkeys(constant for record in records for constant in record.constants)
    for owner in dict.fromkeys(constant.of for constant in constants):
        owned = [constant for constant in constants if constant.of == owner]
        for (source, evidence), same in groupby(owned, lambda constant: (constant.source, constant.evidence)):
            values = "; ".join(f"{constant.name} {_value(constant)}" for constant in same)
            tag = "" if evidence == Evidence.ASSUMED.value else f"[{evidence}] "
            yield owner, f"{values}: {tag}{source}"


def _value(constant: ConstantRecord) -> str:
    value = quantity(constant.value, constant.unit)
    if constant.low == constant.high:
        return value
    low, high = (quantity(end, constant.unit) for end in (constant.low, constant.high))
    return f"{value} ({low} to {high})"


def quantity(value: float, unit: str) -> str:
    """``87 GB/s``, ``0.5 ms``, ``989 TFLOP/s``."""
    if unit.startswith(("B/s", "FLOP")):
        for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
            # Terabytes per second are nobody's unit for a link.
            if value >= factor and not (unit == "B/s" and prefix == "T"):
                return f"{value / factor:.4g} {prefix}{unit}"
    if unit in ("s", "s/token") and value:
        for factor, prefix in ((1.0, ""), (1e-3, "m")):
            if value >= factor:
                return f"{value / factor:.4g} {prefix}{unit}"
        return f"{value / 1e-6:.4g} µ{unit}"
    return f"{value:.4g} {unit}".rstrip()
