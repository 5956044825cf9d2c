"""What differs between two presets, names and prose apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from hicache_bench.config.schema import NO_ATTENTION, ModelPreset
from hicache_bench.config.write import Layer, RepeatedLayers, group_layers
from hicache_bench.models.engine_profile import pools_of
from hicache_bench.models.spec import Attention, ModelSpec, count_layers
from hicache_bench.planning.footprint import slope
from hicache_bench.planning.policy import TransferPolicy, trailing_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import HitPolicy

Value = int | float | str | bool | None

_FIELDS = (
    "architecture", "revision", "served_by", "page_tokens", "engine_default_page_tokens",
    "kv_dtype", "state_dtype", "conv_dtype", "index_dtype", "logical_anchor",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that two presets have otherwise; None where one of them has no such thing."""

    section: str
    field: str
    first: Value
    second: Value


def diff_presets(first: ModelPreset, second: ModelPreset) -> tuple[Difference, ...]:
    """Differences in fields, layers, dimensions of attentions, pools, and bytes that an endpoint needs.

    An attention is compared with the one of its kind, or of its name where there are several of a kind; pools
    are those under each preset's own profile, on one rank, with the page size of each.
    """
    sides = [_described(preset, _labels(first.spec, second.spec)) for preset in (first, second)]
    return tuple(
        Difference(section=section, field=field, first=left, second=right)
        for section in sides[0]
        for field in dict.fromkeys((*sides[0][section], *sides[1][section]))
        if (left := sides[0][section].get(field)) != (right := sides[1][section].get(field))
    )


def _labels(*specs: ModelSpec) -> frozenset[str]:
    """Kinds of attention of which no model has two: these are compared whatever their names are."""
    counts = [Counter(attention.attention for attention in spec.attentions.values()) for spec in specs]
    kinds = {kind for count in counts for kind in count}
    return frozenset(kind for kind in kinds if all(count[kind] <= 1 for count in counts))


def _described(preset: ModelPreset, unique: frozenset[str]) -> Mapping[str, dict[str, Value]]:
    spec = preset.spec
    labels = {
        name: attention.attention if attention.attention in unique else f"{attention.attention} {name!r}"
        for name, attention in spec.attentions.items()
    }
    pools = pools_of(spec, profile=preset.profile)
    return {
        "field": {"profile": preset.profile, **{name: _plain(getattr(spec, name)) for name in _FIELDS}},
        "layers": _layers(spec, labels),
        "dimension": {
            f"{labels[name]}.{dimension}": value
            for name, attention in spec.attentions.items()
            for dimension, value in _dimensions(attention).items()
        },
        "pool": {key: value for pool in pools for key, value in _pool(pool).items()},
        "needed": _needed(pools),
    }


def _layers(spec: ModelSpec, labels: Mapping[str, str]) -> dict[str, Value]:
    found: dict[str, Value] = {"in all": len(spec.layers), "draft, in all": len(spec.draft_layers)}
    found |= {labels[name]: count for name, count in spec.layer_counts.items()}
    found |= {f"draft, {labels[name]}": count for name, count in count_layers(spec.draft_layers).items()}
    found |= {f"shared, {labels[name]}": count for name, count in count_layers(spec.shared_layers).items()}
    found["that cache nothing"] = sum(not names for names in spec.layers)
    found["order"] = ", ".join(
        map(_entry, group_layers([tuple(labels[name] for name in names) for names in spec.layers]))
    )
    return found


def _entry(entry: Layer | RepeatedLayers) -> str:
    """``12 x (swa, full)``; ``none`` for a layer that caches nothing."""
    if not isinstance(entry, RepeatedLayers):
        return " + ".join(entry) or NO_ATTENTION
    inner = ", ".join(map(_entry, entry.of))
    return f"{entry.repeat} x ({inner})" if len(entry.of) > 1 else f"{entry.repeat} x {inner}"


def _dimensions(attention: Attention) -> dict[str, Value]:
    values = {name: value for name, value in asdict(attention).items() if name != "attention"}
    extra = values.pop("extra", ())
    tensors = {f"extra.{tensor['name']}": f"{_plain(tensor['shape'])} {tensor['dtype']}" for tensor in extra}
    return {**values, **tensors}


def _pool(pool: KVPoolDescriptor) -> dict[str, Value]:
    trailing = pool.hit_policy is HitPolicy.TRAILING_PAGES
    return {
        f"{pool.name} attention": pool.attention.value,
        f"{pool.name} needs": f"trailing {trailing_units(pool)}" if trailing else "all pages",
        f"{pool.name} objects": ", ".join(component.name for component in pool.stored_components),
        f"{pool.name} bytes of a page": pool.unit_bytes,
    }


def _needed(pools: tuple[KVPoolDescriptor, ...]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for policy in (TransferPolicy.HIT_POLICY, TransferPolicy.SELECTIVE):
        counted = slope(pools, policy)
        found[f"{policy} bytes per token"] = _number(counted.per_token)
        found[f"{policy} fixed bytes"] = counted.fixed
    return found


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def _plain(value: Any) -> Value:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else value
