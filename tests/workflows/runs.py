"""Runs that several tests look at; each is made once."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

from hicache_bench.config.catalogue import list_presets
from hicache_bench.config.load import load_model
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.records.schema import LengthResult, PolicyResult, RunRecord
from hicache_bench.workflows.run import RunOptions, run
from hicache_bench.workflows.variant import VariantOptions, apply_options

PRESETS = [preset.name for preset in list_presets()]


def quiet(_step: str) -> None:
    """Progress that nobody watches."""


VARIANT = {field.name for field in fields(VariantOptions)}


def run_now(preset: str, *lengths: int, **options: Any) -> RunRecord:
    """Run without looking for an earlier result. Options of a variant go to the preset."""
    save_policy = SavePolicy.parse(options.pop("save_policy", "state=every:4096,window=all"))
    changed = VariantOptions(**{name: options.pop(name) for name in VARIANT & set(options)})
    chosen = RunOptions(
        variant=apply_options(load_model(preset), changed),
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
    """One policy of the one length on the first rank."""
    (found,) = (policy for policy in only_length(record).ranks[0].policies if policy.policy == name)
    return found
