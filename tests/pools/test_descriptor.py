from __future__ import annotations

from typing import Any

import pytest

from hicache_bench.errors import ConfigError
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.names import AttentionType, HitPolicy, Requirement

KEYS = Component("k", num_layers=2, rows=4, row_bytes=16)
VALUES = Component("v", num_layers=2, rows=4, row_bytes=8)
WINDOWED = (AttentionType.SWA, AttentionType.CHUNKED)


def pool(attention: AttentionType = AttentionType.FULL, **changes: Any) -> KVPoolDescriptor:
    fields: dict[str, Any] = {"name": "kv", "page_tokens": 4, "components": (KEYS, VALUES)}
    if attention in WINDOWED:
        fields["window_tokens"] = 8
    return KVPoolDescriptor(attention=attention, **{**fields, **changes})


def test_bytes_and_tokens_of_a_unit():
    two_pages = pool(unit_pages=2)
    assert 128 + 64 == two_pages.unit_bytes
    assert 8 == two_pages.unit_tokens


def test_a_component_without_bytes_is_not_stored():
    """E26: no key and no buffer for it."""
    empty = Component("temporal", num_layers=2, rows=1, row_bytes=0)
    state = pool(AttentionType.RECURRENT, components=(empty, KEYS))
    assert (KEYS,) == state.stored_components
    assert KEYS.object_bytes == state.unit_bytes


@pytest.mark.parametrize(
    ("attention", "expected"),
    [
        (AttentionType.FULL, HitPolicy.ALL_PAGES),
        (AttentionType.MLA, HitPolicy.ALL_PAGES),
        (AttentionType.SPARSE_INDEX, HitPolicy.ALL_PAGES),
        (AttentionType.COMPRESSED, HitPolicy.ALL_PAGES),
        (AttentionType.SWA, HitPolicy.TRAILING_PAGES),
        (AttentionType.CHUNKED, HitPolicy.TRAILING_PAGES),
        (AttentionType.RECURRENT, HitPolicy.TRAILING_PAGES),
        (AttentionType.COMPRESSOR_STATE, HitPolicy.TRAILING_PAGES),
    ],
)
def test_hit_policies(attention, expected):
    assert expected is pool(attention).hit_policy


def test_a_logical_pool_owns_and_constrains_nothing():
    """E29."""
    anchor = pool(AttentionType.LOGICAL, components=())
    assert (True, False, 0, ()) == (
        anchor.is_logical,
        anchor.constrains,
        anchor.unit_bytes,
        anchor.stored_components,
    )


def test_a_pool_for_speed_constrains_nothing():
    """E28."""
    assert pool().constrains
    assert not pool(name="draft", required_for=Requirement.SPEED).constrains


@pytest.mark.parametrize(
    ("attention", "changes", "words"),
    [
        (AttentionType.FULL, {"name": ""}, "name"),
        (AttentionType.FULL, {"page_tokens": 0}, "page_tokens 0"),
        (AttentionType.FULL, {"unit_pages": 0}, "unit_pages 0"),
        (AttentionType.FULL, {"window_tokens": 8}, "no window_tokens"),
        (AttentionType.SWA, {"window_tokens": None}, "needs window_tokens"),
        (AttentionType.CHUNKED, {"window_tokens": 0}, "window_tokens 0"),
        (AttentionType.SWA, {"partial_units": True}, "in part"),
        (AttentionType.RECURRENT, {"partial_units": True}, "in part"),
        (AttentionType.LOGICAL, {}, "logical"),
        (AttentionType.FULL, {"components": ()}, "no bytes"),
        (AttentionType.FULL, {"components": (Component("k", 0, 4, 16),)}, "no bytes"),
        (AttentionType.FULL, {"components": (KEYS, KEYS)}, "one name"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(attention, changes, words):
    with pytest.raises(ConfigError, match=words):
        pool(attention, **changes)


@pytest.mark.parametrize(
    "fields",
    [
        {"tp_rank": 1},
        {"tp_rank": -1},
        {"tp_rank": 2, "tp_size": 2},
        {"pp_rank": 4, "pp_size": 4},
        {"cp_rank": 0, "cp_size": 0},
    ],
    ids=str,
)
def test_a_rank_lies_within_its_group(fields):
    with pytest.raises(ConfigError, match="outside"):
        Rank(**fields)


def test_the_last_rank_of_each_group():
    rank = Rank(tp_rank=7, tp_size=8, pp_rank=1, pp_size=2, cp_rank=3, cp_size=4)
    assert (7, 1, 3) == (rank.tp_rank, rank.pp_rank, rank.cp_rank)
