"""What a preset file may say. Pydantic stops here: past :attr:`ModelPreset.spec` there are plain dataclasses.

The dimensions of an attention are defined once, by the dataclasses of ``models.spec``; this module adds what
only a file has: where the numbers come from, names to find it by, and a short way to write layers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Final, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from hicache_bench.models.engine_profile import BY_KIND, PROFILES
from hicache_bench.models.spec import Attention, ModelSpec
from hicache_bench.pools.geometry import DTYPE_BYTES, INDEX_DTYPES, KV_DTYPES

MAX_LAYERS = 10_000
"""Layers of one model, checked before ``repeat`` is expanded."""

MAX_DIMENSION = 1 << 24
"""Heads, dims, windows, page sizes; a larger one is a slip, and would overflow what is computed from it."""

NO_ATTENTION = "none"
"""How a layer that caches nothing is written."""

LAYER_FIELDS = ("layers", "draft_layers", "shared_layers")
"""Fields of a preset that list layers."""

LAYER_FORMS = f"attention names joined by '+', {NO_ATTENTION!r}, or a map of 'repeat' and 'of'"

_GROUP_TAG: Final = "<group>"
_NAMES_TAG: Final = "<names>"

ATTENTION_TYPES: Mapping[str, type] = MappingProxyType(
    {get_args(get_type_hints(kind)["attention"])[0]: kind for kind in get_args(Attention)}
)
"""Attention dataclasses by the word that a file writes."""


@dataclass(frozen=True, slots=True)
class _OneOf:
    """One of some values."""

    allowed: tuple[object, ...]

    def __call__(self, value: object) -> object:
        if value not in self.allowed:
            context = {"allowed": ", ".join(map(str, self.allowed))}
            raise PydanticCustomError("not_allowed", "{allowed}", context)
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "enum": list(self.allowed)}


@dataclass(frozen=True, slots=True)
class _Matching:
    """Text that matches as a whole. The pattern must mean the same in Python and in JSON Schema."""

    pattern: str
    allowed: str

    def __call__(self, value: str) -> str:
        if not re.fullmatch(self.pattern, value):
            raise PydanticCustomError("not_allowed", "{allowed}", {"allowed": self.allowed})
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "pattern": f"^(?:{self.pattern})$"}


PresetName = Annotated[
    str, _Matching(r"[a-z0-9][a-z0-9._-]{0,63}", "lower-case letters, digits and . _ - (at most 64)")
]
AttentionName = Annotated[
    str,
    _Matching(
        rf"(?!{NO_ATTENTION}$)[A-Za-z_][A-Za-z0-9_-]{{0,31}}",
        f"letters, digits, _ and - (at most 32), and not {NO_ATTENTION!r}",
    ),
]
# A terminal obeys control characters; tabs and line feeds come of a folded or literal block.
Text = Annotated[
    str,
    _Matching(
        r"(?=[\s\S]*\S)[^\x00-\x08\x0b-\x1f\x7f-\x9f]*",
        "text that is not blank, without control characters",
    ),
]
Profile = Annotated[str, _OneOf(tuple(PROFILES))]
Engine = Annotated[str, _OneOf(tuple(profile for profile in PROFILES if profile != BY_KIND))]
ElementType = Annotated[str, _OneOf(tuple(DTYPE_BYTES))]
KVType = Annotated[str, _OneOf(KV_DTYPES)]
IndexType = Annotated[str, _OneOf(INDEX_DTYPES)]
# Not Literal[1], which takes true for 1.
SchemaVersion = Annotated[int, _OneOf((1,))]
PageTokens = Annotated[int, Field(ge=1, le=MAX_DIMENSION)]


def parse_layer(value: object) -> tuple[str, ...]:
    """Attention names of one layer: ``window + c4`` caches two things, ``none`` nothing.

    Raises:
        PydanticCustomError: not such a text, or one attention twice.
    """
    if isinstance(value, str) and value.strip() == NO_ATTENTION:
        return ()
    names = tuple(name.strip() for name in value.split("+")) if isinstance(value, str) else ()
    if not all(names) or not names:
        raise PydanticCustomError("not_allowed", "{allowed}", {"allowed": LAYER_FORMS})
    if len(set(names)) != len(names):
        raise PydanticCustomError("not_allowed", "{allowed}", {"allowed": "each attention once in a layer"})
    return names


def _layer_kind(value: object) -> str:
    return _GROUP_TAG if isinstance(value, (dict, LayerGroup)) else _NAMES_TAG


class _Strict(BaseModel):
    # Validators are built on first use: only the outermost model needs one, and --help needs none.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class LayerGroup(_Strict):
    """Layers that come several times in a row."""

    repeat: int = Field(
        ge=1, le=MAX_LAYERS, description="how often the layers of 'of' come, one after another"
    )
    of: tuple[LayerEntry, ...] = Field(min_length=1, description="the layers to repeat, a list")


LayerEntry = Annotated[
    Annotated[tuple[str, ...], BeforeValidator(parse_layer), Tag(_NAMES_TAG)]
    | Annotated[LayerGroup, Tag(_GROUP_TAG)],
    Discriminator(_layer_kind),
]


def _count_layers(entries: tuple[LayerEntry, ...]) -> int:
    return sum(
        entry.repeat * _count_layers(entry.of) if isinstance(entry, LayerGroup) else 1 for entry in entries
    )


def _expand_layers(entries: tuple[LayerEntry, ...]) -> Iterator[tuple[str, ...]]:
    for entry in entries:
        if isinstance(entry, LayerGroup):
            yield from tuple(_expand_layers(entry.of)) * entry.repeat
        else:
            yield entry


def _check_layer_count(entries: tuple[LayerEntry, ...]) -> tuple[LayerEntry, ...]:
    num_layers = _count_layers(entries)
    if num_layers > MAX_LAYERS:
        context = {"allowed": f"at most {MAX_LAYERS:,} layers, and these expand to {num_layers:,}"}
        raise PydanticCustomError("not_allowed", "{allowed}", context)
    return entries


def _check_dimensions(dims: Any, validate: ValidatorFunctionWrapHandler) -> Attention:
    """Bound every dimension, and tell what is out of bounds together with what is no number at all.

    The dataclasses check the lower bound too, but cannot name the line.
    """
    errors = [
        _out_of_bounds(name, value)
        for name, value in _known_dimensions(dims)
        if type(value) is int and not 1 <= value <= MAX_DIMENSION
    ]
    try:
        attention: Attention = validate(_with_tuples(dims))
    except ValidationError as error:
        errors += [
            {
                "type": PydanticCustomError(other["type"], other["msg"], other.get("ctx")),
                "loc": other["loc"],
                "input": other["input"],
            }
            for other in error.errors(include_url=False)
        ]
    else:
        if not errors:
            return attention
    raise ValidationError.from_exception_data("attention", errors)


def _with_tuples(value: Any) -> Any:
    """Lists as tuples: a wrapped validator no longer sees JSON, where a list may be one."""
    if isinstance(value, dict):
        return {name: _with_tuples(item) for name, item in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _known_dimensions(dims: Any) -> Iterator[tuple[str, Any]]:
    word = dims.get("attention") if isinstance(dims, dict) else None
    if isinstance(word, str) and word in ATTENTION_TYPES:
        for field in fields(ATTENTION_TYPES[word]):
            yield field.name, dims.get(field.name)


def _out_of_bounds(name: str, value: int) -> InitErrorDetails:
    if value < 1:
        return {"type": "greater_than_equal", "loc": (name,), "input": value, "ctx": {"ge": 1}}
    return {"type": "less_than_equal", "loc": (name,), "input": value, "ctx": {"le": MAX_DIMENSION}}


class SourcedAttention(_Strict):
    """The dimensions of an attention, and where they come from."""

    dims: Annotated[Attention, Field(discriminator="attention"), WrapValidator(_check_dimensions)]
    source: Text = Field(description="where the dimensions come from, and whether that was verified")

    @model_validator(mode="before")
    @classmethod
    def _set_dims_apart(cls, entry: Any) -> Any:
        """A file writes dimensions and source side by side; only the dimensions are the model's identity."""
        if not isinstance(entry, dict):
            return entry
        dims = dict(entry)
        sourced = {"source": dims.pop("source")} if "source" in dims else {}
        return {**sourced, "dims": dims}


class ModelPreset(_Strict):
    """A model preset, as its file describes it."""

    schema_version: SchemaVersion = Field(alias="schema", description="version of the file format: 1")
    name: PresetName = Field(description="name of the preset")
    aliases: tuple[PresetName, ...] = Field(default=(), description="other names that find the preset")
    summary: Text = Field(description="what the model is, in one line")
    architecture: Text = Field(description="class name that config.json gives in 'architectures'")
    revision: Text | None = Field(default=None, description="revision of the checkpoint")
    served_by: tuple[Engine, ...] = Field(description="engines that serve the model; [] if it is synthetic")
    chosen_profile: Profile | None = Field(
        default=None, alias="profile", description="how layers become pools; default: the first engine's way"
    )
    page_tokens: PageTokens = Field(description="page size that people deploy with, in tokens")
    engine_default_page_tokens: PageTokens = Field(description="page size that the engine takes if not told")
    kv_dtype: KVType = Field(default="bf16", description="element type of keys, values and latents")
    state_dtype: ElementType = Field(default="fp32", description="element type of recurrent states")
    conv_dtype: ElementType = Field(default="bf16", description="element type of convolution states")
    index_dtype: IndexType = Field(default="fp8", description="element type of index keys")
    logical_anchor: bool = Field(default=False, description="whether no buffer owns the allocation indices")
    attentions: dict[AttentionName, SourcedAttention] = Field(
        min_length=1, description="what layers cache, by a name of your choice"
    )
    layers: Annotated[tuple[LayerEntry, ...], AfterValidator(_check_layer_count)] = Field(
        min_length=1, description="the layers in order, a list"
    )
    draft_layers: Annotated[tuple[LayerEntry, ...], AfterValidator(_check_layer_count)] = Field(
        default=(), description="layers of the draft (MTP) head, counted apart"
    )
    shared_layers: Annotated[tuple[LayerEntry, ...], AfterValidator(_check_layer_count)] = Field(
        default=(),
        description="what the last layers read of earlier ones and do not cache; 'layers' has 'none' there",
    )

    @classmethod
    def from_plain(cls, data: Any) -> ModelPreset:
        """Validate lists, maps and scalars as a file gives them.

        They pass as JSON: this alone is a mode in which lists are tuples and maps are dataclasses, but "8" is
        not 8 and true is not 1.

        Raises:
            ValidationError: pydantic's own; ``config.load`` turns it into one for users.
        """
        return cls.model_validate_json(json.dumps(data, allow_nan=False), strict=True)

    @property
    def profile(self) -> str:
        """Engine profile that groups the layers: the file's own, the first engine's, or ``by_kind``."""
        return self.chosen_profile or next(iter(self.served_by), BY_KIND)

    @property
    def sources(self) -> Mapping[str, str]:
        """Where the dimensions of each attention come from."""
        return {name: attention.source for name, attention in self.attentions.items()}

    @cached_property
    def spec(self) -> ModelSpec:
        """The model, without the prose.

        Raises:
            ConfigError: layers and attentions that do not fit together.
        """
        return ModelSpec(
            name=self.name,
            architecture=self.architecture,
            attentions={name: attention.dims for name, attention in self.attentions.items()},
            layers=tuple(_expand_layers(self.layers)),
            draft_layers=tuple(_expand_layers(self.draft_layers)),
            shared_layers=tuple(_expand_layers(self.shared_layers)),
            page_tokens=self.page_tokens,
            engine_default_page_tokens=self.engine_default_page_tokens,
            revision=self.revision,
            kv_dtype=self.kv_dtype,
            state_dtype=self.state_dtype,
            conv_dtype=self.conv_dtype,
            index_dtype=self.index_dtype,
            logical_anchor=self.logical_anchor,
            served_by=self.served_by,
        )
