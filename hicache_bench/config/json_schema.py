"""The format of preset files as a JSON Schema, for editors.

It is generated from the models that presets are validated with. What a file writes otherwise than these hold
it is put right here: dimensions and their source side by side, layers as text.
"""

from __future__ import annotations

import json
from typing import Any

from hicache_bench.config.schema import (
    ATTENTION_TYPES,
    LAYER_FIELDS,
    MAX_DIMENSION,
    NO_ATTENTION,
    ModelPreset,
)
from hicache_bench.pools.geometry import STATE_DTYPE_BYTES

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_NAME = "[A-Za-z_][A-Za-z0-9_-]{0,31}"
_LAYER_TEXT = {
    "type": "string",
    "description": f"attention names joined by '+', or {NO_ATTENTION!r}",
    "pattern": rf"^\s*{_NAME}(?:\s*\+\s*{_NAME})*\s*$",
}


def schema_text() -> str:
    """The schema as the text of ``presets/model.schema.json``."""
    return json.dumps(preset_schema(), indent=2) + "\n"


def preset_schema() -> dict[str, Any]:
    """The schema of a model preset, as plain data.

    It says what a single field may hold. That layers and attentions fit together, and that the dimensions
    make a pool, only ``presets check`` can tell.
    """
    schema = ModelPreset.model_json_schema()
    definitions: dict[str, Any] = schema.pop("$defs")
    source = definitions.pop("SourcedAttention")["properties"]["source"]
    for kind in ATTENTION_TYPES.values():
        definitions[kind.__name__] = _with_source(definitions[kind.__name__], source)
    tensor = definitions["StateTensor"]["properties"]
    tensor["shape"]["items"]["minimum"] = 1
    tensor["dtype"]["enum"] = list(STATE_DTYPE_BYTES)
    attentions = schema["properties"]["attentions"]
    (name_pattern,) = attentions["patternProperties"]
    attentions["patternProperties"][name_pattern] = {
        "oneOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in ATTENTION_TYPES.values()]
    }
    attentions["additionalProperties"] = False
    whole = {
        "$schema": DIALECT,
        "title": "hicache-bench model preset",
        **_tidy(schema),
        "$defs": {
            "LayerEntry": {"oneOf": [_LAYER_TEXT, {"$ref": "#/$defs/LayerGroup"}]},
            **{name: _tidy(definition) for name, definition in sorted(definitions.items())},
        },
    }
    for holder, field in (*(("", name) for name in LAYER_FIELDS), ("LayerGroup", "of")):
        properties = (whole["$defs"][holder] if holder else whole)["properties"]
        properties[field]["items"] = {"$ref": "#/$defs/LayerEntry"}
    return whole


def _with_source(definition: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    """One attention as a file writes it: its word, its dimensions within bounds, and their source."""
    properties = {name: _bounded(field) for name, field in definition["properties"].items()}
    del properties["attention"]["default"]
    return {
        **definition,
        "properties": {**properties, "source": source},
        "required": ["attention", *definition["required"], "source"],
    }


def _bounded(field: dict[str, Any]) -> dict[str, Any]:
    if field.get("type") == "integer":
        return {**field, "minimum": 1, "maximum": MAX_DIMENSION}
    if "anyOf" in field:
        return {**field, "anyOf": [_bounded(choice) for choice in field["anyOf"]]}
    return dict(field)


def _tidy(node: Any, *, names: bool = False) -> Any:
    """Without the titles that only repeat a name, and with text that is read outside of Python.

    ``names`` says that the keys of ``node`` are names of fields, of which one may be ``title``.
    """
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: " ".join(value.replace("``", "`").split())
        if key == "description" and not names
        else _tidy(value, names=key == "properties")
        for key, value in node.items()
        if names or key != "title"
    }
