from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.config.deployments import load_compute
from hicache_bench.config.load import load_model
from hicache_bench.cost.breakeven import break_even, fast25_break_even
from hicache_bench.cost.compute import FittedPrefill
from hicache_bench.cost.flops import flops_model
from hicache_bench.cost.ttft import first_token
from tests.cost.rig import KV, plan_of, read_of
from tests.cost.test_ttft import READ, WAIT, scene
from tests.links.rig import fit, link, number


@pytest.mark.parametrize(("peak", "printed", "exact"), [(312e12, 6, 5.86), (989e12, 19, 18.6)])
def test_equation_2_of_the_paper(peak: float, printed: int, exact: float) -> None:
    """LLaMA3-70B, 8,192 tokens: 8 query heads a KV head, bf16, 8 GPUs."""
    d, gqa, s, p, a, b = 8192, 8, 2, 8192, 4, 22
    closed = 8 * peak * 2 * d * s / (gqa * (a * p * d + b * d**2))
    assert printed == round(closed / 1e9)
    assert exact == pytest.approx(closed / 1e9, abs=0.05)
    model = flops_model(load_model("llama-3.1-70b").spec, load_compute()["llama-3.1-70b"])
    num_bytes = 80 * p * 2 * (d // gqa) * s
    found = fast25_break_even(model, num_bytes=num_bytes, tokens=p, flops_per_second=8 * peak)
    assert closed == pytest.approx(found, rel=1e-12)


@given(st.floats(1e3, 1e9), st.integers(1, 40), st.floats(0.0, 0.05), st.floats(0.0, 3.0))
def test_at_the_break_even_both_take_as_long(h2d: float, layers: int, op: float, queue: float) -> None:
    options = replace(WAIT, queue_seconds=queue)
    at = scene(link(op=op, lookup_call=0.01), h2d=h2d, num_layers=layers, prefetch=options)
    found = break_even([READ], at)
    for end in ("full", "none"):
        rate = getattr(found.rate, end)
        if rate != float("inf"):
            token = first_token([READ], replace(at, link=at.link.at_bandwidth(rate)))
            assert at.recompute_seconds == pytest.approx(getattr(token.total, end), rel=1e-6)


def test_never_where_the_rest_alone_takes_as_long() -> None:
    assert float("inf") == break_even([READ], scene(link(), h2d=100.0)).rate.none
    assert float("inf") == break_even([READ], scene(link(op=10.0), h2d=1e9)).rate.full
    # A queue gives the prefetch time, and L2 to L1 none.
    queued = scene(link(), h2d=100.0, prefetch=replace(WAIT, queue_seconds=100.0))
    assert float("inf") == break_even([READ], queued).rate.none


def test_never_where_nothing_at_all_is_left_for_the_bytes() -> None:
    compute = FittedPrefill(fit=fit(c1=2**-10), scale=number(1.0), gpus=1)
    # Reading saves 2 s: 0.25 s are L2 to L1, and four calls take the others to the last bit.
    at = scene(link(op=0.4375), h2d=20480.0, compute=compute)
    assert float("inf") == break_even([READ], at).rate.none


def test_full_overlap_needs_less_than_none() -> None:
    found = break_even([READ], scene(link(), h2d=5120.0))
    assert 0 < found.rate.full < found.rate.none


def test_sharers_need_a_link_that_is_as_much_wider() -> None:
    one = break_even([READ], scene(link(), h2d=1e9))
    four = break_even([READ], scene(link(), h2d=1e9, concurrency=4))
    assert [4 * one.node_bytes, 4 * one.rate.none] == pytest.approx([four.node_bytes, four.rate.none])


def test_nothing_to_read_needs_no_bandwidth() -> None:
    nothing = read_of(plan_of(KV, num_pages=4, threshold_tokens=256))
    assert 0.0 == break_even([nothing], scene(link())).rate.none
