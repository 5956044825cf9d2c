from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from hicache_bench.engine.lookup import resolve_lookup
from hicache_bench.engine.reports import Lookup
from hicache_bench.planning import policy as rules
from hicache_bench.planning.resolve import Resolution
from hicache_bench.pools.names import AttentionType
from hicache_bench.records.proof import Proof
from hicache_bench.store.base import MISS, Buffers, KeyResult, KVStoreBackend, StoreStats
from hicache_bench.store.object_batch import ObjectBatch
from hicache_bench.store.wrappers import StoreWrapper
from hicache_bench.workflows.roundtrip import isolation, requests
from hicache_bench.workflows.roundtrip.isolation import STORE_BYTES, isolation_proofs
from hicache_bench.workflows.roundtrip.requests import Request, owners_of
from hicache_bench.workflows.stores import open_store
from hicache_bench.workflows.variant import Variant
from tests.workflows.roundtrip.rig import POLICIES, Wrap, as_it_is, failed_kinds, variant_of
from tests.workflows.runs import quiet

HYBRID = variant_of("kitchen-sink")
SHARDED = variant_of("kimi-linear-48b-a3b")
DIFFER = "restored pages that differ from its own"


def proofs_of(variant: Variant, wrap: Wrap = as_it_is) -> dict[str, Proof]:
    with open_store("local", stored_bytes=STORE_BYTES) as opened:
        found = isolation_proofs(variant, wrap(opened.backend), POLICIES, 3, quiet)
        assert {} == left_in(opened.backend, variant)
    return {proof.name: proof for proof in found}


def left_in(store: KVStoreBackend, variant: Variant) -> dict[str, int]:
    """Pages of the scenes' requests that are still there."""
    request = Request(owners_of(variant, 0)[0], (3 * 8,) * 4)
    presence = request.look_up(store).presence
    return {name: int(present.sum()) for name, present in presence.items() if present.any()}


@pytest.mark.parametrize(
    "preset", ["kitchen-sink", "kimi-linear-48b-a3b", "deepseek-v4-flash", "llama-3.1-8b"]
)
def test_nobody_sees_what_is_not_his(preset: str) -> None:
    proofs = proofs_of(variant_of(preset))
    assert set() == failed_kinds(proofs.values())
    expected = {
        "extended prefix": "E23",
        "diverging suffix": "E24",
        "holes in two pools": "E01",
        "two salts": "E41",
        "two adapters": "E42",
        "adapter and salt, cut elsewhere": "E41",
        "two models": "E34",
        "two revisions": "E34",
        "writer and reader of another dtype": "E33",
        "TP 2, a page of one rank absent": "E35",
    }
    if preset.startswith("deepseek-v4"):
        del expected["writer and reader of another dtype"]  # its rows have one dtype
    assert set(expected) == set(proofs)
    assert all(case in proofs[name].cases for name, case in expected.items())
    assert all(len(proof.checks) > 12 for proof in proofs.values())


def test_keys_of_sglang_keep_apart_only_what_seeds_the_hash() -> None:
    proofs = proofs_of(variant_of("llama-3.1-8b", key_scheme="sglang"))
    assert set() == failed_kinds(proofs.values())
    assert {"two models", "two revisions"}.isdisjoint(proofs)
    assert {"two salts", "two adapters"} <= set(proofs)


def test_owners_who_share_their_keys_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_changed", lambda stage, **_options: stage.variant)
    proofs = proofs_of(HYBRID)
    found = failed_kinds([proofs["two salts"]])
    assert {
        "pages of the one that the other finds",
        "objects of the one that stand where the other saves",
        DIFFER,
    } <= found
    assert proofs["two models"].passed


def test_a_rank_that_is_not_asked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_rank(resolutions: Sequence[Resolution]) -> Resolution:
        return resolutions[0]

    monkeypatch.setattr(isolation, "resolve_ranks", first_rank)
    found = failed_kinds([proofs_of(SHARDED)["TP 2, a page of one rank absent"]])
    assert "pages used" in found


def test_a_shard_that_is_written_once_for_two_ranks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replication as a property of the model: the second rank reads the first one's state."""
    original = requests.owners_of

    def alike(variant: Variant, number: int) -> list[requests.Owner]:
        first, *others = original(variant, number)
        return [first, *(replace(owner, registry=first.registry) for owner in others)]

    monkeypatch.setattr(isolation, "owners_of", alike)
    found = failed_kinds([proofs_of(SHARDED)["TP 2, a page of one rank absent"]])
    assert "pages written by two ranks" in found


def test_the_least_of_the_best_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that takes the minimum of each pool's best promises what cannot be restored."""
    original = resolve_lookup

    def least(pools, lookup: Lookup, policy, **options) -> Resolution:
        found = original(pools, lookup, policy, **options)
        return replace(found, hit_pages=min(found.best_pages.values(), default=found.hit_pages))

    monkeypatch.setattr(requests, "resolve_lookup", least)
    assert "pages used" in failed_kinds([proofs_of(HYBRID)["holes in two pools"]])


class Spoiling(StoreWrapper):
    """Writes one byte where it must not, after each read."""

    def __init__(self, inner: KVStoreBackend, place: Callable[[int, int, set[int]], int | None]) -> None:
        super().__init__(inner)
        self._place = place
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
        read = {int(address) for address in np.ravel(batch.addresses)}
        for start, num_bytes in self._buffers.items():
            place = self._place(start, num_bytes, read)
            if place is not None:
                ctypes.c_ubyte.from_address(place).value ^= 1
        return results


class OneByteLess(StoreWrapper):
    @property
    def stats(self) -> StoreStats:
        inner = super().stats
        return replace(inner, get_bytes=inner.get_bytes - inner.get_calls)


@pytest.mark.parametrize(
    ("wrap", "kind"),
    [
        (lambda store: Spoiling(store, lambda start, size, read: start if start in read else None), DIFFER),
        (
            lambda store: Spoiling(store, lambda start, size, read: None if start in read else start),
            "skipped pages without their poison",
        ),
        (
            lambda store: Spoiling(store, lambda start, size, _read: start + size),
            "guard zones that were written to",
        ),
        (OneByteLess, "bytes by the store's own count"),
    ],
)
def test_what_a_broken_store_does_is_found(wrap: Wrap, kind: str) -> None:
    assert {kind} == failed_kinds(proofs_of(HYBRID, wrap).values())


def test_a_rule_that_reads_too_little_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = rules._SELECTIVE[AttentionType.SWA]
    monkeypatch.setitem(
        rules._SELECTIVE, AttentionType.SWA, lambda pool, ends: np.minimum(right(pool, ends) + 1, ends)
    )
    found = failed_kinds(proofs_of(HYBRID).values())
    assert "pages restored and not asked for, or the reverse" in found


def test_a_page_that_is_lost_is_found() -> None:
    class Forgets(StoreWrapper):
        """Denies the last key of each question."""

        def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
            return [*super().batch_exists(keys)[:-1], MISS]

    found = failed_kinds(proofs_of(HYBRID, Forgets).values())
    assert "pages found and not stored, or the reverse" in found


def test_an_extension_that_writes_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without insert-if-absent, turn 2 would write turn 1 again."""
    original = Request.save

    def forgets_first(self: Request, store: KVStoreBackend, *arguments, **options):
        self.remove(store)
        return original(self, store, *arguments, **options)

    monkeypatch.setattr(Request, "save", forgets_first)
    found = failed_kinds([proofs_of(HYBRID)["extended prefix"]])
    assert "pages of turn 2 written, those of turn 1 found" in found
