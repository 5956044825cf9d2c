"""The rules that each line of a trace keeps, and what is said of one that does not."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

MAX_ID = (1 << 64) - 1
MAX_TOKENS = (1 << 31) - 1
"""Longest prompt or output; no model has a context of this length."""

_NUMBERS = ("timestamp", "input_length", "output_length")
_ID_LISTS = ("hash_ids", "output_hash_ids")


class Row(NamedTuple):
    """One request as its line has it. ``block_tokens`` and ``output_ids`` are None where it has none."""

    timestamp_ms: float
    input_tokens: int
    output_tokens: int
    ids: Sequence[int]
    block_tokens: int | None
    output_ids: Sequence[int] | None

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Row:
        """The row of a line's fields, whose types were checked."""
        return cls(
            fields["timestamp"],
            fields["input_length"],
            fields["output_length"],
            fields["hash_ids"],
            fields.get("block_size"),
            fields.get("output_hash_ids"),
        )


def parse_line(line: bytes) -> tuple[Row | None, str]:
    """The row of a line, or None and what is wrong with it."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        return None, f"not JSON: {error}"
    if not isinstance(fields, dict):
        return None, "not a JSON object with timestamp, input_length, output_length and hash_ids"
    missing = [name for name in (*_NUMBERS, "hash_ids") if name not in fields]
    if missing:
        return None, f"lacks {', '.join(missing)}"
    stamp = fields["timestamp"]
    if type(stamp) not in (int, float) or not math.isfinite(stamp):
        return None, f"timestamp {stamp!r} is not a number of milliseconds"
    for name in ("input_length", "output_length", *(("block_size",) if "block_size" in fields else ())):
        if type(fields[name]) is not int:
            return None, f"{name} {fields[name]!r} is not a whole number"
    for name in _ID_LISTS:
        ids = fields.get(name, [])
        if type(ids) is not list or any(type(item) is not int for item in ids):
            return None, f"{name} is not a list of whole numbers"
    return Row.of(fields), ""


class Checker:
    """Holds rows, one after the other, to the rules; what it accepts first sets the block size.

    ``block_tokens`` is that of the user, ``default_block_tokens`` holds where nobody says.
    """

    def __init__(self, *, block_tokens: int | None, default_block_tokens: int) -> None:
        self._asked = block_tokens
        self._default = default_block_tokens
        self._found: int | None = None
        self._last_ms = -math.inf

    @property
    def block_tokens(self) -> int:
        """Tokens of a block: what the file says, else the user, else the default."""
        return self._found or self._asked or self._default

    def fault(self, row: Row) -> str | None:
        """What is wrong with ``row``, which comes after those accepted before; None accepts it."""
        problem = (
            self._number_fault(row)
            or self._block_fault(row)
            or _ids_fault("hash_ids", row.ids)
            or self._output_fault(row)
        )
        if problem is None:
            self._last_ms = row.timestamp_ms
            self._found = row.block_tokens or self._found
        return problem

    def _number_fault(self, row: Row) -> str | None:
        if not 1 <= row.input_tokens <= MAX_TOKENS:
            return f"input_length {row.input_tokens} is no prompt; allowed: 1 to {MAX_TOKENS:,} tokens"
        if not 0 <= row.output_tokens <= MAX_TOKENS:
            return f"output_length {row.output_tokens} is no output; allowed: 0 to {MAX_TOKENS:,} tokens"
        if row.timestamp_ms < self._last_ms:
            return (
                f"timestamp {row.timestamp_ms:g} is before {self._last_ms:g}, that of the line before; "
                "sort the trace by time"
            )
        return None

    def _block_fault(self, row: Row) -> str | None:
        given = row.block_tokens
        if given is not None and not 1 <= given <= MAX_TOKENS:
            return f"block_size {given} is no size of a block; allowed: 1 to {MAX_TOKENS:,} tokens"
        for who, known in (("--trace-block-tokens", self._asked), ("the lines before", self._found)):
            if given is not None and known is not None and given != known:
                return f"block_size {given} contradicts {known} of {who}; a trace has one block size"
        size = given or self.block_tokens
        blocks = -(-row.input_tokens // size)
        if len(row.ids) != blocks:
            hint = "" if given else "; give the trace's own with --trace-block-tokens"
            return (
                f"{len(row.ids)} hash_ids for input_length {row.input_tokens}, which has {blocks} blocks of "
                f"{size} tokens{hint}"
            )
        return None

    def _output_fault(self, row: Row) -> str | None:
        if row.output_ids is None:
            return None
        size = row.block_tokens or self.block_tokens
        whole = row.input_tokens // size
        blocks = -(-(row.input_tokens + row.output_tokens) // size) - whole
        if len(row.output_ids) != blocks:
            return (
                f"{len(row.output_ids)} output_hash_ids, and {blocks} blocks of prompt and output lie behind "
                f"the prompt's {whole} whole ones"
            )
        return _ids_fault("output_hash_ids", row.output_ids)


def _ids_fault(name: str, ids: Sequence[int]) -> str | None:
    if len(set(ids)) != len(ids):
        repeated = next(item for item in ids if ids.count(item) > 1)
        return f"{name} holds id {repeated} twice; an id stands for a block and everything before it"
    if ids and not 0 <= min(ids) <= max(ids) <= MAX_ID:
        return f"{name} holds an id outside 0 to 2**64 - 1"
    return None
