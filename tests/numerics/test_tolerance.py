"""Real dims and dtypes: a right restore is within the tolerance, a page of another prompt far outside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hicache_bench.config.load import load_model
from hicache_bench.models.engine_profile import BY_KIND, SGLANG
from hicache_bench.models.spec import ModelSpec
from hicache_bench.numerics.model import reduced
from hicache_bench.numerics.tolerance import tolerance
from hicache_bench.pools.geometry import SCALED_FP8
from tests.numerics.rig import MODELS, V4, Rig, model_spec

END = 2


def real(name: str, **dtypes: Any) -> ModelSpec:
    return reduced(replace(load_model(name).spec, **dtypes), max_reach=128)


CASES = {
    "bf16 rows": real("llama-3.1-8b"),
    "fp8 rows": real("llama-3.1-8b", kv_dtype="fp8"),
    "scaled fp8 rows": real("llama-3.1-8b", kv_dtype="fp8_scaled"),
    "packed latents": real("deepseek-v3.2", kv_dtype="fp8_packed"),
    "v4 rows": real("deepseek-v4-pro"),
    "windows": real("gpt-oss-20b"),
    "blocks": real("minimax-m3"),
    "delta": real("qwen3-next-80b-a3b"),
    "delta with a bf16 state": real("qwen3-next-80b-a3b", state_dtype="bf16"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_right_restore_is_within_and_a_wrong_page_far_outside(name: str) -> None:
    spec = CASES[name]
    num_tokens = END * spec.page_tokens + 20
    profile = BY_KIND if spec.kv_dtype == SCALED_FP8 else SGLANG  # which has no such rows
    rig, other = (Rig(spec, num_tokens, profile=profile, seed=seed) for seed in (0, 1))
    saved, foreign = rig.prefix(END), other.prefix(END)
    right = rig.continued(saved, END)
    limit = tolerance(spec)
    assert np.abs(right - rig.whole()[END * spec.page_tokens :]).max() < limit
    for pool in rig.pools:
        # What an index selects may be the same with a page of another prompt; its rows are not.
        if "indexer" in pool or pool.endswith("_state"):
            continue
        assert np.abs(rig.continued({**saved, pool: foreign[pool]}, END) - right).max() > 4 * limit, pool


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (MODELS["full"], 2 * 2**-8),
        (model_spec(("full",), kv_dtype="fp32"), 2**-15),
        (MODELS["scaled fp8"], 2**-7),
        (MODELS["lightning"], 2 * 2**-8),
        (model_spec(("lightning",), state_dtype="bf16"), 2**-6),
        (MODELS["sparse"], 2 * 2**-8),
        (V4, 3 * 2**-7),
    ],
)
def test_the_coarsest_dtype_decides_and_layers_add_up(spec: ModelSpec, expected: float) -> None:
    assert expected == tolerance(spec)
