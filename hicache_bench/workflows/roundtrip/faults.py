"""The proofs of ``roundtrip --faults``: each fault of the catalogue, tried on small models."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hicache_bench.errors import ConfigError, HicacheBenchError, StoreUnavailableError
from hicache_bench.records.proof import Proof
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.checksum import Digest
from hicache_bench.workflows.meter import Progress
from hicache_bench.workflows.roundtrip.fault_catalogue import FaultCase, SeenBy, chosen_cases
from hicache_bench.workflows.roundtrip.fault_lab import Lab
from hicache_bench.workflows.roundtrip.fault_write_scenarios import SCENARIOS
from hicache_bench.workflows.roundtrip.findings import BREAKDOWNS, breakdown

MAX_SECONDS = 10.0
"""One small restore takes milliseconds; whatever takes longer than this waited for something."""


def fault_proofs(
    names: Sequence[str], store: KVStoreBackend, *, seed: int, checksum: bool, progress: Progress
) -> tuple[Proof, ...]:
    """Try the named faults (``all`` for every one) on an open store that moves bytes.

    Faults that need another backend are left out. With ``checksum`` every object carries a digest.

    Raises:
        InputError: a name that is not in the catalogue.
        ConfigError: a store that only counts.
    """
    if not store.capabilities.moves_bytes:
        raise ConfigError("faults need a store that moves bytes; use --store local or mooncake")
    digest = checksum_digest() if checksum else None
    proofs = []
    for case in chosen_cases(names):
        if case.backends and store.capabilities.name not in case.backends:
            continue
        progress(f"fault {case.name}")
        proofs.append(_prove(case, store, seed, digest))
    return tuple(proofs)


def checksum_digest() -> Digest:
    """The digest of ``--checksum``: XXH3 with 64 bits."""
    # Imported here: only a run with checksums needs it.
    from xxhash import xxh3_64_intdigest

    return xxh3_64_intdigest


def _prove(case: FaultCase, store: KVStoreBackend, seed: int, digest: Digest | None) -> Proof:
    started = time.perf_counter()
    with Lab(case.name, store, seed, digest, MAX_SECONDS) as lab:
        try:
            SCENARIOS[case.name](lab)
        except StoreUnavailableError:
            raise
        except (HicacheBenchError, *BREAKDOWNS) as error:
            # A fault that the engine does not survive is a finding, not the end of the run.
            lab.checks.append(breakdown(error))
    return Proof(
        section="fault",
        name=case.holds,
        subject=case.name,
        checks=tuple(lab.checks),
        cases=case.cases,
        figures={
            "restores": lab.num_restores,
            "bytes_compared": lab.bytes_compared,
            "found_by": _found_by(case, checksum=digest is not None),
        },
        seconds=time.perf_counter() - started,
    )


def _found_by(case: FaultCase, *, checksum: bool) -> str:
    """Who found it in this run."""
    if case.seen_by is SeenBy.STORE:
        return "the store's answers"
    if case.seen_by is SeenBy.DIGEST:
        return "the checksum" if checksum else "silent: only a checksum or content check finds this"
    return "silent: only a content check finds this"
