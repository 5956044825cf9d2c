"""What a configuration class has where a ``config.json`` leaves the field out.

Only fields with a constant default that another rule would get wrong: a head size that is not hidden size by
heads, KV heads that are not the attention heads, a window, shared layers, one KV head for all. Gemma-4's
``global_head_dim`` and Nemotron-H's ``mamba_head_dim`` are those that the classes end up with.
Source: the class of each ``model_type`` in transformers 5.24; a test compares every row with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_TABLE = """
afmoe head_dim=128 sliding_window=1024
bamba num_key_value_heads=8
beam head_dim=128 num_key_value_heads=8 sliding_window=512
bitnet num_key_value_heads=5
blt_patcher sliding_window=512
cohere2 sliding_window=4096
cohere2_moe head_dim=128 sliding_window=4096
cohere_compass_text sliding_window=4096
cosmos3_edge_text head_dim=128 num_key_value_heads=8
csm num_key_value_heads=8
csm_depth_decoder_model num_key_value_heads=2
cwm head_dim=128 num_key_value_heads=8 sliding_window=8192
diffusion_gemma_text head_dim=256 num_key_value_heads=4 sliding_window=512 global_head_dim=512
dory head_dim=256 num_key_value_heads=4 sliding_window=1024
dots1 num_key_value_heads=32
emu3_text_model num_key_value_heads=8
ernie4_5 head_dim=128 num_key_value_heads=2
ernie4_5_moe num_key_value_heads=4
ernie4_5_vl_moe_text num_key_value_heads=4
exaone num_key_value_heads=8
exaone4 num_key_value_heads=32 sliding_window=4096
exaone_moe num_key_value_heads=32 sliding_window=4096
falcon multi_query=true
falcon_h1 num_key_value_heads=8
flint head_dim=128 num_key_value_heads=4 sliding_window=513
gemma head_dim=256 num_key_value_heads=16
gemma2 head_dim=256 num_key_value_heads=4 sliding_window=4096
gemma3_text head_dim=256 num_key_value_heads=4 sliding_window=4096
gemma3n_text head_dim=256 num_key_value_heads=2 num_kv_shared_layers=15 sliding_window=512
gemma4_text head_dim=256 num_key_value_heads=4 sliding_window=512 global_head_dim=512
gemma4_unified_text head_dim=256 num_key_value_heads=4 sliding_window=1024 global_head_dim=512
glm head_dim=128 num_key_value_heads=2
glm4 head_dim=128 num_key_value_heads=2
glm4_moe num_key_value_heads=8
glm4v_moe_text num_key_value_heads=8
glm4v_text num_key_value_heads=2
glm_image_text num_key_value_heads=2
glm_ocr_text num_key_value_heads=8
gpt_bigcode multi_query=true
gpt_oss head_dim=64 num_key_value_heads=8 sliding_window=128
granite_docling_text num_key_value_heads=4
granite_swa num_key_value_heads=4 sliding_window=128
granitemoe_swa sliding_window=128
helium head_dim=128 num_key_value_heads=20
higgs_audio_v2 head_dim=128 num_key_value_heads=8
hrm_text head_dim=128
hy_v3 head_dim=128 num_key_value_heads=8
inkling2_loop_text head_dim=128 num_key_value_heads=8 sliding_window_size=1024
inkling2_text head_dim=128 num_key_value_heads=8 sliding_window_size=1024
inkling_text head_dim=128 num_key_value_heads=8 sliding_window_size=512
internlm3 head_dim=128 num_key_value_heads=2
iquestcoder head_dim=128 num_key_value_heads=8
jamba num_key_value_heads=8
jetmoe kv_channels=128 num_key_value_heads=16
kolibri1 head_dim=128 num_key_value_heads=4 sliding_window=513
kyutai_speech_to_text sliding_window=375
laguna head_dim=128 num_key_value_heads=8 sliding_window=512
lara_mini head_dim=128 num_key_value_heads=4 sliding_window=512
lfm2 num_key_value_heads=8
lfm2_moe num_key_value_heads=8
lfm3 head_dim=128 num_key_value_heads=4 sliding_window=256
llama4_text head_dim=128 num_key_value_heads=8 attention_chunk_size=8192
mellum head_dim=128 num_key_value_heads=4 sliding_window=1024
mimo_v2_flash head_dim=192 num_key_value_heads=4 sliding_window=129 v_head_dim=128
minimax num_key_value_heads=8
minimax_m2 head_dim=128 num_key_value_heads=8
minimax_m3_vl_text head_dim=128 num_key_value_heads=4
ministral num_key_value_heads=8 sliding_window=4096
ministral3 head_dim=128 num_key_value_heads=8
mistral num_key_value_heads=8 sliding_window=4096
mixtral num_key_value_heads=8
mllama_text_model num_key_value_heads=8
molmo2_text head_dim=128 num_key_value_heads=8
moshi sliding_window=3000
moshi_depth sliding_window=8
muse_glimmer_text head_dim=128 num_key_value_heads=2 sliding_window=2048
muse_spark_text head_dim=64 num_key_value_heads=16 sliding_window=2048
nemotron_h head_dim=128 num_key_value_heads=8 mamba_head_dim=64
olmo3 sliding_window=4096
paddleocr_vl_text head_dim=128 num_key_value_heads=2
phi4_multimodal num_key_value_heads=8
phimoe num_key_value_heads=8
qwen2 num_key_value_heads=32
qwen2_5_omni_talker head_dim=128 num_key_value_heads=4
qwen2_5_omni_text num_key_value_heads=4
qwen2_5_vl_text num_key_value_heads=8
qwen2_moe num_key_value_heads=16
qwen2_vl_text num_key_value_heads=8
qwen3 head_dim=128 num_key_value_heads=32
qwen3_5_moe_text head_dim=256 num_key_value_heads=2
qwen3_5_text head_dim=256 num_key_value_heads=4
qwen3_moe num_key_value_heads=4
qwen3_next head_dim=256 num_key_value_heads=2
qwen3_omni_moe_talker_code_predictor head_dim=128 num_key_value_heads=8
qwen3_omni_moe_talker_text num_key_value_heads=2
qwen3_omni_moe_text num_key_value_heads=4
qwen3_vl_moe_text num_key_value_heads=16
qwen3_vl_text head_dim=128 num_key_value_heads=32
qwen4_exp_text head_dim=256 num_key_value_heads=2
sarvam_moe head_dim=64 num_key_value_heads=4
seed_oss head_dim=128 num_key_value_heads=8
smollm3 num_key_value_heads=4
solar_open head_dim=128 num_key_value_heads=8
stablelm num_key_value_heads=32
starcoder2 num_key_value_heads=2
step3p5 head_dim=128 num_key_value_heads=8
t5_gemma_module head_dim=256 num_key_value_heads=4 sliding_window=4096
t5gemma2_decoder head_dim=256 num_key_value_heads=4 sliding_window=4096
t5gemma2_text head_dim=256 num_key_value_heads=4 sliding_window=4096
unlimited_ocr_text num_key_value_heads=10 sliding_window=128
vaultgemma head_dim=256 num_key_value_heads=4 sliding_window=4096
voxtral_realtime_text num_key_value_heads=8 sliding_window=4096
zamba num_key_value_heads=16
"""


def _parsed(table: str) -> Mapping[str, Mapping[str, int | bool]]:
    parsed: dict[str, Mapping[str, int | bool]] = {}
    for line in table.split("\n"):
        model_type, *entries = line.split() or [""]
        pairs = (entry.split("=") for entry in entries)
        parsed[model_type] = {name: value == "true" or int(value) for name, value in pairs}
    parsed.pop("")
    return MappingProxyType(parsed)


CLASS_DEFAULTS = _parsed(_TABLE)

OUTER_TYPES: Mapping[str, str] = MappingProxyType({"mistral3": "mistral"})
"""Types of multimodal configs whose text class has another name than theirs with ``_text``."""


def class_defaults(model_type: str | None) -> Mapping[str, int | bool]:
    """Constant defaults of the text class of ``model_type``; none for an unknown one."""
    for name in (model_type or "", f"{model_type}_text", OUTER_TYPES.get(model_type or "", "")):
        if name in CLASS_DEFAULTS:
            return CLASS_DEFAULTS[name]
    return {}
