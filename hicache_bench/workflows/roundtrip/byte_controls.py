"""The byte checks on restores that are broken on purpose: each fault is found, and by the right check."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hicache_bench.config.load import load_model
from hicache_bench.engine.prefix import PrefixKeys
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.records.proof import Proof
from hicache_bench.records.schema import Check
from hicache_bench.store.base import Buffers, KeyResult, KVStoreBackend, StoreStats
from hicache_bench.store.object_batch import ObjectBatch
from hicache_bench.store.wrappers import StoreWrapper
from hicache_bench.units import MIB
from hicache_bench.workflows.cluster import members_of
from hicache_bench.workflows.meter import Progress
from hicache_bench.workflows.prefix import prompt_prefix
from hicache_bench.workflows.roundtrip.byte_proofs import ByteJob, BytePlan, Tally, plan_bytes
from hicache_bench.workflows.roundtrip.findings import findings
from hicache_bench.workflows.stores import open_store
from hicache_bench.workflows.variant import Variant, VariantOptions, apply_options

PRESET = "kitchen-sink"
NUM_PAGES = 12
"""Longer than its window of 8 pages, so that two policies skip some."""

_MEMORY_BYTES = 256 * MIB
_DIFFER = "restored pages that differ from the saved ones"


_Spoiled = Callable[[Mapping[int, int], Sequence[tuple[int, int]]], "int | None"]
"""Which byte to flip: given the buffers, and the pages that were read, as addresses and sizes."""


class _BrokenGet(StoreWrapper):
    """Reads right, and then flips a byte. Sees the registered buffers."""

    def __init__(self, inner: KVStoreBackend, spoiled: _Spoiled) -> None:
        super().__init__(inner)
        self._spoiled = spoiled
        self._buffers: dict[int, int] = {}

    def register_buffer(self, address: int, num_bytes: int) -> None:
        super().register_buffer(address, num_bytes)
        self._buffers[address] = num_bytes

    def unregister_buffer(self, address: int) -> None:
        super().unregister_buffer(address)
        del self._buffers[address]

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        results = super().batch_get_into(keys, addresses, sizes)
        batch = ObjectBatch.of(keys, addresses, sizes)
        address = self._spoiled(self._buffers, list(zip(batch.addresses, batch.sizes, strict=True)))
        if address is not None:
            byte = ctypes.c_ubyte.from_address(address)
            byte.value ^= 0x01
        return results


def _restored_byte(_buffers: Mapping[int, int], read: Sequence[tuple[int, int]]) -> int:
    """The last byte that was read."""
    address, size = read[-1]
    return address + size - 1


def _skipped_byte(buffers: Mapping[int, int], read: Sequence[tuple[int, int]]) -> int | None:
    """The first byte before or between the pages that were read; a restore of everything has none."""
    for start, num_bytes in sorted(buffers.items()):
        free = start
        for address, size in sorted(read):
            if address == free:
                free += size
        if free < start + num_bytes:
            return free
    return None


def _guard_byte(buffers: Mapping[int, int], _read: Sequence[tuple[int, int]]) -> int:
    """The first byte behind a buffer."""
    start, num_bytes = next(iter(buffers.items()))
    return start + num_bytes


class _ByteCount(StoreWrapper):
    """Counts one byte less than it reads."""

    @property
    def stats(self) -> StoreStats:
        inner = super().stats
        return replace(inner, get_bytes=inner.get_bytes - inner.get_calls)


class _OtherKeys(StoreWrapper):
    """Reads the object of another key."""

    def __init__(self, inner: KVStoreBackend, others: dict[str, str]) -> None:
        super().__init__(inner)
        self._others = others

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        return super().batch_get_into([self._others.get(key, key) for key in keys], addresses, sizes)


@dataclass(frozen=True, slots=True)
class _Bench:
    """A small hybrid model, and what one request of it stores."""

    variant: Variant
    plan: BytePlan
    seed: int
    progress: Progress

    def failed(self, store: KVStoreBackend, *, seed: int | None = None) -> list[str]:
        """Save and restore; the kinds of checks that failed, without the length and the policy."""
        job = ByteJob(
            variant=self.variant,
            plan=self.plan,
            store=store,
            policies=tuple(TransferPolicy),
            seed=self.seed if seed is None else seed,
            progress=self.progress,
        )
        (cluster,) = self.plan.clusters
        tally = Tally()
        proof = job.prove(cluster, job.length_job(cluster, tally), tally)
        return sorted({check.name.rpartition(": ")[2] for check in proof.checks if not check.passed})

    def keys(self, seed: int) -> list[list[str]]:
        """Keys of each pool of the request with this seed, in the order of its units."""
        (cluster,) = self.plan.clusters
        (layout,) = cluster.layouts
        prefix = prompt_prefix(layout, token_seed=seed)
        keys = PrefixKeys(self.variant.keys)
        return [keys.of_units(pool, prefix, layout.kept_units(pool)) for pool in layout.pools]


def _other_request(bench: _Bench, store: KVStoreBackend) -> KVStoreBackend:
    """The first page of each pool is that of another request, which is in the store as well."""
    bench.failed(store, seed=bench.seed + 1)
    own, other = bench.keys(bench.seed), bench.keys(bench.seed + 1)
    return _OtherKeys(
        store, {mine[-1]: theirs[-1] for mine, theirs in zip(own, other, strict=True) if mine and theirs}
    )


def _other_place(bench: _Bench, store: KVStoreBackend) -> KVStoreBackend:
    """The last two pages of a pool change places."""
    keys = bench.keys(bench.seed)[0]
    return _OtherKeys(store, {keys[-1]: keys[-2], keys[-2]: keys[-1]})


_Break = Callable[[_Bench, KVStoreBackend], KVStoreBackend]

CONTROLS: dict[str, tuple[_Break, tuple[str, ...]]] = {
    "nothing is broken": (lambda _bench, store: store, ()),
    "a flipped byte in a restored page": (
        lambda _bench, store: _BrokenGet(store, _restored_byte),
        (_DIFFER,),
    ),
    "a page of another request": (_other_request, (_DIFFER,)),
    "two pages in each other's place": (_other_place, (_DIFFER,)),
    "a skipped page that was overwritten": (
        lambda _bench, store: _BrokenGet(store, _skipped_byte),
        ("skipped pages without their poison",),
    ),
    "a guard zone that was written to": (
        lambda _bench, store: _BrokenGet(store, _guard_byte),
        ("guard zones that were written to",),
    ),
    "a byte count that disagrees": (
        lambda _bench, store: _ByteCount(store),
        ("bytes by the store's own count",),
    ),
}
"""What is broken, how, and the checks that must find it and no others."""


def byte_controls(seed: int, progress: Progress) -> tuple[Proof, ...]:
    """Run every control on a small model in the local store."""
    checks: list[Check] = []
    proofs: list[Proof] = []
    with findings(checks, own_store=True):
        bench = _bench(seed, progress)
        proofs += [_control(bench, name) for name in CONTROLS]
    if checks:
        proofs.append(_proof("any control", checks))
    return tuple(proofs)


def _bench(seed: int, progress: Progress) -> _Bench:
    variant = apply_options(load_model(PRESET), VariantOptions())
    plan = plan_bytes(members_of(variant), lengths=[NUM_PAGES], batch_pages=None, memory_bytes=_MEMORY_BYTES)
    return _Bench(variant, plan, seed, progress)


def _control(bench: _Bench, name: str) -> Proof:
    broken, expected = CONTROLS[name]
    bench.progress(f"control: {name}")
    checks: list[Check] = []
    with findings(checks, own_store=True):
        with open_store("local", stored_bytes=2 * bench.plan.stored_bytes) as opened:
            found = bench.failed(broken(bench, opened.backend))
        wanted, actual = ", ".join(expected) or "nothing", ", ".join(found) or "nothing"
        # Not by what all checks are made with: one that always passes would pass its controls.
        checks.append(Check("checks that find it", wanted, actual, wanted == actual))
    return _proof(name, checks)


def _proof(name: str, checks: Sequence[Check]) -> Proof:
    return Proof(section="control", name=name, subject=PRESET, checks=tuple(checks))
