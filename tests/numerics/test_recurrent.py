from __future__ import annotations

import numpy as np
import pytest

from hicache_bench.errors import ConfigError, InputError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.engine_profile import BY_KIND, pools_of
from hicache_bench.numerics.cache import PagedCache, Prompt
from hicache_bench.numerics.dtypes import decode
from hicache_bench.numerics.model import ReferenceModel
from hicache_bench.numerics.recurrent import _stops
from hicache_bench.pools.descriptor import Rank
from tests.numerics.rig import MODELS, RECURRENT, Rig, model_spec


@pytest.mark.parametrize("name", RECURRENT)
def test_a_state_holds_all_that_came_before_and_no_other_state_is_read(name: str) -> None:
    rig = Rig(MODELS[name], 60)
    saved = rig.prefix(5)
    right = rig.continued(saved, 5)
    np.testing.assert_array_equal(right, rig.continued(saved, 5, without={"mamba": [0, 1, 2, 3]}))
    assert np.isnan(rig.continued(saved, 5, without={"mamba": [4]})).any()


@pytest.mark.parametrize("name", RECURRENT)
def test_the_state_of_the_neighbour_endpoint_gives_other_numbers(name: str) -> None:
    rig = Rig(MODELS[name], 60)
    saved = rig.prefix(5)
    right = rig.continued(saved, 5)
    swapped = {"mamba": saved["mamba"].copy(8)}
    for array in swapped["mamba"]._arrays.values():
        array[4] = array[3]
    wrong = rig.continued(swapped, 5)
    assert np.isfinite(wrong).all()
    assert np.abs(wrong - right).max() > 0.02


@pytest.mark.parametrize("name", RECURRENT)
def test_a_narrow_state_is_rounded_once_at_the_endpoint(name: str) -> None:
    spec = model_spec((name,), state_dtype="bf16")
    rig = Rig(spec, 48)
    error = np.abs(rig.continued(rig.prefix(4), 4) - rig.whole()[32:]).max()
    if name == "conv":
        assert error < 1e-4
    else:
        assert 0 < error < 0.05


def test_states_are_written_where_there_is_a_slot_and_nowhere_else() -> None:
    rig = Rig(MODELS["kda"], 60)
    kept = PagedCache.in_memory(rig.pools["mamba"], 8, kept=[1, 4])
    rig.model.forward(rig.inputs, 0, Prompt({"mamba": kept}))
    everywhere = rig.caches()
    rig.model.forward(rig.inputs, 0, Prompt(everywhere))
    for component, dtype in (("temporal", "fp32"), ("conv_0", "bf16")):
        one, other = (
            decode(cache.read_pages(component, 1, np.array([1, 4])), dtype)
            for cache in (kept, everywhere["mamba"])
        )
        np.testing.assert_allclose(one, other, atol=1e-2)
        assert np.abs(one).max() > 0.1
    assert (kept.read_pages("temporal", 1, np.array([0, 2, 3, 5])) == 0xFF).all()


def test_a_forward_pauses_at_the_pages_that_keep_a_state_and_at_its_end() -> None:
    rig = Rig(MODELS["kda"], 60)
    cache = PagedCache.in_memory(rig.pools["mamba"], 80, kept=[1, 2, 40])
    assert [16, 24, 280, 328, 500] == list(_stops(3, 500, cache))
    assert [21] == list(_stops(17, 21, cache))


def test_a_prompt_continues_from_the_end_of_a_page_or_of_its_last_forward() -> None:
    rig = Rig(MODELS["kda"], 60)
    saved = rig.prefix(2)
    with pytest.raises(InputError, match="no state of 'mamba' at token 19"):
        rig.model.forward(rig.inputs[19:20], 19, Prompt(saved))


def test_the_extra_tensor_of_a_state_cannot_be_lost_or_taken_from_a_neighbour_unseen() -> None:
    rig = Rig(MODELS["extra"], 60)
    saved = rig.prefix(5)
    right = rig.continued(saved, 5)
    for change in (0xFF, None):
        broken = {"mamba": saved["mamba"].copy(8)}
        array = broken["mamba"]._arrays["seen"]
        array[4] = array[3] if change is None else change
        assert not np.array_equal(right, rig.continued(broken, 5))


def test_a_shard_of_a_state_is_refused() -> None:
    spec = MODELS["kda"]
    pools = pools_of(spec, profile=BY_KIND, deployment=Deployment(tp_size=2), rank=Rank(tp_size=2))
    with pytest.raises(ConfigError, match="numerics run on one rank: leave --tp"):
        ReferenceModel(spec, [pool for pool in pools if not pool.is_logical])
