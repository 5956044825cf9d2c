"""Restores that are broken on purpose: the checks of the arithmetic must find each of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from hicache_bench.numerics.cache import PagedCache
from hicache_bench.planning.plan import TransferPlan
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType
from hicache_bench.records.proof import Proof
from hicache_bench.records.schema import Check
from hicache_bench.workflows.roundtrip.numeric_checks import continuation_checks, largest_difference
from hicache_bench.workflows.roundtrip.numeric_model import Caches, Ids
from hicache_bench.workflows.roundtrip.numeric_rig import Endpoint, NumericRig, Spoiling

_FOUND = "found"
_WINDOWS = (AttentionType.SWA, AttentionType.CHUNKED)
_STATES = (AttentionType.RECURRENT, AttentionType.COMPRESSOR_STATE)


@dataclass(frozen=True, slots=True)
class _Broken:
    """What one control breaks of a pool at an endpoint of a right restore. ``other`` is saved too."""

    rig: NumericRig
    endpoint: Endpoint
    pool: KVPoolDescriptor
    other: Ids

    @property
    def units(self) -> list[int]:
        """Units of the pool that the right restore read."""
        found: list[int] = self.endpoint.selective.report.arrived[self.pool.name].tolist()
        return found

    def without_first(self) -> Caches | None:
        """A plan that names one unit less."""
        if not self.units:
            return None
        return self._restored(Spoiling(plan=self._shortened))

    def neighbour(self) -> Caches | None:
        """The state that is stored for the endpoint before."""
        last = self.endpoint.pages - 1
        return self._read_over({last - 1: last}) if last else None

    def swapped_components(self) -> Caches | None:
        """K where V belongs, and V where K does."""
        pool = self.pool
        restored = self.rig.restore(self.endpoint.tokens, self.endpoint.pages, TransferPolicy.SELECTIVE)
        arrays = [restored.host_pools[pool.name].view(index) for index in range(len(pool.stored_components))]
        arrays[0], arrays[1] = arrays[1], arrays[0]
        slots = restored.caches[pool.name].slots
        return {**restored.caches, pool.name: PagedCache(pool, arrays, slots)}

    def swapped_pages(self) -> Caches | None:
        """The first and the last page each in the place of the other."""
        if len(self.units) < 2:
            return None
        first, last = self.units[0], self.units[-1]
        return self._read_over({first: last, last: first})

    def foreign(self) -> Caches | None:
        """The last page that was read, of another request."""
        if not self.units:
            return None
        return self._read_over({self.units[-1]: self.units[-1]}, tokens=self.other)

    def stale_index(self) -> Caches | None:
        """Blocks chosen by the index of another request, and then the right index beside them."""
        stale = self.rig.restore(self.other, self.endpoint.pages, TransferPolicy.DENSE)
        return self._restored(Spoiling(index=stale.caches))

    def _shortened(self, plan: TransferPlan) -> TransferPlan:
        pools = [
            replace(item, units=item.units[1:]) if item.pool.name == self.pool.name else item
            for item in plan.pools
        ]
        return replace(plan, pools=tuple(pools))

    def _restored(self, spoiling: Spoiling) -> Caches:
        endpoint = self.endpoint
        return self.rig.restore(endpoint.tokens, endpoint.pages, TransferPolicy.SELECTIVE, spoiling).caches

    def _read_over(self, moved: dict[int, int], *, tokens: Ids | None = None) -> Caches:
        endpoint = self.endpoint
        restored = self.rig.restore(endpoint.tokens, endpoint.pages, TransferPolicy.SELECTIVE)
        source = endpoint.tokens if tokens is None else tokens
        self.rig.read_over(restored, self.pool, source, endpoint.pages, moved)
        return restored.caches


@dataclass(frozen=True, slots=True)
class _Control:
    """``applies`` says to which pools; ``spoil`` returns None where an endpoint has nothing to break."""

    name: str
    applies: Callable[[KVPoolDescriptor], bool]
    spoil: Callable[[_Broken], Caches | None]
    cases: tuple[str, ...] = ()


def _is_cached_by_token(pool: KVPoolDescriptor) -> bool:
    return pool.attention is not AttentionType.SPARSE_INDEX and pool.attention not in _STATES


def _has_equal_k_and_v(pool: KVPoolDescriptor) -> bool:
    sizes = {component.name: component.row_bytes for component in pool.stored_components}
    return {"k", "v"} <= set(sizes) and sizes["k"] == sizes["v"]


_STALE_INDEX = _Control(
    "blocks chosen by a stale index", lambda pool: pool.selection is not None, _Broken.stale_index
)

CONTROLS = (
    _Control(
        "a window one page short",
        lambda pool: pool.attention in _WINDOWS,
        _Broken.without_first,
        ("E17", "E19"),
    ),
    _Control(
        "the state of the endpoint before",
        lambda pool: pool.attention in _STATES,
        _Broken.neighbour,
        ("E20",),
    ),
    _Control(
        "an index page missing",
        lambda pool: pool.attention is AttentionType.SPARSE_INDEX,
        _Broken.without_first,
        ("E05", "E27"),
    ),
    _Control("K and V swapped", _has_equal_k_and_v, _Broken.swapped_components),
    _Control(
        "a page of another request",
        lambda pool: pool.attention is not AttentionType.SPARSE_INDEX,
        _Broken.foreign,
    ),
    _STALE_INDEX,
    # Keys bring their positions along, so that full attention does not mind the order: only bits tell.
    _Control("two pages in each other's place", _is_cached_by_token, _Broken.swapped_pages),
)


def inapplicable_control(pools: Sequence[KVPoolDescriptor]) -> str | None:
    """The control that a model with an index has, and that none of these pools can be tried with."""
    indexed = any(pool.attention is AttentionType.SPARSE_INDEX for pool in pools)
    return _STALE_INDEX.name if indexed and not any(map(_STALE_INDEX.applies, pools)) else None


def numeric_controls(rig: NumericRig, endpoints: Sequence[Endpoint], other: Ids) -> Iterator[Proof]:
    """One proof for each control that applies: what it breaks of each pool is found.

    ``other`` is a prompt that is in the store too, and shares no page with that of ``endpoints``.
    """
    for control in CONTROLS:
        started = time.perf_counter()
        checks: list[Check] = []
        figures: dict[str, int | float | str] = {}
        for pool in rig.pools:
            if control.applies(pool):
                checks += _checks(control, rig, endpoints, pool, other, figures)
        if checks:
            yield Proof(
                section="control",
                name=control.name,
                subject=rig.model.name,
                checks=tuple(checks),
                cases=control.cases,
                figures=figures,
                seconds=time.perf_counter() - started,
            )


def _checks(
    control: _Control,
    rig: NumericRig,
    endpoints: Sequence[Endpoint],
    pool: KVPoolDescriptor,
    other: Ids,
    figures: dict[str, int | float | str],
) -> Iterator[Check]:
    """At most one check: at the longest endpoint that has something to break."""
    model = rig.model
    for endpoint in sorted(endpoints, key=lambda found: -found.pages):
        caches = control.spoil(_Broken(rig, endpoint, pool, other))
        if caches is None:
            continue
        found = model.continued(caches, endpoint.tokens, endpoint.pages)
        checks = continuation_checks(control.name, found, endpoint.dense, endpoint.whole, model.tolerance)
        passed = all(check.passed for check in checks)
        difference = largest_difference(found.outputs, endpoint.whole)
        figures[f"{pool.name} max_difference"] = difference if math.isfinite(difference) else "nan"
        name, told = f"{pool.name} at {endpoint.pages} pages", "not found" if passed else _FOUND
        # Not by what all checks are made with: one that always passes would pass its controls.
        yield Check(name, _FOUND, told, not passed)
        return
