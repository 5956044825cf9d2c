"""What files of links, systems and compute dimensions may say. Pydantic stops here."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from hicache_bench.config.schema import PresetName, SchemaVersion, Text
from hicache_bench.links.constant import Constant
from hicache_bench.links.link import Link, RatePoint
from hicache_bench.links.system import PrefillFit, System
from hicache_bench.models.compute import ComputeDims
from hicache_bench.units import format_size

_File = TypeVar("_File", bound="DeploymentFile")

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1 << 40)]


class _Strict(BaseModel):
    # Strict apart from whole numbers, which are numbers too.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class DeploymentFile(_Strict):
    """A file with its version. ``what`` names the kind in messages."""

    what: ClassVar[str]

    schema_version: SchemaVersion = Field(alias="schema", description="version of the file format: 1")

    @classmethod
    def from_plain(cls: type[_File], data: Any) -> _File:
        """Validate lists, maps and scalars as a file gives them.

        Raises:
            ValidationError: pydantic's own; ``config.deployments`` turns it into one for users.
        """
        return cls.model_validate_json(json.dumps(data, allow_nan=False), strict=True)


class Cited(_Strict):
    """A number with its source, and its band where it is an estimate."""

    value: NotNegative = Field(description="the number")
    low: NotNegative | None = Field(default=None, description="lowest value that is as good")
    high: NotNegative | None = Field(default=None, description="highest value that is as good")
    source: Text = Field(description="where it comes from")

    @model_validator(mode="after")
    def _is_in_its_band(self) -> Cited:
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        if not low <= self.value <= high:
            raise PydanticCustomError(
                "not_allowed",
                "{allowed}",
                {"allowed": f"low {low:g} <= value {self.value:g} <= high {high:g}"},
            )
        return self

    def constant(self, name: str, unit: str) -> Constant:
        """The number for the cost model."""
        return Constant(
            name=name, value=self.value, unit=unit, source=self.source, low=self.low, high=self.high
        )


class CitedRate(Cited):
    """Bandwidth at an object size."""

    object_bytes: Count = Field(description="bytes of one object")


class LinkFile(DeploymentFile):
    """A link, as its file describes it."""

    what: ClassVar[str] = "link"

    name: PresetName = Field(description="name of the link")
    aliases: tuple[PresetName, ...] = Field(default=(), description="other names that find it")
    summary: Text = Field(description="what the path is, in one line")
    line_rate: Cited = Field(description="bytes per second that a node's hardware can carry")
    bandwidth: tuple[CitedRate, ...] = Field(
        min_length=1, description="bytes per second of a node by object size, a list"
    )
    op_seconds: Cited = Field(description="seconds of a store call, whatever it moves")
    lookup_call_seconds: Cited = Field(description="seconds of an existence query")
    lookup_key_seconds: Cited = Field(description="seconds of each key in it")

    def link(self) -> Link:
        """The link without the prose.

        Raises:
            ConfigError: numbers that contradict each other.
        """
        return Link(
            name=self.name,
            summary=self.summary,
            line_rate=self.line_rate.constant("line rate", "B/s"),
            points=tuple(
                RatePoint(
                    object_bytes=point.object_bytes,
                    rate=point.constant(f"at objects of {format_size(point.object_bytes)}", "B/s"),
                )
                for point in self.bandwidth
            ),
            op=self.op_seconds.constant("store call", "s"),
            lookup_call=self.lookup_call_seconds.constant("existence query", "s"),
            lookup_key=self.lookup_key_seconds.constant("existence query, a key", "s"),
        )


class FitFile(_Strict):
    """A fitted prefill of one model."""

    gpus: Count = Field(description="GPUs that it ran on")
    parallel: Text = Field(description="how they were used")
    c0_seconds: NotNegative = Field(description="seconds whatever the length")
    c1_seconds_per_token: NotNegative = Field(description="seconds per token")
    c2_seconds_per_token2: NotNegative = Field(description="seconds per token squared")
    rows: Count = Field(description="lengths that were fitted")
    min_tokens: Count = Field(description="shortest of them")
    max_tokens: Count = Field(description="longest of them")
    max_error: NotNegative | None = Field(description="largest relative error at them; null if none is left")
    source: Text = Field(description="where the times come from")

    def fit(self, model: str) -> PrefillFit:
        """The fit without the units in its names.

        Raises:
            ConfigError: coefficients that no time follows from.
        """
        return PrefillFit(
            model=model,
            gpus=self.gpus,
            parallel=self.parallel,
            c0=self.c0_seconds,
            c1=self.c1_seconds_per_token,
            c2=self.c2_seconds_per_token2,
            num_rows=self.rows,
            min_tokens=self.min_tokens,
            max_tokens=self.max_tokens,
            max_error=self.max_error,
            source=self.source,
        )


class SystemFile(DeploymentFile):
    """A system, as its file describes it."""

    what: ClassVar[str] = "system"

    name: PresetName = Field(description="name of the system")
    aliases: tuple[PresetName, ...] = Field(default=(), description="other names that find it")
    summary: Text = Field(description="what the node is, in one line")
    gpus: Count = Field(description="GPUs of a node")
    flops: Cited = Field(description="dense bf16 operations per second of one GPU")
    mfu: Cited = Field(description="part of them that a prefill reaches")
    h2d_gpu: Cited = Field(description="bytes per second from host memory to one GPU")
    h2d_node: Cited = Field(description="bytes per second from host memory to all GPUs of a node")
    prefill_scale: Cited = Field(description="1, and the band of the prefill times around their fit")
    prefill: dict[PresetName, FitFile] = Field(default={}, description="fitted prefills by preset name")

    def system(self) -> System:
        """The system without the prose.

        Raises:
            ConfigError: numbers that contradict each other.
        """
        return System(
            name=self.name,
            summary=self.summary,
            gpus=self.gpus,
            flops=self.flops.constant("peak of a GPU, bf16", "FLOP/s"),
            mfu=self.mfu.constant("part of the peak in prefill (MFU)", ""),
            h2d=self.h2d_gpu.constant("host to one GPU", "B/s"),
            h2d_node=self.h2d_node.constant("host to all GPUs of a node", "B/s"),
            prefill_scale=self.prefill_scale.constant("prefill time over its fit", ""),
            prefill={name: fit.fit(name) for name, fit in self.prefill.items()},
        )


class ComputeEntry(_Strict):
    """What a count of FLOPs needs of one model."""

    hidden_size: Count = Field(description="width of the model")
    active_parameters: Positive | None = Field(
        default=None, description="parameters that work on one token; if not given, 11 x layers x hidden²"
    )
    source: Text = Field(description="where they come from")

    def dims(self) -> ComputeDims:
        """The dimensions for the cost model."""
        return ComputeDims(
            hidden_size=self.hidden_size, active_parameters=self.active_parameters, source=self.source
        )


class ComputeFile(DeploymentFile):
    """Compute dimensions of models, by preset name."""

    what: ClassVar[str] = "compute table"

    models: dict[PresetName, ComputeEntry] = Field(description="dimensions by preset name")
