"""What a class fills in: every row and every absent field against the classes of transformers."""

from __future__ import annotations

import copy
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from hicache_bench.errors import ConfigError
from hicache_bench.models.hf.class_defaults import CLASS_DEFAULTS, OUTER_TYPES, class_defaults
from hicache_bench.models.hf.importer import import_config
from hicache_bench.models.spec import FullAttention, SlidingWindow
from tests.models.hf.configs import dense

transformers = pytest.importorskip("transformers", reason="transformers 5 needs Python 3.11 or later")

from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

DERIVED = {"global_head_dim", "mamba_head_dim"}
"""Rows that are no attribute of a class, but what it ends up with."""
FIELDS = (
    *("head_dim", "attention_head_dim", "kv_channels", "v_head_dim", "num_key_value_heads", "num_kv_heads"),
    *("multi_query", "num_kv_shared_layers", "sliding_window", "sliding_window_size", "attention_chunk_size"),
    *("layer_types", "per_layer_config", "indexer_types", "mamba_head_dim", "use_sliding_window"),
)
"""Fields whose absence must mean what the class makes of it."""


def quietly(make: Any) -> Any:
    """What ``make`` returns, ``None`` where a class of transformers does not take its own values."""
    logging.disable(logging.CRITICAL)
    try:
        return make()
    except Exception:  # noqa: BLE001
        return None
    finally:
        logging.disable(logging.NOTSET)


@cache
def text_classes() -> dict[str, Any]:
    """Every configuration class that has a vocabulary, those inside of others too, by model type.

    To make them takes seconds: tests/conftest.py has these tests in a row, on one worker.
    """
    classes: dict[str, Any] = {}
    todo = [config for name in CONFIG_MAPPING if (config := quietly(CONFIG_MAPPING[name])) is not None]
    while todo:
        config = todo.pop()
        if getattr(config, "vocab_size", None):
            classes.setdefault(type(config).model_type, type(config))
        for name in getattr(config, "sub_configs", {}):
            inner = quietly(lambda config=config, name=name: getattr(config, name))
            todo += [inner] if isinstance(inner, transformers.PretrainedConfig) else []
    return classes


def saved(config: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(json.dumps(config.to_dict(), default=str))
    return loaded


def cached(config: dict[str, Any]) -> list[Counter] | None:
    """What each layer caches, ``None`` where the config is refused."""
    try:
        spec = import_config(config).spec
    except ConfigError:
        return None
    return [Counter(spec.attentions[name] for name in names) for names in spec.layers]


@pytest.mark.parametrize("model_type", CLASS_DEFAULTS)
def test_row_is_what_the_class_has(model_type: str) -> None:
    row = {name: value for name, value in CLASS_DEFAULTS[model_type].items() if name not in DERIVED}
    if model_type not in text_classes():
        pytest.skip("this release of transformers has no such class")
    assert {name: getattr(text_classes()[model_type], name) for name in row} == row


def variants(model_type: str) -> Iterator[dict[str, Any]]:
    """The defaults of a class, and a model of another size, whose hidden size by heads is 64."""
    cls = text_classes()[model_type]
    names = getattr(cls, "attribute_map", {})
    size = {
        names.get("hidden_size", "hidden_size"): 5120,
        names.get("num_attention_heads", "num_attention_heads"): 80,
    }
    for fields in ({}, size):
        config = quietly(lambda fields=fields: saved(cls(**fields)))
        if config is not None:
            yield config


def test_an_absent_field_of_any_class_is_what_the_class_fills_in_or_an_error() -> None:
    """The oracle: the class itself completes the config from which the field was removed."""
    compared: Counter[str] = Counter()
    wrong: dict[str, list[str]] = defaultdict(list)
    for model_type, cls in text_classes().items():
        for config in variants(model_type):
            for field in FIELDS if cached(config) is not None else ():
                if field not in config:
                    continue
                reduced = {name: value for name, value in config.items() if name != field}
                got = cached(reduced)
                completed = quietly(
                    lambda cls=cls, reduced=reduced: saved(cls.from_dict(copy.deepcopy(reduced)))
                )
                expected = None if completed is None else cached(completed)
                if got is None or expected is None:
                    continue
                compared[field] += 1
                if got != expected:
                    wrong[field].append(model_type)
    assert not wrong
    assert compared["head_dim"] > 60
    assert compared["num_key_value_heads"] > 100
    assert compared["sliding_window"] > 20


def bare(model_type: str, **fields: Any) -> dict[str, Any]:
    config = dense("ModelForCausalLM", model_type, 6, 2560, 20, 4, vocab_size=1000, **fields)
    return {name: value for name, value in config.items() if value != "absent"}


@pytest.mark.parametrize(("model_type", "head_dim"), [("qwen3", 128), ("gemma", 256), ("seed_oss", 128)])
def test_a_default_is_noted_and_null_is_none(model_type: str, head_dim: int) -> None:
    model = import_config(bare(model_type))
    assert model.spec.attentions["full"] == FullAttention(kv_heads=4, head_dim=head_dim)
    assert f"head_dim is absent: {head_dim}, as the {model_type} class of transformers has it" in model.notes
    assert "head_dim" not in model.sources["full"]
    null = import_config(bare(model_type, head_dim=None))
    assert null.spec.attentions["full"] == FullAttention(kv_heads=4, head_dim=128)
    assert "head_dim is absent or null: hidden size by attention heads, 128" in null.notes


def test_kv_heads_of_the_class() -> None:
    config = bare("mixtral") | {"hidden_size": 4096, "num_attention_heads": 32}
    del config["num_key_value_heads"]
    model = import_config(config)
    assert model.spec.attentions["full"] == FullAttention(kv_heads=8, head_dim=128)
    assert "num_key_value_heads is absent: 8, as the mixtral class of transformers has it" in model.notes
    null = import_config(config | {"num_key_value_heads": None})
    assert null.spec.attentions["full"] == FullAttention(kv_heads=32, head_dim=128)
    assert any(note.startswith("num_key_value_heads is absent or null") for note in null.notes)


def test_published_gemma_3_4b_leaves_heads_to_its_class() -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024}
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": text,
    }
    for inner in (text, {name: value for name, value in text.items() if name != "model_type"}):
        model = import_config(config | {"text_config": inner})
        assert model.spec.attentions == {
            "window": SlidingWindow(kv_heads=4, head_dim=256, window=1024),
            "full": FullAttention(kv_heads=4, head_dim=256),
        }
        assert sum("text_config." in note and "is absent" in note for note in model.notes) == 2


def test_another_name_of_a_field_beats_the_default() -> None:
    config = bare("mistral", num_query_groups=2, sliding_window=None)
    del config["num_key_value_heads"]
    assert import_config(config).spec.attentions["full"] == FullAttention(kv_heads=2, head_dim=128)
    assert import_config(bare("jetmoe", head_dim=32)).spec.attentions["full"] == FullAttention(
        kv_heads=4, head_dim=32
    )


def test_heads_that_nothing_gives_are_asked_for() -> None:
    config = bare("llama")
    del config["num_attention_heads"]
    with pytest.raises(ConfigError, match=r"num_attention_heads.*or both num_key_value_heads and head_dim"):
        import_config(config)
    assert import_config(config | {"head_dim": 64}).spec.attentions["full"] == FullAttention(
        kv_heads=4, head_dim=64
    )


def test_absent_windows_of_a_class() -> None:
    assert import_config(bare("mistral")).spec.layer_counts == {"window": 6}
    assert import_config(bare("mistral", sliding_window=None)).spec.layer_counts == {"full": 6}
    assert import_config(bare("gemma2")).spec.layer_counts == {"window": 3, "full": 3}
    with pytest.raises(ConfigError, match=r"no layer_types, and the cwm class .* windows in some layers"):
        import_config(bare("cwm"))


@pytest.mark.parametrize("model_type", ["minimax", "minimax_text_01", "hy_v4"])
def test_a_hybrid_without_its_pattern_is_refused(model_type: str) -> None:
    with pytest.raises(ConfigError, match=f"says what each layer of a {model_type} model is"):
        import_config(bare(model_type))


def test_class_of_a_type() -> None:
    assert class_defaults("gemma3") == class_defaults("gemma3_text") != {}
    assert class_defaults("mistral3") == class_defaults("mistral") != {}
    assert class_defaults(None) == class_defaults("") == class_defaults("no_such") == {}
    for outer, text in OUTER_TYPES.items():
        assert CONFIG_MAPPING[outer]().get_text_config().model_type == text
