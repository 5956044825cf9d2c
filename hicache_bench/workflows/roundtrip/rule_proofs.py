"""Rules at the places where they go wrong: pages of an odd size, gaps, local prefixes, limits of a host.

The page sizes that people deploy divide the windows of their models, so that a rule which is off by one token
reads the same pages. Here pages have seven tokens, and every endpoint of a short prefix is tried. The pools
are a few bytes each, and the rules are those of every model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby, product

import numpy as np

from hicache_bench.engine.prefix import Prefix
from hicache_bench.errors import ConfigError
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.planning.resolve import Presence, resolve
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.keys import page_hashes
from hicache_bench.pools.names import AttentionType, HitPolicy
from hicache_bench.records.proof import Proof
from hicache_bench.records.schema import Check
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.workflows.meter import Progress
from hicache_bench.workflows.rank import equal
from hicache_bench.workflows.roundtrip.fault_checks import WHOLE, Broken, judge
from hicache_bench.workflows.roundtrip.fault_lab import SELECTIVE, Lab
from hicache_bench.workflows.roundtrip.fault_models import small_pool
from hicache_bench.workflows.roundtrip.fault_rig import Asked, Rig
from hicache_bench.workflows.roundtrip.findings import findings
from hicache_bench.workflows.roundtrip.reference import longest_endpoint

PAGE_TOKENS = 7
NUM_PAGES = 5
SUBJECT = f"pages of {PAGE_TOKENS} tokens"
MAX_SECONDS = 10.0
"""Of one restore, which takes milliseconds."""


def _odd_pool(name: str, attention: AttentionType, **fields: int | bool | str) -> KVPoolDescriptor:
    rows = PAGE_TOKENS * int(fields.get("unit_pages", 1))
    return small_pool(name, attention, Component("k", 1, rows, 8), page_tokens=PAGE_TOKENS, **fields)


ODD_POOLS: tuple[KVPoolDescriptor, ...] = (
    _odd_pool("kv", AttentionType.MLA),
    # One token more than a page reaches into the page before; one token less does not.
    _odd_pool("swa_8", AttentionType.SWA, window_tokens=8, engine_window_tokens=14),
    _odd_pool("swa_9", AttentionType.SWA, window_tokens=9, engine_window_tokens=15),
    # A chunk that begins where a page does, and one that begins inside.
    _odd_pool("chunk_14", AttentionType.CHUNKED, window_tokens=14),
    _odd_pool("chunk_10", AttentionType.CHUNKED, window_tokens=10),
    _odd_pool("mamba", AttentionType.RECURRENT),
    _odd_pool("c4", AttentionType.COMPRESSED, unit_pages=2, partial_units=True),
    _odd_pool("c4_state", AttentionType.COMPRESSOR_STATE),
)


def rule_proofs(store: KVStoreBackend, seed: int, progress: Progress) -> tuple[Proof, ...]:
    """Prove every rule on ``store``, which was opened for that alone."""
    proofs = []
    for name, (cases, scene) in SCENES.items():
        progress(f"rules: {name}")
        started = time.perf_counter()
        with Lab(name, store, seed, None, MAX_SECONDS) as lab, findings(lab.checks, own_store=True):
            scene(lab)
        proofs.append(
            Proof(
                section="rules",
                name=name,
                subject=SUBJECT,
                checks=_gathered(lab.checks),
                cases=cases,
                figures={"restores": lab.num_restores},
                seconds=time.perf_counter() - started,
            )
        )
    return tuple(proofs)


def saved_rig(lab: Lab) -> Rig:
    """The longest prefix, saved."""
    rig = lab.rig(ODD_POOLS, NUM_PAGES)
    lab.save(rig, "the whole prefix")
    return rig


def _restore_all(lab: Lab, rig: Rig, label: str, asked: Asked = SELECTIVE, broken: Broken = WHOLE) -> None:
    """Restore as ``asked``, under each policy."""
    for policy in TransferPolicy:
        lab.restore(rig, f"{label}, {policy}", broken, asked=replace(asked, policy=policy))


def _every_endpoint(lab: Lab) -> None:
    for pages in range(1, NUM_PAGES + 1):
        rig = lab.rig(ODD_POOLS, pages)
        lab.save(rig, f"{pages} pages")
        _restore_all(lab, rig, f"{pages} pages")


def _gaps(lab: Lab) -> None:
    rig = saved_rig(lab)
    for pool in ODD_POOLS:
        if pool.hit_policy is HitPolicy.TRAILING_PAGES:
            for unit in range(NUM_PAGES):
                lost = rig.keys_of(pool.name, unit)
                for key in lost:
                    rig.inner.remove(key, force=True)
                # Dense promises what hit_policy does, and is tried by the others.
                for policy in (TransferPolicy.HIT_POLICY, TransferPolicy.SELECTIVE):
                    lab.restore(rig, f"without {pool.name}:{unit}, {policy}", asked=Asked(policy=policy))
                rig.save()


def _few_questions(lab: Lab) -> None:
    """Asking for what decides the endpoint comes to what asking for everything does."""
    rig = saved_rig(lab)
    for lost in rig.units:
        # The last state is lost as well: a second question must be asked.
        for key in rig.keys_of(*lost) + rig.keys_of("mamba", NUM_PAGES - 1):
            rig.inner.remove(key, force=True)
        everything = rig.controller.lookup(rig.prefix)
        units = rig.whole_units(rig.held())
        for policy in TransferPolicy:
            label = f"without {lost[0]}:{lost[1]}, {policy}"
            lookup = rig.controller.lookup_endpoint(rig.prefix, policy)
            plans = [rig.controller.plan(found, policy) for found in (everything, lookup)]
            expected = longest_endpoint(rig.pools, policy, units, NUM_PAGES)
            lab.equal(f"{label}: pages found with few questions", expected, plans[1].hit_pages)
            reads = [{item.pool.name: item.units.tolist() for item in plan.pools} for plan in plans]
            lab.equal(f"{label}: pages read of it", *reads)
        rig.save()


LOCAL_TOKENS = (1, PAGE_TOKENS - 1, PAGE_TOKENS, PAGE_TOKENS + 1, 3 * PAGE_TOKENS, NUM_PAGES * PAGE_TOKENS)


def _local_prefix(lab: Lab) -> None:
    rig = saved_rig(lab)
    for tokens in LOCAL_TOKENS:
        _restore_all(lab, rig, f"{tokens} local tokens", Asked(local_tokens=tokens))
    for key in rig.keys_of("kv", 0, 1) + rig.keys_of("swa_9", 1, 2):
        rig.inner.remove(key, force=True)
    for tokens in LOCAL_TOKENS:
        label = f"{tokens} local tokens, of which the store has lost some"
        _restore_all(lab, rig, label, Asked(local_tokens=tokens))


def _host_capacity(lab: Lab) -> None:
    rig = saved_rig(lab)
    for pages, local in product(range(NUM_PAGES + 1), (0, 2 * PAGE_TOKENS)):
        asked = Asked(host_capacity_pages=pages, local_tokens=local)
        _restore_all(lab, rig, f"room for {pages} pages beside {local} local tokens", asked)


def _threshold(lab: Lab) -> None:
    rig = saved_rig(lab)
    for local, more in product((0, 2 * PAGE_TOKENS), (-1, 0, 1)):
        tokens = NUM_PAGES * PAGE_TOKENS - local + more
        asked = Asked(threshold_tokens=tokens, local_tokens=local)
        _restore_all(lab, rig, f"a threshold of {tokens} tokens beside {local} local ones", asked)


def _continued_chain(lab: Lab) -> None:
    """Pages below ``first_page`` are not asked for; the hashes go on from their last one."""
    tokens = np.arange(NUM_PAGES * PAGE_TOKENS, dtype=np.uint32)
    whole = page_hashes(tokens, PAGE_TOKENS)
    rig = saved_rig(lab)
    prefix = rig.prefix
    for first in range(1, NUM_PAGES):
        rest = page_hashes(tokens[first * PAGE_TOKENS :], PAGE_TOKENS, parent=whole[first - 1])
        lab.equal(f"continued at page {first}: hashes of the rest", list(whole[first:]), list(rest))
        rig.prefix = continued(prefix, first)
        below = [
            key
            for pool in ODD_POOLS
            for unit in range(first // pool.unit_pages)
            for key in rig.keys_of(pool.name, unit)
        ]
        for key in below:
            rig.inner.remove(key, force=True)
        asked = Asked(local_tokens=first * PAGE_TOKENS)
        gone = Broken(promised=below)
        _restore_all(lab, rig, f"continued at page {first}", asked, gone)
        # What lies below is local, whether the request says so or not.
        untold = replace(rig.restore(SELECTIVE), asked=asked)
        lab.add(f"continued at page {first}, untold", judge(rig, untold, gone, max_seconds=MAX_SECONDS))
        foreign = page_hashes(tokens[first * PAGE_TOKENS :], PAGE_TOKENS, parent=whole[first])
        rig.prefix = replace(rig.prefix, hashes=foreign, parent=whole[first])
        presence = rig.controller.lookup(rig.prefix).presence
        found = sum(int(presence[pool.name][first // pool.unit_pages :].sum()) for pool in ODD_POOLS)
        lab.equal(f"continued at page {first}: pages found after another parent", 0, found)
        rig.prefix = prefix


def continued(prefix: Prefix, first: int) -> Prefix:
    """The prefix as a server asks for it that has its first pages."""
    return replace(prefix, hashes=prefix.hashes[first:], first_page=first, parent=prefix.hashes[first - 1])


def derived_rig(lab: Lab) -> Rig:
    """A model one of whose pools derives from another, saved."""
    pools = [replace(pool, derived_from="swa_8") if pool.name == "swa_9" else pool for pool in ODD_POOLS]
    rig = lab.rig(pools, NUM_PAGES)
    lab.save(rig, "the whole prefix")
    return rig


def _derived_pool(lab: Lab) -> None:
    """A pool that was not reported is where the pool is that it derives from; without one it is refused."""
    rig = derived_rig(lab)
    for lost in range(NUM_PAGES):
        for key in rig.keys_of("swa_8", lost):
            rig.inner.remove(key, force=True)
        presence = dict(rig.controller.lookup(rig.prefix).presence)
        del presence["swa_9"]
        held = rig.whole_units(rig.held())
        units = {**held, "swa_9": held["swa_8"]}
        for policy in TransferPolicy:
            expected = longest_endpoint(rig.pools, policy, units, NUM_PAGES)
            found = resolve(rig.pools, presence, policy, NUM_PAGES).hit_pages
            lab.equal(f"without swa_8:{lost}, {policy}: pages", expected, found)
            lab.equal(
                f"{policy}: not reported and derived from nothing", "refused", _answer(presence, policy)
            )
        rig.save()


def _answer(presence: Presence, policy: TransferPolicy) -> str:
    try:
        return str(resolve(ODD_POOLS, presence, policy, NUM_PAGES).hit_pages)
    except ConfigError:
        return "refused"


SCENES: dict[str, tuple[tuple[str, ...], Callable[[Lab], None]]] = {
    "every endpoint": (("E14", "E17", "E19"), _every_endpoint),
    "each trailing page lost in turn": (("E01", "E17", "E19", "E20"), _gaps),
    "a lookup with few questions": (("E01", "E07"), _few_questions),
    "a local prefix": (("E15",), _local_prefix),
    "a host with little room": (("E13",), _host_capacity),
    "a threshold": ((), _threshold),
    "a hash chain that goes on": (("E08",), _continued_chain),
    "a pool that derives from another": ((), _derived_pool),
}


def _gathered(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Each failed check as it is, and those that passed as one for each question."""
    checks = list(checks)
    failed = [check for check in checks if not check.passed]
    asked = sorted(check.name.rpartition(": ")[2] for check in checks if check.passed)
    told = [(name, str(len(list(group)))) for name, group in groupby(asked)]
    return (*failed, *(equal(f"{name}, so often right", count, count) for name, count in told))
