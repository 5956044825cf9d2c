"""Model presets as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hicache_bench.config.load import PresetSummary
from hicache_bench.config.schema import ModelPreset
from hicache_bench.models.engine_profile import pools_of
from hicache_bench.planning.policy import trailing_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import HitPolicy
from hicache_bench.units import format_size


def render_list(presets: Sequence[PresetSummary]) -> RenderableType:
    """One row per preset."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("preset", no_wrap=True)
    table.add_column("served by")
    table.add_column("what it is", overflow="fold")
    for preset in presets:
        names = preset.name + (f" ({', '.join(preset.aliases)})" if preset.aliases else "")
        table.add_row(names, ", ".join(preset.served_by) or "no engine", preset.summary)
    return table


def render_preset(preset: ModelPreset) -> RenderableType:
    """The model, its pools and bytes of a page [counted], and where its dimensions come from."""
    spec = preset.spec
    counts = ", ".join(f"{count} x {name}" for name, count in sorted(spec.layer_counts.items()))
    heading = Text(
        f"{preset.name}: {preset.summary}\n"
        f"{len(spec.layers)} layers caching {counts}; digest {spec.digest[:16]}\n"
        f"profile {preset.profile}, pages of {spec.page_tokens} tokens (engine default "
        f"{spec.engine_default_page_tokens}), KV {spec.kv_dtype}, states {spec.state_dtype}\n"
        f"served by {', '.join(preset.served_by) or 'no engine'}\n"
        "\npools, TP 1 [counted]"
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("pool", no_wrap=True)
    for column in ("attention", "needs"):
        table.add_column(column, overflow="fold")
    for column in ("objects", "bytes a page"):
        table.add_column(column, justify="right")
    for pool in pools_of(spec, profile=preset.profile):
        table.add_row(
            pool.name,
            pool.attention.value,
            _needs(pool),
            str(len(pool.stored_components)),
            f"{pool.unit_bytes:,}",
        )
    total = sum(pool.unit_bytes for pool in pools_of(spec, profile=preset.profile))
    sources = [Text(f"{name}: {source}") for name, source in preset.sources.items()]
    return Group(
        heading,
        table,
        Text(f"all pools of one page: {format_size(total)}\n\nsources of the dimensions"),
        *sources,
    )


def preset_as_dict(preset: ModelPreset) -> dict[str, Any]:
    """What :func:`render_preset` shows, as plain data."""
    spec = preset.spec
    return {
        "name": preset.name,
        "aliases": list(preset.aliases),
        "summary": preset.summary,
        "digest": spec.digest,
        "profile": preset.profile,
        "served_by": list(preset.served_by),
        "page_tokens": spec.page_tokens,
        "engine_default_page_tokens": spec.engine_default_page_tokens,
        "kv_dtype": spec.kv_dtype,
        "state_dtype": spec.state_dtype,
        "layers": ["+".join(names) or "none" for names in spec.layers],
        "pools": [
            {
                "name": pool.name,
                "attention": pool.attention.value,
                "hit_policy": pool.hit_policy.value,
                "trailing_pages": trailing_units(pool)
                if pool.hit_policy is HitPolicy.TRAILING_PAGES
                else None,
                "window_tokens": pool.window_tokens,
                "unit_bytes": pool.unit_bytes,
                "object_bytes": {c.name: c.object_bytes for c in pool.stored_components},
                "sharding": pool.sharding.value,
            }
            for pool in pools_of(spec, profile=preset.profile)
        ],
        "sources": dict(preset.sources),
    }


def _needs(pool: KVPoolDescriptor) -> str:
    """What a restore needs of the pool, in few words."""
    if pool.is_logical:
        return "nothing"
    if pool.window_tokens is not None:
        return f"window of {pool.window_tokens}"
    return "last one" if pool.hit_policy is HitPolicy.TRAILING_PAGES else "all pages"
