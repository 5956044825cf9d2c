"""Small traces, written by hand or drawn, and the real one where it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from hicache_bench.trace.format import IdLists, Trace

CONVERSATION = Path(__file__).parents[3] / "shared" / "traces" / "conversation_trace.jsonl"

needs_conversation = pytest.mark.skipif(
    not CONVERSATION.exists(), reason="../shared/traces/conversation_trace.jsonl is not there"
)


def trace_of(
    *requests: tuple[int, Sequence[int]],
    block_tokens: int = 512,
    outputs: Sequence[tuple[int, Sequence[int]]] | None = None,
    seconds_apart: float = 1.0,
) -> Trace:
    """A trace of ``(input_length, hash_ids)``; ``outputs`` are ``(output_length, output_hash_ids)``."""
    lengths = [0] * len(requests) if outputs is None else [length for length, _ in outputs]
    return Trace(
        name="small.jsonl",
        block_tokens=block_tokens,
        timestamps_ms=np.arange(len(requests), dtype=np.float64) * (seconds_apart * 1e3),
        input_tokens=np.array([tokens for tokens, _ in requests], dtype=np.int64),
        output_tokens=np.array(lengths, dtype=np.int64),
        prompts=IdLists.of([ids for _, ids in requests]),
        outputs=None if outputs is None else IdLists.of([ids for _, ids in outputs]),
    )


def plain_prompts(*tokens: int, block_tokens: int = 512) -> Trace:
    """Prompts of these lengths that are prefixes of one text; a partial last block has its own id."""
    return trace_of(
        *(
            (
                length,
                [
                    *range(length // block_tokens),
                    *([10_000 + length] if length % block_tokens else []),
                ],
            )
            for length in tokens
        ),
        block_tokens=block_tokens,
    )


@st.composite
def drawn_traces(draw: st.DrawFn, block_tokens: int = 32, most_requests: int = 14) -> Trace:
    """Requests that share prefixes of earlier ones, repeat them, or begin anew."""
    fresh = iter(range(1, 1_000_000))
    known: list[tuple[int, list[int]]] = []
    for _ in range(draw(st.integers(1, most_requests))):
        shared: list[int] = []
        again: bool = draw(st.booleans())
        if known and again:
            tokens, ids = known[draw(st.integers(0, len(known) - 1))]
            if draw(st.integers(0, 4)) == 0:
                known.append((tokens, ids))
                continue
            shared = ids[: draw(st.integers(0, tokens // block_tokens))]
        new = draw(st.integers(0, 4))
        tail = draw(st.integers(0, block_tokens - 1))
        if not shared and not new and not tail:
            tail = 1
        ids = [*shared, *(next(fresh) for _ in range(new + bool(tail)))]
        known.append(((len(shared) + new) * block_tokens + tail, ids))
    return trace_of(*known, block_tokens=block_tokens)
