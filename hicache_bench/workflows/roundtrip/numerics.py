"""The arithmetic over the engine: what a restored prefix computes is what the whole prompt computes.

A small model with the preset's own dims computes a prefix into host pools, saves it, and continues it from
restores into poisoned pools. What a selective restore leaves out reads as NaN, so that a page which was
needed shows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from hicache_bench.errors import ConfigError
from hicache_bench.numerics.dtypes import Floats
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.layout import STORABLE_LAYOUTS
from hicache_bench.pools.names import AttentionType
from hicache_bench.records.proof import Proof
from hicache_bench.records.schema import Check
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.workflows.meter import Progress
from hicache_bench.workflows.rank import equal
from hicache_bench.workflows.roundtrip.findings import findings
from hicache_bench.workflows.roundtrip.numeric_checks import (
    agreement,
    continuation_checks,
    largest_difference,
)
from hicache_bench.workflows.roundtrip.numeric_controls import inapplicable_control, numeric_controls
from hicache_bench.workflows.roundtrip.numeric_model import TAIL_TOKENS, Caches, Ids, NumericModel
from hicache_bench.workflows.roundtrip.numeric_rig import Endpoint, NumericRig, Restored
from hicache_bench.workflows.stores import open_store
from hicache_bench.workflows.variant import Variant

_CASES = {AttentionType.SWA: "E17", AttentionType.CHUNKED: "E19", AttentionType.SPARSE_INDEX: "E27"}


def numeric_proofs(
    variant: Variant, seed: int, progress: Progress, *, store: KVStoreBackend | None = None
) -> tuple[Proof, ...]:
    """Prove the arithmetic of a variant over ``store`` (default: a local one), and run its controls.

    Figures of a proof: pages restored and skipped by the selective restore, the largest difference from the
    whole prompt, and the tolerance. Nothing of it stays in the store.

    Raises:
        ConfigError: a variant over several ranks, or pools that the references do not compute.
        StoreError: the store does not keep what is saved, or does not deliver it.
    """
    model = NumericModel(variant, seed)
    with ExitStack() as stack:
        if store is None:
            # Two prompts are in the store at a time.
            opened = stack.enter_context(open_store("local", stored_bytes=2 * model.stored_bytes))
            store = opened.backend
        job = _Job(model, store, progress)
        broken: list[Check] = []
        with findings(broken):
            job.prove()
        if broken:
            job.proofs.append(
                Proof(section="numerics", name="to its end", subject=model.name, checks=tuple(broken))
            )
        return tuple(job.proofs)


class _Job:
    """One model on an open store."""

    def __init__(self, model: NumericModel, store: KVStoreBackend, progress: Progress) -> None:
        self._model = model
        self._store = store
        self._progress = progress
        self.proofs: list[Proof] = []
        self._tokens = model.prompt(0)
        self._other = model.prompt(1)

    def prove(self) -> None:
        """Prove endpoints, pools, controls, and the other layouts; ``proofs`` has what is done."""
        model = self._model
        self._progress(f"{model.name}: a whole prompt without a cache")
        whole = model.whole(self._tokens)
        rig, first = NumericRig(model, model.small, self._store), len(self.proofs)
        try:
            self._progress(f"{model.name}: saving what it computes")
            memory = rig.save(self._tokens, model.num_pages)
            endpoints = [self._endpoint(rig, self._tokens, end, end, whole) for end in self._ends()]
            self._diverging(rig)
            for pool in rig.pools:
                self._pool(pool, memory, endpoints)
            rig.save(self._other, model.num_pages)
            self._progress(f"{model.name}: controls")
            self.proofs.extend(numeric_controls(rig, endpoints, self._other))
            self._tell_inapplicable(rig, first)
        finally:
            self._remove(rig, first)
        for variant in self._other_layouts():
            self._in_layout(variant, whole)

    def _tell_inapplicable(self, rig: NumericRig, first: int) -> None:
        """Which control was left out, among the figures of the rig's ``first`` proof."""
        control = inapplicable_control(rig.pools)
        if control is not None:
            proof = self.proofs[first]
            self.proofs[first] = replace(proof, figures={**proof.figures, "inapplicable_control": control})

    def _ends(self) -> list[int]:
        """One page, inside of a window, where a chunk begins, and all."""
        num_pages = self._model.num_pages
        return sorted({1, num_pages * 2 // 3, num_pages * 5 // 6, num_pages})

    def _endpoint(self, rig: NumericRig, tokens: Ids, asked: int, pages: int, whole: Floats) -> Endpoint:
        """Restore under each policy and continue; ``pages`` of those ``asked`` for must be found."""
        model = self._model
        started = time.perf_counter()
        name = f"{_pages(pages)}, {rig.variant.options.layout}"
        if asked != pages:
            name += ", then another prompt"
        self._progress(f"{model.name}: {name}")
        start = pages * model.page_tokens
        wanted = whole[start : start + TAIL_TOKENS]
        restored = {policy: rig.restore(tokens, asked, policy) for policy in TransferPolicy}
        after = {policy: model.continued(found.caches, tokens, pages) for policy, found in restored.items()}
        dense = after[TransferPolicy.DENSE]
        checks = [
            equal(
                f"{policy}: pages used",
                str(pages),
                str(found.report.ledger.used_tokens // model.page_tokens),
            )
            for policy, found in restored.items()
        ]
        checks.append(agreement("dense", dense.outputs, wanted, model.tolerance))
        for policy in (TransferPolicy.HIT_POLICY, TransferPolicy.SELECTIVE):
            checks += continuation_checks(str(policy), after[policy], dense, wanted, model.tolerance)
        selective = restored[TransferPolicy.SELECTIVE]
        self._add(
            name,
            rig.pools,
            checks,
            restored=sum(_restored(selective, pool) for pool in rig.pools),
            skipped=sum(_skipped(selective, pool) for pool in rig.pools),
            difference=largest_difference(after[TransferPolicy.SELECTIVE].outputs, wanted),
            started=started,
        )
        return Endpoint(pages, tokens, selective, dense, wanted)

    def _diverging(self, rig: NumericRig) -> None:
        """A prompt that shares some pages with the saved one, and asks for one more."""
        pages = max(1, self._model.num_pages // 2)
        tokens = self._model.diverging(self._tokens, pages)
        whole = self._model.whole(tokens[: pages * self._model.page_tokens + TAIL_TOKENS])
        self._endpoint(rig, tokens, pages + 1, pages, whole)

    def _pool(self, pool: KVPoolDescriptor, memory: Caches, endpoints: Sequence[Endpoint]) -> None:
        """One pool restored selectively, with the others as they were computed."""
        model = self._model
        started = time.perf_counter()
        self._progress(f"{model.name}: pool {pool.name}")
        checks: list[Check] = []
        differences = []
        for endpoint in endpoints:
            caches = {**memory, pool.name: endpoint.selective.caches[pool.name]}
            found = model.continued(caches, endpoint.tokens, endpoint.pages)
            name = f"{_pages(endpoint.pages)}, {pool.name} restored and the others in memory"
            checks += continuation_checks(name, found, endpoint.dense, endpoint.whole, model.tolerance)
            differences.append(largest_difference(found.outputs, endpoint.whole))
        self._add(
            f"pool {pool.name}",
            (pool,),
            checks,
            restored=sum(_restored(endpoint.selective, pool) for endpoint in endpoints),
            skipped=sum(_skipped(endpoint.selective, pool) for endpoint in endpoints),
            difference=max(differences),
            started=started,
        )

    def _other_layouts(self) -> list[Variant]:
        """The model in the layouts that were not asked for, where the engine has them."""
        small = self._model.small
        found = []
        for layout in sorted(STORABLE_LAYOUTS - {small.deployment.layout}):
            variant = replace(
                small,
                deployment=replace(small.deployment, layout=layout),
                options=replace(small.options, layout=layout.value),
            )
            try:
                pools = [pool for rank_pools in variant.pools.values() for pool in rank_pools]
            except ConfigError:
                continue
            if pools:
                found.append(variant)
        return found

    def _in_layout(self, variant: Variant, whole: Floats) -> None:
        """One endpoint in another layout."""
        pages = self._model.num_pages * 2 // 3
        rig, first = NumericRig(self._model, variant, self._store), len(self.proofs)
        try:
            rig.save(self._tokens, pages)
            self._endpoint(rig, self._tokens, pages, pages, whole)
        finally:
            self._remove(rig, first)

    def _remove(self, rig: NumericRig, first: int) -> None:
        """Take both prompts out of the store; the ``first`` proof of the rig says whether all went."""
        prompts = (self._tokens, self._other)
        remaining = sum(rig.remove(tokens, self._model.num_pages) for tokens in prompts)
        left = equal("objects of it that stay in the store", "0", str(remaining))
        for proof in self.proofs[first : first + 1]:
            self.proofs[first] = replace(proof, checks=(*proof.checks, left))

    def _add(
        self,
        name: str,
        pools: Sequence[KVPoolDescriptor],
        checks: Sequence[Check],
        *,
        restored: int,
        skipped: int,
        difference: float,
        started: float,
    ) -> None:
        proof = Proof(
            section="numerics",
            name=name,
            subject=self._model.name,
            checks=tuple(checks),
            cases=tuple(_CASES[kind] for kind in _CASES if kind in {pool.attention for pool in pools}),
            figures={
                "pages_restored": restored,
                "pages_skipped": skipped,
                # A record is JSON, which has no NaN.
                "max_difference": difference if math.isfinite(difference) else "nan",
                "tolerance": self._model.tolerance,
            },
            seconds=time.perf_counter() - started,
        )
        self.proofs.append(proof)


def _pages(count: int) -> str:
    return "1 page" if count == 1 else f"{count} pages"


def _restored(restored: Restored, pool: KVPoolDescriptor) -> int:
    return len(restored.report.arrived[pool.name])


def _skipped(restored: Restored, pool: KVPoolDescriptor) -> int:
    (found,) = (item for item in restored.report.plan.pools if item.pool.name == pool.name)
    return sum(found.skipped.values())
