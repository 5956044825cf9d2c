"""What one preset comes to, as plain data: everything that the tables show, in exact numbers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hicache_bench.models.spec import count_layers
from hicache_bench.planning.footprint import Footprint, Slope
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.workflows.footprint import COMPARED_TOKENS, PoolBytes, ProfileBytes, VariantBytes


def preset_as_dict(counted: VariantBytes) -> dict[str, Any]:
    """A variant with its layers, pools, bytes and keys; what is a whole number of bytes is an integer."""
    variant, preset, spec = counted.variant, counted.variant.preset, counted.variant.spec
    draft = count_layers(spec.draft_layers)
    return {
        "name": preset.name,
        "aliases": list(preset.aliases),
        "summary": preset.summary,
        "architecture": spec.architecture,
        "revision": spec.revision,
        "digest": spec.digest,
        "profile": variant.profile,
        "served_by": list(preset.served_by),
        "page_tokens": variant.page_tokens,
        "engine_default_page_tokens": spec.engine_default_page_tokens,
        "kv_dtype": spec.kv_dtype,
        "state_dtype": spec.state_dtype,
        "conv_dtype": spec.conv_dtype,
        "index_dtype": spec.index_dtype,
        "deployment": {**asdict(variant.deployment), "ranks": len(variant.pools)},
        "layers": ["+".join(names) or "none" for names in spec.layers],
        "draft_layers": ["+".join(names) or "none" for names in spec.draft_layers],
        "shared_layers": ["+".join(names) or "none" for names in spec.shared_layers],
        "attentions": {
            name: {
                "layers": spec.layer_counts.get(name, 0),
                "draft_layers": draft.get(name, 0),
                "dimensions": asdict(attention),
                "source": preset.sources[name],
            }
            for name, attention in spec.attentions.items()
        },
        "key_scheme": variant.keys.scheme,
        "pools": [_pool(entry) for entry in counted.pools],
        "cluster": {policy.value: _slope(found) for policy, found in counted.slopes.items()},
        "largest_rank": {policy.value: _slope(found) for policy, found in counted.rank_slopes.items()},
        "save_policy": str(counted.save_policy),
        "bytes": [
            {"tokens": tokens, **footprint_as_dict(found)} for tokens, found in counted.footprints.items()
        ],
        "profiles": {
            "tokens": COMPARED_TOKENS,
            "bytes": {entry.profile: _profile(entry) for entry in counted.profiles},
        },
    }


def footprint_as_dict(found: Footprint) -> dict[str, int]:
    """Bytes stored, which ``dense`` reads, and bytes needed by the other policies."""
    return {"stored": found.stored, "hit_policy": found.hit_policy, "selective": found.selective}


def pool_fields(pool: KVPoolDescriptor) -> dict[str, Any]:
    """What a pool is, without its bytes."""
    return {
        "name": pool.name,
        "attention": pool.attention.value,
        "logical": pool.is_logical,
        "dtype": pool.dtype,
        "layout": pool.layout.value,
        "hit_policy": pool.hit_policy.value,
        "window_tokens": pool.window_tokens,
        "engine_window_tokens": pool.engine_window_tokens,
        "page_tokens": pool.page_tokens,
        "unit_pages": pool.unit_pages,
        "sharding": pool.sharding.value,
        "cp_sharded": pool.cp_sharded,
        "dcp_sharded": pool.dcp_sharded,
        "required_for": pool.required_for.value,
        "derived_from": pool.derived_from,
    }


def _pool(entry: PoolBytes) -> dict[str, Any]:
    return {
        **pool_fields(entry.pool),
        "trailing_pages": entry.trailing_pages,
        "unit_bytes": entry.rank_bytes[1],
        "least_unit_bytes": entry.rank_bytes[0],
        "ranks": entry.num_ranks,
        "shards": entry.shards,
        "copies": entry.copies,
        "cluster_bytes": entry.cluster_bytes,
        "objects": [asdict(example) for example in entry.keys],
    }


def _slope(found: Slope) -> dict[str, int | float]:
    whole = found.per_token.denominator == 1
    per_token = found.per_token.numerator if whole else float(found.per_token)
    return {"bytes_per_token": per_token, "fixed_bytes": found.fixed}


def _profile(entry: ProfileBytes) -> dict[str, Any]:
    if entry.footprint is None:
        return {"refusal": entry.refusal}
    return dict(footprint_as_dict(entry.footprint))
