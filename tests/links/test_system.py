from __future__ import annotations

import math

import pytest

from hicache_bench.errors import ConfigError
from hicache_bench.links.constant import Edge
from tests.links.rig import fit, system


def test_the_slower_of_a_ranks_and_the_nodes_path_counts() -> None:
    node = system(h2d=10e9, h2d_node=40e9)
    assert 1.0 == node.h2d_seconds(10_000_000_000, 10_000_000_000)
    assert 2.0 == node.h2d_seconds(10_000_000_000, 80_000_000_000)


def test_edges_move_every_estimate() -> None:
    node = system(fit())
    assert (1.0, 0.5, 0.25) == tuple(node.at_edge(edge).mfu.value for edge in Edge)
    assert (0.5, 1.0, 2.0) == tuple(node.at_edge(edge).prefill_scale.value for edge in Edge)


@pytest.mark.parametrize("bad", [{"c0": -1.0}, {"c1": math.nan}, {"c2": math.inf}, {"c1": 0.0}])
def test_coefficients_that_no_time_follows_from_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="prefill fit of 'm': c0, c1, c2 are"):
        fit(**bad)  # type: ignore[arg-type]


def test_a_fit_and_a_node_have_gpus() -> None:
    with pytest.raises(ConfigError, match="0 GPUs"):
        fit(gpus=0)
    with pytest.raises(ConfigError, match="has 0 GPUs"):
        system(gpus=0, h2d_node=1.0)


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="number must be above zero"):
        system(h2d_node=1e-300, h2d=0.0)


def test_a_fit_says_which_lengths_it_saw() -> None:
    assert (None, None) == (fit().outside(1024), fit().outside(131072))
    assert "1,024 to 131,072 tokens, and 131,073 lie outside" in str(fit().outside(131073))
    assert "and 512 lie" in str(fit().outside(512))


def test_a_fit_tells_its_error_and_its_lengths() -> None:
    told = fit(c0=0.25, c2=3e-9).constant
    assert 1e-3 == told.value
    for part in (
        "4 lengths from 1,024 to 131,072 tokens",
        "max error 1.0%",
        "c0 0.25 s",
        "c2 3e-09 s/token²",
    ):
        assert part in told.source
