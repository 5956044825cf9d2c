"""What is known of model families beside what their ``config.json`` says.

Kept small on purpose: a class name where a config has none, the layer pattern that a class has when its
config leaves it out, who is served, and who is not described by the rules here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {
        "apertus": "ApertusForCausalLM",
        "arcee": "ArceeForCausalLM",
        "bamba": "BambaForCausalLM",
        "bloom": "BloomForCausalLM",
        "cohere": "CohereForCausalLM",
        "cohere2": "Cohere2ForCausalLM",
        "deepseek_v2": "DeepseekV2ForCausalLM",
        "deepseek_v3": "DeepseekV3ForCausalLM",
        "deepseek_v32": "DeepseekV32ForCausalLM",
        "deepseek_v4": "DeepseekV4ForCausalLM",
        "exaone4": "Exaone4ForCausalLM",
        "falcon": "FalconForCausalLM",
        "falcon_h1": "FalconH1ForCausalLM",
        "gemma": "GemmaForCausalLM",
        "gemma2": "Gemma2ForCausalLM",
        "gemma3": "Gemma3ForConditionalGeneration",
        "gemma3_text": "Gemma3ForCausalLM",
        "gemma3n": "Gemma3nForConditionalGeneration",
        "gemma3n_text": "Gemma3nForCausalLM",
        "gemma4": "Gemma4ForConditionalGeneration",
        "gemma4_text": "Gemma4ForCausalLM",
        "glm": "GlmForCausalLM",
        "glm4": "Glm4ForCausalLM",
        "glm4_moe": "Glm4MoeForCausalLM",
        "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
        "glm_moe_dsa": "GlmMoeDsaForCausalLM",
        "gpt2": "GPT2LMHeadModel",
        "gpt_bigcode": "GPTBigCodeForCausalLM",
        "gpt_neox": "GPTNeoXForCausalLM",
        "gpt_oss": "GptOssForCausalLM",
        "gptj": "GPTJForCausalLM",
        "granite": "GraniteForCausalLM",
        "granitemoe": "GraniteMoeForCausalLM",
        "granitemoehybrid": "GraniteMoeHybridForCausalLM",
        "jamba": "JambaForCausalLM",
        "kimi_k2": "DeepseekV3ForCausalLM",
        "kimi_k25": "KimiK25ForConditionalGeneration",
        "kimi_linear": "KimiLinearForCausalLM",
        "lfm2": "Lfm2ForCausalLM",
        "lfm2_moe": "Lfm2MoeForCausalLM",
        "llama": "LlamaForCausalLM",
        "llama4": "Llama4ForConditionalGeneration",
        "llama4_text": "Llama4ForConditionalGeneration",
        "mimo": "MiMoForCausalLM",
        "mimo_v2": "MiMoV2ForCausalLM",
        "mimo_v2_flash": "MiMoV2FlashForCausalLM",
        "minicpm3": "MiniCPM3ForCausalLM",
        "minimax": "MiniMaxForCausalLM",
        "minimax_m1": "MiniMaxM1ForCausalLM",
        "minimax_m2": "MiniMaxM2ForCausalLM",
        "minimax_m3_vl": "MiniMaxM3SparseForConditionalGeneration",
        "minimax_m3_vl_text": "MiniMaxM3SparseForCausalLM",
        "minimax_text_01": "MiniMaxText01ForCausalLM",
        "ministral": "MinistralForCausalLM",
        "ministral3": "Ministral3ForCausalLM",
        "mistral": "MistralForCausalLM",
        "mistral3": "Mistral3ForConditionalGeneration",
        "mixtral": "MixtralForCausalLM",
        "nemotron_h": "NemotronHForCausalLM",
        "olmo": "OlmoForCausalLM",
        "olmo2": "Olmo2ForCausalLM",
        "olmo3": "Olmo3ForCausalLM",
        "olmo_hybrid": "OlmoHybridForCausalLM",
        "olmoe": "OlmoeForCausalLM",
        "opt": "OPTForCausalLM",
        "phi": "PhiForCausalLM",
        "phi3": "Phi3ForCausalLM",
        "phimoe": "PhiMoEForCausalLM",
        "qwen2": "Qwen2ForCausalLM",
        "qwen2_moe": "Qwen2MoeForCausalLM",
        "qwen3": "Qwen3ForCausalLM",
        "qwen3_5": "Qwen3_5ForConditionalGeneration",
        "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
        "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
        "qwen3_5_text": "Qwen3_5ForCausalLM",
        "qwen3_moe": "Qwen3MoeForCausalLM",
        "qwen3_next": "Qwen3NextForCausalLM",
        "seed_oss": "SeedOssForCausalLM",
        "smollm3": "SmolLM3ForCausalLM",
        "stablelm": "StableLmForCausalLM",
        "starcoder2": "Starcoder2ForCausalLM",
        "step3p5": "Step3p5ForCausalLM",
        "zamba2": "Zamba2ForCausalLM",
    }
)
"""The class of a ``model_type``, for configs without ``architectures``. Source: transformers 5.24."""

OTHER_ARCHITECTURES = frozenset(
    {
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "ChatGLMModel",
        "DeepseekOCRForCausalLM",
        "DeepseekVL2ForCausalLM",
        "Ernie4_5_ForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "HunYuanDenseV1ForCausalLM",
        "HunYuanMoEV1ForCausalLM",
        "InternVLChatModel",
        "KimiK3ForConditionalGeneration",
        "KimiVLForConditionalGeneration",
        "LlavaForConditionalGeneration",
        "MistralLarge3ForCausalLM",
        "Phi4MMForCausalLM",
        "PixtralForConditionalGeneration",
        "Qwen2AudioForConditionalGeneration",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3OmniMoeForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Step3p7ForConditionalGeneration",
    }
)
"""More classes that SGLang 0.5.23 serves, and whose text part the rules here read."""

NOT_SERVED = frozenset(
    {
        "BambaForCausalLM",
        "BloomForCausalLM",
        "FalconForCausalLM",
        "GPTNeoXForCausalLM",
        "GlmForCausalLM",
        "JambaForCausalLM",
        "MiniMaxForCausalLM",
        "MiniMaxM1ForCausalLM",
        "MiniMaxText01ForCausalLM",
        "MinistralForCausalLM",
        "Olmo3ForCausalLM",
        "OlmoHybridForCausalLM",
        "SeedOssForCausalLM",
        "SmolLM3ForCausalLM",
        "Zamba2ForCausalLM",
    }
)
"""Known classes for which SGLang 0.5.23 has no model file of its own. Source: its ``models`` folder."""

KNOWN = frozenset(ARCHITECTURES.values()) | OTHER_ARCHITECTURES | NOT_SERVED
SERVED = KNOWN - NOT_SERVED

PATTERN_DEFAULTS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "cohere2": ("sliding_window_pattern", 4),
        "exaone4": ("sliding_window_pattern", 4),
        "gemma2": ("sliding_window_pattern", 2),
        "gemma3": ("sliding_window_pattern", 6),
        "gemma3_text": ("sliding_window_pattern", 6),
        "gemma3n": ("sliding_window_pattern", 5),
        "gemma3n_text": ("sliding_window_pattern", 5),
        "gemma4": ("sliding_window_pattern", 6),
        "gemma4_text": ("sliding_window_pattern", 6),
        "gpt_oss": ("sliding_window_pattern", 2),
        "llama4": ("no_rope_layer_interval", 4),
        "llama4_text": ("no_rope_layer_interval", 4),
        "olmo3": ("sliding_window_pattern", 4),
        "qwen3_5": ("full_attention_interval", 4),
        "qwen3_5_moe": ("full_attention_interval", 4),
        "qwen3_5_moe_text": ("full_attention_interval", 4),
        "qwen3_5_text": ("full_attention_interval", 4),
        "qwen3_next": ("full_attention_interval", 4),
    }
)
"""Every n-th layer is full attention in these classes when the config leaves the field out; a note says so.
Source: the ``__post_init__`` of each class in transformers 5.24."""

PATTERN_NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "hy_v4": ("indexer_types", "index_topk_pattern"),
        "hy_v4_vl_text": ("indexer_types", "index_topk_pattern"),
        "minimax": ("layer_types", "attn_type_list"),
        "minimax_m1": ("layer_types", "attn_type_list"),
        "minimax_text_01": ("layer_types", "attn_type_list"),
    }
)
"""Hybrids that look like another kind of model where none of these fields says what each layer is."""

WINDOW_IN_EVERY_LAYER = frozenset(
    {"blt_patcher", "kyutai_speech_to_text", "ministral", "ministral3", "mistral", "mistral3", "mixtral"}
    | {"moshi", "moshi_depth", "phi3", "phimoe", "starcoder2", "voxtral_realtime_text"}
)
"""Families whose ``sliding_window``, if there is one, holds in every layer. Source: transformers 5.24."""

_ENCODERS = """
    albert aimv2 aimv2_text_model align altclip audio-spectrogram-transformer bert blip_text_model camembert
    chinese_clip clap clip clip_text_model clipseg clipseg_text_model clvp clvp_encoder colmodernvbert colpali
    convbert data2vec-audio data2vec-text deberta deberta-v2 dia_encoder distilbert electra embedding_gemma2
    embedding_gemma2_text ernie esm esmc eurobert flaubert flava fnet funnel granite_speech5_ctc
    grounding-dino groupvit groupvit_text_model gte hubert ibert jina_embeddings_v3 lasr_ctc layoutlm
    layoutlmv2 layoutlmv3 lilt longformer luke markuplm megatron-bert metaclip_2 metaclip_2_text_model
    mm-grounding-dino mobilebert modernbert modernvbert mpnet mra nemotron3_5_asr nemotron_asr_streaming
    neomme neobert nomic_bert nystromformer omdet-turbo omniasr_ctc openai_privacy_filter owlv2
    owlv2_text_model owlvit owlvit_text_model parakeet_ctc parakeet_rnnt parakeet_tdt perceiver rembert
    roberta roberta-prelayernorm roc_bert roformer sew sew-d siglip siglip2 siglip2_text_model
    siglip_text_model squeezebert tapas tipsv2 tipsv2_text_model ultrabert ultravbert unispeech unispeech-sat
    videoprism videoprism_text_model wav2vec2 wav2vec2-bert wav2vec2-conformer wavlm xclip xclip_text_model
    xlm xlm-roberta xlm-roberta-xl xmod yoso
"""

WITHOUT_CAUSAL_CACHE = frozenset(_ENCODERS.split())
"""Encoders of text or speech, and pairs of encoders as CLIP: they keep nothing for a next token. Source: the
auto classes of transformers 5.24 that have no causal one beside them, and BERT's relatives, which have."""

HEAD_WITHOUT_CACHE = re.compile(
    r"For(?:MaskedLM|MaskedImageModeling|CTC|RNNT|TDT|\w*Classification|\w*QuestionAnswering(?:Simple)?"
    r"|MultipleChoice|NextSentencePrediction|XVector|Retrieval|\w*Segmentation|\w*Detection|\w*RewardModel)$"
)
"""Ends of class names whose head reads a whole text or sound at once, so that no next token follows."""

NO_ATTENTION = "no layer has attention, and a pool of attention is the anchor that states are indexed by"

NOT_DESCRIBED: Mapping[str, str] = MappingProxyType(
    {
        "falcon_mamba": NO_ATTENTION,
        "longcat_flash": "each of its layers holds two attentions",
        "mamba": NO_ATTENTION,
        "mamba2": NO_ATTENTION,
        "recurrent_gemma": "its recurrent blocks are of a kind that is not known",
        "rwkv": "its state is of a kind that is not known",
        "xlstm": "its state is of a kind that is not known",
        "zaya": "its compressed convolutional attention is of a kind that is not known",
    }
)
"""Families whose fields look like those of another: read by the rules here they would give a wrong size."""

VISION_FIELDS = ("patch_size", "image_size", "num_channels")
"""Fields of a vision tower, which has layers and heads too; beside a vocabulary they prove nothing."""

AUDIO_FIELDS = ("num_mel_bins", "feat_extract_norm", "codebook_size", "sampling_rate")
"""Fields of an audio tower. Speech models have a vocabulary, so it proves nothing."""
