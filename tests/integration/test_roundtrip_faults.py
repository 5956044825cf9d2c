"""The faults that need no process of their own, on the real store through the same wrappers."""

from __future__ import annotations

import pytest

from hicache_bench.store.mooncake import MooncakeStoreBackend
from hicache_bench.workflows.roundtrip.fault_catalogue import FAULT_CASES
from hicache_bench.workflows.roundtrip.faults import fault_proofs
from hicache_bench.workflows.roundtrip.soak import injection_proofs

pytestmark = pytest.mark.mooncake


def silent(_text: str) -> None:
    """Progress that nobody reads."""


@pytest.mark.parametrize("checksum", [False, True], ids=["plain", "checksum"])
def test_every_fault_passes_and_leaves_nothing(mooncake_store: MooncakeStoreBackend, checksum: bool) -> None:
    proofs = fault_proofs(["all"], mooncake_store, seed=5, checksum=checksum, progress=silent)
    assert [case.name for case in FAULT_CASES if "local" not in case.backends] == [
        proof.subject for proof in proofs
    ]
    assert [] == [check for proof in proofs for check in proof.checks if not check.passed]
    assert 0 == mooncake_store.remove_all(force=True)


def test_random_faults_break_no_promise(mooncake_store: MooncakeStoreBackend) -> None:
    (proof,) = injection_proofs(200, mooncake_store, seed=5, checksum=False, progress=silent)
    assert () == tuple(check for check in proof.checks if not check.passed)
    assert 0 == mooncake_store.remove_all(force=True)
