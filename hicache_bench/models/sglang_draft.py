"""How SGLang 0.5.23 stores the draft (MTP) layers of a checkpoint: in the pools of the target itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hicache_bench.errors import ConfigError
from hicache_bench.models.pool_builder import Layers, PoolBuilder
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import PoolName

Grouping = Callable[[PoolBuilder, Layers], tuple[KVPoolDescriptor, ...]]
"""How layers become pools, the anchor first."""


def packed_pools(
    builder: PoolBuilder, group: Grouping, layers: Layers, draft: Layers
) -> tuple[KVPoolDescriptor, ...]:
    """The pools of ``layers`` as ``group`` makes them, each with the ``draft`` layers of its kind behind.

    An object grows by the rows of these layers; no pool and no component gets another name. What is saved
    with speculation and what is saved without it are therefore different objects. SGLang's own pools
    ``draft``, ``draft_swa`` and ``draft_indexer`` are those of a draft that is a model apart (EAGLE3).

    Source: SGLang 0.5.23 ``speculative/base_spec_worker.py``, ``_can_pack_hicache_mtp``;
    ``mem_cache/hybrid_cache/host_pool_config.py`` refuses what cannot be packed.

    Raises:
        ConfigError: draft layers whose rows differ from the target's, that no pool of the target holds, or
            that have rows in only one of two pools which belong together.
    """
    target = group(builder, layers)
    packs = f"model {builder.spec.name!r}: SGLang 0.5.23 packs draft layers into the target's pools"
    try:
        pools = group(builder, _joined(layers, draft))
    except ConfigError as error:
        raise ConfigError(f"{packs}, which these do not fit; leave --draft out ({error})") from error
    names = [pool.name for pool in target]
    besides = Counter(pool.name for pool in pools) - Counter(names)
    if besides:
        raise ConfigError(
            f"{packs} {', '.join(names)}, and these need a pool {', '.join(besides)} besides; leave --draft "
            "out, or use --profile by_kind"
        )
    added = {pool.name: _num_layers(pool) - _num_layers(old) for pool, old in zip(pools, target, strict=True)}
    rows, keys = added[PoolName.KV.value], added.get(PoolName.INDEXER.value)
    if keys not in (None, rows):
        raise ConfigError(
            f"{packs}, and wants of each an index key as well as a row: these add {rows} to pool 'kv' and "
            f"{keys} to pool 'indexer'; leave --draft out, or use --profile by_kind"
        )
    return pools


def _joined(layers: Layers, draft: Layers) -> Layers:
    joined = dict(layers)
    for name, (attention, count) in draft.items():
        joined[name] = (attention, count + joined.get(name, (attention, 0))[1])
    return joined


def _num_layers(pool: KVPoolDescriptor) -> int:
    return max((component.num_layers for component in pool.components), default=0)
