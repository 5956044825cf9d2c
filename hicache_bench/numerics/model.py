"""A whole model of references, layer after layer, over the pools that an engine makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hicache_bench.errors import ConfigError
from hicache_bench.models.spec import (
    Attention,
    BlockIndex,
    ChunkedAttention,
    CompressedAttention,
    FullAttention,
    LatentWindow,
    MlaAttention,
    ModelSpec,
    SlidingWindow,
    SparseIndex,
)
from hicache_bench.numerics.attention import HeadedReference
from hicache_bench.numerics.blocks import Mask, Part, Weights, normalized
from hicache_bench.numerics.cache import Prompt
from hicache_bench.numerics.compressed import CompressedPools, CompressedRows, LatentWindowReference
from hicache_bench.numerics.dtypes import Floats
from hicache_bench.numerics.latent import MlaReference
from hicache_bench.numerics.recurrent import RecurrentReference
from hicache_bench.numerics.sparse import BlockIndexReference, SparseIndexReference, TokenSelector
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType, Requirement

DEFAULT_WIDTH = 64
"""Size of a token's vector between layers; it changes no cached byte's place."""

TOPIC_TOKENS = 1024
# The first two are coprime, so that tokens differ up to their product; then the number of topics.
_EMBEDDING_SIZES = (1021, 1031, 61)


def reduced(spec: ModelSpec, *, layers_of_a_kind: int = 2, max_reach: int | None = None) -> ModelSpec:
    """``spec`` with the first few layers of each kind, dims and page size as they are.

    A kind is a set of attentions in one layer, and whether an index comes before it, whose choice it may
    reuse. Two layers of a kind show a mix-up of layers. ``max_reach`` bounds windows, chunks, and the tokens
    that an index selects, so that a prompt of a few pages already leaves some out.
    """
    kept: list[tuple[str, ...]] = []
    seen: Counter[tuple[tuple[str, ...], bool]] = Counter()
    indexed = False
    for names in spec.layers:
        kinds = [type(spec.attentions[name]) for name in names]
        indexed = indexed or SparseIndex in kinds
        kind = (tuple(sorted(names)), indexed and MlaAttention in kinds)
        seen[kind] += 1
        if names and seen[kind] <= layers_of_a_kind:
            kept.append(names)
    used = {name for names in kept for name in names}
    attentions = {
        name: attention if max_reach is None else _bounded(attention, max_reach)
        for name, attention in spec.attentions.items()
        if name in used
    }
    return replace(spec, layers=tuple(kept), draft_layers=(), shared_layers=(), attentions=attentions)


def topical_tokens(num_tokens: int, *, seed: int, run: int = 48) -> npt.NDArray[np.int64]:
    """Seeded token ids of a prompt that stays with each topic for ``run`` tokens."""
    generator = np.random.default_rng([seed, num_tokens, run])
    topics = generator.integers(_EMBEDDING_SIZES[-1], size=-(-num_tokens // run))
    own = generator.integers(TOPIC_TOKENS, size=num_tokens)
    return np.repeat(topics, run)[:num_tokens] * TOPIC_TOKENS + own


def _bounded(attention: Attention, reach: int) -> Attention:
    match attention:
        case SlidingWindow() | LatentWindow():
            return replace(attention, window=min(attention.window, reach))
        case ChunkedAttention():
            return replace(attention, chunk=min(attention.chunk, reach))
        case SparseIndex():
            return replace(attention, top_k=min(attention.top_k, reach))
        case BlockIndex(block_tokens=block):
            return replace(attention, top_k=min(attention.top_k, -(-reach // block)))
        case CompressedAttention(index_top_k=int(top_k), ratio=ratio):
            return replace(attention, index_top_k=min(top_k, -(-reach // ratio)))
        case _:
            return attention


class ReferenceModel:
    """Seeded references of every layer of ``spec``, each on its layer of its pool, as ``pools`` group them.

    Layers add to what enters them; what a layer adds is scaled to the size of its input, so that an error
    in it is not lost in a sum. Draft pools are not computed: they only make decoding fast.

    ``absorbed`` chooses how MLA is computed; both ways give the same but for the order of sums.

    Raises:
        ConfigError: pools that are not those of the whole of ``spec`` on one rank.
    """

    def __init__(
        self,
        spec: ModelSpec,
        pools: Sequence[KVPoolDescriptor],
        *,
        seed: int = 0,
        width: int = DEFAULT_WIDTH,
        absorbed: bool = True,
    ) -> None:
        if width % 2:
            raise ConfigError(f"width {width} is odd; topics take half of it, use an even one")
        self.width = width
        weights = Weights(seed, "model")
        self._embeddings = [
            weights.normal(f"embedding {size}", size, width // 2) for size in _EMBEDDING_SIZES
        ]
        builder = _LayerBuilder(spec, pools, weights, width, absorbed=absorbed)
        self._layers = [builder.layer(index, names) for index, names in enumerate(spec.layers)]
        builder.check_layers()
        self._choices = builder.choices

    def embed(self, tokens: npt.ArrayLike) -> Floats:
        """The input vector of each token, of shape ``(tokens, width)``: its topic, and what is its own.

        A topic is a run of ``TOPIC_TOKENS`` token ids. Where a prompt stays with its topics for a while, an
        index selects tokens that lie together.
        """
        ids = np.asarray(tokens, dtype=np.int64)
        first, second, topics = self._embeddings
        own = first[ids % len(first)] + second[ids % len(second)]
        topic = topics[ids // TOPIC_TOKENS % len(topics)]
        return normalized(np.concatenate([normalized(topic), normalized(own)], axis=1))

    def forward(self, inputs: Floats, start: int, prompt: Prompt) -> Floats:
        """Outputs of tokens ``start...``, of the shape of ``inputs``: a prefill, or one step of decoding.

        All that lies before ``start`` comes from the caches, and what these tokens cache is appended. A
        prompt can be continued from the end of a page, or from where its last forward ended.
        """
        hidden = inputs
        # A NaN is an answer here: it says that a page which was needed is missing.
        with np.errstate(invalid="ignore", over="ignore"):
            for parts in self._layers:
                entering = normalized(hidden)
                for part in parts:
                    hidden = hidden + normalized(part.forward(entering, inputs, start, prompt))
        return hidden

    def selected_units(self, inputs: Floats, start: int, prompt: Prompt) -> Mapping[str, Mask]:
        """For each pool that an index selects from: the units before ``start`` that tokens ``start...`` read.

        Reads the index alone (and appends the keys of these tokens to it), so that it can be asked before
        the pool itself is restored. Tokens decoded later may be part of ``inputs``.
        """
        found: dict[str, Mask] = {
            choice.pool: np.zeros(start // choice.unit_tokens, dtype=np.bool_) for choice in self._choices
        }
        ahead = prompt.fork()
        with np.errstate(invalid="ignore", over="ignore"):
            for choice in self._choices:
                units = found[choice.pool]
                if choice.selector is None:
                    units[:] = True
                    continue
                admitted = choice.selector.select(inputs, start, ahead).admitted
                rows = np.flatnonzero(admitted[:, : start // choice.group_tokens].any(axis=0))
                units[rows * choice.group_tokens // choice.unit_tokens] = True
        return found


@dataclass(frozen=True, slots=True)
class _Choice:
    """Who chooses what one layer of a pool reads; None: it reads everything."""

    pool: str
    unit_tokens: int
    group_tokens: int
    selector: TokenSelector | None


class _LayerBuilder:
    """Places each layer's attentions on the next layer of their pools."""

    def __init__(
        self,
        spec: ModelSpec,
        pools: Sequence[KVPoolDescriptor],
        weights: Weights,
        width: int,
        *,
        absorbed: bool,
    ) -> None:
        self._spec = spec
        self._weights = weights
        self._width = width
        self._absorbed = absorbed
        self._pools = [pool for pool in pools if pool.required_for is not Requirement.SPEED]
        self._next_layer: Counter[str] = Counter()
        self._last_index: TokenSelector | None = None
        self.choices: list[_Choice] = []
        self._check_one_rank()

    def layer(self, index: int, names: tuple[str, ...]) -> list[Part]:
        """The parts of one layer, in the order in which it names them."""
        attentions = {name: self._spec.attentions[name] for name in names}
        weights = self._weights.within(f"layer {index}")
        selector = self._selector(attentions, weights)
        compressed = self._compressed(attentions, weights)
        parts: list[Part] = []
        for name, attention in attentions.items():
            own = weights.within(name)
            match attention:
                case FullAttention() | SlidingWindow() | ChunkedAttention():
                    parts.append(self._headed(attention, own, selector))
                case MlaAttention():
                    parts.append(self._latent(attention, own, selector))
                case LatentWindow():
                    pool = self._pool(AttentionType.SWA)
                    parts.append(
                        LatentWindowReference(
                            attention, pool, self._take(pool), own, self._width, compressed=compressed
                        )
                    )
                case SparseIndex() | BlockIndex() | CompressedAttention():
                    continue  # part of the attention that reads by it
                case _:
                    pool = self._pool(AttentionType.RECURRENT)
                    parts.append(
                        RecurrentReference(
                            attention,
                            pool,
                            self._take(pool),
                            own,
                            self._width,
                            conv_dtype=self._spec.conv_dtype,
                        )
                    )
        return parts

    def check_layers(self) -> None:
        """Every layer of every pool must have been taken, and no more."""
        for pool in self._pools:
            for component in pool.stored_components:
                if component.num_layers != self._next_layer[pool.name]:
                    raise ConfigError(
                        f"model {self._spec.name!r} has {self._next_layer[pool.name]} layers for pool "
                        f"{pool.name!r}, which holds {component.num_layers}; give the pools of this model"
                    )

    def _selector(self, attentions: Mapping[str, Attention], weights: Weights) -> TokenSelector | None:
        for name, attention in attentions.items():
            own = weights.within(name)
            if isinstance(attention, SparseIndex):
                pool = self._pool(AttentionType.SPARSE_INDEX)
                self._last_index = SparseIndexReference(attention, pool, self._take(pool), own, self._width)
                return self._last_index
            if isinstance(attention, BlockIndex):
                pool = self._pool(AttentionType.SPARSE_INDEX)
                return BlockIndexReference(attention, pool, self._take(pool), own, self._width)
        return None

    def _headed(
        self,
        attention: FullAttention | SlidingWindow | ChunkedAttention,
        weights: Weights,
        selector: TokenSelector | None,
    ) -> HeadedReference:
        kind = {
            FullAttention: AttentionType.FULL,
            SlidingWindow: AttentionType.SWA,
            ChunkedAttention: AttentionType.CHUNKED,
        }[type(attention)]
        # An engine that does not split windows off keeps them in the pool of full layers.
        pool = self._find(kind) or self._pool(AttentionType.FULL)
        if not isinstance(attention, FullAttention):
            selector = None
        return HeadedReference(attention, pool, self._take(pool), weights, self._width, selector=selector)

    def _latent(
        self, attention: MlaAttention, weights: Weights, selector: TokenSelector | None
    ) -> MlaReference:
        pool = self._pool(AttentionType.MLA)
        selector = selector or self._last_index
        if pool.selection is not None:
            self.choices.append(_Choice(pool.name, pool.unit_tokens, 1, selector))
        return MlaReference(
            attention,
            pool,
            self._take(pool),
            weights,
            self._width,
            selector=selector,
            absorbed=self._absorbed,
        )

    def _compressed(self, attentions: Mapping[str, Attention], weights: Weights) -> CompressedRows | None:
        found = [(name, part) for name, part in attentions.items() if isinstance(part, CompressedAttention)]
        if not found:
            return None
        name, attention = found[0]
        rows = self._named(f"deepseek_v4_c{attention.ratio}")
        index = ring = index_ring = None
        if attention.index_head_dim is not None:
            index = self._named(f"{rows.name}_indexer")
            ring, index_ring = self._named(f"{rows.name}_state"), self._named(f"{index.name}_state")
        layer = self._take(rows)
        for pool in (index, ring, index_ring):
            if pool is not None:
                self._take(pool)
        pools = CompressedPools(layer=layer, rows=rows, index=index, ring=ring, index_ring=index_ring)
        part = CompressedRows(attention, pools, weights.within(name), self._width)
        if rows.selection is not None:
            self.choices.append(_Choice(rows.name, rows.unit_tokens, attention.ratio, part))
        return part

    def _take(self, pool: KVPoolDescriptor) -> int:
        """The next layer of ``pool``: layers of one pool count in model order."""
        self._next_layer[pool.name] += 1
        return self._next_layer[pool.name] - 1

    def _find(self, kind: AttentionType) -> KVPoolDescriptor | None:
        return next((pool for pool in self._pools if pool.attention is kind), None)

    def _pool(self, kind: AttentionType) -> KVPoolDescriptor:
        pool = self._find(kind)
        if pool is None:
            raise ConfigError(f"model {self._spec.name!r} needs a {kind} pool, and was given none")
        return pool

    def _named(self, name: str) -> KVPoolDescriptor:
        pool = next((pool for pool in self._pools if pool.name == name), None)
        if pool is None:
            raise ConfigError(f"model {self._spec.name!r} needs pool {name!r}, and was not given it")
        return pool

    def _check_one_rank(self) -> None:
        for pool in self._pools:
            sizes: Any = (pool.rank.tp_size, pool.rank.pp_size, pool.rank.cp_size, pool.rank.dcp_size)
            chunked = any(component.chunk is not None for component in pool.components)
            if set(sizes) != {1} or chunked or pool.unit_pages != 1:
                raise ConfigError(
                    f"pool {pool.name!r} is a shard, or its objects are not of one page; numerics run on one "
                    "rank: leave --tp, --pp, --cp, --dcp and --tp-lcm out"
                )
