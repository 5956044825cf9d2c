"""Seconds of a prefill: from a fit where a system has one of the model, else from a count of FLOPs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hicache_bench.cost.flops import FlopsModel, flops_model
from hicache_bench.errors import ConfigError
from hicache_bench.links.constant import Constant
from hicache_bench.links.system import PrefillFit, System
from hicache_bench.models.compute import ComputeDims
from hicache_bench.models.spec import ModelSpec


class Compute(Protocol):
    """How long the tokens of a prompt behind a prefix take on ``gpus`` GPUs, batch 1, in one piece.

    ``note`` says in a few words what the figure rests on, ``constants`` have the numbers.
    """

    @property
    def gpus(self) -> int: ...

    @property
    def note(self) -> str: ...

    @property
    def constants(self) -> tuple[Constant, ...]: ...

    def seconds(self, tokens: int, prefix_tokens: int = 0) -> float:
        """Seconds of the tokens from ``prefix_tokens`` to ``tokens``."""


def _gpus(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedPrefill:
    """``T(n|p) = c0 + c1·(n-p) + c2·(n²-p²)``; other than the fit's own GPUs are taken to scale evenly."""

    fit: PrefillFit
    scale: Constant
    gpus: int

    @property
    def note(self) -> str:
        fit = self.fit
        error = "error unknown" if fit.max_error is None else f"max error {fit.max_error:.1%}"
        note = f"fit of {fit.num_rows} lengths on {_gpus(fit.gpus)}, {error}"
        return note if fit.gpus == self.gpus else f"{note}; taken to scale evenly to {_gpus(self.gpus)}"

    @property
    def constants(self) -> tuple[Constant, ...]:
        return (self.fit.constant, self.scale)

    def seconds(self, tokens: int, prefix_tokens: int = 0) -> float:
        fit = self.fit
        work = fit.c1 * (tokens - prefix_tokens) + fit.c2 * (tokens**2 - prefix_tokens**2)
        return self.scale.value * (fit.c0 + work * fit.gpus / self.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPrefill:
    """FLOPs over what ``gpus`` GPUs reach of their peak; nothing is paid whatever the length."""

    flops: FlopsModel
    peak: Constant
    mfu: Constant
    dims: ComputeDims
    gpus: int

    @property
    def note(self) -> str:
        return f"FLOPs at {self.mfu.value:.0%} of the peak of {_gpus(self.gpus)}: no fit of this model"

    @property
    def constants(self) -> tuple[Constant, ...]:
        linear = Constant(
            name="FLOPs of a token outside attention",
            value=self.flops.linear,
            unit="FLOP",
            source=f"{self.dims.source}; attention by FAST'25 eq. 1, width {self.flops.hidden_size:,}",
        )
        return (linear, self.peak, self.mfu)

    def seconds(self, tokens: int, prefix_tokens: int = 0) -> float:
        return self.flops.flops(tokens, prefix_tokens) / (self.peak.value * self.mfu.value * self.gpus)


def compute_model(
    system: System, spec: ModelSpec, dims: ComputeDims | None, *, gpus: int
) -> FittedPrefill | CountedPrefill:
    """How ``system`` computes a model on ``gpus`` GPUs.

    Raises:
        ConfigError: neither a fit nor the dimensions for a count.
    """
    fit = system.prefill.get(spec.name)
    if fit is not None:
        return FittedPrefill(fit=fit, scale=system.prefill_scale, gpus=gpus)
    if dims is None:
        raise ConfigError(
            f"system {system.name!r} has no fitted prefill of model {spec.name!r}, and its width for a count "
            "of FLOPs is not known; give --hidden-size, and --active-parameters for a mixture of experts"
        )
    return CountedPrefill(
        flops=flops_model(spec, dims), peak=system.flops, mfu=system.mfu, dims=dims, gpus=gpus
    )
