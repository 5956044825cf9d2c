"""Runs that several tests look at; each is made once."""

from __future__ import annotations

from functools import cache
from typing import Any

from hicache_bench.config.load import list_presets, load_model
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.records.schema import LengthResult, PolicyResult, RunRecord
from hicache_bench.workflows.run import RunOptions, run

PRESETS = [preset.name for preset in list_presets()]


def quiet(_step: str) -> None:
    """Progress that nobody watches."""


def run_now(preset: str, *lengths: int, **options: Any) -> RunRecord:
    """Run without looking for an earlier result."""
    save_policy = SavePolicy.parse(options.pop("save_policy", "state=every:4096,window=all"))
    chosen = RunOptions(
        preset=load_model(preset),
        token_lengths=lengths,
        save_policy=save_policy,
        **{"store": "count", "repeat": 1, **options},
    )
    return run(chosen, quiet)


@cache
def cached_run(preset: str, *lengths: int, **options: Any) -> RunRecord:
    """A run; counted, not moved, unless a store is given."""
    return run_now(preset, *lengths, **options)


def only_length(record: RunRecord) -> LengthResult:
    """The one length of a record."""
    (result,) = record.results
    return result


def read_bytes(record: RunRecord) -> tuple[int, ...]:
    """Bytes that dense, hit_policy and selective read of the one length."""
    policies = only_length(record).policies
    assert ["dense", "hit_policy", "selective"] == [policy.policy for policy in policies]
    return tuple(policy.read.num_bytes for policy in policies)


def policy_of(record: RunRecord, name: str) -> PolicyResult:
    """One policy of the one length."""
    (found,) = (policy for policy in only_length(record).policies if policy.policy == name)
    return found
