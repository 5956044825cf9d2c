"""Models that keep no KV cache, by class and by type, and against the auto classes of transformers."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from hicache_bench.errors import ConfigError
from hicache_bench.models.hf.importer import import_config
from tests.models.hf.configs import CONFIGS

LLAMA = CONFIGS["llama-3.1-8b"]


@pytest.mark.parametrize(
    "architecture",
    [
        *(
            "EsmForMaskedLM",
            "Wav2Vec2ForCTC",
            "LlamaForSequenceClassification",
            "Qwen2ForTokenClassification",
        ),
        *("NewForQuestionAnswering", "Qwen2ForRewardModel", "NewForImageClassification", "NewForTDT"),
    ],
)
def test_a_head_that_reads_a_whole_input_has_no_cache(architecture):
    with pytest.raises(ConfigError, match=f"{architecture}.*no KV cache"):
        import_config(LLAMA | {"architectures": [architecture]})


@pytest.mark.parametrize("inner", [{}, {"model_type": "clip_text_model"}])
@pytest.mark.parametrize("model_type", ["clip", "siglip", "esm", "wav2vec2"])
def test_encoders_have_no_cache_whatever_level_says_it(model_type, inner):
    text = {name: value for name, value in LLAMA.items() if name not in ("architectures", "model_type")}
    for config in (
        text | {"model_type": model_type},
        {"model_type": model_type, "text_config": text | inner},
    ):
        with pytest.raises(ConfigError, match=r"of an encoder .*no KV cache"):
            import_config(config)


pytest.importorskip("transformers", reason="transformers 5 needs Python 3.11 or later")
# The module itself: its package hides it where there is no torch.
modeling_auto = importlib.import_module("transformers.models.auto.modeling_auto")

from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402


def classes_for(*tasks: str) -> dict[str, Any]:
    """Class names that the auto classes have for any of these tasks, by model type."""
    return {
        model_type: name
        for task in tasks
        for model_type, name in getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES").items()
    }


CAUSAL = classes_for("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT")
ENCODERS = classes_for(
    *("MASKED_LM", "CTC", "TEXT_ENCODING", "ZERO_SHOT_IMAGE_CLASSIFICATION", "AUDIO_CLASSIFICATION"),
    *("RNNT", "TDT", "DOCUMENT_QUESTION_ANSWERING", "ZERO_SHOT_OBJECT_DETECTION", "RETRIEVAL"),
)
TEXT_PARTS = {"molmo2_text"}
"""Decoders that only their multimodal model has a causal class for."""


@pytest.mark.parametrize("model_type", sorted(set(ENCODERS) - set(CAUSAL) - TEXT_PARTS))
def test_a_type_without_any_causal_class_is_refused(model_type):
    config = json.loads(json.dumps(CONFIG_MAPPING[model_type]().to_dict(), default=str))
    with pytest.raises(ConfigError):
        import_config(config)


def test_class_names_of_other_tasks_are_refused():
    names = classes_for("SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "CTC", "QUESTION_ANSWERING")
    heads = [name for name in names.values() if not name.endswith("ForConditionalGeneration")]
    assert len(heads) > 100
    for name in heads:
        with pytest.raises(ConfigError, match=f"{name}.*no KV cache"):
            import_config(LLAMA | {"architectures": [name]})


@pytest.mark.parametrize("name", sorted({name for name in CAUSAL.values() if isinstance(name, str)}))
def test_class_names_of_causal_models_are_not(name):
    assert import_config(LLAMA | {"architectures": [name]}).spec.architecture == name
