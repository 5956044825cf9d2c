"""The attentions of a config and the layers that use them: layer kinds and dimensions put together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hicache_bench.errors import ConfigError
from hicache_bench.models.hf.compressed import CompressedPlan
from hicache_bench.models.hf.dims import Dimensions
from hicache_bench.models.hf.fields import MAX_LAYERS, Fields
from hicache_bench.models.hf.harmless import may_decide
from hicache_bench.models.hf.layers import Kind, Kinds, LayerPlan
from hicache_bench.models.spec import (
    Attention,
    GatedDelta,
    KimiDelta,
    Lightning,
    MlaAttention,
    ShortConv,
)

KIND_NAMES: Mapping[Kind, str] = {
    Kind.FULL: "full",
    Kind.WINDOW: "window",
    Kind.CHUNK: "chunk",
    Kind.LINEAR: "mamba",
    Kind.CONV: "conv",
    Kind.ROW_INDEX: "index",
    Kind.BLOCK_INDEX: "index",
}
CLASS_NAMES: Mapping[type, str] = {
    MlaAttention: "latent",
    GatedDelta: "delta",
    KimiDelta: "delta",
    Lightning: "linear",
    ShortConv: "conv",
}
"""Names of attentions whose class says more than the kind of the layer."""


@dataclass(frozen=True, slots=True)
class LayeredModel:
    """What the layers are, before dtypes and names; ``sources`` names the fields of each attention."""

    attentions: dict[str, Attention]
    layers: tuple[tuple[str, ...], ...]
    draft_layers: tuple[tuple[str, ...], ...]
    draft_count: int
    sources: dict[str, str]
    notes: list[str]
    shared_layers: tuple[tuple[str, ...], ...] = ()


def layered_model(fields: Fields, model_type: str | None) -> LayeredModel:
    """The layers of any config but one of DeepSeek V4.

    Raises:
        ConfigError: a layer pattern or a dimension that is absent, impossible or unknown.
    """
    plan = LayerPlan(fields, model_type)
    fields.per_layer = _per_layer_overrides(fields)
    dimensions = Dimensions(fields, model_type)
    own = len(plan.layers) - _shared(fields, plan.layers)
    kinds = [*plan.layers[:own], *[() for _ in plan.layers[own:]]]
    built: list[list[tuple[Kind, Attention]]] = []
    read: dict[tuple[Kind, Attention], str] = {}
    for layer, layer_kinds in enumerate(kinds):
        row: list[tuple[Kind, Attention]] = []
        for kind in layer_kinds:
            start = fields.mark()
            attention = dimensions.build(kind, layer)
            row.append((kind, attention))
            read.setdefault((kind, attention), fields.since(start))
        built.append(row)
    # A draft layer has the dimensions of the last layer of its kind; a shared one reads what that cached.
    draft = [[_last(built, kind) for kind in layer_kinds] for layer_kinds in plan.draft]
    shared = [[_last(built, kind) for kind in layer_kinds] for layer_kinds in plan.layers[own:]]
    draft_layers = [] if any(None in row for row in draft) else draft
    names = _named(read)
    notes = [*plan.notes, *dimensions.notes, *_mixed(names)]
    if sharing := sum(map(bool, shared)):
        notes.append(
            f"{sharing} layers share the KV of earlier ones and own none; SGLang 0.5.23 allocates them theirs"
        )
    return LayeredModel(
        attentions={found: attention for (_, attention), found in names.items()},
        layers=tuple(tuple(names[entry] for entry in row) for row in built),
        draft_layers=tuple(tuple(names[entry] for entry in row if entry is not None) for row in draft_layers),
        draft_count=plan.draft_count,
        sources={found: read[entry] for entry, found in names.items()},
        notes=notes,
        shared_layers=tuple(tuple(names[entry] for entry in row if entry is not None) for row in shared),
    )


def _last(built: list[list[tuple[Kind, Attention]]], kind: Kind) -> tuple[Kind, Attention] | None:
    return next((entry for row in reversed(built) for entry in row if entry[0] is kind), None)


def compressed_model(fields: Fields) -> LayeredModel:
    """The layers of a DeepSeek V4 config.

    Raises:
        ConfigError: a list of layers or a dimension that is absent, impossible or unknown.
    """
    plan = CompressedPlan(fields)
    return LayeredModel(plan.attentions, plan.layers, plan.draft_layers, plan.draft_count, plan.sources, [])


def _shared(fields: Fields, layers: list[Kinds]) -> int:
    """How many of the last layers own no KV: ``num_kv_shared_layers`` (Gemma-3n, Gemma-4)."""
    shared = fields.count("num_kv_shared_layers", MAX_LAYERS)
    if shared >= len(layers):
        raise fields.wrong("num_kv_shared_layers", shared, f"less than the {len(layers)} layers")
    if fields.switched_off("use_cla"):  # Hunyuan keeps the factor where layers share nothing
        fields.set_aside("use_cla", "cla_share_factor")
    own = len(layers) - shared
    producers = {kind for kinds in layers[:own] for kind in kinds}
    orphans = {kind for kinds in layers[own:] for kind in kinds} - producers
    if orphans:
        kind = min(kind.value for kind in orphans)
        raise ConfigError(
            f"{fields.path('num_kv_shared_layers')} is {shared}: the shared {kind} layers have no "
            "earlier layer of their kind to share with"
        )
    return shared


def _per_layer_overrides(fields: Fields) -> dict[int, Mapping[str, Any]]:
    """``per_layer_config`` of transformers: fields that one layer has otherwise."""
    block = fields.block("per_layer_config")
    overrides: dict[int, Mapping[str, Any]] = {}
    for key in () if block is None else block.names():
        assert block is not None
        layer = int(key) if re.fullmatch(r"[0-9]{1,5}", key) else fields.num_layers
        if layer >= fields.num_layers or not isinstance(block.value(key), Mapping):
            raise block.wrong(
                key, block.value(key), f"an object under a layer from 0 to {fields.num_layers - 1}"
            )
        known = ("head_dim", "v_head_dim", "num_key_value_heads")
        for name, value in block.value(key).items():
            if name not in known and may_decide(name, value):
                raise ConfigError(f"{block.path(key)}.{name} is not understood; known are {', '.join(known)}")
        overrides[layer] = {name: value for name, value in block.value(key).items() if value is not None}
    return overrides


def _mixed(names: Mapping[tuple[Kind, Attention], str]) -> list[str]:
    """A warning for each kind whose layers differ in their dimensions: no pool can hold them together."""
    kinds = Counter(kind for kind, _ in names)
    return [
        f"warning: {kind.value} layers differ in their dimensions ({', '.join(alike)}); one pool has one row "
        "size, so that presets show and run refuse this model"
        for kind, number in kinds.items()
        if number > 1 and (alike := [found for (other, _), found in names.items() if other is kind])
    ]


def _named(entries: Iterable[tuple[Kind, Attention]]) -> dict[tuple[Kind, Attention], str]:
    """A name for each attention; those of one kind that differ are numbered in the order of layers."""
    groups: dict[str, list[tuple[Kind, Attention]]] = {}
    for kind, attention in entries:
        base = CLASS_NAMES.get(type(attention), KIND_NAMES[kind])
        groups.setdefault(base, []).append((kind, attention))
    return {
        entry: base if len(group) == 1 else f"{base}_{number}"
        for base, group in groups.items()
        for number, entry in enumerate(group, start=1)
    }
