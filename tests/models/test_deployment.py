from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import ConfigError
from hicache_bench.models.deployment import MAX_WORKERS, Deployment
from hicache_bench.pools.descriptor import Rank


@pytest.mark.parametrize(
    ("num_layers", "pp_size", "expected"),
    [
        # Printed by SGLang 0.5.23's get_pp_indices: the last stages take one layer more.
        (61, 4, [(0, 15), (15, 30), (30, 45), (45, 61)]),
        (61, 8, [(0, 7), (7, 14), (14, 21), (21, 29), (29, 37), (37, 45), (45, 53), (53, 61)]),
        (43, 2, [(0, 21), (21, 43)]),
        (32, 2, [(0, 16), (16, 32)]),
        (5, 5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
    ],
)
def test_stages_are_cut_as_sglang_cuts_them(num_layers, pp_size, expected):
    deployment = Deployment(pp_size=pp_size)
    stages = [deployment.stage(num_layers, rank) for rank in range(pp_size)]
    assert expected == [(stage.start, stage.stop) for stage in stages]


@given(num_layers=st.integers(1, 300), pp_size=st.integers(1, 16))
def test_stages_follow_each_other_and_leave_no_layer_out(num_layers, pp_size):
    deployment = Deployment(pp_size=pp_size)
    if num_layers < pp_size:
        with pytest.raises(ConfigError, match=f"{num_layers} layers cannot fill {pp_size}"):
            deployment.stage(num_layers, 0)
        return
    covered = [
        layer for rank in range(pp_size) for layer in range(num_layers)[deployment.stage(num_layers, rank)]
    ]
    assert list(range(num_layers)) == covered


def test_ranks_of_every_group():
    deployment = Deployment(tp_size=4, pp_size=2, dcp_size=2)
    ranks = deployment.ranks
    assert 8 == deployment.num_workers == len(set(ranks))
    assert [0, 1, 0, 1] == [rank.dcp_rank for rank in ranks[:4]]
    assert Rank(tp_rank=3, tp_size=4, pp_rank=1, pp_size=2, dcp_rank=1, dcp_size=2) == ranks[-1]
    assert 6 == len(Deployment(tp_size=2, cp_size=3).ranks)


def test_a_rank_is_named_by_the_groups_that_are_on():
    assert "the only rank" == str(Rank())
    assert "tp3 pp1" == str(Rank(tp_rank=3, tp_size=4, pp_rank=1, pp_size=2))
    assert "tp1 cp0 dcp1" == str(Rank(tp_rank=1, tp_size=2, cp_size=2, dcp_rank=1, dcp_size=2))


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"tp_size": 0}, "TP 0 must be at least 1"),
        ({"pp_size": -1}, "PP -1"),
        ({"dcp_size": 0}, "DCP 0"),
        ({"tp_size": 4, "dcp_size": 3}, "DCP 3 does not divide TP 4"),
        ({"tp_size": 4, "tp_lcm": 6}, "--tp-lcm 6 is not a multiple of TP 4"),
        ({"tp_lcm": 0}, "--tp-lcm 0"),
        ({"tp_size": MAX_WORKERS, "pp_size": 2}, "8,192 workers"),
    ],
)
def test_groups_that_do_not_fit_together_are_refused(sizes, words):
    with pytest.raises(ConfigError, match=words):
        Deployment(**sizes)
