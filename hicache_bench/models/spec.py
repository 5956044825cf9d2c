"""What a model is: the attention of each layer, its dimensions, the dtypes it is deployed with.

Nothing here knows how an engine groups layers into pools; that is ``engine_profile``. The classes are plain
dataclasses, and also the schema that presets are validated against: ``__pydantic_config__`` is read by the
loader alone, so that this package needs no pydantic.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from hicache_bench.errors import ConfigError

_FORBID_UNKNOWN_FIELDS: dict[str, Any] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttention:
    """Every token's K and V; ``v_head_dim`` defaults to ``head_dim``."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["full"] = "full"
    kv_heads: int
    head_dim: int
    v_head_dim: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow:
    """K and V of the last ``window`` tokens, the query's own included (as ``config.json`` counts it)."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["swa"] = "swa"
    kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedAttention:
    """K and V since the last multiple of ``chunk``: keys of an earlier chunk are dead."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["chunked"] = "chunked"
    kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    chunk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaAttention:
    """The multi-head latent of every token: one row for K and V together."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["mla"] = "mla"
    kv_lora_rank: int
    qk_rope_head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseIndex:
    """Index keys that choose, for each query, the ``top_k`` tokens of the layer's main attention."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["sparse_index"] = "sparse_index"
    index_head_dim: int
    top_k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta:
    """Recurrent state of a gated delta rule layer (GDN)."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["gdn"] = "gdn"
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDelta:
    """Recurrent state of a Kimi delta attention layer (KDA)."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["kda"] = "kda"
    heads: int
    head_dim: int
    conv_kernel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentWindow:
    """DeepSeek V4's sliding window: one latent row of ``nope_dim`` fp8 and ``rope_dim`` bf16 a token."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["latent_window"] = "latent_window"
    nope_dim: int
    rope_dim: int
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """One latent row for every ``ratio`` tokens (DeepSeek V4).

    With an index (``index_head_dim``, ``index_top_k``) the queries choose among the compressed rows, and both
    the rows and the index keys are pooled over overlapping groups, whose running state is cached too.
    """

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["compressed"] = "compressed"
    ratio: int
    nope_dim: int
    rope_dim: int
    index_head_dim: int | None = None
    index_top_k: int | None = None

    @property
    def latent_dim(self) -> int:
        """Dimensions of one compressed row."""
        return self.nope_dim + self.rope_dim


HeadedAttention = FullAttention | SlidingWindow | ChunkedAttention
RecurrentAttention = GatedDelta | KimiDelta
Attention = (
    HeadedAttention | RecurrentAttention | MlaAttention | SparseIndex | LatentWindow | CompressedAttention
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as its ``config.json`` describes it, with the dtypes and page size it is deployed with.

    ``layers[i]`` names the attentions of layer ``i`` (a layer may cache several things, or nothing).
    ``page_tokens`` is the page size that people deploy with, ``engine_default_page_tokens`` what the engine
    takes when it is not told. ``logical_anchor`` marks a model whose allocation indices belong to no buffer.
    ``served_by`` lists the engine profiles that can serve it; empty for a synthetic model.

    Raises:
        ConfigError: a layer that names an unknown attention, an attention that no layer uses, a dimension
            below 1.
    """

    name: str
    architecture: str
    attentions: Mapping[str, Attention]
    layers: tuple[tuple[str, ...], ...]
    page_tokens: int
    engine_default_page_tokens: int
    revision: str | None = None
    kv_dtype: str = "bf16"
    state_dtype: str = "fp32"
    conv_dtype: str = "bf16"
    index_dtype: str = "fp8"
    logical_anchor: bool = False
    served_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problems = [
            f"layer {index} names {name!r}, which is not among the attentions ({', '.join(self.attentions)})"
            for index, names in enumerate(self.layers)
            for name in names
            if name not in self.attentions
        ]
        used = set(self.layer_counts)
        problems += [f"no layer uses attention {name!r}" for name in self.attentions if name not in used]
        problems += [
            f"{name}.{field} is {value}, and must be at least 1"
            for name, attention in self.attentions.items()
            for field, value in asdict(attention).items()
            if isinstance(value, int) and value < 1
        ]
        problems += [
            f"{field} is {getattr(self, field)}, and must be at least 1"
            for field in ("page_tokens", "engine_default_page_tokens")
            if getattr(self, field) < 1
        ]
        if problems:
            raise ConfigError(f"model {self.name!r}: " + "; ".join(problems))

    @property
    def layer_counts(self) -> Mapping[str, int]:
        """How many layers use each attention, by its name."""
        return Counter(name for names in self.layers for name in names)

    @property
    def digest(self) -> str:
        """sha256 of the canonical description, hex; the order in which fields were written does not enter.

        Nor does what only says who serves the model: it must not make every stored prefix a miss.
        """
        identity = {
            name: value
            for name, value in asdict(self).items()
            if name not in ("served_by", "engine_default_page_tokens")
        }
        canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()
