"""The pictures of the concept pages: small prefixes of shipped models, mapped by the planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from hicache_bench.config.load import load_model
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType
from hicache_bench.workflows.page_map import NoiseQueries, PageMap, page_map
from hicache_bench.workflows.variant import VariantOptions, apply_options


@dataclass(frozen=True, slots=True, kw_only=True)
class Concept:
    """One picture: a title, one map or several of one model, and how the model differs from its preset."""

    title: str
    preset: str
    maps: tuple[PageMap, ...]
    note: str = ""


def _full() -> Concept:
    return _concept("Full attention", "llama-3.1-8b", 16)


def _mla() -> Concept:
    return _concept("MLA", "deepseek-v3", 16)


def _swa() -> Concept:
    return _concept(
        "Sliding window",
        "gpt-oss-20b",
        16,
        saves=("window=all", "window=trailing:+4"),
        shared_pages=(None, 14),
    )


def _chunked() -> Concept:
    pools = _pools("llama-4-scout", page_tokens=512)
    return Concept(
        title="Chunked attention",
        preset="llama-4-scout",
        maps=tuple(page_map(pools, pages, SavePolicy()) for pages in (24, 32)),
        note="Pages of 512 tokens, so that a chunk of 8,192 tokens is 16 of them.",
    )


def _recurrent() -> Concept:
    pools = _pools("qwen3-next", page_tokens=256)
    save = SavePolicy.parse("state=every:1024")
    return Concept(
        title="Recurrent state",
        preset="qwen3-next-80b-a3b",
        maps=tuple(page_map(pools, 16, save, shared_pages=shared) for shared in (None, 14)),
        note="Pages of 256 tokens, a state every 1,024, so that 16 pages show four states.",
    )


def _sparse_index() -> Concept:
    pools = [
        pool if pool.selection is None else replace(pool, selection=replace(pool.selection, top_k=4))
        for pool in _pools("deepseek-v3.2")
    ]
    queries = NoiseQueries(numbers=(1, 4, 16), num_layers=2, seed=0)
    return Concept(
        title="Sparse index, and the blocks that it selects",
        preset="deepseek-v3.2",
        maps=(page_map(pools, 32, SavePolicy(), queries=queries),),
        note="Two layers of which each query takes 4 rows, not 61 that take 2,048: 32 pages show a choice. "
        "Scores are seeded noise [modeled]; real prompts select with more locality.",
    )


def _compressed() -> Concept:
    types = (AttentionType.COMPRESSED, AttentionType.COMPRESSOR_STATE)
    pools = [pool for pool in _pools("deepseek-v4-flash") if pool.attention in types]
    return Concept(
        title="Compressed pools and compressor states",
        preset="deepseek-v4-flash",
        maps=(page_map(pools, 16, SavePolicy()),),
    )


def _logical_anchor() -> Concept:
    pools = [pool for pool in _pools("deepseek-v4-flash") if pool.name in ("kv", "swa", "deepseek_v4_c4")]
    return Concept(
        title="Logical anchor",
        preset="deepseek-v4-flash",
        maps=(page_map(pools, 16, SavePolicy()),),
        note="Three of the model's seven pools.",
    )


CONCEPTS: Mapping[str, Callable[[], Concept]] = {
    "full": _full,
    "mla": _mla,
    "swa": _swa,
    "chunked": _chunked,
    "recurrent": _recurrent,
    "sparse-index": _sparse_index,
    "compressed": _compressed,
    "logical-anchor": _logical_anchor,
}
"""Name of the page in docs/concepts, to what its picture shows."""


def _concept(
    title: str,
    preset: str,
    num_pages: int,
    *,
    saves: Iterable[str] = ("window=all",),
    shared_pages: Iterable[int | None] = (None,),
) -> Concept:
    pools = _pools(preset)
    maps = tuple(
        page_map(pools, num_pages, SavePolicy.parse(save), shared_pages=shared)
        for save, shared in zip(saves, shared_pages, strict=True)
    )
    return Concept(title=title, preset=preset, maps=maps)


def _pools(preset: str, *, page_tokens: int | None = None) -> tuple[KVPoolDescriptor, ...]:
    """The pools of the one rank."""
    variant = apply_options(load_model(preset), VariantOptions(page_tokens=page_tokens))
    (pools,) = variant.pools.values()
    return pools
