"""Seeded traces of three kinds of traffic, so that a tier can be sized before there is a trace of one's own.

A prompt is a list of segments (a system prompt, a user's message, an output). A block's id stands for all
segments up to its end, as in a real trace; a partial last block has an id of its own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from hicache_bench.errors import InputError
from hicache_bench.trace.format import MOONCAKE_BLOCK_TOKENS, IdLists, Trace
from hicache_bench.trace.lines import MAX_TOKENS

MAX_REQUESTS = 10_000_000


class TraceKind(str, Enum):
    """What kind of traffic is made.

    ``multi-turn``: conversations; each turn repeats all that was said and adds a message.
    ``shared-system-prompt``: single requests, each behind one of a few system prompts, a few of which are
    asked for most. ``agent``: one system prompt with its tools, then steps in quick succession that each add
    a tool's result; now and then a sub-agent branches off.
    """

    MULTI_TURN = "multi-turn"
    SHARED_SYSTEM_PROMPT = "shared-system-prompt"
    AGENT = "agent"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """What is generated; token counts are means, ``requests_per_second`` is of all sessions together.

    ``turns`` is the mean number of requests of one session; single requests have none.
    """

    kind: TraceKind = TraceKind.MULTI_TURN
    requests: int = 1_000
    seed: int = 0
    block_tokens: int = MOONCAKE_BLOCK_TOKENS
    requests_per_second: float = 3.0
    turns: int = 5
    system_prompts: int = 8
    system_tokens: int = 2_048
    message_tokens: int = 1_024
    output_tokens: int = 384

    def __post_init__(self) -> None:
        for name, most in (
            ("requests", MAX_REQUESTS),
            ("block_tokens", MAX_TOKENS),
            ("turns", 1_000),
            ("system_prompts", 100_000),
            ("system_tokens", 1 << 24),
            ("message_tokens", 1 << 24),
            ("output_tokens", 1 << 24),
        ):
            value = getattr(self, name)
            if not 1 <= value <= most:
                raise InputError(f"{name} {value} cannot be generated; allowed: 1 to {most:,}")
        if not (math.isfinite(self.requests_per_second) and self.requests_per_second > 0):
            raise InputError(
                f"{self.requests_per_second} requests a second cannot be generated; give a rate above 0"
            )


_Segment = tuple[object, int]
"""What it is, and its tokens."""


@dataclass(frozen=True, slots=True)
class _Request:
    seconds: float
    prompt: tuple[_Segment, ...]
    output: _Segment


@dataclass(slots=True)
class _Source:
    """Random numbers; only ``random()`` is asked, whose sequence Python promises for a seed."""

    chance: random.Random
    options: GenerateOptions
    made: int = field(default=0)

    def seconds(self, mean: float) -> float:
        """An exponential waiting time."""
        return -mean * math.log(1.0 - self.chance.random())

    def tokens(self, mean: int) -> int:
        """At least 1; skewed, as lengths of messages are: most are short, some several times the mean."""
        return 1 + int(-(mean - 1) * math.log(1.0 - self.chance.random()))

    def count(self, mean: int) -> int:
        """From 1 to twice the mean less one, each as likely."""
        return 1 + int(self.chance.random() * (2 * mean - 1))

    def segment(self, mean: int) -> _Segment:
        """Fresh text."""
        self.made += 1
        return self.made, self.tokens(mean)

    def system_prompt(self) -> _Segment:
        """One of the system prompts, the first far more often than the last; each keeps its length."""
        options = self.options
        index = int(options.system_prompts * self.chance.random() ** 3)
        return ("system", index), options.system_tokens + index * 97 % max(1, options.system_tokens // 4)


def generate(options: GenerateOptions) -> Trace:
    """A trace of ``options.requests`` requests; one seed gives one trace on every machine."""
    source = _Source(random.Random(options.seed), options)  # noqa: S311
    session = _SESSIONS[options.kind]
    per_session = 1 if options.kind is TraceKind.SHARED_SYSTEM_PROMPT else options.turns
    requests: list[_Request] = []
    begun = 0.0
    while len(requests) < options.requests or begun < requests[options.requests - 1].seconds:
        begun += source.seconds(per_session / options.requests_per_second)
        requests += session(source, begun)
        if len(requests) >= options.requests:
            # A later session may still come before the last request: order decides which are kept.
            requests.sort(key=lambda request: request.seconds)
    return _trace(options, requests[: options.requests])


def _conversation(source: _Source, begun: float) -> Iterator[_Request]:
    options = source.options
    said: list[_Segment] = [source.system_prompt()]
    now = begun
    for _ in range(source.count(options.turns)):
        said.append(source.segment(options.message_tokens))
        output = source.segment(options.output_tokens)
        yield _Request(now, tuple(said), output)
        said.append(output)
        now += 5.0 + source.seconds(40.0)  # reading, thinking, typing


def _single(source: _Source, begun: float) -> Iterator[_Request]:
    options = source.options
    message = source.segment(options.message_tokens)
    yield _Request(begun, (source.system_prompt(), message), source.segment(options.output_tokens))


def _agent(source: _Source, begun: float) -> Iterator[_Request]:
    options = source.options
    tools: _Segment = (("system", 0), options.system_tokens)
    said: list[_Segment] = [tools, source.segment(options.message_tokens)]
    now = begun
    for _ in range(source.count(options.turns)):
        output = source.segment(options.output_tokens)
        yield _Request(now, tuple(said), output)
        said += [output, source.segment(options.message_tokens)]
        now += 0.5 + source.seconds(3.0)  # a tool runs
        if source.chance.random() < 0.2:
            branch = (*said[:-1], source.segment(options.message_tokens))
            yield _Request(now, branch, source.segment(options.output_tokens))


_SESSIONS: dict[TraceKind, Callable[[_Source, float], Iterator[_Request]]] = {
    TraceKind.MULTI_TURN: _conversation,
    TraceKind.SHARED_SYSTEM_PROMPT: _single,
    TraceKind.AGENT: _agent,
}


def _trace(options: GenerateOptions, requests: list[_Request]) -> Trace:
    known: dict[object, int] = {}
    prompts, outputs, lengths = [], [], []
    for request in requests:
        tokens = sum(length for _, length in request.prompt)
        prompt = _block_ids(known, request.prompt, options.block_tokens)
        whole = tokens // options.block_tokens
        full = _block_ids(known, (*request.prompt, request.output), options.block_tokens)
        prompts.append(prompt)
        outputs.append(full[whole:])
        lengths.append(tokens)
    return Trace(
        name=f"{options.kind}-{options.requests}-seed{options.seed}.jsonl",
        block_tokens=options.block_tokens,
        timestamps_ms=np.array([float(int(request.seconds * 1e3)) for request in requests]),
        input_tokens=np.array(lengths, dtype=np.int64),
        output_tokens=np.array([request.output[1] for request in requests], dtype=np.int64),
        prompts=IdLists.of(prompts),
        outputs=IdLists.of(outputs),
    )


def _block_ids(known: dict[object, int], segments: tuple[_Segment, ...], block_tokens: int) -> list[int]:
    """One id per block, new ones in the order in which they are first seen."""
    ids: list[int] = []
    pieces: list[tuple[object, int, int]] = []  # segment, where in it, tokens
    room = block_tokens
    for name, length in segments:
        done = 0
        while done < length:
            taken = min(room, length - done)
            pieces.append((name, done, taken))
            done += taken
            room -= taken
            if not room:
                _close(known, ids, pieces)
                room = block_tokens
    if pieces:
        _close(known, ids, pieces)
    return ids


def _close(known: dict[object, int], ids: list[int], pieces: list[tuple[object, int, int]]) -> None:
    ids.append(known.setdefault((ids[-1] if ids else None, tuple(pieces)), len(known)))
    pieces.clear()
