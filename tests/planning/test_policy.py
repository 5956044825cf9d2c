from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import InputError
from hicache_bench.planning.policy import (
    MAX_UNITS,
    SavePolicy,
    StateSave,
    TransferPolicy,
    first_needed,
    first_needed_at,
)
from hicache_bench.pools.names import AttentionType
from tests.pool_builders import pool, window_pool

SELECTIVE, HIT = TransferPolicy.SELECTIVE, TransferPolicy.HIT_POLICY


@pytest.mark.parametrize(
    ("window", "pages"), [(128, 2), (129, 2), (130, 3), (65, 1), (1, 0)]
)  # cases E17, page of 64 tokens
def test_a_window_needs_w_minus_one_older_tokens(window: int, pages: int) -> None:
    swa = window_pool("swa", window, page_tokens=64)
    assert pages == 100 - first_needed_at(swa, SELECTIVE, 100)


def test_a_window_of_1024_over_pages_of_16_needs_64_pages() -> None:
    assert 300 - 64 == first_needed_at(window_pool("swa", 1024), SELECTIVE, 300)


def test_the_engine_rule_over_fetches_where_the_window_is_one_past_a_page() -> None:
    swa = window_pool("swa", 129, page_tokens=64)
    assert 2 == 100 - first_needed_at(swa, SELECTIVE, 100)
    assert 3 == 100 - first_needed_at(swa, HIT, 100)


@pytest.mark.parametrize(("tokens", "pages"), [(8192, 0), (8208, 1), (10000, 113)])  # cases E19
def test_a_chunk_boundary_kills_everything_older(tokens: int, pages: int) -> None:
    chunked = pool("swa", AttentionType.CHUNKED, window_tokens=8192)
    end = -(-tokens // 16)
    assert pages == end - first_needed_at(chunked, SELECTIVE, end)


def test_a_window_rule_would_fetch_512_pages_at_the_chunk_boundary() -> None:
    assert 512 == 512 - first_needed_at(window_pool("swa", 8192), SELECTIVE, 512)


@given(
    page_tokens=st.integers(1, 64),
    window=st.integers(1, 500),
    end=st.integers(0, 200),
    chunked=st.booleans(),
)
def test_needed_units_are_exactly_those_that_hold_a_live_token(
    page_tokens: int, window: int, end: int, chunked: bool
) -> None:
    """Oracle: token by token, which ones the query at position ``end * P`` attends to."""
    kind = AttentionType.CHUNKED if chunked else AttentionType.SWA
    subject = pool("swa", kind, page_tokens=page_tokens, window_tokens=window)
    query = end * page_tokens
    alive = [
        token
        for token in range(query)
        if (token // window == query // window if chunked else token > query - window)
    ]
    needed = sorted({token // page_tokens for token in alive})
    assert needed == list(range(first_needed_at(subject, SELECTIVE, end), end))


@pytest.mark.parametrize("policy", list(TransferPolicy))
@pytest.mark.parametrize(
    "kind", [AttentionType.FULL, AttentionType.MLA, AttentionType.COMPRESSED, AttentionType.SPARSE_INDEX]
)
def test_all_pages_pools_need_everything(policy: TransferPolicy, kind: AttentionType) -> None:
    assert [0, 0, 0] == first_needed(pool("kv", kind), policy, np.array([0, 1, 9])).tolist()


@pytest.mark.parametrize("policy", list(TransferPolicy))
@pytest.mark.parametrize("kind", [AttentionType.RECURRENT, AttentionType.COMPRESSOR_STATE])
def test_a_state_pool_needs_the_last_one(policy: TransferPolicy, kind: AttentionType) -> None:
    assert [0, 0, 8] == first_needed(pool("mamba", kind), policy, np.array([0, 1, 9])).tolist()


@pytest.mark.parametrize(
    ("engine_window", "pages"), [(127, 2), (128, 2), (129, 3), (1, 1)]
)  # gpt-oss gives the cache 127
def test_hit_policy_loads_the_engine_window_rounded_up(engine_window: int, pages: int) -> None:
    swa = window_pool("swa", 128, engine_window=engine_window, page_tokens=64)
    assert pages == 50 - first_needed_at(swa, HIT, 50)
    assert 0 == first_needed_at(swa, HIT, 1)  # clipped to the prefix


def saved(policy: SavePolicy, subject_kind: AttentionType, num_units: int) -> list[int]:
    return np.flatnonzero(policy.saved_units(pool("mamba", subject_kind), num_units)).tolist()


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("state=last", [9]),
        ("state=all", list(range(10))),
        ("state=every:64", [3, 7, 9]),  # 16 tokens a page: endpoints 64 and 128, and the last
        ("state=every:40", [2, 4, 7, 9]),  # the first page end at or after 40, 80, 120 and 160
        ("state=every:1k", [9]),
    ],
)
def test_states_that_a_save_keeps(text: str, units: list[int]) -> None:
    assert units == saved(SavePolicy.parse(text), AttentionType.RECURRENT, 10)


@pytest.mark.parametrize("text", ["state=last,window=trailing:+0", "state=every:1k", "window=all"])
def test_all_pages_pools_are_always_saved_whole(text: str) -> None:
    assert list(range(10)) == saved(SavePolicy.parse(text), AttentionType.MLA, 10)


@pytest.mark.parametrize(("extra", "first"), [(0, 192), (1, 191), (2, 190)])  # cases E09
def test_trailing_windows_keep_the_need_and_what_was_asked_beyond(extra: int, first: int) -> None:
    policy = SavePolicy.parse(f"window=trailing:+{extra}")
    kept = np.flatnonzero(policy.saved_units(window_pool("swa", 1024), 256)).tolist()
    assert list(range(first, 256)) == kept


def test_a_trailing_save_keeps_what_both_policies_need() -> None:
    """gpt-oss with one token more than the engine believes: the wider of the two needs is kept."""
    for window, engine_window in ((130, 127), (128, 192)):
        swa = window_pool("swa", window, engine_window=engine_window, page_tokens=64)
        kept = SavePolicy(window_extra_pages=0).saved_units(swa, 50)
        for policy in (SELECTIVE, HIT):
            assert kept[first_needed_at(swa, policy, 50) :].all()


@given(
    states=st.sampled_from(list(StateSave)),
    interval=st.integers(1, 10_000),
    extra=st.none() | st.integers(0, 99),
)
def test_a_save_policy_reads_back_what_it_prints(states: StateSave, interval: int, extra: int | None) -> None:
    policy = SavePolicy(
        states=states,
        state_interval_tokens=interval if states is StateSave.EVERY else 4096,
        window_extra_pages=extra,
    )
    assert policy == SavePolicy.parse(str(policy))


@pytest.mark.parametrize(
    "text",
    ["", "all", "state", "state=", "state=every", "state=every:", "state=every:0", "state=every:x",
     "state=sometimes", "window=trailing", "window=trailing:2", "window=trailing:+", "window=trailing:+-1",
     "window=trailing:+٣", "window=trailing:+" + "9" * 5000,
     "window=last", "pages=all", "state=all,state=last", "state=all,pages=1"],
)  # fmt: skip
def test_other_save_policies_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"save.policy"):
        SavePolicy.parse(text)


def test_more_units_than_memory_could_ever_hold_are_refused() -> None:
    full = pool("kv", AttentionType.FULL)
    assert MAX_UNITS == SavePolicy().saved_units(full, MAX_UNITS).sum()
    for units in (MAX_UNITS + 1, 10**18):
        with pytest.raises(InputError, match=rf"{units:,} pages of pool .* use fewer tokens or larger pages"):
            SavePolicy().saved_units(full, units)
