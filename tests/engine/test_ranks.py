"""Engines of several ranks, and of several TP sizes, on one store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hicache_bench.engine.controller import HybridKVController
from hicache_bench.engine.prefix import Prefix
from hicache_bench.engine.reports import RestoreReport
from hicache_bench.fixtures.fill import PagePattern
from hicache_bench.fixtures.host_pool import POISON, HostPool
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.engine_profile import BY_KIND, cluster_pools
from hicache_bench.models.spec import FullAttention, KimiDelta, MlaAttention, ModelSpec
from hicache_bench.planning.policy import SavePolicy, StateSave, TransferPolicy
from hicache_bench.planning.resolve import num_units, resolve_ranks
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.keys import KeyBuilder, NamespacedKeyBuilder, SglangKeyBuilder, page_hashes
from hicache_bench.pools.names import Layout
from hicache_bench.store.base import OK, KVStoreBackend
from hicache_bench.store.local import LocalKVStore
from hicache_bench.units import MIB
from hicache_bench.workflows.prefix import build_registry
from tests.engine.rig import tokens

PAGE_TOKENS, NUM_PAGES = 64, 4
LAYERS, HEADS, HEAD_BYTES = 4, 4, 256
DENSE = TransferPolicy.DENSE
SAVE_ALL = SavePolicy(states=StateSave.ALL)


def model(**attentions: Any) -> ModelSpec:
    return ModelSpec(
        name="ranks",
        architecture="RanksForCausalLM",
        attentions=attentions,
        layers=tuple((name,) for name in attentions) * (LAYERS // len(attentions)),
        page_tokens=PAGE_TOKENS,
        engine_default_page_tokens=PAGE_TOKENS,
    )


HEADED = model(full=FullAttention(kv_heads=HEADS, head_dim=HEAD_BYTES // 2))
LATENT_AND_STATE = model(
    mla=MlaAttention(kv_lora_rank=32, qk_rope_head_dim=16),
    kda=KimiDelta(heads=4, head_dim=8, conv_kernel=4),
)


@dataclass(slots=True)
class Engine:
    """One rank's controller over its own host pools, poisoned at first; slot ``i`` holds unit ``i``."""

    pools: tuple[KVPoolDescriptor, ...]
    keys: KeyBuilder
    store: KVStoreBackend
    host_pools: dict[str, HostPool] = field(init=False)
    controller: HybridKVController = field(init=False)
    prefix: Prefix = field(init=False)

    def __post_init__(self) -> None:
        registry = build_registry(self.pools)
        slots = {pool.name: np.arange(num_units(pool, NUM_PAGES)) for pool in registry.registered}
        self.host_pools = {pool.name: HostPool(pool, NUM_PAGES) for pool in registry.registered}
        for host_pool in self.host_pools.values():
            host_pool.poison()
        self.controller = HybridKVController(registry, self.host_pools, self.keys, self.store)
        prompt = tokens(NUM_PAGES * PAGE_TOKENS)
        self.prefix = Prefix(
            prompt_tokens=len(prompt) + 1,
            page_tokens=PAGE_TOKENS,
            hashes=page_hashes(prompt, PAGE_TOKENS),
            slots=slots,
        )

    def save(self) -> None:
        report = self.controller.save(self.prefix, SAVE_ALL)
        assert report.complete

    def restore(self, policy: TransferPolicy = DENSE) -> RestoreReport:
        lookup = self.controller.lookup(self.prefix)
        return self.controller.restore(self.prefix, self.controller.plan(lookup, policy))


def engines(
    spec: ModelSpec, store: KVStoreBackend, keys: KeyBuilder | None = None, **deployment: Any
) -> dict[Rank, Engine]:
    """Every rank of a deployment, on one store, which must not outlive them: their buffers are registered."""
    ranks = cluster_pools(spec, profile=BY_KIND, deployment=Deployment(**deployment))
    builder = keys or NamespacedKeyBuilder("ranks")
    return {rank: Engine(pools, builder, store) for rank, pools in ranks.items()}


def cache() -> npt.NDArray[np.uint8]:
    """K, then V, of the whole model: ``(component, page, layer, token, head, byte)``."""
    shape = (2, NUM_PAGES, LAYERS, PAGE_TOKENS, HEADS, HEAD_BYTES)
    return np.random.default_rng(5).integers(0, 256, shape, dtype=np.uint8)


def heads_of(engine: Engine) -> list[tuple[int, slice, npt.NDArray[np.uint8]]]:
    """K (0) or V (1), the model's heads, and the host memory of each component of the ``kv`` pool."""
    host_pool = engine.host_pools["kv"]
    rank = host_pool.pool.rank
    found = []
    for index, component in enumerate(host_pool.pool.stored_components):
        first = (component.chunk[0] if component.chunk else rank.tp_rank) * component.heads
        found.append(
            ("kv".index(component.name), slice(first, first + component.heads), host_pool.view(index))
        )
    return found


def fill(engine: Engine, whole: npt.NDArray[np.uint8]) -> None:
    for part, heads, view in heads_of(engine):
        view[:] = whole[part, :, :, :, heads]


def holds(engine: Engine, whole: npt.NDArray[np.uint8]) -> bool:
    return all(np.array_equal(view, whole[part, :, :, :, heads]) for part, heads, view in heads_of(engine))


@pytest.mark.parametrize(("writers", "readers"), [(2, 4), (4, 2), (1, 4), (4, 1), (2, 2)])
def test_split_heads_are_read_by_another_tp_size(writers: int, readers: int) -> None:
    """The oracle is the whole cache, of which each rank holds a slice of heads."""
    whole = cache()
    split: dict[str, Any] = {"tp_lcm": 4, "layout": Layout.PAGE_HEAD}
    with LocalKVStore(64 * MIB) as store:
        writing = engines(HEADED, store, tp_size=writers, **split)
        for engine in writing.values():
            fill(engine, whole)
            engine.save()
        # An object of K and one of V for each head and page, whoever wrote them.
        for engine in engines(HEADED, store, tp_size=readers, **split).values():
            keys = engine.controller._keys.asked(engine.pools[0], engine.prefix)
            assert 2 * NUM_PAGES * HEADS // readers == len(set(keys))
            report = engine.restore()
            assert NUM_PAGES * PAGE_TOKENS == report.ledger.used_tokens
            assert holds(engine, whole)
    assert whole.nbytes == store.stats.put_bytes == store.stats.get_bytes


def test_ranks_of_another_size_find_nothing_where_heads_are_not_split() -> None:
    with LocalKVStore(64 * MIB) as store:
        writing = engines(HEADED, store, tp_size=2)
        for engine in writing.values():
            fill(engine, cache())
            engine.save()
        for engine in engines(HEADED, store, tp_size=4).values():
            assert 0 == engine.restore().ledger.hit_tokens


def test_a_whole_rank_never_takes_an_object_of_an_eighth_for_its_own() -> None:
    """SGLang's keys name no TP size: rank 0 of 8 writes 65,536 B where TP 1 looks for 262,144 B."""
    keys = SglangKeyBuilder(mla_backend=False)
    with LocalKVStore(64 * MIB) as store:
        eighth = engines(HEADED, store, keys, tp_size=8)
        for engine in eighth.values():
            fill_one_head(engine)
            engine.save()
        (whole,) = engines(HEADED, store, keys).values()
        sizes = [
            {component.object_bytes for component in engine.pools[0].components}
            for engine in (eighth[Rank(tp_size=8)], whole)
        ]
        assert [{65_536}, {262_144}] == sizes
        assert 0 == store.stats.get_bytes
        report = whole.restore()
        # The keys are there, so the endpoint is promised; nothing of it is used, and no byte is written.
        assert NUM_PAGES * PAGE_TOKENS == report.ledger.hit_tokens
        assert (0, 0) == (report.ledger.used_tokens, report.ledger.read.num_bytes)
        (account,) = report.ledger.pools
        assert NUM_PAGES * 2 * 262_144 == account.failed.num_bytes
        assert 0 == store.stats.get_bytes
        for _, _, view in heads_of(whole):
            assert (view == POISON).all()


def fill_one_head(engine: Engine) -> None:
    pool = engine.pools[0]
    PagePattern(pool).write(engine.host_pools["kv"], range(NUM_PAGES), range(NUM_PAGES))


def test_a_state_of_one_rank_alone_makes_no_endpoint() -> None:
    """Kimi-Linear on TP 2: the latent is there for both ranks, a state only where its own shard is."""
    with LocalKVStore(64 * MIB) as store:
        ranks = list(engines(LATENT_AND_STATE, store, tp_size=2).values())
        for engine in ranks:
            for name, host_pool in engine.host_pools.items():
                units = range(len(engine.prefix.slots[name]))
                PagePattern(host_pool.pool).write(host_pool, units, units)
            engine.save()
        keys_of = [
            {
                pool.name: engine.controller._keys.asked(pool, engine.prefix)
                for pool in engine.controller.pools
            }
            for engine in ranks
        ]
        assert keys_of[0]["kv"] == keys_of[1]["kv"]
        assert not set(keys_of[0]["mamba"]) & set(keys_of[1]["mamba"])

        def endpoints() -> tuple[list[int], int]:
            found = [
                engine.controller.resolve(engine.controller.lookup(engine.prefix), DENSE) for engine in ranks
            ]
            return [resolution.hit_pages for resolution in found], resolve_ranks(found).hit_pages

        assert ([4, 4], 4) == endpoints()
        # Rank 1 loses the states of pages 4 and 2, rank 0 those of page 3.
        components = len(ranks[0].controller.pools[-1].stored_components)
        for rank, pages in ((1, (4, 2)), (0, (3,))):
            for page in pages:
                assert OK == store.remove(keys_of[rank]["mamba"][(page - 1) * components], force=True)
        # Each alone could go on from 4 or 3; together they have only the state of page 1.
        assert ([4, 3], 1) == endpoints()
        lookups = [engine.controller.lookup(engine.prefix) for engine in ranks]
        together = resolve_ranks(
            [engine.controller.resolve(lookup, DENSE) for engine, lookup in zip(ranks, lookups, strict=True)]
        )
        for engine, lookup in zip(ranks, lookups, strict=True):
            plan = engine.controller.plan(lookup, DENSE, resolution=together)
            assert (1, 1) == (plan.hit_pages, plan.endpoint_pages)
            report = engine.controller.restore(engine.prefix, plan)
            assert PAGE_TOKENS == report.ledger.used_tokens


def test_ranks_that_share_a_prefix_have_keys_of_their_own() -> None:
    """One prompt has one prefix: what one rank built for it is no other rank's."""
    whole = cache()
    with LocalKVStore(64 * MIB) as store:
        writing = engines(HEADED, store, tp_size=2)
        prefix = next(iter(writing.values())).prefix
        for engine in writing.values():
            engine.prefix = prefix
            fill(engine, whole)
            engine.save()
        objects = 2 * NUM_PAGES * len(writing)
        assert (objects, 0) == (store.stats.put_keys, store.stats.put_noops)
        for engine in engines(HEADED, store, tp_size=2).values():
            engine.prefix = prefix
            assert NUM_PAGES * PAGE_TOKENS == engine.restore().ledger.used_tokens
            assert holds(engine, whole)
