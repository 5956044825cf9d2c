"""A deployment of GPUs: how fast it computes a prefill, and how fast host memory reaches a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hicache_bench.errors import ConfigError
from hicache_bench.links.constant import Constant, Edge


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFit:
    """``T(n|p) = c0 + c1·(n-p) + c2·(n²-p²)`` of one model on ``gpus`` GPUs, batch 1, unchunked.

    ``c0`` in seconds, ``c1`` in seconds per token, ``c2`` in seconds per token². ``max_error`` is the largest
    relative error at the ``num_rows`` lengths that were fitted; None where the fit passes through all of
    them, so that nothing is left to judge it by.

    Raises:
        ConfigError: a negative coefficient, or one that no time follows from.
    """

    model: str
    gpus: int
    parallel: str
    c0: float
    c1: float
    c2: float
    num_rows: int
    min_tokens: int
    max_tokens: int
    max_error: float | None
    source: str

    def __post_init__(self) -> None:
        coefficients = (self.c0, self.c1, self.c2)
        if not all(0 <= value < float("inf") for value in coefficients) or not self.c1 + self.c2 > 0:
            raise ConfigError(
                f"prefill fit of {self.model!r}: c0, c1, c2 are {self.c0:g}, {self.c1:g}, {self.c2:g}; "
                "allowed: finite numbers of at least 0, c1 and c2 not both 0"
            )
        if self.gpus < 1:
            raise ConfigError(f"prefill fit of {self.model!r}: {self.gpus} GPUs; allowed: at least 1")

    def outside(self, tokens: int) -> str | None:
        """Say so where ``tokens`` is a length that the fit has not seen; else None."""
        if self.min_tokens <= tokens <= self.max_tokens:
            return None
        return (
            f"the prefill fit saw {self.min_tokens:,} to {self.max_tokens:,} tokens, and {tokens:,} lie "
            "outside of it"
        )

    @property
    def constant(self) -> Constant:
        """The fit as a line among other constants."""
        error = "no error known" if self.max_error is None else f"max error {self.max_error:.1%}"
        return Constant(
            name=f"prefill of {self.model}, slope c1",
            value=self.c1,
            unit="s/token",
            source=f"{self.source}; {self.parallel}; {self.num_rows} lengths from {self.min_tokens:,} to "
            f"{self.max_tokens:,} tokens, {error}; c0 {self.c0:g} s, c2 {self.c2:g} s/token²",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A node of ``gpus`` equal GPUs.

    ``flops`` are dense bf16 operations per second of one GPU at its peak, ``mfu`` the part of them that a
    prefill reaches, ``h2d`` bytes per second from host memory to one GPU, ``h2d_node`` the most that all GPUs
    of the node reach together. ``prefill`` has fitted models by preset name; ``prefill_scale`` 1 with the
    band in which their times may lie.
    """

    name: str
    summary: str
    gpus: int
    flops: Constant
    mfu: Constant
    h2d: Constant
    h2d_node: Constant
    prefill_scale: Constant
    prefill: Mapping[str, PrefillFit]

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ConfigError(f"system {self.name!r} has {self.gpus} GPUs; allowed: at least 1")
        for constant in (self.flops, self.mfu, self.h2d, self.h2d_node, self.prefill_scale):
            if not constant.band[0] > 0:
                raise ConfigError(f"system {self.name!r}: {constant.name} must be above zero")

    def h2d_seconds(self, rank_bytes: int, node_bytes: int) -> float:
        """Seconds from host memory to the GPUs: a rank's own path, or the node's, whichever is slower."""
        return max(rank_bytes / self.h2d.value, node_bytes / self.h2d_node.value)

    def at_edge(self, edge: Edge) -> System:
        """The system with every constant at one end of its band."""
        return replace(
            self,
            mfu=self.mfu.at_edge(edge, more_is_quick=True),
            h2d=self.h2d.at_edge(edge, more_is_quick=True),
            h2d_node=self.h2d_node.at_edge(edge, more_is_quick=True),
            prefill_scale=self.prefill_scale.at_edge(edge, more_is_quick=False),
        )
