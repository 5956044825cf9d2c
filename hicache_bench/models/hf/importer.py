"""A Hugging Face ``config.json`` becomes a :class:`~hicache_bench.models.spec.ModelSpec`.

Everything is read from what the config says. What it leaves open is concluded only where the model's own code
leaves no choice, and then a note says so. A field that may decide what is cached and is not understood is
an error.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hicache_bench.errors import ConfigError
from hicache_bench.models.hf import families
from hicache_bench.models.hf.attentions import LayeredModel, compressed_model, layered_model
from hicache_bench.models.hf.class_defaults import class_defaults
from hicache_bench.models.hf.compressed import is_compressed
from hicache_bench.models.hf.fields import Fields, shown
from hicache_bench.models.hf.harmless import may_decide
from hicache_bench.models.spec import ModelSpec, RecurrentAttention, SparseIndex

MAX_CONFIG_BYTES = 16 * 1024 * 1024
"""A config is a few kilobytes; what is larger is another file."""
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
"""Objects of a multimodal config that hold the text model."""
MAX_NESTING = 4
PAGE_TOKENS, COMPRESSED_PAGE_TOKENS, INDEXED_DEFAULT_PAGE_TOKENS = 64, 256, 64
MAX_DIGITS = 400
"""Of an integer. No field needs as many, and Python reads none of more than 4,300."""
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """What a config says.

    ``notes`` holds what was concluded rather than read; those that begin with ``warning:`` are assumptions
    that may be wrong. ``sources`` names, for each attention of ``spec``, the fields its dimensions came from.
    """

    spec: ModelSpec
    notes: tuple[str, ...]
    sources: Mapping[str, str]


def read_config(content: bytes, *, file: str) -> dict[str, Any]:
    """The JSON object in ``content``; ``file`` is the name that errors give.

    Raises:
        ConfigError: too large, not UTF-8, not JSON, a key twice, a number that JSON does not have, nested too
            deeply, or not an object.
    """
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(
            f"{file}: {len(content):,} bytes, and a config.json has at most {MAX_CONFIG_BYTES:,}; "
            "give the config.json of the model, not its weights or tokenizer"
        )
    try:
        # Hub files exist that begin with a byte order mark.
        text = content.decode("utf-8-sig")
        data = json.loads(
            text, object_pairs_hook=_without_duplicates, parse_constant=_no_nan, parse_int=_integer
        )
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text (byte {error.start}); give a config.json") from None
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{file}: line {error.lineno}, column {error.colno}: not JSON ({error.msg}); is the file whole?"
        ) from None
    except RecursionError:
        raise ConfigError(f"{file}: nested too deeply for a config.json") from None
    except ValueError as error:  # a duplicate, a NaN, or an integer of too many digits
        raise ConfigError(f"{file}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: holds {shown(data)}, and must be a JSON object")
    return data


def import_config(data: Mapping[str, Any], *, name: str | None = None) -> ImportedModel:
    """The model that a parsed ``config.json`` describes, with the dtypes and page size it is deployed with.

    The text model of a multimodal config is found in ``text_config`` and its relatives, whatever lies beside
    it. ``name`` defaults to what the config calls itself.

    Raises:
        ConfigError: a field that is absent, impossible, or decides what is cached and is not understood.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"config is {shown(data)}, and must be a JSON object")
    levels = _text_levels(data)
    fields = levels[-1]
    model_type = next((found for level in reversed(levels) if (found := level.text("model_type"))), None)
    _refuse_without_cache(levels, model_type)
    architecture, notes = _architecture(levels, model_type)
    compressed = is_compressed(fields)
    if not compressed:
        fields.defaults = class_defaults(model_type)
    layered = compressed_model(fields) if compressed else layered_model(fields, model_type)
    _refuse_without_attention(layered)
    notes += [
        f"{fields.path(field)} is absent: {shown(value)}, as the {model_type} class of transformers has it"
        for field, value in fields.defaulted.items()
    ]
    notes += [*layered.notes, *_draft_notes(layered)]
    indexed = any(isinstance(attention, SparseIndex) for attention in layered.attentions.values())
    kv_dtype, dtype_notes = _kv_dtype(levels, model_type, compressed=compressed)
    if indexed and kv_dtype != "bf16":
        kv_dtype, dtype_notes = (
            "bf16",
            ["KV that an index selects is bf16 in SGLang 0.5.23, whatever dtype says"],
        )
    state_dtype, state_notes = _state_dtype(levels)
    notes += [*dtype_notes, *state_notes, *_quantization(levels)]
    _refuse_unread(fields)
    spec = ModelSpec(
        name=name or _name(levels, model_type),
        architecture=architecture,
        attentions=layered.attentions,
        layers=layered.layers,
        draft_layers=layered.draft_layers,
        shared_layers=layered.shared_layers,
        page_tokens=COMPRESSED_PAGE_TOKENS if compressed else PAGE_TOKENS,
        engine_default_page_tokens=(
            COMPRESSED_PAGE_TOKENS if compressed else INDEXED_DEFAULT_PAGE_TOKENS if indexed else 1
        ),
        kv_dtype=kv_dtype,
        state_dtype=state_dtype,
        logical_anchor=compressed,
        served_by=("sglang-0.5.23",) if architecture in families.SERVED else (),
    )
    return ImportedModel(spec=spec, notes=tuple(dict.fromkeys(notes)), sources=layered.sources)


def _text_levels(data: Mapping[str, Any]) -> list[Fields]:
    """The config and the objects on the way to its text model, which is the last."""
    levels = [Fields(data)]
    while len(levels) <= MAX_NESTING:
        level = levels[-1]
        found = [name for name in NESTED if level.has(name)]
        if not found:
            break
        if len(found) > 1:
            raise ConfigError(
                f"config has {' and '.join(level.path(name) for name in found)}, and one of them must be the "
                "text model; leave only that one"
            )
        block = level.block(found[0])
        assert block is not None
        levels.append(block)
    return levels


def _refuse_without_cache(levels: list[Fields], model_type: str | None) -> None:
    fields = levels[-1]
    if any(level.flag("is_encoder_decoder") for level in levels):
        raise ConfigError(
            "config is of an encoder-decoder (is_encoder_decoder is true), whose cross-attention cache is "
            "not described here; give the config of a decoder-only model"
        )
    types = {level.text("model_type") for level in levels}
    encoder = types & families.WITHOUT_CAUSAL_CACHE or fields.has("type_vocab_size")
    if encoder and not fields.flag("is_decoder"):
        raise ConfigError(
            f"config is of an encoder (model_type {shown(model_type)}), which keeps no KV cache; give the "
            "config of a decoder-only model"
        )
    vision = () if fields.has("vocab_size") else families.VISION_FIELDS
    media = [fields.path(name) for name in (*families.AUDIO_FIELDS, *vision) if fields.has(name)]
    if media:
        raise ConfigError(
            f"config is of a vision or audio model (it has {media[0]}) without a text model; "
            f"looked for one in {', '.join(NESTED)}"
        )
    reason = families.NOT_DESCRIBED.get(model_type or "")
    if reason is not None:
        raise ConfigError(f"model_type {model_type!r} is not imported: {reason}")
    bidirectional = fields.value("use_bidirectional_attention")
    if bidirectional not in (None, False, "vision"):
        raise ConfigError(
            f"{fields.path('use_bidirectional_attention')} is {shown(bidirectional)}: such a model keeps no "
            "KV cache for a next token"
        )


def _refuse_without_attention(layered: LayeredModel) -> None:
    used = {name for names in layered.layers for name in names}
    if all(isinstance(layered.attentions[name], RecurrentAttention) for name in used):
        raise ConfigError(
            f"config describes a model that is not imported: {families.NO_ATTENTION}; give the config of a "
            "model with attention layers"
        )


def _given_architecture(levels: list[Fields]) -> str | None:
    for level in levels:
        if level.has("architectures"):
            listed = level.items("architectures")
            if listed and not isinstance(listed[0], str):
                raise level.wrong("architectures", listed, "a list of class names")
            if listed and listed[0]:
                return str(listed[0])
    return None


def _architecture(levels: list[Fields], model_type: str | None) -> tuple[str, list[str]]:
    """The class name, and a note where it is unknown and the generic rules are an assumption."""
    given = _given_architecture(levels)
    if given is not None and families.HEAD_WITHOUT_CACHE.search(given):
        raise ConfigError(
            f"config is of {shown(given)}, which reads a whole input at once and keeps no KV cache for a "
            "next token; give the config of the model with its causal head"
        )
    outer_type = next((found for level in levels if (found := level.text("model_type"))), None)
    known = families.ARCHITECTURES
    architecture = given or known.get(outer_type or "") or known.get(model_type or "")
    if architecture in families.KNOWN and architecture is not None:
        return architecture, []
    shown_as = architecture or model_type or "unknown"
    note = (
        f"warning: architecture {shown(shown_as)} is not known; its layers are taken to be what their fields "
        "are called in known models"
    )
    return shown_as, [note]


def _draft_notes(layered: LayeredModel) -> list[str]:
    if not layered.draft_count:
        return []
    layers = "1 MTP layer is" if layered.draft_count == 1 else f"{layered.draft_count} MTP layers are"
    if layered.draft_layers:
        return [f"{layers} counted apart"]
    return [f"{layers} not counted: the config does not say what is cached there"]


def _kv_dtype(levels: list[Fields], model_type: str | None, *, compressed: bool) -> tuple[str, list[str]]:
    """What ``--dtype auto`` of SGLang 0.5.23 makes of the config (``_get_and_verify_dtype``)."""
    if compressed:
        return "fp8", [
            "rows of DeepSeek V4 are cached in fp8 with 64 rotary dims in bf16, whatever the weights are"
        ]
    dtype = next((found for level in reversed(levels) if (found := _level_dtype(level))), None)
    if dtype is None:
        return "bf16", ["dtype is absent: KV is taken to be bf16"]
    if dtype == "fp32":
        lowered = "bf16" if (model_type or "").startswith("gemma") else "fp16"
        return lowered, [f"the config's dtype is fp32, which SGLang 0.5.23 lowers: KV is {lowered}"]
    return dtype, []


def _level_dtype(level: Fields) -> str | None:
    given: dict[str, str] = {}
    for name in ("dtype", "torch_dtype"):
        value = level.text(name)
        if value is None or value == "auto":
            continue
        word = value.removeprefix("torch.")
        if word not in DTYPES:
            raise level.wrong(name, value, " or ".join(DTYPES))
        given[level.path(name)] = DTYPES[word]
    if len(set(given.values())) > 1:
        named = " and ".join(f"{path} is {dtype}" for path, dtype in given.items())
        raise ConfigError(f"config contradicts itself: {named}; keep the right one")
    return next(iter(given.values()), None)


def _state_dtype(levels: list[Fields]) -> tuple[str, list[str]]:
    for level in reversed(levels):
        value = level.text("mamba_ssm_dtype")
        if value is not None:
            if value not in DTYPES:
                raise level.wrong("mamba_ssm_dtype", value, " or ".join(DTYPES))
            return DTYPES[value], []
    if any(level.has("mamba_ssm_cache_dtype") for level in levels):
        return "fp32", [
            "mamba_ssm_cache_dtype is not what SGLang 0.5.23 reads (mamba_ssm_dtype): states stay fp32"
        ]
    return "fp32", []


def _quantization(levels: list[Fields]) -> list[str]:
    """Weights may be of any precision without a word about the cache."""
    for level in levels:
        block = level.value("quantization_config") or level.value("compression_config")
        if not block:
            continue
        if isinstance(block, Mapping) and (block.get("kv_cache_scheme") or block.get("kv_cache_quant_algo")):
            return [
                "warning: the quantization block names a KV scheme, which is not taken; choose --kv-dtype"
            ]
        return ["quantization is that of weights; KV keeps the dtype"]
    return []


def _refuse_unread(fields: Fields) -> None:
    unread = sorted(path for name, path, value in fields.unread() if may_decide(name, value))
    if unread:
        named = ", ".join(unread[:4])
        raise ConfigError(
            f"config has fields that may decide what is cached and are not understood: {named}; remove those "
            "that do not, or describe the model in a preset of your own"
        )


def _name(levels: list[Fields], model_type: str | None) -> str:
    """Lower-case letters, digits and ``._-``, as names of presets have them."""
    for given in (*(level.text("_name_or_path") for level in levels), model_type):
        last = (given or "").rstrip("/\\").replace("\\", "/").rpartition("/")[2]
        name = re.sub(r"[^a-z0-9._-]+", "-", last.lower()).strip("-._")[:64].rstrip("-._")
        if name:
            return name
    return "imported-model"


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"key {shown(name)} is there twice; keep one")
    return result


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(
            f"a number of {len(digits):,} digits, and a config.json has none of more than {MAX_DIGITS}; "
            "correct the field"
        )
    return int(digits)


def _no_nan(word: str) -> float:
    # transformers writes Infinity into the configs of Mamba models (time_step_limit), so that must be read.
    if word == "NaN":
        raise ValueError("NaN is not JSON; remove the field or give it a number")
    return float(word)
