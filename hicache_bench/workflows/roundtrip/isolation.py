"""Requests, tenants, models and ranks in one store: each finds what is its own, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from hicache_bench.config.load import load_model
from hicache_bench.engine.lookup import resolve_lookup
from hicache_bench.engine.reports import SaveReport
from hicache_bench.errors import InputError
from hicache_bench.planning.ledger import total_volume
from hicache_bench.planning.policy import SavePolicy, StateSave, TransferPolicy, trailing_units
from hicache_bench.planning.resolve import alignment_pages, resolve_ranks
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.pools.names import STATE_ATTENTION, AttentionType, HitPolicy, Sharding
from hicache_bench.records.proof import Proof
from hicache_bench.records.schema import Check
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.units import MIB
from hicache_bench.workflows.meter import Progress
from hicache_bench.workflows.rank import equal, none_of
from hicache_bench.workflows.roundtrip.findings import findings
from hicache_bench.workflows.roundtrip.reference import is_legal, kept_units
from hicache_bench.workflows.roundtrip.requests import Owner, Request, owners_of
from hicache_bench.workflows.variant import Variant, VariantOptions, apply_options

STORE_BYTES = 512 * MIB
"""Room for every scene: its requests have one layer of each pool, and leave when it ends."""

_MAX_REACH_PAGES = 24
_OTHER_MODELS = ("kitchen-sink", "llama-3.1-8b")
_EXACT = SavePolicy(states=StateSave.LAST, window_extra_pages=0)


@dataclass(frozen=True)
class _Stage:
    """The open store, and everything that is in it at the moment."""

    variant: Variant
    store: KVStoreBackend
    policies: tuple[TransferPolicy, ...]
    seed: int
    requests: list[Request] = field(default_factory=list)

    def request(self, owner: Owner, page_seeds: tuple[int, ...]) -> Request:
        """A request that leaves the store when the scene ends."""
        self.requests.append(Request(owner, page_seeds))
        return self.requests[-1]

    def clear(self) -> None:
        """Take all requests out of the store, the longest first, as far as it lets them go."""
        while self.requests and not self.requests.pop().remove(self.store):
            pass
        self.requests.clear()

    def seeds(self, num_pages: int, branch: int = 0) -> tuple[int, ...]:
        """Page seeds of one request; another branch shares none."""
        return (self.seed * 8 + branch,) * num_pages

    @property
    def owner(self) -> Owner:
        """The model on its first rank."""
        return owners_of(self.variant, 0)[0]

    def verified(self, request: Request, units: Mapping[str, set[int]], what: str) -> list[Check]:
        """See :meth:`Request.verified`."""
        return request.verified(self.store, self.policies, units, what=what)


_Scene = Callable[[_Stage], "list[Check] | None"]


def isolation_proofs(
    variant: Variant,
    store: KVStoreBackend,
    policies: tuple[TransferPolicy, ...],
    seed: int,
    progress: Progress,
) -> tuple[Proof, ...]:
    """Play every scene that applies to ``variant`` on an open store, with one layer of each pool."""
    stage = _Stage(variant, store, policies, seed)
    proofs = []
    for name, cases, scene in _scenes(variant):
        progress(f"{variant.spec.name}: {name}")
        started = time.perf_counter()
        checks: list[Check] = []
        with findings(checks):
            try:
                played = scene(stage)
            finally:
                stage.clear()
            if played is None:
                continue
            checks += played
        proofs.append(
            Proof(
                section="isolation",
                name=name,
                subject=variant.spec.name,
                checks=tuple(checks),
                cases=cases,
                seconds=round(time.perf_counter() - started, 6),
            )
        )
    return tuple(proofs)


def _scenes(variant: Variant) -> Iterator[tuple[str, tuple[str, ...], _Scene]]:
    yield "extended prefix", ("E23",), _extended
    yield "diverging suffix", ("E08", "E09", "E24"), _diverging
    yield "holes in two pools", ("E01", "E07"), _holes
    yield (
        "two salts",
        ("E41",),
        lambda stage: _apart(stage, _changed(stage, salt="a"), _changed(stage, salt="b")),
    )
    yield (
        "two adapters",
        ("E41", "E42"),
        lambda stage: _apart(stage, _changed(stage, adapter="a"), _changed(stage, adapter="b")),
    )
    yield (
        "adapter and salt, cut elsewhere",
        ("E41",),
        lambda stage: _apart(
            stage, _changed(stage, adapter="a", salt="bc"), _changed(stage, adapter="ab", salt="c")
        ),
    )
    # SGLang's keys name neither the model nor its dtype: nothing there keeps these apart.
    if isinstance(variant.keys, NamespacedKeyBuilder):
        yield "two models", ("E33", "E34"), lambda stage: _apart(stage, stage.variant, _other_model(stage))
        yield "two revisions", ("E33", "E34"), lambda stage: _apart(stage, *_revisions(stage))
        yield "writer and reader of another dtype", ("E33",), _dtypes
    yield "TP 2, a page of one rank absent", ("E35", "E36", "E38"), _ranks


def _reach(pools: Sequence[KVPoolDescriptor]) -> int:
    """Pages that a trailing pool looks back, at most so many, and whole units of every pool."""
    trailing = [pool for pool in pools if pool.hit_policy is HitPolicy.TRAILING_PAGES]
    pages = max((trailing_units(pool) * pool.unit_pages for pool in trailing), default=1)
    step = alignment_pages(pools)
    return -(-min(pages, _MAX_REACH_PAGES) // step) * step


def _extended(stage: _Stage) -> list[Check]:
    """Turn 1, then turn 2 with the tokens that were decoded in between."""
    owner, store = stage.owner, stage.store
    step = alignment_pages(owner.pools)
    first = _reach(owner.pools) + step
    short = stage.request(owner, stage.seeds(first))
    long = stage.request(owner, stage.seeds(first + 2 * step))
    short.save(store)
    found = long.shared_units(first, long.all_units)
    checks = stage.verified(long, found, "after turn 1")
    states = [pool.name for pool in owner.pools if pool.attention in STATE_ATTENTION]
    if states:
        # Decoded tokens of which only the attention was saved: no longer endpoint.
        long.save(store, only=lambda pool: pool.name not in states)
        found = {name: found[name] if name in states else units for name, units in long.all_units.items()}
        checks += stage.verified(long, found, "after turn 1 and attention alone")
    saved = long.save(store)
    written = total_volume(saved.written.values()).units
    missing = sum(len(units - found[name]) for name, units in long.all_units.items())
    checks.append(equal("pages of turn 2 written, those of turn 1 found", str(missing), str(written)))
    checks += stage.verified(long, long.all_units, "after turn 2")
    checks += stage.verified(short, short.all_units, "turn 1 again")
    return checks


def _diverging(stage: _Stage) -> list[Check]:
    """Two prompts that share their first pages."""
    owner, store = stage.owner, stage.store
    step = alignment_pages(owner.pools)
    shared = _reach(owner.pools) + 2 * step
    common = stage.seeds(shared)
    first = stage.request(owner, common + stage.seeds(2 * step, branch=1))
    second = stage.request(owner, common + stage.seeds(step, branch=2))
    first.save(store, _EXACT)
    num_tokens = len(first.page_seeds) * owner.page_tokens
    exact = {pool.name: kept_units(pool, _EXACT, num_tokens) for pool in owner.pools}
    checks = stage.verified(second, second.shared_units(shared, exact), "the other saved its end")
    first.save(store)
    checks += stage.verified(
        second, second.shared_units(shared, second.all_units), "the other saved everything"
    )
    # The same pages after another beginning are other pages: what they hold depends on all before them.
    checks.append(_finds_nothing(Request(owner, stage.seeds(step, branch=3) + common[step:]), store))
    second.save(store)
    for request, what in ((first, "the first"), (second, "the second"), (first, "the first again")):
        checks += stage.verified(request, request.all_units, what)
    return checks


def _holes(stage: _Stage) -> list[Check] | None:
    """Each pool has endpoints of its own: the answer is in all of them, not the least of the best."""
    owner, store = stage.owner, stage.store
    step = alignment_pages(owner.pools)
    whole = stage.request(owner, stage.seeds(_reach(owner.pools) + 2 * step))
    kept = next((pool for pool in owner.pools if pool.hit_policy is HitPolicy.ALL_PAGES), None)
    if kept is None:
        return None
    whole.save(store, _EXACT)
    num_tokens = len(whole.page_seeds) * owner.page_tokens
    units = {pool.name: kept_units(pool, _EXACT, num_tokens) for pool in owner.pools}
    last = max(units[kept.name])
    whole.remove_unit(store, kept, last)
    units[kept.name] = units[kept.name] - {last}
    checks = stage.verified(whole, units, f"the last page of {kept.name} lost")
    start = stage.request(owner, stage.seeds(step))
    start.save(store)
    units = {name: found | start.all_units[name] for name, found in units.items()}
    checks += stage.verified(whole, units, "and the first endpoint saved")
    return checks


def _apart(stage: _Stage, one: Variant, other: Variant) -> list[Check]:
    """The same prompt of two owners, saved in turns: neither finds anything of the other."""
    store = stage.store
    owners = owners_of(one, 1)[0], owners_of(other, 2)[0]
    step = max(alignment_pages(owner.pools) for owner in owners)
    pages = _reach(owners[0].pools) + step
    starts = [stage.request(owner, stage.seeds(pages)) for owner in owners]
    wholes = [stage.request(owner, stage.seeds(pages + step)) for owner in owners]
    first, second = starts
    first.save(store)
    checks = [_finds_nothing(wholes[1], store)]
    saved = second.save(store)
    checks.append(_wrote_all(saved))
    for whole in wholes:
        checks += stage.verified(
            whole, whole.shared_units(pages, whole.all_units), f"{_who(whole)} before its end is saved"
        )
    for whole in wholes:
        whole.save(store)
    for whole in wholes:
        checks += stage.verified(whole, whole.all_units, _who(whole))
    return checks


def _who(request: Request) -> str:
    return "one" if request.owner.number == 1 else "the other"


def _finds_nothing(request: Request, store: KVStoreBackend) -> Check:
    lookup = request.look_up(store)
    found = [f"{name}: {int(present.sum())}" for name, present in lookup.presence.items() if present.any()]
    return none_of("pages of the one that the other finds", found)


def _wrote_all(saved: SaveReport) -> Check:
    """No object was there already."""
    existing = total_volume(saved.existing.values()).objects
    return equal("objects of the one that stand where the other saves", "0", str(existing))


def _changed(stage: _Stage, *, adapter: str | None = None, salt: str | None = None) -> Variant:
    """The variant for another tenant."""
    options = replace(stage.variant.options, adapter=adapter, salt=salt)
    return apply_options(stage.variant.preset, options)


def _other_model(stage: _Stage) -> Variant:
    """Another model, with pages of as many tokens."""
    name = next(name for name in _OTHER_MODELS if name != stage.variant.spec.name)
    return apply_options(load_model(name), VariantOptions(page_tokens=stage.variant.spec.page_tokens))


def _revisions(stage: _Stage) -> Iterator[Variant]:
    for name in ("one", "other"):
        yield replace(stage.variant, spec=replace(stage.variant.spec, revision=name))


def _dtypes(stage: _Stage) -> list[Check] | None:
    """A server was restarted with another KV dtype: same prompts, other bytes."""
    options, spec = stage.variant.options, stage.variant.spec
    for kv_dtype in ("fp8", "fp8_packed", "bf16"):
        if kv_dtype == spec.kv_dtype:
            continue
        try:
            other = apply_options(stage.variant.preset, replace(options, kv_dtype=kv_dtype))
            owners_of(other, 2)
        except InputError:
            continue
        return _apart(stage, stage.variant, other)
    return None


def _ranks(stage: _Stage) -> list[Check] | None:
    """Two ranks: what both hold is stored once, what they share out twice, and a hit needs both."""
    options = replace(stage.variant.options, tp=2, pp=1, cp="1", dcp=1, tp_lcm=None)
    try:
        owners = owners_of(apply_options(stage.variant.preset, options), 1)
    except InputError:
        return None
    store = stage.store
    step = alignment_pages(owners[0].pools)
    pages = _reach(owners[0].pools) + 2 * step
    requests = [stage.request(owner, stage.seeds(pages)) for owner in owners]
    saves = [request.save(store) for request in requests]
    checks = []
    for pool in owners[0].pools:
        units = len(requests[0].all_units[pool.name])
        shards = 2 if pool.sharding is Sharding.SHARDED else 1
        written = sum(saved.written[pool.name].units for saved in saves)
        checks.append(equal(f"{pool.name}: pages written by two ranks", str(units * shards), str(written)))
    held = [request.all_units for request in requests]
    # Neither rank's own best is legal on the other: one has lost its last page, the other the one before.
    for number, back in ((1, 1), (0, 2)):
        lost = _removed(requests[number], store, back)
        if lost is not None:
            name, unit = lost
            held[number] = {**held[number], name: held[number][name] - {unit}}
    lookups = [request.look_up(store) for request in requests]
    for policy in stage.policies:
        legal = [
            end
            for end in range(1, pages + 1)
            if all(
                is_legal(pool, policy, units[pool.name], end * owner.page_tokens)
                for owner, units in zip(owners, held, strict=True)
                for pool in owner.pools
            )
        ]
        resolution = resolve_ranks(
            [
                resolve_lookup(owner.pools, lookup, policy)
                for owner, lookup in zip(owners, lookups, strict=True)
            ]
        )
        checks += chain.from_iterable(
            request.restored(
                store, lookup, policy, resolution, units, pages=max(legal, default=0), what="both ranks"
            )
            for request, lookup, units in zip(requests, lookups, held, strict=True)
        )
    return checks


def _removed(request: Request, store: KVStoreBackend, back: int) -> tuple[str, int] | None:
    """Take the page that many from the end of a pool that the ranks share out from one of them; which."""
    sharded = [pool for pool in request.owner.pools if pool.sharding is Sharding.SHARDED and pool.constrains]
    if not sharded:
        return None
    pool = next((pool for pool in sharded if pool.attention is AttentionType.RECURRENT), sharded[0])
    unit = sorted(request.all_units[pool.name])[-back]
    request.remove_unit(store, pool, unit)
    return pool.name, unit
