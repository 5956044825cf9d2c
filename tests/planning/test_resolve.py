from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import ConfigError
from hicache_bench.planning.policy import BoolVector, TransferPolicy, first_needed_at
from hicache_bench.planning.resolve import (
    Resolution,
    alignment_pages,
    alignment_warning,
    legal_alike,
    legal_endpoints,
    matchable_pages,
    num_units,
    resolve,
    resolve_ranks,
    unit_ends,
)
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.names import AttentionType, PoolName, Requirement
from tests.golden_file import golden
from tests.pool_builders import endpoints, flags, pool, window_pool

HIT, SELECTIVE = TransferPolicy.HIT_POLICY, TransferPolicy.SELECTIVE
KV = pool("kv", AttentionType.FULL)
STATE = pool("mamba", AttentionType.RECURRENT)
OTHER_STATE = pool("swa", AttentionType.RECURRENT)


@pytest.mark.parametrize("case", golden()["lookups"], ids=lambda case: case["title"])
def test_hit_policy_answers_as_sglang_does(case: dict[str, Any]) -> None:
    """The logical anchor without side pools "hits" in SGLang; the product refuses such a model (registry)."""
    num_pages = case["n_pages"]
    anchor = AttentionType.LOGICAL if case["logical_anchor"] else AttentionType.FULL
    pools, presence = [pool("kv", anchor)], {"kv": flags(num_pages, *case["kv_present"])}
    for asked in case["pools"]:
        if asked["policy"] == "all_pages":
            pools.append(pool(asked["pool"], AttentionType.SPARSE_INDEX))
        else:
            pools.append(window_pool(asked["pool"], asked["trailing_keys"] * 16))
        presence[asked["pool"]] = flags(num_pages, *asked["present"])
    resolution = resolve(pools, presence, HIT, num_pages)
    assert case["kv_hit_pages"] == resolution.hit_pages
    assert case["restorable_prefix_pages"] == np.flatnonzero(resolution.legal)[1:].tolist()
    reported = {name: best for name, best in case["extra_pool_hit_pages"].items() if name != "kv"}
    assert reported == {name: resolution.best_pages[name] for name in reported}


def states(first: BoolVector, second: BoolVector) -> Resolution:
    presence = {"kv": flags(3, 0, 1, 2), "mamba": first, "swa": second}
    return resolve([KV, STATE, OTHER_STATE], presence, SELECTIVE, 3)


@pytest.mark.parametrize(
    ("swa", "mamba", "usable"),
    [((3,), (3,), 3), ((3,), (2,), 0), ((1, 3), (1, 2), 1), ((), (1, 2, 3), 0), ((1, 2, 3), (2,), 2)],
)  # cases E01
def test_the_answer_is_the_maximum_of_the_intersection(
    swa: tuple[int, ...], mamba: tuple[int, ...], usable: int
) -> None:
    assert usable == states(endpoints(3, *mamba), endpoints(3, *swa)).hit_pages


def rank(*ends: int) -> Resolution:
    return resolve([STATE], {"mamba": endpoints(3, *ends)}, SELECTIVE, 3)


def test_ranks_intersect_their_sets_and_not_their_maxima() -> None:  # cases E04
    assert 1 == resolve_ranks([rank(1, 3), rank(1, 2)]).hit_pages
    assert 0 == resolve_ranks([rank(3), rank(2)]).hit_pages
    assert 3 == resolve_ranks([rank(1, 3), rank(3)]).hit_pages


def test_a_rank_with_nothing_differs_from_a_rank_that_did_not_answer() -> None:
    assert 0 == resolve_ranks([rank(1, 3), rank()]).hit_pages
    with pytest.raises(ConfigError, match="no rank"):
        resolve_ranks([])


def test_every_stage_tells_its_own_pools_best() -> None:
    first = resolve([STATE], {"mamba": endpoints(3, 1, 3)}, SELECTIVE, 3)
    second = resolve([STATE, KV], {"mamba": endpoints(3, 1), "kv": flags(3, 0, 1)}, SELECTIVE, 3)
    assert {"mamba": 1, "kv": 2} == resolve_ranks([first, second]).best_pages


def test_ranks_of_different_lengths_are_refused() -> None:
    shorter = resolve([STATE], {"mamba": endpoints(2, 1)}, SELECTIVE, 2)
    with pytest.raises(ConfigError, match="different numbers of endpoints"):
        resolve_ranks([rank(1), shorter])


def test_a_pool_reported_through_another_is_not_a_pool_with_0_hits() -> None:  # cases E06
    index = pool("indexer", AttentionType.SPARSE_INDEX, derived_from="kv")
    presence = {"kv": flags(8, *range(7))}
    assert 7 == resolve([KV, index], presence, SELECTIVE, 8).hit_pages
    undeclared = pool("indexer", AttentionType.SPARSE_INDEX)
    with pytest.raises(ConfigError, match="absent is not the same as 0 hits"):
        resolve([KV, undeclared], presence, SELECTIVE, 8)


@pytest.mark.parametrize(
    ("prompt", "page", "pages"),
    [(32, 16, 1), (48, 16, 2), (33, 16, 2), (1, 16, 0), (0, 16, 0), (16, 16, 0), (17, 16, 1)],
)  # cases E08
def test_one_token_is_always_recomputed(prompt: int, page: int, pages: int) -> None:
    assert pages == matchable_pages(prompt, page)


def test_an_identical_prompt_with_a_state_at_its_end_only_hits_nothing_and_says_why() -> None:  # cases E08
    def replay(*state_ends: int) -> Resolution:
        presence = {"kv": flags(2, 0, 1), "mamba": endpoints(2, *state_ends)}
        return resolve([KV, STATE], presence, SELECTIVE, 2, matchable=matchable_pages(32, 16))

    assert (0, True) == (replay(2).hit_pages, replay(2).replay_boundary)
    assert (1, True) == (replay(1, 2).hit_pages, replay(1, 2).replay_boundary)
    assert (1, False) == (replay(1).hit_pages, replay(1).replay_boundary)


def test_a_full_hit_of_8192_tokens_uses_the_state_one_page_earlier() -> None:  # cases E22, page of 512
    kv = pool("kv", AttentionType.FULL, page_tokens=512)
    state = pool("mamba", AttentionType.RECURRENT, page_tokens=512)
    presence = {"kv": flags(16, *range(16)), "mamba": flags(16, *range(16))}
    matchable = matchable_pages(8192, 512)
    assert 7680 == 512 * resolve([kv, state], presence, SELECTIVE, 16, matchable=matchable).hit_pages


@pytest.mark.parametrize(("retained", "tokens"), [(0, 0), (1, 0), (2, 4064), (5, 4064)])  # cases E09
def test_a_prompt_that_diverges_inside_the_last_block_needs_extra_window_pages(
    retained: int, tokens: int
) -> None:
    full = pool("kv", AttentionType.FULL, unit_pages=2)  # 32-token blocks over pages of 16
    swa = window_pool("swa", 1024)
    reader_pages = matchable_pages(4090 + 1, 16)
    presence = {
        "kv": flags(num_units(full, reader_pages), *range(num_units(full, reader_pages))),
        "swa": flags(256, *range(192 - retained, 256))[:reader_pages],
    }
    assert tokens == 16 * resolve([full, swa], presence, SELECTIVE, reader_pages).hit_pages


def test_out_of_window_pages_may_be_missing() -> None:  # cases E32
    kv, swa = pool("kv", AttentionType.FULL, page_tokens=64), window_pool("swa", 128, page_tokens=64)
    pages = 110_000 // 64
    presence = {"kv": flags(pages, *range(pages)), "swa": flags(pages, pages - 2, pages - 1)}
    assert pages == resolve([kv, swa], presence, SELECTIVE, pages).hit_pages


def test_units_of_several_pools_leave_only_their_common_multiples() -> None:  # cases E16
    units = [64, 2048, 16, 1, 4]  # x 2 tokens: 128, 4096, 32, 2 and 8
    pools = [pool(f"p{u}", AttentionType.FULL, page_tokens=2, unit_pages=u) for u in units]
    assert 2048 == alignment_pages(pools)

    def usable(tokens: int) -> int:
        pages = tokens // 2
        presence = {p.name: np.ones(num_units(p, pages), dtype=np.bool_) for p in pools}
        return 2 * resolve(pools, presence, SELECTIVE, pages).hit_pages

    assert (0, 4096, 4096) == (usable(2048), usable(4096), usable(8190))
    warning = alignment_warning(pools, 2048)
    assert warning is not None
    assert "alignment 4096 > prompt 2048" in warning
    assert alignment_warning(pools, 4096) is None


@pytest.mark.parametrize(("prompt", "tokens"), [(552, 528), (979, 528), (527, 0), (1057, 1056)])  # cases E16
def test_a_unit_of_528_tokens(prompt: int, tokens: int) -> None:
    state = pool("mamba", AttentionType.RECURRENT, page_tokens=16, unit_pages=33)
    pages = matchable_pages(prompt, 16)
    presence = {"mamba": np.ones(num_units(state, pages), dtype=np.bool_)}
    assert tokens == 16 * resolve([state], presence, SELECTIVE, pages).hit_pages


def test_a_partly_used_unit_keeps_the_key_of_the_endpoint_it_was_stored_under() -> None:  # cases E12
    attention = pool("kv", AttentionType.FULL, page_tokens=512, unit_pages=8, partial_units=True)
    state = pool("mamba", AttentionType.RECURRENT, page_tokens=512)
    pages = 14848 // 512
    assert [4096, 8192, 12288, 14848] == (unit_ends(attention, pages) * 512).tolist()
    presence = {"kv": flags(4, 0, 1, 2, 3), "mamba": endpoints(pages, 13824 // 512)}
    assert 13824 == 512 * resolve([attention, state], presence, SELECTIVE, pages).hit_pages
    presence = {"kv": flags(4, 0, 1, 2), "mamba": endpoints(pages, 13824 // 512)}
    assert 0 == resolve([attention, state], presence, SELECTIVE, pages).hit_pages


def test_pools_for_speed_and_logical_pools_constrain_nothing() -> None:
    draft = pool("draft", AttentionType.FULL, required_for=Requirement.SPEED)
    anchor = pool("anchor", AttentionType.LOGICAL)
    presence = {"kv": flags(3, 0, 1, 2), "draft": flags(3)}
    assert 3 == resolve([anchor, KV, draft], presence, SELECTIVE, 3).hit_pages


def test_what_was_not_asked_is_no_hit_and_limits_nothing() -> None:  # cases E84
    presence = {"kv": flags(4, 0, 1, 2), "mamba": endpoints(4, 2), "swa": endpoints(4, 2, 4)}
    asked = {"kv": flags(4, 0, 1, 2), "mamba": endpoints(4, 2, 3, 4), "swa": endpoints(4, 2, 4)}
    found = resolve([KV, STATE, OTHER_STATE], presence, SELECTIVE, 4, asked=asked)
    assert (2, [0, 2]) == (found.hit_pages, np.flatnonzero(found.legal).tolist())
    assert ("mamba",) == found.limited_by  # page 3 of kv is unknown, the state of endpoint 4 is missing
    assert {"kv": 4, "mamba": 2, "swa": 4} == found.best_pages
    everything = {name: np.ones(4, dtype=np.bool_) for name in presence}
    whole = resolve([KV, STATE, OTHER_STATE], presence, SELECTIVE, 4, asked=everything)
    assert resolve([KV, STATE, OTHER_STATE], presence, SELECTIVE, 4).limited_by == whole.limited_by


def test_presence_of_another_length_is_refused() -> None:
    with pytest.raises(ConfigError, match="3 units in 3 pages, not 2"):
        resolve([KV], {"kv": flags(2, 0)}, SELECTIVE, 3)


def test_the_pools_that_hold_an_endpoint_back_are_named() -> None:
    presence = {"kv": flags(3, 0, 1, 2), "mamba": endpoints(3, 1), "swa": endpoints(3, 1, 2, 3)}
    resolution = resolve([KV, STATE, OTHER_STATE], presence, SELECTIVE, 3)
    assert (1, ("mamba",)) == (resolution.hit_pages, resolution.limited_by)
    assert {"kv": 3, "mamba": 1, "swa": 3} == resolution.best_pages


@st.composite
def pools_and_presence(draw: st.DrawFn) -> tuple[list[KVPoolDescriptor], dict[str, BoolVector], int]:
    pages = draw(st.integers(0, 24))
    kinds = draw(
        st.lists(st.sampled_from(["full", "swa", "chunked", "state", "ring"]), min_size=1, max_size=4)
    )
    pools, presence = [], {}
    for index, kind in enumerate(kinds):
        name, unit = f"{kind}{index}", draw(st.sampled_from([1, 1, 2, 3]))
        fields: dict[str, Any] = {"page_tokens": 4, "unit_pages": unit}
        if kind == "full":
            built = pool(name, AttentionType.FULL, partial_units=draw(st.booleans()), **fields)
        elif kind in ("swa", "chunked"):
            attention = AttentionType.SWA if kind == "swa" else AttentionType.CHUNKED
            built = pool(name, attention, window_tokens=draw(st.integers(1, 40)), **fields)
        else:
            state = AttentionType.RECURRENT if kind == "state" else AttentionType.COMPRESSOR_STATE
            built = pool(name, state, **fields)
        pools.append(built)
        units = num_units(built, pages)
        presence[name] = np.array(
            draw(st.lists(st.booleans(), min_size=units, max_size=units)), dtype=np.bool_
        )
    return pools, presence, pages


def legal_by_definition(
    subject: KVPoolDescriptor, present: BoolVector, policy: TransferPolicy, end: int
) -> bool:
    """Oracle, one endpoint at a time: whole units only (or partial ones), and each needed unit is there."""
    if end % subject.unit_pages and not subject.partial_units:
        return False
    units = num_units(subject, end)
    return all(present[first_needed_at(subject, policy, units) : units])


@given(drawn=pools_and_presence(), policy=st.sampled_from(list(TransferPolicy)))
def test_resolution_agrees_with_the_definition(
    drawn: tuple[list[KVPoolDescriptor], dict[str, BoolVector], int], policy: TransferPolicy
) -> None:
    pools, presence, pages = drawn
    for subject in pools:
        expected = [
            end == 0 or legal_by_definition(subject, presence[subject.name], policy, end)
            for end in range(pages + 1)
        ]
        assert expected == legal_endpoints(subject, presence[subject.name], policy, pages).tolist()
    joint = [
        end
        for end in range(1, pages + 1)
        if all(legal_by_definition(p, presence[p.name], policy, end) for p in pools)
    ]
    assert max(joint, default=0) == resolve(pools, presence, policy, pages).hit_pages


@given(drawn=pools_and_presence(), policies=st.tuples(*[st.sampled_from(list(TransferPolicy))] * 2))
def test_policies_that_are_legal_alike_answer_alike(
    drawn: tuple[list[KVPoolDescriptor], dict[str, BoolVector], int],
    policies: tuple[TransferPolicy, TransferPolicy],
) -> None:
    pools, presence, pages = drawn
    answers = [resolve(pools, presence, policy, pages).legal.tolist() for policy in policies]
    assert answers[0] == answers[1] or not legal_alike(pools, pages, *policies)


@pytest.mark.parametrize(
    ("pools", "alike"),
    [
        ([KV], True),
        ([KV, STATE], True),
        ([KV, window_pool("swa", 34)], True),
        ([KV, window_pool("swa", 33)], False),  # 32 older tokens are two pages of 16; SGLang takes three
        ([KV, window_pool("swa", 32, engine_window=128)], False),
        ([KV, pool("chunked", AttentionType.CHUNKED, window_tokens=64)], False),
        ([KV, window_pool("swa", 32, engine_window=128, required_for=Requirement.SPEED)], True),
        ([KV, pool("kv_anchor", AttentionType.LOGICAL)], True),
    ],
)
def test_policies_are_legal_alike_where_they_need_the_same(
    pools: list[KVPoolDescriptor], alike: bool
) -> None:
    assert legal_alike(pools, 24, TransferPolicy.DENSE, HIT)
    assert alike == legal_alike(pools, 24, HIT, SELECTIVE)


@given(drawn=pools_and_presence())
def test_the_order_of_pools_does_not_matter(
    drawn: tuple[list[KVPoolDescriptor], dict[str, BoolVector], int],
) -> None:  # cases E07
    pools, presence, pages = drawn
    answers = {resolve(list(order), presence, SELECTIVE, pages).hit_pages for order in permutations(pools)}
    assert 1 == len(answers)


def test_a_prefix_of_a_million_tokens_resolves_with_holes_in_every_trailing_pool() -> None:
    pages = 16_384
    swa = window_pool(PoolName.SWA.value, 128, page_tokens=64)
    present = np.ones(pages, dtype=np.bool_)
    present[::5] = False
    legal = legal_endpoints(swa, present, SELECTIVE, pages)
    gaps = {end for gap in range(0, pages, 5) for end in (gap + 1, gap + 2)}
    assert [end not in gaps for end in range(pages + 1)] == legal.tolist()


@pytest.mark.parametrize("attention", [AttentionType.SWA, AttentionType.CHUNKED], ids=str)
@pytest.mark.parametrize("policy", list(TransferPolicy))
def test_a_window_longer_than_any_prefix_needs_all_of_it(
    attention: AttentionType, policy: TransferPolicy
) -> None:
    window = pool("swa", attention, window_tokens=1 << 40)
    assert [True, True, False, False] == legal_endpoints(window, flags(3, 0, 2), policy, 3).tolist()
