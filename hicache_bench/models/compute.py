"""What a model computes for a token, as far as its layers do not say: needed only for a count of FLOPs."""

from __future__ import annotations

from dataclasses import dataclass

from hicache_bench.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeDims:
    """Width of a model, and its parameters that work on one token.

    ``active_parameters`` None leaves them to the closed form of a dense transformer, 11·layers·hidden².

    Raises:
        ConfigError: numbers below 1.
    """

    hidden_size: int
    active_parameters: float | None
    source: str

    def __post_init__(self) -> None:
        if self.hidden_size < 1:
            raise ConfigError(f"a hidden size of {self.hidden_size} is not possible; allowed: at least 1")
        if self.active_parameters is not None and not 1 <= self.active_parameters < float("inf"):
            raise ConfigError(
                f"{self.active_parameters:g} active parameters are not possible; allowed: at least 1"
            )
