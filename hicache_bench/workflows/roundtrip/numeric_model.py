"""A small model of a preset, its prompts, and what it computes of them from caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hicache_bench.errors import ConfigError
from hicache_bench.models.spec import Attention, CompressedAttention, MlaAttention, ModelSpec, SparseIndex
from hicache_bench.numerics.cache import PagedCache, Prompt
from hicache_bench.numerics.dtypes import Floats, RawBytes
from hicache_bench.numerics.model import TOPIC_TOKENS, ReferenceModel, reduced
from hicache_bench.numerics.tolerance import tolerance
from hicache_bench.planning.policy import BoolVector
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType
from hicache_bench.workflows.variant import Variant

SUFFIX_TOKENS = 13
"""Tokens after the prefix that are computed at once."""

DECODE_STEPS = 3

_PREFIX_TOKENS = 384
_MIN_PAGES, _MAX_PAGES = 3, 48
_TOPICS = 3
TAIL_TOKENS = SUFFIX_TOKENS + DECODE_STEPS
"""Tokens that follow a restored prefix."""

Caches = dict[str, PagedCache]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Continuation:
    """Outputs of the tokens after a prefix, of shape ``(tokens, width)``, and the bytes cached of them.

    A wrong running state may show in what the next request would restore, and not yet in an output.
    """

    outputs: Floats
    cached: Mapping[str, RawBytes]


@dataclass(frozen=True)
class NumericModel:
    """The first layers of each kind of a variant, computed: real dims, short windows, few tokens selected.

    Raises:
        ConfigError: a variant over several ranks, which the references do not compute.
    """

    variant: Variant
    seed: int

    def __post_init__(self) -> None:
        deployment = self.variant.deployment
        if deployment.num_workers > 1 or deployment.dcp_size > 1 or deployment.tp_lcm is not None:
            raise ConfigError(
                f"model {self.variant.spec.name!r}: the arithmetic is proved on one rank; leave --tp, --pp, "
                "--cp, --dcp and --tp-lcm out with --numerics"
            )

    @cached_property
    def small(self) -> Variant:
        """The variant with the layers that are computed."""
        page_tokens = self.variant.spec.page_tokens
        # Not a whole number of pages, so that a window starts inside of one; two chunks end with a page.
        reach = max(1, self.num_pages * page_tokens * 5 // 12)
        small = reduced(self.variant.spec, max_reach=reach)
        selected = max(1, min(page_tokens, reach) // 2)
        deployment = replace(self.variant.deployment, with_draft=False)
        return replace(self.variant, spec=_selecting(small, selected), deployment=deployment)

    @property
    def name(self) -> str:
        """The preset's."""
        return self.variant.spec.name

    @property
    def page_tokens(self) -> int:
        """Tokens of a page."""
        return self.variant.spec.page_tokens

    @property
    def num_pages(self) -> int:
        """Pages of the prefix that is saved."""
        return min(_MAX_PAGES, max(_MIN_PAGES, _PREFIX_TOKENS // self.variant.spec.page_tokens))

    @cached_property
    def pools(self) -> tuple[KVPoolDescriptor, ...]:
        """Its pools on the one rank."""
        (pools,) = self.small.pools.values()
        return pools

    @cached_property
    def reference(self) -> ReferenceModel:
        """What computes it from caches."""
        return ReferenceModel(self.small.spec, self.pools, seed=self.seed)

    @cached_property
    def without_cache(self) -> ReferenceModel:
        """What computes a whole prompt: latents are turned into K and V first, where there are any."""
        latent = any(isinstance(kind, MlaAttention) for kind in self.small.spec.attentions.values())
        if not latent:
            return self.reference
        return ReferenceModel(self.small.spec, self.pools, seed=self.seed, absorbed=False)

    @property
    def stored_bytes(self) -> int:
        """Bytes of one whole prefix in the store."""
        return self.num_pages * sum(pool.unit_bytes for pool in self.pools)

    @property
    def tolerance(self) -> float:
        """Largest difference of an output that a right restore may show."""
        return tolerance(self.small.spec)

    def prompt(self, shift: int) -> Ids:
        """Tokens of a prompt: its pages take turns on a few topics, the first of which is ``shift``.

        What follows a page then asks its index for the page with the same topic, some pages before.
        """
        num_tokens = (self.num_pages + 1) * self.page_tokens + TAIL_TOKENS
        run = max(self.page_tokens, self.num_pages * self.page_tokens // (2 * _TOPICS))
        topics = (np.arange(num_tokens) // run + shift) % _TOPICS
        own = np.random.default_rng([self.seed, shift]).integers(TOPIC_TOKENS, size=num_tokens)
        return topics * TOPIC_TOKENS + own

    def diverging(self, tokens: Ids, pages: int) -> Ids:
        """A prompt that has the first ``pages`` of ``tokens`` and goes on otherwise."""
        start = pages * self.page_tokens
        # Topics that no other prompt has, so that not even a page of one token is the same by chance.
        other = tokens[start : start + self.page_tokens + TAIL_TOKENS] + _TOPICS * TOPIC_TOKENS
        return np.concatenate([tokens[:start], other])

    def whole(self, tokens: Ids) -> Floats:
        """Outputs of a whole prompt, without any cache of an earlier one."""
        num_pages = -(-len(tokens) // self.page_tokens)
        caches = {
            pool.name: PagedCache.in_memory(
                pool, num_pages, kept=() if pool.attention is AttentionType.RECURRENT else None
            )
            for pool in self.pools
            if not pool.is_logical
        }
        return self.without_cache.forward(self.without_cache.embed(tokens), 0, Prompt(caches))

    def continued(self, caches: Mapping[str, PagedCache], tokens: Ids, end: int) -> Continuation:
        """What follows a prefix of ``end`` pages that lies in ``caches``: a suffix at once, then decoding.

        ``caches`` stay as they are.
        """
        start = end * self.page_tokens
        own = self._own(caches, end)
        prompt = Prompt(own)
        inputs = self.reference.embed(tokens[: start + TAIL_TOKENS])
        stop = start + SUFFIX_TOKENS
        outputs = [self.reference.forward(inputs[start:stop], start, prompt)]
        outputs += [
            self.reference.forward(inputs[token : token + 1], token, prompt)
            for token in range(stop, stop + DECODE_STEPS)
        ]
        cached = {name: _cached_from(cache, start) for name, cache in own.items()}
        return Continuation(np.concatenate(outputs), cached)

    def selected_units(
        self, caches: Mapping[str, PagedCache], tokens: Ids, end: int
    ) -> Mapping[str, BoolVector]:
        """Units that the continuation reads of each pool that an index selects from."""
        start = end * self.page_tokens
        inputs = self.reference.embed(tokens[start : start + TAIL_TOKENS])
        return self.reference.selected_units(inputs, start, Prompt(self._own(caches, end)))

    def _own(self, caches: Mapping[str, PagedCache], end: int) -> Caches:
        """Copies with room for the continuation, and without what lies beyond the prefix."""
        num_pages = -(-(end * self.page_tokens + TAIL_TOKENS) // self.page_tokens)
        copies = {name: cache.copy(num_pages) for name, cache in caches.items()}
        for cache in copies.values():
            for page in range(end, num_pages):
                cache.overwrite(page)
        return copies


def _cached_from(cache: PagedCache, start: int) -> RawBytes:
    """The bytes that a continuation from token ``start`` left in its pool, layer after layer."""
    tokens = np.arange(start, start + TAIL_TOKENS)
    pages = np.unique(tokens // cache.page_tokens)
    found = [
        cache.read_rows(component.name, layer, tokens)
        if component.rows == cache.page_tokens
        else cache.read_pages(component.name, layer, pages)
        for component in cache.pool.stored_components
        for layer in range(component.num_layers)
    ]
    return np.concatenate([content.ravel() for content in found])


def _selecting(spec: ModelSpec, num_tokens: int) -> ModelSpec:
    """``spec`` whose indexes choose at most ``num_tokens`` for a query: fewer than a page has."""
    attentions = {name: _narrow(attention, num_tokens) for name, attention in spec.attentions.items()}
    return replace(spec, attentions=attentions)


def _narrow(attention: Attention, num_tokens: int) -> Attention:
    match attention:
        case SparseIndex():
            return replace(attention, top_k=min(attention.top_k, num_tokens))
        case CompressedAttention(index_top_k=int(top_k), ratio=ratio):
            return replace(attention, index_top_k=min(top_k, max(1, num_tokens // ratio)))
        case _:
            return attention
