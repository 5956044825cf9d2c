"""What a model is: the attention of each layer, its dimensions, the dtypes it is deployed with.

Nothing here knows how an engine groups layers into pools; that is ``engine_profile``. The classes are plain
dataclasses, and also the schema that presets are validated against: ``__pydantic_config__`` is read by the
loader alone, so that this package needs no pydantic.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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
class BlockIndex:
    """One index key a token, by which each query chooses ``top_k`` blocks of K and V."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["block_index"] = "block_index"
    index_head_dim: int
    block_tokens: int
    top_k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTensor:
    """One more tensor that a layer's recurrent state owns; ``shape`` is that of one rank, on any TP size."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """Recurrent state of a Mamba-1 layer: ``state_dim`` values for each of ``inner_dim`` channels."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["mamba1"] = "mamba1"
    inner_dim: int
    state_dim: int
    conv_kernel: int
    extra: tuple[StateTensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """Recurrent state of a Mamba-2 (SSD) layer."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["mamba2"] = "mamba2"
    heads: int
    head_dim: int
    state_dim: int
    groups: int
    conv_kernel: int
    extra: tuple[StateTensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lightning:
    """Recurrent state of a lightning (linear) attention layer; it has no convolution."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["lightning"] = "lightning"
    heads: int
    head_dim: int
    extra: tuple[StateTensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConv:
    """State of a short convolution layer (LFM2): the last ``conv_kernel - 1`` inputs, and nothing else."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["short_conv"] = "short_conv"
    channels: int
    conv_kernel: int
    extra: tuple[StateTensor, ...] = ()


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
    extra: tuple[StateTensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDelta:
    """Recurrent state of a Kimi delta attention layer (KDA)."""

    __pydantic_config__: ClassVar[Any] = _FORBID_UNKNOWN_FIELDS
    attention: Literal["kda"] = "kda"
    heads: int
    head_dim: int
    conv_kernel: int
    extra: tuple[StateTensor, ...] = ()


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
RecurrentAttention = GatedDelta | KimiDelta | Mamba1 | Mamba2 | Lightning | ShortConv
Attention = (
    HeadedAttention
    | RecurrentAttention
    | MlaAttention
    | SparseIndex
    | BlockIndex
    | LatentWindow
    | CompressedAttention
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as its ``config.json`` describes it, with the dtypes and page size it is deployed with.

    ``layers[i]`` names the attentions of layer ``i`` (a layer may cache several things, or nothing);
    ``draft_layers`` are those of a draft or MTP head, which are counted apart: they only make decoding fast.
    ``shared_layers`` are the last layers, if they cache nothing and read what earlier ones cached (Gemma-3n,
    Gemma-4: ``num_kv_shared_layers``): the attentions that each of them reads.
    ``page_tokens`` is the page size that people deploy with, ``engine_default_page_tokens`` what the engine
    takes when it is not told. ``logical_anchor`` marks a model whose allocation indices belong to no buffer.
    ``served_by`` lists the engine profiles that can serve it; empty for a synthetic model.

    Raises:
        ConfigError: a layer that names an unknown attention, an attention that no layer uses, a dimension
            below 1, a shared layer that caches something or reads what no layer caches.
    """

    name: str
    architecture: str
    attentions: Mapping[str, Attention]
    layers: tuple[tuple[str, ...], ...]
    page_tokens: int
    engine_default_page_tokens: int
    draft_layers: tuple[tuple[str, ...], ...] = ()
    shared_layers: tuple[tuple[str, ...], ...] = ()
    revision: str | None = None
    kv_dtype: str = "bf16"
    state_dtype: str = "fp32"
    conv_dtype: str = "bf16"
    index_dtype: str = "fp8"
    logical_anchor: bool = False
    served_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problems = [
            f"{place} {index} names {name!r}, which is not among the attentions "
            f"({', '.join(self.attentions)})"
            for place, layers in (
                ("layer", self.layers),
                ("draft layer", self.draft_layers),
                ("shared layer", self.shared_layers),
            )
            for index, names in enumerate(layers)
            for name in names
            if name not in self.attentions
        ]
        used = {name for names in (*self.layers, *self.draft_layers) for name in names}
        problems += [f"no layer uses attention {name!r}" for name in self.attentions if name not in used]
        problems += self._sharing_problems()
        problems += [
            f"{name}.{field} is {value}, and must be at least 1"
            for name, attention in self.attentions.items()
            for field, value in _dimensions(asdict(attention))
            if value < 1
        ]
        problems += [
            f"{field} is {getattr(self, field)}, and must be at least 1"
            for field in ("page_tokens", "engine_default_page_tokens")
            if getattr(self, field) < 1
        ]
        if problems:
            raise ConfigError(f"model {self.name!r}: " + "; ".join(problems))

    def _sharing_problems(self) -> Iterator[str]:
        own = len(self.layers) - len(self.shared_layers)
        if own < 0:
            yield f"{len(self.shared_layers)} shared layers are the last of {len(self.layers)}"
            return
        cached = {name for names in self.layers for name in names}
        for index, names in enumerate(self.shared_layers):
            if self.layers[own + index]:
                yield f"layer {own + index} is a shared one and caches {' + '.join(self.layers[own + index])}"
            yield from (
                f"shared layer {index} reads {name!r}, which no layer caches"
                for name in names
                if name in self.attentions and name not in cached
            )

    @property
    def layer_counts(self) -> Mapping[str, int]:
        """How many layers use each attention, by its name; draft layers apart."""
        return count_layers(self.layers)

    @property
    def allocated_layers(self) -> tuple[tuple[str, ...], ...]:
        """``layers`` as an engine allocates them that gives shared layers KV of their own."""
        return (*self.layers[: len(self.layers) - len(self.shared_layers)], *self.shared_layers)

    @property
    def digest(self) -> str:
        """sha256 of the canonical description, hex; the order in which fields were written does not enter.

        Nor does who serves the model; nor do its draft layers: where they add bytes to an object, its
        geometry, and with it the default key, differs. Shared layers enter where there are any, so that
        digests of models without them stay what they were.
        """
        identity = {
            name: value
            for name, value in asdict(self).items()
            if name not in ("served_by", "engine_default_page_tokens", "draft_layers")
            and (name != "shared_layers" or value)
        }
        canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def count_layers(layers: Iterable[tuple[str, ...]]) -> Mapping[str, int]:
    """How many of ``layers`` name each attention."""
    return Counter(name for names in layers for name in names)


def _dimensions(fields: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Every integer of an attention, those of its extra tensors included."""
    for name, value in fields.items():
        if isinstance(value, int):
            yield name, value
        for tensor in value if name == "extra" else ():
            yield from ((f"{name}.{tensor['name']}", length) for length in tensor["shape"])
