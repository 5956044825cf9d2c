from __future__ import annotations

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.cost.compute import CountedPrefill, FittedPrefill, compute_model
from hicache_bench.errors import ConfigError
from hicache_bench.links.constant import Edge
from hicache_bench.models.compute import ComputeDims
from tests.links.rig import fit, system

SPEC = load_model("llama-3.1-8b").spec
DIMS = ComputeDims(hidden_size=4096, active_parameters=5e11, source="a test")


def test_a_fit_is_its_polynomial() -> None:
    node = system(fit(SPEC.name, c0=0.5, c1=2e-3, c2=1e-6))
    model = compute_model(node, SPEC, None, gpus=1)
    assert isinstance(model, FittedPrefill)
    assert 0.5 + 2e-3 * 100 + 1e-6 * (300**2 - 200**2) == pytest.approx(model.seconds(300, 200))
    assert model.seconds(300, 200) == pytest.approx(model.seconds(300) - model.seconds(200) + 0.5)
    assert "fit of 4 lengths on 1 GPU, max error 1.0%" == model.note
    assert {"prefill of llama-3.1-8b, slope c1", "number"} == {c.name for c in model.constants}


def test_a_fit_of_other_gpus_is_scaled_and_says_so() -> None:
    node = system(fit(SPEC.name, c0=0.5, c1=2e-3, gpus=8))
    model = compute_model(node, SPEC, None, gpus=2)
    assert 0.5 + 4 * 0.2 == pytest.approx(model.seconds(100))
    assert model.note.endswith("on 8 GPUs, max error 1.0%; taken to scale evenly to 2 GPUs")


def test_a_scale_is_over_the_whole_time() -> None:
    node = system(fit(SPEC.name, c0=0.5, c1=2e-3))
    slow = compute_model(node.at_edge(Edge.SLOW), SPEC, None, gpus=1)
    assert 2 * compute_model(node, SPEC, None, gpus=1).seconds(100) == pytest.approx(slow.seconds(100))


def test_without_a_fit_flops_are_counted_and_it_says_so() -> None:
    model = compute_model(system(), SPEC, DIMS, gpus=4)
    assert isinstance(model, CountedPrefill)
    attention = 32 * 4 * 4096 * 1000**2
    assert (attention + 1e12 * 1000) / (1e12 * 0.5 * 4) == pytest.approx(model.seconds(1000))
    assert "FLOPs at 50% of the peak of 4 GPUs: no fit of this model" == model.note
    assert any("FAST'25 eq. 1" in constant.source for constant in model.constants)


def test_with_neither_it_is_told_what_to_give() -> None:
    with pytest.raises(ConfigError, match=r"has no fitted prefill of model 'llama-3\.1-8b'.*--hidden-size"):
        compute_model(system(), SPEC, None, gpus=1)


@pytest.mark.parametrize(
    "dims", [{"hidden_size": 0}, {"active_parameters": 0.0}, {"active_parameters": float("nan")}]
)
def test_dimensions_of_no_model_are_refused(dims: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="not possible; allowed: at least 1"):
        ComputeDims(**{"hidden_size": 1, "active_parameters": None, "source": "x", **dims})  # type: ignore[arg-type]
