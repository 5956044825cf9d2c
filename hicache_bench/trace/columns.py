"""A whole trace at once, several times faster than line by line, if every line of it keeps the rules.

What is wrong with a line is not said here: whoever gets no columns asks ``lines.py``, whose rules these are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from hicache_bench.trace.lines import MAX_TOKENS

Counts = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint64]

_FIELDS = ("timestamp", "input_length", "output_length", "hash_ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The fields of all lines; ids end to end, with the number of each line."""

    block_tokens: int
    timestamps_ms: Counts
    input_tokens: Counts
    output_tokens: Counts
    ids: Ids
    id_counts: Counts
    output_ids: Ids | None
    output_id_counts: Counts | None


def read_columns(content: bytes, asked_tokens: int | None, default_tokens: int) -> Columns | None:
    """The columns of ``content``; None if a line breaks a rule, or may: a blank one, a fraction."""
    content = content.strip()
    try:
        rows = json.loads(b"[" + content.replace(b"\n", b",") + b"]")
        if len(rows) != content.count(b"\n") + 1 or set(map(type, rows)) != {dict}:
            return None
        stamps, inputs, outputs, prompts = zip(*map(itemgetter(*_FIELDS), rows), strict=True)
        sizes = {row.get("block_size") for row in rows}
        behind = [row.get("output_hash_ids") for row in rows]
        ids, counts = _joined(prompts)
        has_outputs = any(found is not None for found in behind)
        output_ids, output_counts = _joined(behind) if has_outputs else (None, None)
        numbers = [_whole_numbers(column) for column in (stamps, inputs, outputs)]
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError):
        return None
    size = _block_tokens(sizes, asked_tokens, default_tokens)
    if size is None or not _in_range(*numbers):
        return None
    timestamps, input_tokens, output_tokens = numbers
    if (counts != -(-input_tokens // size)).any():
        return None
    blocks_behind = -(-(input_tokens + output_tokens) // size) - input_tokens // size
    if output_counts is not None and (output_counts != blocks_behind).any():
        return None
    return Columns(
        block_tokens=size,
        timestamps_ms=timestamps,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        ids=ids,
        id_counts=counts,
        output_ids=output_ids,
        output_id_counts=output_counts,
    )


def _whole_numbers(values: Sequence[Any]) -> Counts:
    """As an array; ``True`` is none, though Python counts with it.

    Raises:
        TypeError: a value of another type.
        OverflowError: one of more than 64 bits.
    """
    if set(map(type, values)) != {int}:
        raise TypeError
    return np.array(values, dtype=np.int64)


def _joined(lists: Sequence[Any]) -> tuple[Ids, Counts]:
    """Ids of all lines, and how many each has; each line's are different ones.

    Raises:
        TypeError: something else than lists of whole numbers.
        OverflowError: an id outside 64 bits without a sign.
        ValueError: one line has an id twice.
    """
    if set(map(type, lists)) != {list}:
        raise TypeError
    flat = list(chain.from_iterable(lists))
    if set(map(type, flat)) - {int}:
        raise TypeError
    if sum(map(len, map(set, lists))) != len(flat):
        raise ValueError
    counts = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
    return np.fromiter(flat, dtype=np.uint64, count=len(flat)), counts


def _block_tokens(given: set[Any], asked: int | None, default: int) -> int | None:
    """The one block size, or None where lines disagree with each other or with the user."""
    if len(given) != 1:
        return None
    (size,) = given
    if size is None:
        return asked or default
    if type(size) is not int or not 1 <= size <= MAX_TOKENS or asked not in (None, size):
        return None
    return size


def _in_range(timestamps: Counts, inputs: Counts, outputs: Counts) -> bool:
    return bool(
        (timestamps[1:] >= timestamps[:-1]).all()
        and inputs.min() >= 1
        and outputs.min() >= 0
        and max(inputs.max(), outputs.max()) <= MAX_TOKENS
    )
