"""The words of a KV cache: pool names, attention types, hit policies, layouts, shard kinds.

Pool names and hit policies are SGLang's own (0.5.23, ``hicache_storage.PoolName`` and ``PoolHitPolicy``).
"""

from __future__ import annotations

from enum import Enum


class PoolName(str, Enum):
    """Names that SGLang gives to its pools, then the three that only synthetic groupings need."""

    KV = "kv"
    SWA = "swa"
    MAMBA = "mamba"
    INDEXER = "indexer"
    DRAFT = "draft"
    DRAFT_SWA = "draft_swa"
    DRAFT_INDEXER = "draft_indexer"
    V4_C1 = "deepseek_v4_c1"
    V4_C1_INDEXER = "deepseek_v4_c1_indexer"
    V4_C1_INDEXER_SCALE = "deepseek_v4_c1_indexer_scale"
    V4_C2 = "deepseek_v4_c2"
    V4_C2_INDEXER = "deepseek_v4_c2_indexer"
    V4_C2_INDEXER_SCALE = "deepseek_v4_c2_indexer_scale"
    V4_C4 = "deepseek_v4_c4"
    V4_C4_INDEXER = "deepseek_v4_c4_indexer"
    V4_C4_INDEXER_SCALE = "deepseek_v4_c4_indexer_scale"
    V4_C128 = "deepseek_v4_c128"
    V4_C4_ROPE = "deepseek_v4_c4_rope"
    V4_C128_ROPE = "deepseek_v4_c128_rope"
    V4_C4_STATE = "deepseek_v4_c4_state"
    V4_C4_INDEXER_STATE = "deepseek_v4_c4_indexer_state"
    V4_C128_STATE = "deepseek_v4_c128_state"
    MLA = "mla"
    FULL = "full"
    CHUNKED = "chunked"

    def __str__(self) -> str:
        return self.value


SYNTHETIC_POOLS = frozenset({PoolName.MLA.value, PoolName.FULL.value, PoolName.CHUNKED.value})
"""Pools that no SGLang server has."""


class AttentionType(str, Enum):
    """What one kind of cached state is; it decides which pages an endpoint needs (planning/policy.py)."""

    LOGICAL = "logical"
    FULL = "full"
    SWA = "swa"
    CHUNKED = "chunked"
    MLA = "mla"
    SPARSE_INDEX = "sparse_index"
    RECURRENT = "recurrent"
    COMPRESSED = "compressed"
    COMPRESSOR_STATE = "compressor_state"

    def __str__(self) -> str:
        return self.value


class HitPolicy(str, Enum):
    """Which pages must exist for an endpoint to be legal, in SGLang's two words."""

    ALL_PAGES = "all_pages"
    TRAILING_PAGES = "trailing_pages"

    def __str__(self) -> str:
        return self.value


TRAILING_ATTENTION = frozenset(
    {AttentionType.SWA, AttentionType.CHUNKED, AttentionType.RECURRENT, AttentionType.COMPRESSOR_STATE}
)

STATE_ATTENTION = frozenset({AttentionType.RECURRENT})
"""Types whose host pool has one slot per state, not per page of tokens (SGLang: host page size 1)."""


class Layout(str, Enum):
    """Order of a host pool's axes (SGLang ``--hicache-mem-layout``)."""

    LAYER_FIRST = "layer_first"
    PAGE_FIRST = "page_first"
    PAGE_FIRST_DIRECT = "page_first_direct"
    PAGE_HEAD = "page_head"

    def __str__(self) -> str:
        return self.value


class IoBackend(str, Enum):
    """How an engine copies between device and host (SGLang ``--hicache-io-backend``)."""

    KERNEL = "kernel"
    DIRECT = "direct"

    def __str__(self) -> str:
        return self.value


class Sharding(str, Enum):
    """What tensor-parallel ranks hold of a pool: a slice each, or all the same bytes."""

    SHARDED = "sharded"
    REPLICATED = "replicated"

    def __str__(self) -> str:
        return self.value


class Requirement(str, Enum):
    """What a pool is needed for; a ``speed`` pool (draft, MTP) never constrains an endpoint."""

    CORRECTNESS = "correctness"
    SPEED = "speed"

    def __str__(self) -> str:
        return self.value
