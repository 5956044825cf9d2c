"""Traces of requests in the Mooncake format, and the same with a ``block_size`` of their own.

One JSON object a line: ``timestamp`` (ms), ``input_length`` and ``output_length`` (tokens), ``hash_ids``
(one id per block of the prompt; an id stands for its block *and* everything before it; the last may be
partial). Two more are read where they are: ``block_size`` (tokens), and ``output_hash_ids``, the ids of
the blocks of prompt and output that lie behind the prompt's last whole block.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hicache_bench.errors import InputError, OutputError
from hicache_bench.trace.columns import Columns, Counts, Ids, read_columns
from hicache_bench.trace.lines import Checker, Row, parse_line

MOONCAKE_BLOCK_TOKENS = 512
"""Tokens of a block where neither the file nor the user says. Source: the FAST'25 traces of Mooncake."""

TRACE_SUFFIXES = (".jsonl", ".jsonl.gz")


class OnError(str, Enum):
    """What a line that breaks a rule does: ends the reading, or is counted and left out."""

    REFUSE = "refuse"
    SKIP = "skip"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class IdLists:
    """One list of ids per request, end to end: request ``r`` has ``ids[starts[r]:starts[r + 1]]``."""

    ids: Ids = field(repr=False)
    starts: Counts = field(repr=False)

    @property
    def lengths(self) -> Counts:
        """Ids of each request."""
        return np.diff(self.starts)

    @property
    def distinct(self) -> int:
        """Different ids; by sorting, which is several times faster here than numpy's hashing ``unique``."""
        ordered = np.sort(self.ids)
        return min(1, len(ordered)) + int(np.count_nonzero(ordered[1:] != ordered[:-1]))

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> IdLists:
        """Join ``lists``."""
        starts = _starts(np.array([len(ids) for ids in lists], dtype=np.int64))
        ids = np.fromiter(chain.from_iterable(lists), dtype=np.uint64, count=int(starts[-1]))
        return cls(ids=ids, starts=starts)


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Requests in order of arrival; those of one timestamp keep the order of the file.

    ``outputs`` are the ids behind each prompt's last whole block, None where a request has none: decode KV
    can then not be followed. ``skipped`` counts lines left out, ``first_problem`` is what was wrong with the
    first of them.
    """

    name: str
    block_tokens: int
    timestamps_ms: npt.NDArray[np.float64] = field(repr=False)
    input_tokens: Counts = field(repr=False)
    output_tokens: Counts = field(repr=False)
    prompts: IdLists = field(repr=False)
    outputs: IdLists | None = field(default=None, repr=False)
    skipped: int = 0
    first_problem: str | None = None

    def __len__(self) -> int:
        return len(self.input_tokens)

    @property
    def tail_tokens(self) -> Counts:
        """Tokens of each prompt's last block; ``block_tokens`` where it is whole."""
        return self.input_tokens - (self.prompts.lengths - 1) * self.block_tokens

    @cached_property
    def digest(self) -> str:
        """16 hex digits that two files with the same requests share, packed or not."""
        digest = hashlib.sha256(str(self.block_tokens).encode())
        arrays = [self.timestamps_ms, self.input_tokens, self.output_tokens, self.prompts.ids]
        if self.outputs is not None:
            arrays += [self.outputs.ids, self.outputs.starts]
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def read_trace(path: Path, *, block_tokens: int | None = None, on_error: OnError = OnError.REFUSE) -> Trace:
    """Read ``.jsonl`` or ``.jsonl.gz``.

    ``block_tokens`` is needed where the file does not say it and it is not 512; every line is checked
    against it, since ``hash_ids`` must be as many as ``input_length`` has blocks.

    Raises:
        InputError: a file that cannot be read, a line that breaks a rule (with its number), no request.
    """
    content = _content(path)
    columns = read_columns(content, block_tokens, MOONCAKE_BLOCK_TOKENS)
    if columns is not None:
        return _of_columns(path.name, columns)
    checker = Checker(block_tokens=block_tokens, default_block_tokens=MOONCAKE_BLOCK_TOKENS)
    rows, skipped, problem = _one_by_one(path.name, content, checker, on_error)
    if not rows:
        detail = (
            f"all of its {skipped} lines break a rule, the first: {problem}" if skipped else "it is empty"
        )
        raise InputError(f"trace {path.name!r} holds no request: {detail}; give a trace with one or more")
    return _of_rows(path.name, rows, checker.block_tokens, skipped, problem)


def write_trace(trace: Trace, path: Path) -> None:
    """Write ``trace``, ``block_size`` with each line; the file appears whole or not at all.

    Raises:
        OutputError: it cannot be written, or there is such a file already.
    """
    text = "".join(_lines(trace)).encode()
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            raise OutputError(f"{str(path)!r} exists already and is not overwritten; give another --out")
        # No time stamp in the gzip header: one seed gives one file, byte for byte.
        temporary.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
        temporary.replace(path)
    except OSError as error:
        if isinstance(error, OutputError):
            raise
        raise OutputError(
            f"cannot write the trace {str(path)!r}: {error.strerror or error}; give a writable --out"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _lines(trace: Trace) -> Iterator[str]:
    ids, starts = trace.prompts.ids.tolist(), trace.prompts.starts.tolist()
    for request in range(len(trace)):
        stamp = float(trace.timestamps_ms[request])
        row: dict[str, Any] = {
            "timestamp": int(stamp) if stamp.is_integer() else stamp,
            "input_length": int(trace.input_tokens[request]),
            "output_length": int(trace.output_tokens[request]),
            "block_size": trace.block_tokens,
            "hash_ids": ids[starts[request] : starts[request + 1]],
        }
        if trace.outputs is not None:
            first, last = trace.outputs.starts[request : request + 2]
            row["output_hash_ids"] = trace.outputs.ids[first:last].tolist()
        yield json.dumps(row) + "\n"


def _content(path: Path) -> bytes:
    try:
        # Opening a pipe waits for a writer, who may never come, and a device may never end.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"{path.name} is a pipe or a device; give the path of a trace file")
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, ValueError, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise InputError(
            f"cannot read trace {path.name!r}: {reason}; give a file of JSON lines, .jsonl or .jsonl.gz"
        ) from error


def _one_by_one(
    name: str, content: bytes, checker: Checker, on_error: OnError
) -> tuple[list[Row], int, str | None]:
    """Rows without those that break a rule, how many these were, and what was wrong with the first."""
    rows: list[Row] = []
    skipped, first_problem = 0, None
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        row, problem = parse_line(line)
        fault = problem if row is None else checker.fault(row)
        if row is not None and fault is None:
            rows.append(row)
            continue
        text = f"{name}:{number}: {fault}"
        if on_error is OnError.REFUSE:
            raise InputError(f"{text}; repair the line, or leave such lines out with --on-error skip")
        skipped += 1
        first_problem = first_problem or text
    return rows, skipped, first_problem


def _of_columns(name: str, columns: Columns) -> Trace:
    outputs = None
    if columns.output_ids is not None and columns.output_id_counts is not None:
        outputs = IdLists(ids=columns.output_ids, starts=_starts(columns.output_id_counts))
    return Trace(
        name=name,
        block_tokens=columns.block_tokens,
        timestamps_ms=columns.timestamps_ms.astype(np.float64),
        input_tokens=columns.input_tokens,
        output_tokens=columns.output_tokens,
        prompts=IdLists(ids=columns.ids, starts=_starts(columns.id_counts)),
        outputs=outputs,
    )


def _starts(counts: Counts) -> Counts:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


def _of_rows(name: str, rows: Sequence[Row], block_tokens: int, skipped: int, problem: str | None) -> Trace:
    outputs = [row.output_ids for row in rows]
    return Trace(
        name=name,
        block_tokens=block_tokens,
        timestamps_ms=np.array([row.timestamp_ms for row in rows], dtype=np.float64),
        input_tokens=np.array([row.input_tokens for row in rows], dtype=np.int64),
        output_tokens=np.array([row.output_tokens for row in rows], dtype=np.int64),
        prompts=IdLists.of([row.ids for row in rows]),
        outputs=None if None in outputs else IdLists.of([ids for ids in outputs if ids is not None]),
        skipped=skipped,
        first_problem=problem,
    )
