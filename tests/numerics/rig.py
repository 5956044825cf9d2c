"""Small models of each attention, and one prompt computed whole or continued from copied caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from hicache_bench.models.engine_profile import BY_KIND, pools_of
from hicache_bench.models.spec import (
    Attention,
    BlockIndex,
    ChunkedAttention,
    CompressedAttention,
    FullAttention,
    GatedDelta,
    KimiDelta,
    LatentWindow,
    Lightning,
    Mamba1,
    Mamba2,
    MlaAttention,
    ModelSpec,
    ShortConv,
    SlidingWindow,
    SparseIndex,
    StateTensor,
)
from hicache_bench.numerics.cache import PagedCache, Prompt
from hicache_bench.numerics.dtypes import Floats
from hicache_bench.numerics.model import ReferenceModel, topical_tokens
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType

Caches = Mapping[str, PagedCache]


def model_spec(
    *layers: tuple[str, ...],
    page_tokens: int = 8,
    kv_dtype: str = "bf16",
    architecture: str = "Test",
    attentions: Mapping[str, Attention] | None = None,
    state_dtype: str = "fp32",
    index_dtype: str = "fp8",
) -> ModelSpec:
    """A model of attentions of :data:`ATTENTIONS` (or those given); logical anchor if none is dense."""
    known = {**ATTENTIONS, **(attentions or {})}
    used = {name: known[name] for names in layers for name in names}
    return ModelSpec(
        name="test",
        architecture=architecture,
        attentions=used,
        layers=layers,
        page_tokens=page_tokens,
        engine_default_page_tokens=page_tokens,
        kv_dtype=kv_dtype,
        state_dtype=state_dtype,
        index_dtype=index_dtype,
        logical_anchor=not any(isinstance(kind, (FullAttention, MlaAttention)) for kind in used.values()),
    )


ATTENTIONS: Mapping[str, Attention] = {
    "full": FullAttention(kv_heads=2, head_dim=16),
    "wide": FullAttention(kv_heads=2, head_dim=16, v_head_dim=8),
    "window": SlidingWindow(kv_heads=2, head_dim=16, window=20),
    "chunk": ChunkedAttention(kv_heads=2, head_dim=16, chunk=24),
    "mla": MlaAttention(kv_lora_rank=128, qk_rope_head_dim=16),
    "index": SparseIndex(index_head_dim=128, top_k=16),
    "blocks": BlockIndex(index_head_dim=32, block_tokens=8, top_k=3),
    "mamba1": Mamba1(inner_dim=64, state_dim=4, conv_kernel=4),
    "mamba2": Mamba2(heads=4, head_dim=8, state_dim=16, groups=2, conv_kernel=4),
    "lightning": Lightning(heads=4, head_dim=16),
    "conv": ShortConv(channels=32, conv_kernel=3),
    "gdn": GatedDelta(key_heads=2, value_heads=4, key_dim=16, value_dim=8, conv_kernel=4),
    "kda": KimiDelta(heads=4, head_dim=16, conv_kernel=4),
    "extra": Lightning(heads=2, head_dim=8, extra=(StateTensor(name="seen", shape=(3,), dtype="fp32"),)),
    "latents": LatentWindow(nope_dim=448, rope_dim=64, window=128),
    "c4": CompressedAttention(ratio=4, nope_dim=448, rope_dim=64, index_head_dim=128, index_top_k=1024),
    "c128": CompressedAttention(ratio=128, nope_dim=448, rope_dim=64),
}
RECURRENT = ("mamba1", "mamba2", "lightning", "conv", "gdn", "kda", "extra")
V4 = replace(
    model_spec(("latents",), ("latents", "c4"), ("latents", "c128"), page_tokens=256, kv_dtype="fp8"),
    logical_anchor=True,
)

MODELS: Mapping[str, ModelSpec] = {
    "full": model_spec(("full",), ("full",)),
    "unequal heads": model_spec(("wide",)),
    "scaled fp8": model_spec(("full",), kv_dtype="fp8_scaled"),
    "window": model_spec(("window",), ("window",)),
    "window beside full": model_spec(("window",), ("full",), ("window",)),
    "chunked": model_spec(("chunk",), ("full",)),
    "mla": model_spec(("mla",), ("mla",)),
    "sparse": model_spec(("mla", "index"), ("mla", "index")),
    "shared index": model_spec(("mla", "index"), ("mla",), ("mla", "index"), ("mla",)),
    "fp4 index": model_spec(("mla", "index"), index_dtype="fp4"),
    "block sparse": model_spec(("full",), ("full", "blocks"), ("full", "blocks")),
    **{name: model_spec((name,), (name,)) for name in RECURRENT},
    "side by side": model_spec(("full", "mamba2"), ("full", "mamba2")),
    "hybrid": model_spec(("kda",), ("window",), ("kda",), ("mla", "index")),
}


class Rig:
    """A model, its pools, and one seeded prompt; ``seed`` tells one prompt from another."""

    def __init__(
        self,
        spec: ModelSpec,
        num_tokens: int,
        *,
        profile: str = BY_KIND,
        seed: int = 0,
        absorbed: bool = True,
    ) -> None:
        self.spec = spec
        self.page_tokens = spec.page_tokens
        self.num_pages = -(-num_tokens // spec.page_tokens)
        self.pools: Mapping[str, KVPoolDescriptor] = {
            pool.name: pool for pool in pools_of(spec, profile=profile) if not pool.is_logical
        }
        self.model = ReferenceModel(spec, tuple(self.pools.values()), seed=7, width=32, absorbed=absorbed)
        self.inputs = self.model.embed(topical_tokens(num_tokens, seed=seed, run=spec.page_tokens))

    def part(self, layer: int = 0) -> Any:
        """The first part of a layer, with what it keeps to itself: an oracle needs its weights."""
        return self.model._layers[layer][0]

    def caches(self) -> dict[str, PagedCache]:
        return {name: PagedCache.in_memory(pool, self.num_pages) for name, pool in self.pools.items()}

    def stateless(self) -> dict[str, PagedCache]:
        """Caches that keep no recurrent state."""
        return {
            name: PagedCache.in_memory(
                pool, self.num_pages, kept=() if pool.attention is AttentionType.RECURRENT else None
            )
            for name, pool in self.pools.items()
        }

    def whole(self) -> Floats:
        """The prompt at once, without any restore."""
        return self.model.forward(self.inputs, 0, Prompt(self.stateless()))

    def pieces(self, stops: Sequence[int]) -> Floats:
        """The prompt in the pieces that end at ``stops`` and at its end."""
        prompt = Prompt(self.stateless())
        edges = [0, *stops, len(self.inputs)]
        return np.concatenate(
            [self.model.forward(self.inputs[first:stop], first, prompt) for first, stop in pairwise(edges)]
        )

    def prefix(self, end: int) -> dict[str, PagedCache]:
        """The caches after a prefix of ``end`` pages."""
        caches = self.caches()
        self.model.forward(self.inputs[: end * self.page_tokens], 0, Prompt(caches))
        return caches

    def continued(
        self, saved: Caches, end: int, *, without: Mapping[str, Sequence[int]] | None = None
    ) -> Floats:
        """What follows a restored prefix of ``end`` pages, less the pages that ``without`` names."""
        caches = self.restored(saved, without or {})
        start = end * self.page_tokens
        prompt = Prompt(caches)
        # All but the last token at once, which is decoded.
        first = self.model.forward(self.inputs[start:-1], start, prompt)
        last = self.model.forward(self.inputs[-1:], len(self.inputs) - 1, prompt)
        return np.concatenate([first, last])

    def restored(self, saved: Caches, without: Mapping[str, Sequence[int]]) -> dict[str, PagedCache]:
        caches = {name: cache.copy(self.num_pages) for name, cache in saved.items()}
        for name, pages in without.items():
            for page in pages:
                caches[name].overwrite(page)
        return caches
