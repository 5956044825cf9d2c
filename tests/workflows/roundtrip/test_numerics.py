"""The arithmetic over the engine: right restores pass, and each check finds what it is there to find."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import ConfigError, StoreError
from hicache_bench.numerics.model import ReferenceModel
from hicache_bench.planning import policy as policy_rules
from hicache_bench.planning.policy import BoolVector, IntVector
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType
from hicache_bench.records.proof import Proof
from hicache_bench.store.base import LEASED, MISS, Buffers, KeyResult
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.object_batch import ObjectBatch
from hicache_bench.store.wrappers import StoreWrapper
from hicache_bench.units import MIB
from hicache_bench.workflows.roundtrip import numeric_controls, numeric_model
from hicache_bench.workflows.roundtrip.numeric_checks import agreement, same_bits
from hicache_bench.workflows.roundtrip.numeric_model import Continuation, NumericModel
from hicache_bench.workflows.roundtrip.numerics import numeric_proofs
from hicache_bench.workflows.variant import VariantOptions, apply_options
from tests.workflows.runs import quiet

WINDOWED = "gpt-oss-20b"
SPARSE = "deepseek-v3.2"
ALL_KINDS = "kitchen-sink"


def proofs(preset: str, *, store: Any = None, seed: int = 0, **options: Any) -> tuple[Proof, ...]:
    variant = apply_options(load_model(preset), VariantOptions(**options))
    return numeric_proofs(variant, seed, quiet, store=store)


@cache
def right(preset: str) -> tuple[Proof, ...]:
    return proofs(preset)


def by_name(found: Sequence[Proof], name: str) -> Proof:
    (proof,) = (proof for proof in found if proof.name == name)
    return proof


def failed(found: Sequence[Proof], section: str = "numerics") -> list[str]:
    """Names of the failed checks of one section."""
    return [
        check.name
        for proof in found
        for check in proof.checks
        if proof.section == section and not check.passed
    ]


CONTROLS: Mapping[str, set[str]] = {
    WINDOWED: {
        "a window one page short",
        "K and V swapped",
        "a page of another request",
        "two pages in each other's place",
    },
    SPARSE: {
        "an index page missing",
        "a page of another request",
        "blocks chosen by a stale index",
        "two pages in each other's place",
    },
    ALL_KINDS: {control.name for control in numeric_controls.CONTROLS},
    "llama-4-scout": {
        "a window one page short",
        "K and V swapped",
        "a page of another request",
        "two pages in each other's place",
    },
    "minimax-m3": {
        "an index page missing",
        "K and V swapped",
        "a page of another request",
        "two pages in each other's place",
    },
    "deepseek-v4-pro": {control.name for control in numeric_controls.CONTROLS} - {"K and V swapped"},
}


@pytest.mark.parametrize("preset", CONTROLS)
def test_a_right_restore_passes_and_every_control_that_applies_is_found(preset: str) -> None:
    found = right(preset)
    assert not [(proof.name, check) for proof in found for check in proof.checks if not check.passed]
    assert all(proof.passed and proof.subject == preset for proof in found)
    assert CONTROLS[preset] == {proof.name for proof in found if proof.section == "control"}


def test_a_model_whose_index_selects_nothing_says_which_control_it_has_not() -> None:
    left_out = [
        p.figures["inapplicable_control"] for p in right("minimax-m3") if "inapplicable_control" in p.figures
    ]
    assert ["blocks chosen by a stale index"] == left_out
    assert not any("inapplicable_control" in p.figures for name in (SPARSE, WINDOWED) for p in right(name))


def test_figures_say_what_each_pool_restored_and_skipped() -> None:
    found = right(ALL_KINDS)
    figures = {pool: by_name(found, f"pool {pool}").figures for pool in ("mla", "swa", "indexer", "mamba")}
    # 1, 4, 5 and 6 pages: the index whole, one state each, and a window of 160 tokens.
    assert (16, 0) == (figures["indexer"]["pages_restored"], figures["indexer"]["pages_skipped"])
    assert (4, 12) == (figures["mamba"]["pages_restored"], figures["mamba"]["pages_skipped"])
    assert (10, 6) == (figures["swa"]["pages_restored"], figures["swa"]["pages_skipped"])
    assert int(figures["mla"]["pages_skipped"]) > 0
    assert all(0 < float(pool["max_difference"]) <= float(pool["tolerance"]) for pool in figures.values())


def test_a_chunk_that_begins_at_the_endpoint_restores_nothing() -> None:
    found = right("llama-4-scout")
    proof = by_name(found, "5 pages, page_first")
    assert (5, 5) == (proof.figures["pages_restored"], proof.figures["pages_skipped"])


def test_a_prompt_that_diverges_uses_what_it_shares() -> None:
    proof = by_name(right(WINDOWED), "3 pages, page_first, then another prompt")
    used = [check for check in proof.checks if check.name.endswith("pages used")]
    assert ["3", "3", "3"] == [check.actual for check in used]


def test_each_layout_that_the_engine_has_is_tried() -> None:
    layouts = {proof.name for proof in right(WINDOWED) if proof.name.startswith("4 pages")}
    assert {"4 pages, page_first", "4 pages, page_first_direct", "4 pages, page_head"} == layouts
    layouts = {proof.name for proof in right(SPARSE) if proof.name.startswith("4 pages")}
    assert {"4 pages, page_first", "4 pages, page_first_direct"} == layouts


@pytest.mark.parametrize(
    "options",
    [
        {"page_tokens": 1},
        {"page_tokens": 16, "layout": "page_head"},
        {"kv_dtype": "fp8_scaled", "salt": "tenant", "profile": "by_kind"},
        {"key_scheme": "sglang", "model_name": "m", "draft": True},
    ],
    ids=str,
)
def test_variants(options: dict[str, Any]) -> None:
    assert not failed(proofs(WINDOWED, seed=5, **options))


@pytest.mark.parametrize("seed", range(1, 4))
def test_seeds(seed: int) -> None:
    assert all(proof.passed for proof in proofs(SPARSE, seed=seed))


def test_several_ranks_are_refused() -> None:
    with pytest.raises(ConfigError, match="proved on one rank; leave --tp"):
        proofs(WINDOWED, tp=2)


# What each check finds.


def test_planning_a_window_one_page_short_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    window = policy_rules._window
    rules = {
        **policy_rules._SELECTIVE,
        AttentionType.SWA: lambda pool, ends: np.minimum(window(pool, ends) + 1, ends),
    }
    monkeypatch.setattr(policy_rules, "_SELECTIVE", rules)
    names = failed(proofs(WINDOWED))
    assert any(name.startswith("selective and dense") for name in names)
    assert not [name for name in names if name.startswith(("hit_policy", "dense"))]
    assert any("swa restored" in name for name in names)
    assert not [name for name in names if "kv restored" in name]


def test_planning_the_state_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(_pool: KVPoolDescriptor, ends: IntVector) -> IntVector:
        return ends

    monkeypatch.setattr(
        policy_rules, "_SELECTIVE", {**policy_rules._SELECTIVE, AttentionType.RECURRENT: first}
    )
    names = failed(proofs("qwen3-next-80b-a3b"))
    assert any("mamba restored" in name for name in names)


def test_a_selected_block_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    selected_units = ReferenceModel.selected_units

    def without_one(self: ReferenceModel, *args: Any) -> dict[str, BoolVector]:
        found = {name: units.copy() for name, units in selected_units(self, *args).items()}
        for units in found.values():
            units[np.flatnonzero(units)[:1]] = False
        return found

    monkeypatch.setattr(ReferenceModel, "selected_units", without_one)
    assert any(name.startswith("selective and dense") for name in failed(proofs(SPARSE)))


class _Store(StoreWrapper):
    """A store that is wrong in one way."""

    def __init__(self) -> None:
        super().__init__(LocalKVStore(256 * MIB))


class _Zeros(_Store):
    """Delivers zeros for one object of each call, whatever was stored."""

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        results = super().batch_get_into(keys, addresses, sizes)
        batch = ObjectBatch.of(keys, addresses, sizes)
        address, size = int(batch.addresses[-1]), int(batch.sizes[-1])
        ctypes.memset(address, 0, size)
        return results


class _Forgetful(_Store):
    """Does not know the last key that it is asked for."""

    def batch_exists(self, keys: Sequence[str]) -> list[KeyResult]:
        return [*super().batch_exists(keys)[:-1], MISS]


class _Keeps(_Store):
    """Removes nothing."""

    def remove(self, key: str, *, force: bool = False) -> KeyResult:
        return LEASED


def test_bytes_that_both_restores_get_wrong_are_found_against_the_whole_prompt() -> None:
    names = failed(proofs("llama-3.1-8b", store=_Zeros()))
    assert "dense: largest difference from the whole prompt" in names


def test_a_shorter_endpoint_than_was_saved_is_found() -> None:
    names = failed(proofs("llama-3.1-8b", store=_Forgetful()))
    assert "selective: pages used" in names


def test_a_difference_beyond_the_tolerance_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numeric_model, "tolerance", lambda _spec: 1e-9)
    names = failed(proofs("llama-3.1-8b"))
    assert "dense: largest difference from the whole prompt" in names
    assert not [name for name in names if "and dense" in name]


def test_the_given_store_is_used_and_left_empty() -> None:
    store = LocalKVStore(256 * MIB)
    with store:
        found = proofs("llama-3.1-8b", store=store)
        assert store.stats.put_bytes > 0
        assert 0 == len(store)
    assert all(proof.passed for proof in found)


def test_objects_that_stay_in_the_store_are_found() -> None:
    names = failed(proofs("llama-3.1-8b", store=_Keeps()))
    assert {"objects of it that stay in the store"} == set(names)


def test_a_store_without_room_is_an_error() -> None:
    with LocalKVStore(MIB) as store, pytest.raises(StoreError, match="give it more room"):
        proofs("llama-3.1-8b", store=store)


def test_a_control_that_breaks_nothing_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(broken: numeric_controls._Broken) -> Any:
        return broken.endpoint.selective.caches

    controls = tuple(replace(control, spoil=nothing) for control in numeric_controls.CONTROLS)
    monkeypatch.setattr(numeric_controls, "CONTROLS", controls)
    found = [proof for proof in proofs(ALL_KINDS) if proof.section == "control"]
    assert len(numeric_controls.CONTROLS) == len(found)
    assert not [check for proof in found for check in proof.checks if check.passed]


def _continuation(change: Callable[[Any, Any], None] = lambda _outputs, _cached: None) -> Continuation:
    outputs, cached = np.ones((2, 3), dtype=np.float32), np.zeros(4, dtype=np.uint8)
    change(outputs, cached)
    return Continuation(outputs, {"kv": cached})


def _one_bit(outputs: Any, _cached: Any) -> None:
    outputs.view(np.uint32)[1, 1] ^= 1


def _one_byte(_outputs: Any, cached: Any) -> None:
    cached[3] = 1


def _nan(outputs: Any, _cached: Any) -> None:
    outputs[0, 0] = np.nan


@pytest.mark.parametrize(
    ("change", "actual"),
    [
        (_one_bit, "1 values and 0 bytes differ, 0 not finite"),
        (_one_byte, "0 values and 1 bytes differ, 0 not finite"),
        (_nan, "1 values and 0 bytes differ, 1 not finite"),
    ],
)
def test_one_bit_one_byte_and_a_nan_are_found(change: Any, actual: str) -> None:
    assert same_bits("a", _continuation(), _continuation()).passed
    check = same_bits("a", _continuation(change), _continuation())
    assert (False, actual) == (check.passed, check.actual)


def test_two_equal_nans_are_not_a_pass() -> None:
    assert not same_bits("a", _continuation(_nan), _continuation(_nan)).passed


@pytest.mark.parametrize(("value", "passed"), [(1.25, True), (1.26, False), (np.nan, False), (np.inf, False)])
def test_agreement_is_within_the_limit_and_a_nan_is_outside(value: float, passed: bool) -> None:
    whole = np.ones((1, 2), dtype=np.float32)
    outputs = np.array([[1, value]], dtype=np.float32)
    assert passed == agreement("a", outputs, whole, 0.25).passed


def test_prompts_share_a_page_only_where_they_should() -> None:
    model = NumericModel(apply_options(load_model(WINDOWED), VariantOptions(page_tokens=1)), 0)
    one, other = model.prompt(0), model.prompt(1)
    assert not (one == other).any()
    diverging = model.diverging(one, 5)
    assert (diverging[:5] == one[:5]).all()
    assert not (diverging[5:] == one[5 : len(diverging)]).any()
