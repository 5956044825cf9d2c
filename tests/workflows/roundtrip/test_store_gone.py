"""A store that goes away in the middle of a proof ends it, soon and as what it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hicache_bench.errors import StoreError, StoreUnavailableError
from hicache_bench.store.base import Buffers, KeyResult, KVStoreBackend, error
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.wrappers import StoreWrapper
from hicache_bench.units import MIB
from hicache_bench.workflows.roundtrip.fault_lab import Lab
from hicache_bench.workflows.roundtrip.fault_models import PLAIN
from hicache_bench.workflows.roundtrip.fault_rig import Rig
from hicache_bench.workflows.roundtrip.faults import fault_proofs
from hicache_bench.workflows.roundtrip.isolation import STORE_BYTES, isolation_proofs
from hicache_bench.workflows.roundtrip.numerics import numeric_proofs
from hicache_bench.workflows.roundtrip.soak import soak_proofs
from tests.workflows.roundtrip.rig import POLICIES, variant_of
from tests.workflows.runs import quiet

GONE = error(-900)
LLAMA = variant_of("llama-3.1-8b")


class Leaving(StoreWrapper):
    """Answers so many calls, and after that with errors alone, as a client does whose master was killed."""

    def __init__(self, inner: KVStoreBackend, num_calls: int) -> None:
        super().__init__(inner)
        self._left = num_calls
        self.num_errors = 0

    def _is_gone(self) -> bool:
        self._left -= 1
        self.num_errors += self._left < 0
        return self._left < 0

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        return [GONE] * len(keys) if self._is_gone() else super().batch_exists(keys)

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        return [GONE] * len(keys) if self._is_gone() else super().batch_put_from(keys, addresses, sizes)

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        return [GONE] * len(keys) if self._is_gone() else super().batch_get_into(keys, addresses, sizes)

    def remove(self, key: str, *, force: bool = False) -> KeyResult:
        return GONE if self._is_gone() else super().remove(key, force=force)


def isolated(store: KVStoreBackend) -> Any:
    return isolation_proofs(LLAMA, store, POLICIES, 0, quiet)


def computed(store: KVStoreBackend) -> Any:
    return numeric_proofs(LLAMA, 0, quiet, store=store)


def broken(store: KVStoreBackend) -> Any:
    return fault_proofs(
        ["failed-batch-write", "killed-writer"], store, seed=0, checksum=False, progress=quiet
    )


def soaked(store: KVStoreBackend) -> Any:
    return soak_proofs(20.0, store, seed=0, checksum=False, progress=quiet)


@pytest.mark.parametrize("num_calls", [0, 1, 2, 3, 5, 8, 13, 40])
@pytest.mark.parametrize("prove", [isolated, computed, broken, soaked], ids=lambda prove: prove.__name__)
def test_it_ends_after_a_few_calls(prove: Callable[[KVStoreBackend], Any], num_calls: int) -> None:
    """On a real store each of these calls waits out its timeouts, some ten seconds."""
    inner = LocalKVStore(STORE_BYTES)
    with inner:
        store = Leaving(inner, num_calls)
        with pytest.raises(StoreError, match=r"reachable|more room"):
            prove(store)
        # The call itself, one more try where it was a put, and one key for each request to take out.
        assert store.num_errors <= 8


def test_a_rig_says_that_its_store_is_gone() -> None:
    inner = LocalKVStore(16 * MIB)
    with inner, Lab("gone", Leaving(inner, 0), 0, None, 10.0) as lab:
        rig: Rig = lab.rig(PLAIN, 3)
        with pytest.raises(StoreUnavailableError, match="3 keys; see that its master"):
            rig.held()
