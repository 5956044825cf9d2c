"""One line broken at a time: the rules of policies, the resolver, the plan and the ledger."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

_POLICY = "planning/policy.py"
_RESOLVE = "planning/resolve.py"
_PLAN = "planning/plan.py"
_LEDGER = "planning/ledger.py"

POLICY_MUTANTS = (
    Mutant(
        "a window one token longer",
        _POLICY,
        "pool.unit_tokens - pool.window_tokens + 1",
        "pool.unit_tokens - pool.window_tokens",
    ),
    Mutant(
        "a window one token shorter",
        _POLICY,
        "pool.unit_tokens - pool.window_tokens + 1",
        "pool.unit_tokens - pool.window_tokens + 2",
    ),
    Mutant(
        "a window that starts at the next page",
        _POLICY,
        "np.maximum(oldest_token, 0) // pool.unit_tokens",
        "-(-np.maximum(oldest_token, 0) // pool.unit_tokens)",
    ),
    Mutant(
        "a chunk as a window",
        _POLICY,
        "ends * pool.unit_tokens // pool.window_tokens * pool.window_tokens",
        "np.maximum(ends * pool.unit_tokens - pool.window_tokens + 1, 0)",
    ),
    Mutant(
        "a chunk that ends one token late",
        _POLICY,
        "ends * pool.unit_tokens // pool.window_tokens * pool.window_tokens",
        "np.maximum(ends * pool.unit_tokens - 1, 0) // pool.window_tokens * pool.window_tokens",
    ),
    Mutant("the state of the endpoint before", _POLICY, "np.maximum(ends - 1, 0)", "np.maximum(ends - 2, 0)"),
    Mutant(
        "trailing pages rounded down",
        _POLICY,
        "max(1, -(-window // pool.unit_tokens))",
        "max(1, window // pool.unit_tokens)",
    ),
    Mutant(
        "one trailing page more",
        _POLICY,
        "max(1, -(-window // pool.unit_tokens))",
        "1 + -(-window // pool.unit_tokens)",
    ),
    Mutant(
        "the engine's window ignored",
        _POLICY,
        "pool.engine_window_tokens or pool.window_tokens or 1",
        "pool.window_tokens or 1",
    ),
    Mutant(
        "selective follows the engine's rule",
        _POLICY,
        "if policy is TransferPolicy.SELECTIVE:",
        "if policy is None:",
    ),
    Mutant(
        "a trailing pool needs all pages",
        _POLICY,
        "(_trailing if pool.hit_policy is HitPolicy.TRAILING_PAGES else _all)(pool, ends)",
        "_all(pool, ends)",
    ),
    Mutant(
        "only the last page of an index",
        _POLICY,
        "AttentionType.SPARSE_INDEX: _all",
        "AttentionType.SPARSE_INDEX: _last",
    ),
    Mutant(
        "only the last page of a compressed pool",
        _POLICY,
        "AttentionType.COMPRESSED: _all",
        "AttentionType.COMPRESSED: _last",
    ),
    Mutant(
        "a save that keeps no last state",
        _POLICY,
        "        saved[-1] = True\n",
        "        saved[-1] |= num_units == 0\n",
    ),
    Mutant(
        "states saved a unit early",
        _POLICY,
        "np.arange(num_units + 1) * pool.unit_tokens",
        "np.arange(1, num_units + 2) * pool.unit_tokens",
    ),
    Mutant(
        "a window saved a page short",
        _POLICY,
        "first - self.window_extra_pages",
        "first + 1 - self.window_extra_pages",
    ),
    Mutant("every state saved", _POLICY, "if self.states is StateSave.ALL:", "if self.states is not None:"),
)

RESOLVE_MUTANTS = (
    Mutant(
        "no token is left to recompute",
        _RESOLVE,
        "max(0, prompt_tokens - 1) // page_tokens",
        "prompt_tokens // page_tokens",
    ),
    Mutant(
        "a last unit in part does not exist",
        _RESOLVE,
        "-(-num_pages // pool.unit_pages) if pool.partial_units else num_pages // pool.unit_pages",
        "num_pages // pool.unit_pages",
    ),
    Mutant("the endpoint before a gap is lost", _RESOLVE, "legal[: gap + 1] = True", "legal[:gap] = True"),
    Mutant(
        "the endpoint behind a gap is legal", _RESOLVE, "legal[: gap + 1] = True", "legal[: gap + 2] = True"
    ),
    Mutant(
        "a gap just before the window counts",
        _RESOLVE,
        "last_gap <= first_needed(pool, policy, ends)",
        "last_gap < first_needed(pool, policy, ends)",
    ),
    Mutant(
        "a gap on the first page of the window does not count",
        _RESOLVE,
        "last_gap <= first_needed(pool, policy, ends)",
        "last_gap <= first_needed(pool, policy, ends) + 1",
    ),
    Mutant(
        "only the last page of a window counts",
        _RESOLVE,
        "    np.maximum.accumulate(last_gap, out=last_gap)\n",
        "",
    ),
    Mutant(
        "the minimum of the pools' maxima",
        _RESOLVE,
        "    hit = _largest(legal[: matchable + 1])\n",
        "    hit = min([matchable, *map(_largest, legal_by_pool.values())])\n",
    ),
    Mutant("any pool instead of all", _RESOLVE, "legal &= pool_legal", "legal |= pool_legal"),
    Mutant(
        "a hit past the last matchable page",
        _RESOLVE,
        "    hit = _largest(legal[: matchable + 1])\n",
        "    hit = _largest(legal)\n",
    ),
    Mutant("any rank instead of all", _RESOLVE, "reduce(np.logical_and,", "reduce(np.logical_or,"),
    Mutant(
        "the minimum of the ranks' hits",
        _RESOLVE,
        "hit_pages=_largest(legal[: matchable + 1]),",
        "hit_pages=min(resolution.hit_pages for resolution in resolutions),",
    ),
    Mutant(
        "an endpoint within a unit",
        _RESOLVE,
        "(pages % pool.unit_pages == 0) & legal_units[pages // pool.unit_pages]",
        "legal_units[pages // pool.unit_pages]",
    ),
    Mutant(
        "a local unit too many",
        _RESOLVE,
        "np.arange(len(reported)) < local",
        "np.arange(len(reported)) <= local",
    ),
    Mutant(
        "a unit that is local in part needs no read",
        _RESOLVE,
        "local_units = local_tokens // pool.unit_tokens",
        "local_units = -(-local_tokens // pool.unit_tokens)",
    ),
    Mutant(
        "what a pool derives from ignored",
        _RESOLVE,
        "for name in (pool.name, pool.derived_from):",
        "for name in (pool.name,):",
    ),
    Mutant(
        "the end of a unit a page early",
        _RESOLVE,
        "return np.minimum((units + 1) * pool.unit_pages, num_pages)",
        "return np.maximum(np.minimum((units + 1) * pool.unit_pages, num_pages) - 1, 1)",
    ),
    Mutant(
        "a draft constrains",
        "pools/descriptor.py",
        "return not self.is_logical and self.required_for is Requirement.CORRECTNESS",
        "return not self.is_logical",
    ),
)

PLAN_MUTANTS = (
    Mutant(
        "a unit that is local in part is left out",
        _PLAN,
        "min(local_tokens // pool.unit_tokens, end)",
        "min(-(-local_tokens // pool.unit_tokens), end)",
    ),
    Mutant("the local prefix is read again", _PLAN, "else max(needed, local)\n", "else needed\n"),
    Mutant(
        "dense reads the local prefix",
        _PLAN,
        "start = local if policy is TransferPolicy.DENSE",
        "start = 0 if policy is TransferPolicy.DENSE",
    ),
    Mutant(
        "the last unit is not read",
        _PLAN,
        "planned = present[start:end]",
        "planned = present[start:end] & (np.arange(start, end) < max(end - 1, 1))",
    ),
    Mutant(
        "units beyond the endpoint are read",
        _PLAN,
        "end = num_units(pool, endpoint_pages)",
        "end = num_units(pool, num_pages)",
    ),
    Mutant(
        "the first unit beyond the endpoint is not counted",
        _PLAN,
        "np.count_nonzero(present[end:])",
        "np.count_nonzero(present[end + 1 :])",
    ),
    Mutant(
        "local units are counted twice",
        _PLAN,
        "np.count_nonzero(present[local:start])",
        "np.count_nonzero(present[:start])",
    ),
    Mutant(
        "needed units that are missing are not counted",
        _PLAN,
        "missing = end - first - int(np.count_nonzero(present[first:end]))",
        "missing = 0",
    ),
    Mutant(
        "a plain cut where the host is full",
        _PLAN,
        "int(np.flatnonzero(resolution.legal[: local_pages + host_capacity_pages + 1])[-1])",
        "local_pages + host_capacity_pages",
    ),
    Mutant(
        "room for one page more than the host has",
        _PLAN,
        "resolution.legal[: local_pages + host_capacity_pages + 1]",
        "resolution.legal[: local_pages + host_capacity_pages + 2]",
    ),
    Mutant(
        "a threshold one token higher",
        _PLAN,
        "local_tokens < threshold_tokens:",
        "local_tokens <= threshold_tokens:",
    ),
    Mutant(
        "the threshold counts local tokens",
        _PLAN,
        "if 0 < endpoint * page_tokens - local_tokens < threshold_tokens:",
        "if 0 < endpoint * page_tokens < threshold_tokens:",
    ),
)

LEDGER_MUTANTS = (
    Mutant(
        "not resolved again after the read",
        _LEDGER,
        "used_pages = _used_pages(plan, arrivals)",
        "used_pages = plan.endpoint_pages",
    ),
    Mutant(
        "what was planned counts as arrived",
        _LEDGER,
        "    present[arrived] = True\n",
        "    present[pool_plan.units] = True\n",
    ),
    Mutant(
        "the local prefix forgotten after the read",
        _LEDGER,
        "local_tokens=plan.local_tokens).hit_pages",
        "local_tokens=0).hit_pages",
    ),
    Mutant(
        "nothing local where nothing arrived",
        _LEDGER,
        "used = max(fulfilled, plan.local_tokens)",
        "used = fulfilled",
    ),
    Mutant(
        "failed objects missing in the total",
        _LEDGER,
        "self.read + self.skipped_total + self.missed + self.failed",
        "self.read + self.skipped_total + self.missed",
    ),
    Mutant(
        "skipped objects missing in the total",
        _LEDGER,
        "self.read + self.skipped_total + self.missed + self.failed",
        "self.read + self.missed + self.failed",
    ),
    Mutant("nothing is wasted", _LEDGER, "wasted=arrival.read - used", "wasted=Volume()"),
    Mutant(
        "what lies past the used endpoint is of use",
        _LEDGER,
        "volume(pool, stop - start)",
        "volume(pool, len(arrival.units) - start)",
    ),
    Mutant(
        "a token has two reasons",
        _LEDGER,
        "(SkipReason.TRANSFER_SHORTFALL, planned - used)",
        "(SkipReason.TRANSFER_SHORTFALL, hit - used)",
    ),
    Mutant(
        "never degraded",
        _LEDGER,
        "and (pool_plan.missing > 0 or len(arrival.units) < len(pool_plan.units))",
        "and False",
    ),
    Mutant(
        "bytes of a unit without its components",
        _LEDGER,
        "units * len(pool.stored_components), units * pool.unit_bytes",
        "units, units * pool.unit_bytes",
    ),
)
