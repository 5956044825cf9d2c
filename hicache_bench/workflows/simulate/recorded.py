"""``--from``: the volumes of a record of ``run``, rebuilt unit by unit and held to what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hicache_bench.config.schema import ATTENTION_TYPES
from hicache_bench.cost.volumes import RankRead, phased_calls
from hicache_bench.errors import ConfigError, InputError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.spec import ModelSpec, StateTensor
from hicache_bench.planning.plan import PoolPlan, narrow
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.pools.names import Layout
from hicache_bench.records.io import load_record
from hicache_bench.records.schema import LengthResult, PolicyResult, RankResult, RunRecord
from hicache_bench.workflows.simulate.served import PrefixRequest, Served


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A record of ``run``: the model that it served, and the results of each length."""

    name: str
    served: Served
    save_policy: SavePolicy
    local_tokens: int
    num_queries: int
    results: Mapping[int, LengthResult]

    def evidence(self, tokens: int) -> str:
        """Whether the bytes of this length were measured or counted."""
        return self._result(tokens).evidence

    def reads(self, request: PrefixRequest, policy: TransferPolicy) -> tuple[RankRead, ...]:
        """What the record's ranks read, in the calls in which they read it.

        The record is held to the plan without the limits of ``request``, which then narrow it.

        Raises:
            InputError: a length that the record does not have, or volumes other than those of the plan.
        """
        result = self._result(request.prefix_tokens)
        whole = replace(request, host_capacity_tokens=None, threshold_tokens=0)
        recorded = {rank.rank: _policy(rank, policy) for rank in result.ranks}
        stages = self.served.stages
        checked = tuple(
            self._agreeing(read, recorded[str(ranks[0])], policy)
            for read, (_, ranks) in zip(self.served.reads(whole, policy), stages, strict=True)
        )
        limited = self.served.reads(request, policy)
        if limited[0].plan.shortfall is None:
            return checked
        return limited

    def _agreeing(self, read: RankRead, found: PolicyResult, policy: TransferPolicy) -> RankRead:
        pages = {pool.pool: pool.read.pages for pool in found.pools}
        selected = {
            item.pool.name: _spread(item, pages[item.pool.name])
            for item in read.plan.pools
            if self.num_queries and policy is TransferPolicy.SELECTIVE and item.pool.selection is not None
        }
        if selected:
            # The index first, then what it selects.
            first = tuple(item for item in read.plan.pools if item.pool.name not in selected)
            phases = (replace(read.plan, pools=first), replace(read.plan, pools=tuple(selected.values())))
            pools = tuple(selected.get(item.pool.name, item) for item in read.plan.pools)
            read = replace(read, plan=replace(read.plan, pools=pools), calls=phased_calls(phases))
        expected = (found.read.num_bytes, found.read.objects, found.store_calls)
        actual = (read.num_bytes, read.num_objects, len(read.calls))
        # Which blocks an index selected is not in the record, and how they fall into calls depends on it.
        compared = 2 if selected else 3
        if expected[:compared] != actual[:compared]:
            raise InputError(
                f"{self.name}: {policy} read {expected[0]:,} B in {expected[1]:,} objects and "
                f"{expected[2]} calls, and this release plans {actual[0]:,} B in {actual[1]:,} objects and "
                f"{actual[2]} calls; run it again"
            )
        return read

    def _result(self, tokens: int) -> LengthResult:
        if tokens not in self.results:
            lengths = ", ".join(f"{length:,}" for length in self.results)
            raise InputError(f"{self.name} has no prefix of {tokens:,} tokens; its lengths: {lengths}")
        return self.results[tokens]


def read_run(path: Path) -> RecordedRun:
    """Load a record of ``run`` and rebuild the model that it served.

    Raises:
        InputError: no such record, one of another kind, or one that is not whole.
    """
    record = load_record(path)
    if not isinstance(record, RunRecord):
        raise InputError(
            f"{path.name} is a record of {record.kind!r}; --from takes one of 'run', which has bytes"
        )
    try:
        spec = _spec(record.preset)
        found = RecordedRun(
            name=path.name,
            served=Served(spec, record.profile, _deployment(record.deployment)),
            save_policy=SavePolicy.parse(record.save_policy),
            local_tokens=record.local_prefix_tokens,
            num_queries=record.queries,
            results={result.tokens: result for result in record.results},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path.name} is not a whole record of run: {error!r}; run it again") from error
    if spec.digest != record.preset_digest:
        raise InputError(
            f"{path.name}: its preset does not have the digest that it names; the record was changed"
        )
    if record.status != "ok":
        raise InputError(f"{path.name} is of a run whose checks failed; its bytes are nothing to build on")
    return found


def _spec(data: Mapping[str, Any]) -> ModelSpec:
    fields = dict(data)
    fields["attentions"] = {name: _attention(dims) for name, dims in fields["attentions"].items()}
    for name in ("layers", "draft_layers", "shared_layers"):
        if name in fields:
            fields[name] = tuple(_layer(text) for text in fields[name])
    fields["served_by"] = tuple(fields["served_by"])
    try:
        return ModelSpec(**fields)
    except ConfigError as error:
        raise InputError(str(error)) from error


def _layer(text: str | Sequence[str]) -> tuple[str, ...]:
    """A record joins the names of a layer; those of draft and shared layers are a list."""
    if not isinstance(text, str):
        return tuple(text)
    return () if text == "none" else tuple(text.split("+"))


def _attention(dims: Mapping[str, Any]) -> Any:
    fields = dict(dims)
    if "extra" in fields:
        fields["extra"] = tuple(
            StateTensor(**{**tensor, "shape": tuple(tensor["shape"])}) for tensor in fields["extra"]
        )
    return ATTENTION_TYPES[fields["attention"]](**fields)


def _deployment(data: Mapping[str, Any]) -> Deployment:
    return Deployment(
        tp_size=data["tp"],
        pp_size=data["pp"],
        cp_size=data["cp"],
        cp_sharded=data["cp_sharded"],
        dcp_size=data["dcp"],
        tp_lcm=data["tp_lcm"],
        layout=Layout(data["layout"]),
        with_draft=data["draft"],
    )


def _policy(rank: RankResult, policy: TransferPolicy) -> PolicyResult:
    return next(result for result in rank.policies if result.policy == policy.value)


def _spread(item: PoolPlan, count: int) -> PoolPlan:
    """As many of the planned units as an index selected, evenly spaced: which they were is not recorded."""
    if not len(item.units):
        return item
    selected = np.zeros(int(item.units[-1]) + 1, dtype=np.bool_)
    selected[item.units[np.linspace(0, len(item.units) - 1, count).astype(np.int64)]] = True
    return narrow(item, selected)
