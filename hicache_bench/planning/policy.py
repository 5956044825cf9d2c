"""What an endpoint needs of a pool, and what a save keeps: one rule per attention type.

A rule answers one question: for an endpoint after ``k`` units of a pool, which is the first unit that must be
there? The needed units are then ``[first, k)``. Legality, loads and saves all follow from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from hicache_bench.errors import InputError, UnitError
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType, HitPolicy
from hicache_bench.units import parse_tokens

BoolVector = npt.NDArray[np.bool_]
IntVector = npt.NDArray[np.signedinteger[Any]]
_Rule = Callable[[KVPoolDescriptor, IntVector], IntVector]


class TransferPolicy(str, Enum):
    """The three ways to restore an endpoint that are compared.

    ``dense`` reads every object that the store holds below it, ``hit_policy`` what SGLang reads,
    ``selective`` what the next token needs.
    """

    DENSE = "dense"
    HIT_POLICY = "hit_policy"
    SELECTIVE = "selective"

    def __str__(self) -> str:
        return self.value


MAX_UNITS = 1 << 24
"""Of a pool in one prefix: 2**30 tokens in pages of 64. Vectors of so many are 128 MiB each."""


def index_dtype(pool: KVPoolDescriptor, num_units: int) -> type[np.signedinteger[Any]]:
    """int32 where token positions and the window fit, else int64.

    The vectors of a million tokens then stay below the size that the allocator gives back to the system after
    each use, which costs more than the arithmetic.
    """
    largest = max((num_units + 1) * pool.unit_tokens, pool.window_tokens or 0)
    return np.int32 if largest < 2**31 else np.int64


def trailing_units(pool: KVPoolDescriptor) -> int:
    """Units that SGLang restores of a trailing pool: ``max(1, ceil(engine_window/unit))``; 1 for a state."""
    window = pool.engine_window_tokens or pool.window_tokens or 1
    return max(1, -(-window // pool.unit_tokens))


def _all(_pool: KVPoolDescriptor, ends: IntVector) -> IntVector:
    return np.zeros_like(ends)


def _window(pool: KVPoolDescriptor, ends: IntVector) -> IntVector:
    # The query's own token is in the window, hence W - 1 older tokens (cases E17).
    assert pool.window_tokens is not None
    oldest_token = ends * pool.unit_tokens - pool.window_tokens + 1
    first: IntVector = np.maximum(oldest_token, 0) // pool.unit_tokens
    return first


def _chunk(pool: KVPoolDescriptor, ends: IntVector) -> IntVector:
    # Chunk boundaries are absolute: at one of them nothing older is alive (cases E19).
    assert pool.window_tokens is not None
    chunk_start = ends * pool.unit_tokens // pool.window_tokens * pool.window_tokens
    first: IntVector = chunk_start // pool.unit_tokens
    return first


def _last(_pool: KVPoolDescriptor, ends: IntVector) -> IntVector:
    return np.maximum(ends - 1, 0)


def _trailing(pool: KVPoolDescriptor, ends: IntVector) -> IntVector:
    return np.maximum(ends - trailing_units(pool), 0)


_SELECTIVE: dict[AttentionType, _Rule] = {
    AttentionType.FULL: _all,
    AttentionType.MLA: _all,
    AttentionType.SPARSE_INDEX: _all,
    AttentionType.COMPRESSED: _all,
    AttentionType.SWA: _window,
    AttentionType.CHUNKED: _chunk,
    AttentionType.RECURRENT: _last,
    AttentionType.COMPRESSOR_STATE: _last,
}


def first_needed(pool: KVPoolDescriptor, policy: TransferPolicy, ends: IntVector) -> IntVector:
    """First unit needed for each endpoint in ``ends`` (counted in units of ``pool``).

    ``dense`` has SGLang's legality: it moves more, but it promises the same endpoints.
    """
    if policy is TransferPolicy.SELECTIVE:
        return _SELECTIVE[pool.attention](pool, ends)
    return (_trailing if pool.hit_policy is HitPolicy.TRAILING_PAGES else _all)(pool, ends)


def first_needed_at(pool: KVPoolDescriptor, policy: TransferPolicy, end: int) -> int:
    """:func:`first_needed` of one endpoint."""
    return int(first_needed(pool, policy, np.array([end], dtype=np.int64))[0])


class StateSave(str, Enum):
    """Which recurrent states a save keeps."""

    LAST = "last"
    EVERY = "every"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePolicy:
    """What a save keeps; what it does not keep cannot be legal later.

    ``states``: recurrent states of the ``last`` endpoint, of ``every`` ``state_interval_tokens`` (and the
    last), or ``all``. ``window_extra_pages``: windows and compressor states keep what the last endpoint needs
    and that many units more, so that a prompt which diverges a little earlier still hits; None keeps all.
    """

    states: StateSave = StateSave.EVERY
    state_interval_tokens: int = 4096
    window_extra_pages: int | None = None

    @classmethod
    def parse(cls, text: str) -> SavePolicy:
        """Read ``state=last|every:K|all`` and ``window=all|trailing:+X``, comma-separated, either or both.

        Raises:
            InputError: anything else.
        """
        fields: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            kind, _, value = part.partition("=")
            if kind in fields:
                raise InputError(f"--save-policy names {kind!r} twice: {text!r}")
            fields[kind] = value
        unknown = [kind for kind in fields if kind not in ("state", "window")]
        if unknown or not fields:
            raise InputError(_SAVE_POLICY_HELP.format(text))
        return cls(
            **_parse_states(fields["state"], text) if "state" in fields else {},
            **_parse_windows(fields["window"], text) if "window" in fields else {},
        )

    def __str__(self) -> str:
        states = self.states.value
        if self.states is StateSave.EVERY:
            states += f":{self.state_interval_tokens}"
        windows = "all" if self.window_extra_pages is None else f"trailing:+{self.window_extra_pages}"
        return f"state={states},window={windows}"

    def saved_units(self, pool: KVPoolDescriptor, num_units: int) -> BoolVector:
        """Which of a prefix's ``num_units`` units of ``pool`` are written.

        Raises:
            InputError: more units than :data:`MAX_UNITS`.
        """
        if num_units > MAX_UNITS:
            raise InputError(
                f"a prefix of {num_units:,} pages of pool {pool.name!r} is more than the {MAX_UNITS:,} "
                "allowed; use fewer tokens or larger pages"
            )
        saved = np.ones(num_units, dtype=np.bool_)
        if num_units == 0 or pool.hit_policy is HitPolicy.ALL_PAGES:
            return saved
        if pool.attention is AttentionType.RECURRENT:
            return self._saved_states(pool, num_units)
        if self.window_extra_pages is None:
            return saved
        first = min(
            first_needed_at(pool, policy, num_units)
            for policy in (TransferPolicy.SELECTIVE, TransferPolicy.HIT_POLICY)
        )
        saved[: max(0, first - self.window_extra_pages)] = False
        return saved

    def _saved_states(self, pool: KVPoolDescriptor, num_units: int) -> BoolVector:
        if self.states is StateSave.ALL:
            return np.ones(num_units, dtype=np.bool_)
        saved = np.zeros(num_units, dtype=np.bool_)
        if self.states is StateSave.EVERY:
            intervals = np.arange(num_units + 1) * pool.unit_tokens // self.state_interval_tokens
            saved = np.diff(intervals) > 0
        saved[-1] = True
        return saved


_MAX_DIGITS = 19
_SAVE_POLICY_HELP = (
    "{!r} is not a save policy; allowed: state=last, state=every:4096, state=all, window=all, "
    "window=trailing:+2, or one of each joined by a comma"
)


def _parse_states(value: str, text: str) -> dict[str, Any]:
    name, _, interval = value.partition(":")
    if name == StateSave.EVERY.value and interval:
        try:
            tokens = parse_tokens(interval)
        except UnitError as error:
            raise InputError(_SAVE_POLICY_HELP.format(text)) from error
        if tokens < 1:
            raise InputError(f"the interval of --save-policy {text!r} must be at least one token")
        return {"states": StateSave.EVERY, "state_interval_tokens": tokens}
    if value in (StateSave.LAST.value, StateSave.ALL.value):
        return {"states": StateSave(value)}
    raise InputError(_SAVE_POLICY_HELP.format(text))


def _parse_windows(value: str, text: str) -> dict[str, Any]:
    if value == "all":
        return {"window_extra_pages": None}
    name, _, extra = value.partition(":+")
    if name == "trailing" and extra.isascii() and extra.isdecimal() and len(extra) < _MAX_DIGITS:
        return {"window_extra_pages": int(extra)}
    raise InputError(_SAVE_POLICY_HELP.format(text))
