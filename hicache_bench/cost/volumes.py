"""What a rank reads for an endpoint, in the store calls in which the engine reads it.

No byte is counted here by a rule of its own: the units are those of the engine's plan, the calls those of its
batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hicache_bench.engine.batching import call_spans, page_batches
from hicache_bench.engine.transfer import BATCH_PAGES
from hicache_bench.links.link import ObjectGroup
from hicache_bench.planning.plan import PoolPlan, TransferPlan
from hicache_bench.planning.policy import IntVector
from hicache_bench.planning.resolve import unit_ends
from hicache_bench.pools.names import HitPolicy
from hicache_bench.store.base import MAX_SLICES_PER_CALL


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCall:
    """One store call.

    ``groups`` are its objects by size; ``landed`` says, per pool, how many of the pool's planned objects are
    there once it has ended. ``has_kv`` tells a call that carries pages of a pool of which every page is
    needed.
    """

    groups: tuple[ObjectGroup, ...]
    landed: Mapping[str, int] = field(repr=False)
    has_kv: bool

    @property
    def num_bytes(self) -> int:
        """Bytes that it moves."""
        return sum(object_bytes * count for object_bytes, count in self.groups)

    @property
    def num_objects(self) -> int:
        """Objects that it moves."""
        return sum(count for _, count in self.groups)


@dataclass(frozen=True, kw_only=True)
class RankRead:
    """The reads of one rank for one endpoint under one policy, and the existence queries before them.

    ``copies`` ranks read as much, this one included.
    """

    plan: TransferPlan
    calls: tuple[StoreCall, ...]
    lookup_keys: int
    lookup_calls: int
    copies: int = 1

    @cached_property
    def num_bytes(self) -> int:
        """Bytes of all calls."""
        return sum(call.num_bytes for call in self.calls)

    @cached_property
    def num_objects(self) -> int:
        """Objects of all calls."""
        return sum(call.num_objects for call in self.calls)

    @property
    def kv_calls(self) -> int:
        """Calls after which every page of the all-pages pools is there; later ones carry side pools only."""
        return max((index for index, call in enumerate(self.calls, 1) if call.has_kv), default=0)

    def landed_units(self, num_calls: int) -> dict[str, IntVector]:
        """Units of each pool whose every object is there after the first ``num_calls`` calls."""
        landed = self.calls[num_calls - 1].landed if num_calls else {}
        return {
            item.pool.name: item.units[: landed.get(item.pool.name, 0) // len(item.pool.stored_components)]
            for item in self.plan.pools
        }


def plan_calls(
    plan: TransferPlan, *, batch_pages: int = BATCH_PAGES, max_objects: int = MAX_SLICES_PER_CALL
) -> tuple[StoreCall, ...]:
    """The store calls that execute ``plan``; an object is one slice in every layout that is stored."""
    items = [item for item in plan.pools if len(item.units)]
    ends = [unit_ends(item.pool, plan.num_pages)[item.units] for item in items]
    landed = dict.fromkeys((item.pool.name for item in items), 0)
    return tuple(
        call
        for units in page_batches(ends, batch_pages)
        for call in _batch_calls(items, units, landed, max_objects)
    )


def phased_calls(phases: Sequence[TransferPlan]) -> tuple[StoreCall, ...]:
    """The store calls of plans that are read one after the other: an index, then what it selects."""
    calls: list[StoreCall] = []
    before: dict[str, int] = {}
    for plan in phases:
        made = plan_calls(plan)
        calls += [replace(call, landed={**before, **call.landed}) for call in made]
        before = dict(calls[-1].landed) if calls else {}
    return tuple(calls)


def _batch_calls(
    items: Sequence[PoolPlan], units: Sequence[tuple[int, int]], landed: dict[str, int], max_objects: int
) -> Iterator[StoreCall]:
    counts = [
        (stop - start) * len(item.pool.stored_components)
        for item, (start, stop) in zip(items, units, strict=True)
    ]
    for span in call_spans(sum(counts), max_objects):
        groups: dict[int, int] = {}
        has_kv = False
        position = 0
        for item, count in zip(items, counts, strict=True):
            taken = min(position + count, span.stop) - max(position, span.start)
            position += count
            if taken <= 0:
                continue
            first = landed[item.pool.name]
            for object_bytes, number in _sizes(item, first, first + taken):
                groups[object_bytes] = groups.get(object_bytes, 0) + number
            landed[item.pool.name] = first + taken
            has_kv |= item.pool.hit_policy is HitPolicy.ALL_PAGES
        yield StoreCall(groups=tuple(sorted(groups.items())), landed=dict(landed), has_kv=has_kv)


def _sizes(item: PoolPlan, start: int, stop: int) -> Iterator[ObjectGroup]:
    """The objects ``[start, stop)`` of a pool, whose components take turns."""
    components = item.pool.stored_components
    for index, component in enumerate(components):
        number = (stop - 1 - index) // len(components) - (start - 1 - index) // len(components)
        if number:
            yield component.object_bytes, number
