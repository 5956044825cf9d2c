"""Finding a trace, and what can be said of one without a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hicache_bench.config.catalogue import presets_folder
from hicache_bench.config.explain import suggest
from hicache_bench.errors import InputError
from hicache_bench.records.replay import TraceRecord
from hicache_bench.trace.format import TRACE_SUFFIXES, OnError, Trace, read_trace
from hicache_bench.trace.metrics import first_measured, percentiles, ubiquitous_pages
from hicache_bench.trace.paths import HitDefinition, PagePaths, page_paths
from hicache_bench.trace.stack import stack_distances

_BLOCKS = re.compile(r"([0-9]{1,15})(k?)")  # more than any trace has, and far from the end of int64


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockHits:
    """What an LRU cache of ``capacity_blocks`` (None: no bound) hits of the measured requests."""

    capacity_blocks: int | None
    hit_blocks: int
    hit_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFigures:
    """A trace in figures; hits are those of whole prompts in blocks, :data:`HitDefinition.TRACE`.

    ``blocks`` and ``tokens`` are those of the measured requests, that hits are parts of. ``duration_seconds``
    is the trace's own clock.
    """

    trace: TraceRecord
    duration_seconds: float
    input_tokens: Mapping[str, float]
    output_tokens: Mapping[str, float]
    measured_percent: int
    blocks: int
    tokens: int
    hits: tuple[BlockHits, ...]


def open_trace(
    name_or_path: str | Path, *, block_tokens: int | None = None, on_error: OnError = OnError.REFUSE
) -> Trace:
    """The shipped trace of this name, or the one in this ``.jsonl`` or ``.jsonl.gz`` file.

    Raises:
        InputError: there is neither, or :func:`read_trace` refuses it.
    """
    path = Path(name_or_path)
    if not path.name.casefold().endswith(TRACE_SUFFIXES) and not path.exists():
        shipped = {found.stem: found for found in presets_folder("traces").glob("*.jsonl")}
        if path.name not in shipped or path.name != str(path):
            hint = suggest(path.name, shipped) or ";"
            raise InputError(
                f"no trace is named {str(name_or_path)!r}{hint} shipped: {', '.join(sorted(shipped))}; to "
                "read one of your own, give its path, ending in .jsonl or .jsonl.gz"
            )
        path = shipped[path.name]
    return read_trace(path, block_tokens=block_tokens, on_error=on_error)


def parse_blocks(text: str) -> tuple[int | None, ...]:
    """Numbers of blocks, comma-separated: ``1000``, ``10k`` (10,000: what is counted are entries), ``all``.

    Raises:
        InputError: anything else, or none.
    """
    found: list[int | None] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _BLOCKS.fullmatch(part)
        if part != "all" and (match is None or int(match.group(1)) < 1):
            raise InputError(f"--blocks {part!r} is no number of blocks; allowed: 1000, 10k (10,000), all")
        found.append(int(match.group(1)) * (1000 if match.group(2) else 1) if match else None)
    if not found:
        raise InputError(f"--blocks {text!r} names nothing; give one or more, such as 1k,10k,all")
    return tuple(dict.fromkeys(found))


def trace_record(trace: Trace, paths: PagePaths) -> TraceRecord:
    """A trace, in a record's words."""
    return TraceRecord(
        name=trace.name,
        digest=trace.digest,
        requests=len(trace),
        input_tokens=int(trace.input_tokens.sum()),
        block_tokens=trace.block_tokens,
        block_references=len(trace.prompts.ids),
        distinct_blocks=trace.prompts.distinct,
        has_outputs=trace.outputs is not None,
        skipped_lines=trace.skipped,
        first_problem=trace.first_problem,
        ubiquitous_tokens=int(ubiquitous_pages(trace, paths).max(initial=0)) * paths.page_tokens,
    )


def trace_figures(
    trace: Trace, capacities: Sequence[int | None], *, measured_percent: int = 100
) -> TraceFigures:
    """Count what each capacity, in blocks, would hit, one pass for all."""
    paths = page_paths(trace, trace.block_tokens, definition=HitDefinition.TRACE)
    distances = stack_distances(paths)
    first = first_measured(len(trace), measured_percent)
    hits = []
    for capacity in capacities:
        held = distances.held_pages(int(paths.starts[-1]) if capacity is None else capacity)
        hits.append(
            BlockHits(
                capacity_blocks=capacity,
                hit_blocks=int(held[first:].sum()),
                hit_tokens=int(paths.tokens_at(held)[first:].sum()),
            )
        )
    return TraceFigures(
        trace=trace_record(trace, paths),
        duration_seconds=float(trace.timestamps_ms[-1] - trace.timestamps_ms[0]) / 1e3,
        input_tokens=percentiles(trace.input_tokens.astype(np.float64)),
        output_tokens=percentiles(trace.output_tokens.astype(np.float64)),
        measured_percent=measured_percent,
        blocks=int(paths.lengths[first:].sum()),
        tokens=int(trace.input_tokens[first:].sum()),
        hits=tuple(hits),
    )
