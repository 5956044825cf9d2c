"""A sweep as one tidy table: a row for each point and policy, a column for each figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hicache_bench.records.simulation import BreakEvenTime, PolicyTime, SimulationRecord

_SHARED = (
    "preset_digest", "profile", "save_policy", "volumes", "link", "system", "ranks", "nodes",
    "prefix_tokens", "suffix_tokens", "local_prefix_tokens", "concurrency", "queue_seconds",
    "host_capacity_tokens", "prefetch_policy", "prefetch_profile",
)  # fmt: skip
_DEPLOYMENT = ("tp", "pp", "cp", "dcp", "tp_lcm")
_POLICY = (
    "policy", "hit_tokens", "fulfilled_tokens", "used_tokens", "num_bytes", "objects", "rank_bytes",
    "rank_calls", "landed_calls", "landed_pages", "wasted_bytes", "lookup_keys", "is_cut", "timeout_seconds",
    "finish_seconds", "lookup_seconds", "read_seconds", "h2d_seconds", "compute_seconds",
    "speed_up_over_recompute", "speed_up_over_dense", "uncut_bytes_per_second",
)  # fmt: skip
_TTFT = ("full_overlap", "no_overlap", "low", "high")
_BREAK_EVEN = ("node_bytes", "full_overlap", "no_overlap", "at_peak")


def rows_of(records: Sequence[SimulationRecord]) -> Iterator[dict[str, object]]:
    """One row per point and policy, recomputing among them; seconds and bytes, no text to take apart."""
    for record in records:
        shared: dict[str, object] = {
            "point": record.point,
            "preset": record.preset["name"],
            "page_tokens": record.preset["page_tokens"],
            **{name: getattr(record, name) for name in _SHARED},
            **{name: record.deployment[name] for name in _DEPLOYMENT},
        }
        recompute = {f"ttft_{name}": getattr(record.recompute, name) for name in _TTFT}
        yield {**shared, **_policy(None), "policy": "recompute", **recompute, **_break_even(None)}
        even = {entry.policy: entry for entry in record.break_even}
        for policy in record.policies:
            ttft = {f"ttft_{name}": getattr(policy.ttft, name) for name in _TTFT}
            yield {**shared, **_policy(policy), **ttft, **_break_even(even.get(policy.policy))}


def _policy(policy: PolicyTime | None) -> dict[str, object]:
    return {name: None if policy is None else getattr(policy, name) for name in _POLICY}


def _break_even(found: BreakEvenTime | None) -> dict[str, object]:
    return {f"break_even_{name}": None if found is None else getattr(found, name) for name in _BREAK_EVEN}
