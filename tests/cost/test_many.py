from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.cost.many import ManyTimes, Requests
from hicache_bench.cost.prefetch import PREFETCH_PROFILES, PrefetchOptions, PrefetchPolicy
from hicache_bench.cost.ttft import first_token
from hicache_bench.cost.volumes import RankRead
from hicache_bench.engine.lookup import LOOKUP_KEYS_PER_CALL
from hicache_bench.planning.policy import TransferPolicy
from tests.cost.rig import KV, PAGE_TOKENS, STATE, WINDOW, plan_of, read_of
from tests.cost.test_ttft import scene
from tests.links.rig import link


def a_read(pages: int, local: int, *, policy: TransferPolicy = TransferPolicy.SELECTIVE) -> RankRead:
    pools = (KV, WINDOW, STATE)
    return read_of(plan_of(*pools, num_pages=pages, policy=policy, local_tokens=local), batch_pages=4)


def asked(reads: list[tuple[RankRead, ...]], keys: list[int], **changes: Any) -> Requests:
    values = {
        "prompt_tokens": np.arange(len(reads)) * 7 + 101,
        "lookup_keys": np.array(keys),
        "read_of": np.arange(len(reads)),
        "reads": reads,
    }
    return Requests(**{**values, **changes})


@given(
    st.lists(
        st.tuples(
            st.integers(0, 24), st.integers(0, 24), st.integers(0, 3000), st.sampled_from(TransferPolicy)
        ),
        min_size=1,
        max_size=6,
    ),
    st.floats(7.3, 997.1),
    st.floats(0.0, 2.9),
    st.sampled_from(PrefetchPolicy),
    st.sampled_from(list(PREFETCH_PROFILES.values())),
)
def test_many_are_what_each_is_alone(
    drawn: list[tuple[int, int, int, TransferPolicy]], rate: float, queue: float, policy: Any, profile: Any
) -> None:
    """Two ranks, the second twice; links so slow that a timeout cuts many of the reads."""
    options = PrefetchOptions(policy=policy, profile=profile, queue_seconds=queue)
    at = scene(
        link({1: rate}, op=0.0137, lookup_call=0.0171, lookup_key=1.7e-5),
        prefetch=options,
        num_ranks=3,
        h2d=1111.0,
    )
    reads: list[tuple[RankRead, ...]] = []
    keys = []
    for pages, local, lookup_keys, transfer in drawn:
        read = a_read(pages, min(local, pages) * PAGE_TOKENS, policy=transfer)
        reads.append((read, replace(read, copies=2)))
        keys.append(lookup_keys)
    requests = asked(reads, keys)
    found = ManyTimes(at).first_tokens(requests)
    for number, ranks in enumerate(reads):
        calls = -(-keys[number] // LOOKUP_KEYS_PER_CALL)
        alone = first_token(
            [replace(rank, lookup_keys=keys[number], lookup_calls=calls) for rank in ranks],
            replace(at, prompt_tokens=int(requests.prompt_tokens[number])),
        )
        assert alone.fetched.is_complete is not bool(found.is_cut[number])
        assert [alone.total.full, alone.total.none] == pytest.approx(
            [found.full[number], found.none[number]], rel=1e-9
        )


def test_a_prompt_that_ends_within_its_last_page_computes_no_less_than_nothing() -> None:
    at = scene(link(), prompt_tokens=14)
    read = a_read(4, 0)
    found = ManyTimes(at).first_tokens(asked([(read,)], [0], prompt_tokens=np.array([14])))
    alone = first_token([read], at)
    before = alone.lookup_seconds + alone.read_seconds + alone.h2d_seconds
    assert before + at.compute.seconds(14, 14) == pytest.approx(found.none[0])


def test_a_read_is_modelled_once() -> None:
    times, read = ManyTimes(scene(link())), (a_read(8, 0),)
    first = times.first_tokens(asked([read, read], [0, 0], read_of=np.array([0, 0])))
    again = times.first_tokens(asked([read, read], [0, 0]))
    assert len({id(known) for known in times._known.values()}) == 1
    assert first.none.tolist() == again.none.tolist()
