from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.config.deployments import load_compute
from hicache_bench.config.load import load_model
from hicache_bench.cost.flops import AttentionSpan, FlopsModel, flops_model
from hicache_bench.models.compute import ComputeDims


def of_preset(name: str) -> FlopsModel:
    return flops_model(load_model(name).spec, load_compute()[name])


@pytest.mark.parametrize("tokens", [1, 1000, 8192, 131072])
def test_a_dense_model_is_equation_1(tokens: int) -> None:
    """FAST'25: l·(a·n²·d + b·n·d²), a = 4, b = 22."""
    expected = 80 * (4 * tokens**2 * 8192 + 22 * tokens * 8192**2)
    assert expected == pytest.approx(of_preset("llama-3.1-70b").flops(tokens))


def test_only_tokens_behind_the_prefix_are_counted() -> None:
    model = of_preset("llama-3.1-70b")
    assert model.flops(9000, 8192) == pytest.approx(model.flops(9000) - model.flops(8192))
    assert 0 == model.flops(8192, 8192)


def brute(span: AttentionSpan, tokens: int) -> float:
    """Twice the rows that each token attends to, one by one; the token itself is half in."""
    total = 0.0
    for token in range(tokens):
        if span.chunk is not None:
            total += 2 * (token % span.chunk) + 1
        else:
            rows = (2 * token + 1) / span.ratio
            total += rows if span.cap is None else min(rows, 2 * span.cap)
    return total


spans = st.one_of(
    st.builds(
        AttentionSpan, layers=st.just(1), cap=st.none() | st.integers(1, 64), ratio=st.sampled_from([1, 4])
    ),
    st.builds(AttentionSpan, layers=st.just(1), chunk=st.integers(1, 50)),
)


@given(spans, st.integers(0, 400))
def test_pairs_are_those_of_a_count_token_by_token(span: AttentionSpan, tokens: int) -> None:
    assert brute(span, tokens) == pytest.approx(span.pairs(tokens), abs=2.0)


@given(spans, st.integers(0, 2000), st.integers(0, 2000))
def test_more_tokens_are_never_less_work(span: AttentionSpan, first: int, more: int) -> None:
    assert span.pairs(first) <= span.pairs(first + more)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-oss-120b", {(128, 1, None): 18, (None, 1, None): 18}),
        ("deepseek-v3.2", {(2048, 1, None): 61}),
        ("deepseek-v4-flash", {(128, 1, None): 43, (512, 4, None): 21, (None, 128, None): 20}),
        ("llama-4-scout", {(None, 1, 8192): 36, (None, 1, None): 12}),
        ("qwen3-next-80b-a3b", {(None, 1, None): 12}),
    ],
)
def test_a_layer_attends_to_what_it_says(name: str, expected: dict[tuple[object, ...], int]) -> None:
    found: dict[tuple[object, ...], int] = {}
    for span in of_preset(name).spans:
        key = (span.cap, span.ratio, span.chunk)
        found[key] = found.get(key, 0) + span.layers
    assert expected == found


def test_active_parameters_are_two_flops_each() -> None:
    spec = load_model("llama-3.1-8b").spec
    dims = ComputeDims(hidden_size=4096, active_parameters=7e9, source="x")
    assert 14e9 == flops_model(spec, dims).linear
