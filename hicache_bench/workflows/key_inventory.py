"""Which of a prompt's objects a running store holds; and if none, under which other keys they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from hicache_bench.errors import ConfigError, InputError, StoreError
from hicache_bench.planning.policy import BoolVector, TransferPolicy, first_needed_at
from hicache_bench.planning.resolve import num_units, resolve, unit_ends
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.keys import KeyUnit, NamespacedKeyBuilder, SglangKeyBuilder
from hicache_bench.store.base import KVStoreBackend, Status
from hicache_bench.workflows.model_keys import Shard, Tokens, prompt_hashes, shards_of
from hicache_bench.workflows.variant import Variant, VariantOptions, apply_options

_KEYS_PER_CALL = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolInventory:
    """One pool. A page is there if every component of every shard is.

    ``expected_pages`` are those that an engine needs for the whole prompt; ``other_pages`` are found besides.
    """

    pool: str
    shards: int
    expected_pages: int
    found_pages: int
    other_pages: int
    expected_keys: int
    found_keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a store holds of a prompt. ``restorable_pages`` is the endpoint that an engine would promise."""

    num_pages: int
    restorable_pages: int
    pools: tuple[PoolInventory, ...]
    keys_found: int
    keys_asked: int


def take_inventory(store: KVStoreBackend, variant: Variant, hashes: Sequence[str]) -> Inventory:
    """Ask ``store`` for every object of every page; nothing is read or written.

    Raises:
        StoreError: the store could not answer for a key. An error is not a miss.
    """
    shards = shards_of(variant)
    found = {
        name: [_found(store, variant, shard, hashes) for shard in group] for name, group in shards.items()
    }
    presence = {
        name: np.logical_and.reduce([flags.all(axis=1) for flags in by_shard])
        for name, by_shard in found.items()
    }
    pools = [group[0].pool for group in shards.values()]
    whole = resolve(pools, presence, TransferPolicy.HIT_POLICY, len(hashes))
    return Inventory(
        num_pages=len(hashes),
        restorable_pages=whole.hit_pages,
        pools=tuple(_pool(pool, found[pool.name], presence[pool.name]) for pool in pools),
        keys_found=sum(int(flags.sum()) for by_shard in found.values() for flags in by_shard),
        keys_asked=sum(flags.size for by_shard in found.values() for flags in by_shard),
    )


def _pool(pool: KVPoolDescriptor, by_shard: Sequence[BoolVector], present: BoolVector) -> PoolInventory:
    first = first_needed_at(pool, TransferPolicy.HIT_POLICY, len(present))
    return PoolInventory(
        pool=pool.name,
        shards=len(by_shard),
        expected_pages=len(present) - first,
        found_pages=int(present[first:].sum()),
        other_pages=int(present[:first].sum()),
        expected_keys=sum(flags[first:].size for flags in by_shard),
        found_keys=sum(int(flags[first:].sum()) for flags in by_shard),
    )


def _found(store: KVStoreBackend, variant: Variant, shard: Shard, hashes: Sequence[str]) -> BoolVector:
    """One flag per unit and component."""
    ends = unit_ends(shard.pool, len(hashes))
    keys = variant.keys.keys(shard.pool, [hashes[end - 1] for end in ends.tolist()])
    there = np.zeros(len(keys), dtype=np.bool_)
    for start in range(0, len(keys), _KEYS_PER_CALL):
        results = store.batch_exists(keys[start : start + _KEYS_PER_CALL])
        for index, result in enumerate(results, start):
            if result.status not in (Status.OK, Status.MISS):
                raise StoreError(f"the store answered {result} when asked for a key; is its master healthy?")
            there[index] = result.status is Status.OK
    flags: BoolVector = there.reshape(num_units(shard.pool, len(hashes)), -1)
    return flags


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherKeys:
    """Keys under which objects of the prompt are there: what to change of the options, and how many."""

    changes: tuple[str, ...]
    keys_found: int


def look_elsewhere(
    store: KVStoreBackend, variant: Variant, tokens: Tokens, key_unit: KeyUnit
) -> tuple[OtherKeys | None, tuple[str, ...]]:
    """The smallest change of key unit, scheme, adapter, salt and names under which anything is found.

    Also names every change that was tried, each alone and together with others.
    """
    changes = list(_changes(variant.options, key_unit))
    for size in range(1, len(changes) + 1):
        for chosen in combinations(changes, size):
            found = _try(store, variant, tokens, key_unit, chosen)
            if found:
                return OtherKeys(changes=tuple(change.text for change in chosen), keys_found=found), ()
    return None, tuple(change.text for change in changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    text: str
    options: Mapping[str, str | None]
    key_unit: KeyUnit | None = None


def _changes(options: VariantOptions, key_unit: KeyUnit) -> Iterator[_Change]:
    other_unit = KeyUnit.TOKEN if key_unit is KeyUnit.BIGRAM else KeyUnit.BIGRAM
    yield _Change(text=f"--key-unit {other_unit}", options={}, key_unit=other_unit)
    if options.key_scheme == SglangKeyBuilder.scheme:
        yield _Change(
            text=f"--key-scheme {NamespacedKeyBuilder.scheme}",
            options={
                "key_scheme": NamespacedKeyBuilder.scheme,
                "model_name": None,
                "extra_backend_tag": None,
            },
        )
    else:
        yield _Change(
            text=f"--key-scheme {SglangKeyBuilder.scheme}", options={"key_scheme": SglangKeyBuilder.scheme}
        )
    for name in ("adapter", "salt", "model_name", "extra_backend_tag"):
        if getattr(options, name) is not None:
            yield _Change(text=f"no --{name.replace('_', '-')}", options={name: None})


def _try(
    store: KVStoreBackend,
    variant: Variant,
    tokens: Tokens,
    key_unit: KeyUnit,
    changes: Sequence[_Change],
) -> int:
    fields: dict[str, str | None] = {}
    for change in changes:
        fields |= change.options
        key_unit = change.key_unit or key_unit
    try:
        other = apply_options(variant.preset, replace(variant.options, **fields))  # type: ignore[arg-type]
        return take_inventory(store, other, prompt_hashes(other, tokens, key_unit)).keys_found
    except (ConfigError, InputError):  # no key for a pool in that scheme, or no whole page of that unit
        return 0


def missing_keys_text(found: Inventory, other: OtherKeys | None, tried: Sequence[str]) -> str:
    """What to do about an inventory that found nothing."""
    nothing = f"none of the {found.keys_asked} keys of this prompt is in the store"
    if other is None:
        return (
            f"{nothing}, nor with {', '.join(tried)}; nothing was saved, or it was evicted, or preset, "
            "dtype, page size, layout, TP size, adapter or salt are not the writer's"
        )
    changes = " and ".join(other.changes)
    return f"{nothing}, and {other.keys_found} are there with {changes}: the writer made its keys that way"
