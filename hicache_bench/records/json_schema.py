"""The format of records, and of a gate's report, as JSON Schemas, generated from the dataclasses.

The committed ones lie in ``records/schemas``: one for each kind and schema version. Those of older versions
stay as they are.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

from hicache_bench.records.decode import type_hints
from hicache_bench.records.gate import GateReport
from hicache_bench.records.kinds import KINDS
from hicache_bench.records.schema import SCHEMA_VERSION

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FOLDER = Path(__file__).parent / "schemas"

WRITERS: Mapping[str, type] = {**{name: kind.record for name, kind in KINDS.items()}, "gate": GateReport}
"""By the word in ``kind``, the dataclass that writes it. A gate's report is printed, never read back."""

_SCALARS = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}


def schema_path(kind: str, version: int = SCHEMA_VERSION) -> Path:
    """Where the schema of a kind and version is committed."""
    return FOLDER / f"{kind}.v{version}.json"


def schema_text(kind: str) -> str:
    """The schema of a kind, as the text of its file."""
    return json.dumps(record_schema(WRITERS[kind], kind), indent=1) + "\n"


def record_schema(record: type, kind: str) -> dict[str, Any]:
    """The schema of what ``record`` writes, as plain data."""
    definitions: dict[str, Any] = {}
    whole = _object(record, definitions)
    constants = {"schema_version": SCHEMA_VERSION, "kind": kind}
    for name, value in constants.items():
        whole["properties"][name] = {"const": value}
    return {
        "$schema": DIALECT,
        "title": f"hicache-bench {kind}, version {SCHEMA_VERSION}",
        **whole,
        "$defs": dict(sorted(definitions.items())),
    }


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    properties = {name: _type(hint, definitions) for name, hint in type_hints(kind).items()}
    return {
        "description": " ".join((inspect.getdoc(kind) or "").replace("``", "`").split()),
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _type(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if origin in (Union, UnionType):
        return _union([_type(argument, definitions) for argument in arguments])
    if origin is tuple:
        return _array(arguments, definitions)
    if origin is Literal:
        return {"enum": list(arguments)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _type(arguments[1], definitions)}
    if is_dataclass(hint):
        kind = cast(type, hint)
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = _object(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [member.value for member in hint]}
    raise TypeError(f"a record cannot have a field of type {hint}")


def _union(choices: list[dict[str, Any]]) -> dict[str, Any]:
    if all(choice.keys() == {"type"} for choice in choices):
        return {"type": [choice["type"] for choice in choices]}
    return {"anyOf": choices}


def _array(arguments: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return {"type": "array", "items": _type(arguments[0], definitions)}
    items = [_type(argument, definitions) for argument in arguments]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
