from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import InputError
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.trace.paths import HitDefinition, OutputSave
from hicache_bench.trace.replay import Limits
from hicache_bench.trace.tier import Eviction
from hicache_bench.units import GIB
from hicache_bench.workflows.replay_options import (
    ReplayArguments,
    ReplayOptions,
    parse_capacities,
    parse_choice,
    parse_measured,
    parse_replay,
    parse_saves,
)
from hicache_bench.workflows.variant import VariantOptions, apply_options

ARGUMENTS = ReplayArguments(trace="multi-turn")


def parsed(**changes: Any) -> ReplayOptions:
    variant = apply_options(load_model("deepseek-v3"), VariantOptions())
    return parse_replay(variant, replace(ARGUMENTS, **changes))


def test_without_options_three_policies_are_compared_at_four_capacities() -> None:
    options = parsed()
    assert (64 * GIB, 256 * GIB, 1024 * GIB, None) == options.capacities
    assert tuple(TransferPolicy) == options.policies
    assert ((Eviction.LRU,), (), 100) == (options.evictions, options.save_policies, options.measured_percent)
    assert (HitDefinition.ENGINE, OutputSave.NONE, Limits()) == (
        options.definition,
        options.outputs,
        options.limits,
    )
    assert 300 == len(options.trace)


def test_every_option_is_read() -> None:
    options = parsed(
        capacity="1TiB, inf,1TiB",
        eviction="fifo,optimal",
        policy="selective,dense",
        save_policy="state=last",
        measure="last:50%",
        hit_definition="trace",
        include_output="attention",
    )
    assert (1024 * GIB, None) == options.capacities
    assert (Eviction.FIFO, Eviction.OPTIMAL) == options.evictions
    assert (TransferPolicy.SELECTIVE, TransferPolicy.DENSE) == options.policies
    assert (SavePolicy.parse("state=last"),) == options.save_policies
    assert (50, HitDefinition.TRACE, OutputSave.ATTENTION) == (
        options.measured_percent,
        options.definition,
        options.outputs,
    )


def test_alternatives_of_a_save_policy_are_multiplied() -> None:
    found = parse_saves("state=every:1k|4k|last,window=trailing:+0|+2|all")
    assert 9 == len(found)
    assert "state=every:1024,window=trailing:+0" == str(found[0])
    assert "state=every:4096,window=trailing:+2" == str(found[4])
    assert "state=last,window=all" == str(found[-1])
    assert (SavePolicy.parse("window=all"),) == parse_saves("window=all")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a size that is none": ({"capacity": "64GiX"}, "--capacity '64GiX' is no size"),
    "no room": ({"capacity": "0"}, "--capacity 0 holds nothing"),
    "no capacity": ({"capacity": " , "}, "names nothing"),
    "NaN": ({"capacity": "nan"}, "--capacity 'nan' is no size"),
    "a negative size": ({"capacity": "-1GiB"}, "is no size"),
    "an eviction": ({"eviction": "lur"}, "did you mean 'lru'?; allowed: lru, fifo, optimal"),
    "a policy": ({"policy": "selektive"}, "did you mean 'selective'?"),
    "a save policy": ({"save_policy": "state=often"}, "is not a save policy"),
    "measure": ({"measure": "last:0%"}, "allowed: all, or last:P%"),
    "measure too much": ({"measure": "last:101%"}, "allowed: all, or last:P%"),
    "a definition": ({"hit_definition": "block"}, "allowed: engine, trace"),
    "outputs": ({"include_output": "yes"}, "allowed: none, attention, all"),
    "a block": ({"trace_block_tokens": 0}, "--trace-block-tokens 0"),
    "another block": ({"trace_block_tokens": 64}, "contradicts 64 of --trace-block-tokens"),
    "what a bad line does": ({"on_error": "ignore"}, "allowed: refuse, skip"),
    "a trace": ({"trace": "multiturn"}, "did you mean 'multi-turn'?"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_a_bad_option_says_what_is_allowed(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        parsed(**changes)
    assert message in str(refused.value)


def test_a_choice_is_found_with_dashes_or_underscores() -> None:
    assert TransferPolicy.HIT_POLICY is parse_choice("--policy", "hit-policy", TransferPolicy)


def test_capacities_keep_their_order_and_percent_is_exact() -> None:
    assert (None, 1) == parse_capacities("inf,1,1")
    assert (1, 100) == (parse_measured("last:1%"), parse_measured("last:100%"))
