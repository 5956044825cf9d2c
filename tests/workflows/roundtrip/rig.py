"""Small roundtrips, and stores that break them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hicache_bench.config.load import load_model
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.records.proof import Proof
from hicache_bench.store.base import Buffers, KeyResult, KVStoreBackend
from hicache_bench.store.wrappers import StoreWrapper
from hicache_bench.units import MIB
from hicache_bench.workflows.cluster import members_of
from hicache_bench.workflows.roundtrip.byte_proofs import ByteJob, Tally, plan_bytes
from hicache_bench.workflows.stores import open_store
from hicache_bench.workflows.variant import Variant, VariantOptions, apply_options
from tests.workflows.runs import quiet

POLICIES = tuple(TransferPolicy)
Wrap = Callable[[KVStoreBackend], KVStoreBackend]


def variant_of(name: str, **options: Any) -> Variant:
    return apply_options(load_model(name), VariantOptions(**options))


def as_it_is(store: KVStoreBackend) -> KVStoreBackend:
    return store


def byte_proof(
    variant: Variant,
    num_pages: int,
    *,
    batch_pages: int = 4,
    wrap: Wrap = as_it_is,
    policies: tuple[TransferPolicy, ...] = POLICIES,
) -> Proof:
    """One length of one preset on a local store."""
    plan = plan_bytes(
        members_of(variant), lengths=[num_pages], batch_pages=batch_pages, memory_bytes=512 * MIB
    )
    with open_store("local", stored_bytes=plan.stored_bytes) as opened:
        job = ByteJob(
            variant=variant, plan=plan, store=wrap(opened.backend), policies=policies, seed=5, progress=quiet
        )
        tally = Tally()
        (cluster,) = plan.clusters
        return job.prove(cluster, job.length_job(cluster, tally), tally)


def failed_kinds(proofs: Iterable[Proof]) -> set[str]:
    """What failed, without the length, the rank and the policy."""
    return {check.name.rpartition(": ")[2] for proof in proofs for check in proof.checks if not check.passed}


class Redirected(StoreWrapper):
    """Every key is another one, for reads, look-ups and writes alike."""

    def __init__(self, inner: KVStoreBackend, rename: Callable[[str], str]) -> None:
        super().__init__(inner)
        self._rename = rename

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        return super().batch_exists(list(map(self._rename, keys)))

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        return super().batch_put_from(list(map(self._rename, keys)), addresses, sizes)

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        return super().batch_get_into(list(map(self._rename, keys)), addresses, sizes)

    def remove(self, key: str, *, force: bool = False) -> KeyResult:
        return super().remove(self._rename(key), force=force)
