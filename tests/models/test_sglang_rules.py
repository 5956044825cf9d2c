"""What SGLang 0.5.23 refuses is refused with its reason; the ideal grouping may still take it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import ConfigError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.engine_profile import BY_KIND, SGLANG, pools_of
from hicache_bench.models.sglang_rules import engine_window
from hicache_bench.pools.names import Layout


@pytest.mark.parametrize(
    ("preset", "deployment", "words"),
    [
        ("qwen3-next", Deployment(layout=Layout.LAYER_FIRST), "layer_first for pool 'mamba'.*page_first"),
        ("qwen3-next", Deployment(layout=Layout.PAGE_HEAD), "page_head.*'mamba'"),
        ("mimo-v2-flash", Deployment(layout=Layout.LAYER_FIRST), "layer_first for pool 'kv'"),
        ("mimo-v2-flash", Deployment(layout=Layout.PAGE_HEAD), "page_head for K and V of equal heads"),
        ("deepseek-v3", Deployment(layout=Layout.PAGE_HEAD), "page_head.*'kv'"),
        ("deepseek-v3.2", Deployment(tp_size=8, dcp_size=2), "decode-context.*'indexer'.*--dcp 1"),
        ("llama-3.1-8b", Deployment(tp_size=8, dcp_size=2), "decode-context.*'kv'"),
        ("deepseek-v3", Deployment(cp_size=2, cp_sharded=True), "context-parallel.*--cp N:replicated"),
        ("minimax-m3", Deployment(pp_size=2), "one pipeline stage.*--pp 1"),
        ("llama-3.1-8b", Deployment(tp_lcm=4), "--tp-lcm.*--layout page_head"),
    ],
    ids=str,
)
def test_what_the_engine_refuses(preset, deployment, words):
    with pytest.raises(ConfigError, match=words):
        pools_of(load_model(preset).spec, profile=SGLANG, deployment=deployment)


@pytest.mark.parametrize(
    ("preset", "deployment"),
    [
        ("llama-3.1-8b", Deployment(layout=Layout.LAYER_FIRST)),
        ("llama-3.1-8b", Deployment(layout=Layout.PAGE_HEAD, tp_lcm=4)),
        ("kimi-linear", Deployment(tp_size=4, dcp_size=2)),
        ("deepseek-v3", Deployment(tp_size=4, dcp_size=4, layout=Layout.PAGE_FIRST_DIRECT)),
        ("deepseek-v3", Deployment(cp_size=8)),
        ("minimax-m3", Deployment(tp_size=8)),
    ],
    ids=str,
)
def test_what_it_serves(preset, deployment):
    assert pools_of(load_model(preset).spec, profile=SGLANG, deployment=deployment)


def test_the_ideal_grouping_takes_shards_over_context_ranks():
    deployment = Deployment(cp_size=8, cp_sharded=True)
    (pool,) = pools_of(load_model("deepseek-v3").spec, profile=BY_KIND, deployment=deployment)
    assert pool.cp_sharded
    assert 4_497_408 // 8 == pool.unit_bytes
    spec = replace(load_model("deepseek-v3").spec, page_tokens=4)
    with pytest.raises(ConfigError, match="pages of 4 tokens cannot be shared out to 8"):
        pools_of(spec, profile=BY_KIND, deployment=deployment)


@pytest.mark.parametrize("preset", ["qwen3-next", "deepseek-v3.2", "llama-3.1-8b"])
def test_decode_context_ranks_are_described_for_latents_and_states_alone(preset):
    """No grouping guesses how a pool of another kind would be shared out."""
    with pytest.raises(ConfigError, match=r"MLA rows and recurrent states alone.*--dcp 1"):
        pools_of(load_model(preset).spec, profile=BY_KIND, deployment=Deployment(tp_size=2, dcp_size=2))


@pytest.mark.parametrize("architecture", ["DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"])
def test_an_indexed_model_without_its_index_is_an_error(architecture):
    """E27: it would restore wrong answers with every metric green."""
    spec = replace(load_model("deepseek-v3").spec, architecture=architecture)
    for profile in (SGLANG, BY_KIND):
        with pytest.raises(ConfigError, match="index"):
            pools_of(spec, profile=profile)


def test_the_window_that_the_cache_is_handed():
    handed = {
        ("GptOssForCausalLM", 128): 127,
        ("MiMoV2FlashForCausalLM", 129): 128,
        ("Step3p5ForCausalLM", 512): 512,
    }
    assert handed == {case: engine_window(*case) for case in handed}
