from __future__ import annotations

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import ConfigError
from hicache_bench.workflows.simulate.scenes import variant_on
from hicache_bench.workflows.variant import VariantOptions
from tests.links.rig import system


def test_ranks_are_halved_down_to_one() -> None:
    """Eight KV heads cannot be split over three ranks."""
    source, tried = load_model("llama-3.1-8b"), []

    def alone(ranks: int) -> VariantOptions:
        tried.append(ranks)
        return VariantOptions(tp=3 if ranks > 1 else 1)

    assert 1 == variant_on(source, system(gpus=8), None, alone).deployment.tp_size
    assert [8, 4, 2, 1] == tried
    with pytest.raises(ConfigError, match="cannot be split over TP 3"):
        variant_on(source, system(gpus=8), None, lambda _: VariantOptions(tp=3))
