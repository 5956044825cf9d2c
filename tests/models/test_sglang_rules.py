"""What SGLang 0.5.23 refuses is refused with its reason; the ideal grouping may still take it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import ConfigError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.engine_profile import BY_KIND, SGLANG, pools_of
from hicache_bench.models.sglang_rules import HYBRID_SWA_ARCHITECTURES, engine_window
from hicache_bench.models.spec import SparseIndex
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


# Read in SGLang 0.5.23's ``models``: the class has get_attention_sliding_window_size, which takes 1 from the
# config's number.
ONE_LESS = (
    *("BeamForCausalLM", "DiffusionGemmaForBlockDiffusion", "Gemma4ForCausalLM"),
    *("Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration", "GptOssForCausalLM"),
    *("InklingForConditionalGeneration", "MellumForCausalLM"),
    *("MuseGlimmerForCausalLM", "MuseGlimmerForConditionalGeneration"),
)
# The class has none (or one that takes nothing), so that the config's number is handed on.
AS_IT_STANDS = (
    *("DeepseekV4ForCausalLM", "EmbeddingGemma2Model", "GraniteMoeSWAForCausalLM", "GraniteSWAForCausalLM"),
    *("IQuestQ1ForCausalLM", "LagunaForCausalLM", "Llama4ForConditionalGeneration", "Step3p5ForCausalLM"),
    *("Step3p7ForConditionalGeneration", "UnlimitedOCRForCausalLM"),
)
# Their configs' number, which is handed on, leaves the query's own token out; a model's window has it.
WITHOUT_OWN_TOKEN = ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM")


def test_the_window_that_the_cache_is_handed():
    assert {*ONE_LESS, *AS_IT_STANDS, *WITHOUT_OWN_TOKEN} == HYBRID_SWA_ARCHITECTURES
    assert {511} == {engine_window(name, 512) for name in ONE_LESS}
    assert {512} == {engine_window(name, 512) for name in AS_IT_STANDS}
    assert {128} == {engine_window(name, 128 + 1) for name in WITHOUT_OWN_TOKEN}
    assert {1023} == {
        engine_window(f"Gemma3For{head}", 1024) for head in ("CausalLM", "ConditionalGeneration")
    }


FORMATS = [
    ("deepseek-v3", {"kv_dtype": "fp8_packed"}, "fp8-packed is not.*only where an index.*--kv-dtype fp8"),
    ("kimi-k2", {"kv_dtype": "fp8_packed"}, "fp8-packed"),
    ("kimi-linear", {"kv_dtype": "fp8_packed"}, "fp8-packed"),
    ("llama-3.1-8b", {"kv_dtype": "fp8_scaled"}, "fp8-scaled is not.*--kv-dtype fp8, bf16, fp16 or fp32"),
    ("deepseek-v3.2", {"kv_dtype": "fp16"}, "fp16 is not.*--kv-dtype bf16, fp8 or fp8-packed"),
    ("glm-5", {"kv_dtype": "fp32"}, "fp32"),
    ("qwen3-next", {"state_dtype": "fp8"}, "--state-dtype fp8 is not.*--state-dtype fp32 or bf16 or fp16"),
    ("kimi-linear", {"conv_dtype": "fp8"}, "conv_dtype fp8"),
    ("deepseek-v3.2", {"index_dtype": "fp4"}, "--index-dtype fp4 is not.*V4 alone.*--index-dtype fp8"),
    ("glm-5.2", {"index_dtype": "fp4"}, "--index-dtype fp4"),
    ("deepseek-v3.2", {"page_tokens": 1}, "--page-tokens 1 is not.*--page-tokens 64"),
    ("glm-5", {"page_tokens": 128}, "--page-tokens 128"),
]


@pytest.mark.parametrize(("preset", "fields", "words"), FORMATS, ids=str)
def test_a_format_that_it_never_allocates_is_left_to_the_ideal_grouping(preset, fields, words):
    spec = replace(load_model(preset).spec, **fields)
    with pytest.raises(ConfigError, match=f"{words}.*or --profile by_kind"):
        pools_of(spec, profile=SGLANG)
    assert pools_of(spec, profile=BY_KIND)


def test_index_keys_of_other_dims():
    spec = load_model("deepseek-v3.2").spec
    wide = replace(spec, attentions={**spec.attentions, "index": SparseIndex(index_head_dim=256, top_k=2048)})
    with pytest.raises(ConfigError, match=r"index_head_dim 256 is not.*use index_head_dim 128"):
        pools_of(wide, profile=SGLANG)
    assert pools_of(wide, profile=BY_KIND)


@pytest.mark.parametrize(
    ("preset", "fields"),
    [
        ("deepseek-v3", {"kv_dtype": "fp8"}),
        ("deepseek-v3", {"kv_dtype": "fp32"}),
        ("llama-3.1-8b", {"kv_dtype": "fp32"}),
        ("deepseek-v3.2", {"kv_dtype": "fp8_packed"}),
        ("glm-5.2", {"kv_dtype": "fp8"}),
        ("qwen3-next", {"state_dtype": "fp16", "conv_dtype": "fp32"}),
        ("deepseek-v4-flash", {"index_dtype": "fp4"}),
        ("minimax-m3", {"page_tokens": 128}),
    ],
    ids=str,
)
def test_formats_that_it_has(preset, fields):
    assert pools_of(replace(load_model(preset).spec, **fields), profile=SGLANG)
