"""Faults of a preset in the words of its file: line, field, what was given, what is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError, ValidationError

from hicache_bench.config.document import Document, Path, Problem, describe, shorten
from hicache_bench.config.schema import (
    ATTENTION_TYPES,
    LAYER_FIELDS,
    LayerGroup,
    ModelPreset,
    SourcedAttention,
    parse_layer,
)
from hicache_bench.errors import ConfigError

MAX_PROBLEMS_SHOWN = 100

_ALLOWED: Mapping[str, str] = MappingProxyType(
    {
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "bool_type": "true or false",
        "string_type": "text",
        "tuple_type": "a list",
        "dict_type": "a map",
        "model_type": "a map",
        "dataclass_type": "a map",
        "greater_than": "above {gt:,}",
        "greater_than_equal": "at least {ge:,}",
        "less_than_equal": "at most {le:,}",
        "not_allowed": "{allowed}",
        "too_short": "at least one entry",
    }
)
"""What pydantic's error types allow, with the names of their context."""


def config_error(file: str, problems: Iterable[Problem]) -> ConfigError:
    """One error for all problems of ``file``, in the order of its lines."""
    ordered = sorted(set(problems))
    lines = [
        f"{file}:{problem.mark.line}:{problem.mark.column}: "
        + (f"{problem.field}: " if problem.field else "")
        + problem.text
        for problem in ordered[:MAX_PROBLEMS_SHOWN]
    ]
    if len(ordered) == 1:
        return ConfigError(lines[0])
    if len(ordered) > MAX_PROBLEMS_SHOWN:
        lines.append(f"... and {len(ordered) - MAX_PROBLEMS_SHOWN} more")
    return ConfigError(f"{file} has {len(ordered)} problems:\n" + "\n".join(f"  {line}" for line in lines))


def add_schema_problems(document: Document, error: ValidationError) -> None:
    """Note everything that pydantic found, each at its place in the file."""
    for details in error.errors(include_url=False):
        path = _path_of(details)
        if document.is_placeholder(path) or _is_echo(details):
            continue
        document.add(path, _explain(details, path, document.data))


def add_layer_problems(document: Document) -> None:
    """Note layers that name unknown attentions, and attentions that no layer names.

    This looks at the plain data, so that it finds its faults even where other fields have theirs.
    """
    data = document.data
    attentions = data.get("attentions")
    if not isinstance(attentions, dict) or not isinstance(data.get("layers"), list):
        return
    used: set[str] = set()
    for path, text in (text for field in LAYER_FIELDS for text in _layer_texts(data.get(field), (field,))):
        try:
            names = parse_layer(text)
        except PydanticCustomError:
            continue
        used.update(names)
        for name in names:
            if name not in attentions and not document.is_placeholder(path):
                given = f"given {shorten(name)!r}, which is not among the attentions"
                document.add(path, given + suggest(name, attentions))
    for name in attentions:
        if name not in used:
            document.add(("attentions", name), "no layer uses it; name it under 'layers' or remove it")


def _layer_texts(layers: Any, path: Path) -> Iterator[tuple[Path, str]]:
    for index, entry in enumerate(layers if isinstance(layers, list) else ()):
        if isinstance(entry, str):
            yield (*path, index), entry
        elif isinstance(entry, dict):
            yield from _layer_texts(entry.get("of"), (*path, index, "of"))


def _path_of(details: ErrorDetails) -> Path:
    """Where the user wrote it: without the steps that only the schema knows.

    Each step is told by its position, since a file may hold keys of the same name.
    """
    path: Path = details["loc"]
    if path[0] in LAYER_FIELDS:
        tags = {index for index, part in enumerate(path[:-1], 1) if isinstance(part, int)}
        path = tuple(part for index, part in enumerate(path) if index not in tags)
    elif path[0] == "attentions" and path[2:3] == ("dims",):
        # Below "dims" stands the tag of the union, unless the error is one of our own bounds.
        start = 4 if path[3:4] and path[3] in ATTENTION_TYPES else 3
        path = path[:2] + path[start:]
    elif path[0] == "attentions" and path[2:] == ("[key]",):
        path = path[:2]
    return (*path, "attention") if details["type"] == "union_tag_invalid" else path


def _is_echo(details: ErrorDetails) -> bool:
    """A list is also called too short when its items were refused; these have their own errors."""
    return details["type"] == "too_short" and bool(details["input"])


def _explain(details: ErrorDetails, path: Path, data: Any) -> str:
    kind = details["type"]
    if kind == "missing":
        meaning = _meaning(path)
        return f"missing ({meaning})" if meaning else "missing"
    if kind == "union_tag_not_found":
        return f"field 'attention' is missing; allowed: {', '.join(ATTENTION_TYPES)}"
    if kind == "union_tag_invalid":
        given = data["attentions"][path[1]]["attention"]
        hint = suggest(given, ATTENTION_TYPES)
        return f"given {describe(given)}; allowed: {', '.join(ATTENTION_TYPES)}{hint}"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        known = _known_fields(path, data)
        return unknown_field(path, known)
    return given_and_allowed(details)


def unknown_field(path: Path, known: Sequence[str]) -> str:
    """What to say of a field that is none of the ``known`` ones."""
    return f"unknown field; allowed: {', '.join(known)}{suggest(path[-1], known)}"


def given_and_allowed(details: ErrorDetails) -> str:
    """What to say of a value of the wrong kind, or out of bounds."""
    kind = details["type"]
    allowed = _ALLOWED[kind].format(**details.get("ctx", {})) if kind in _ALLOWED else details["msg"]
    return f"given {describe(details['input'])}; allowed: {allowed}"


def _model_of(path: Path) -> type[BaseModel]:
    """The model that a field of this path belongs to."""
    if path[0] in LAYER_FIELDS and len(path) > 1:
        return LayerGroup
    return SourcedAttention if path[0] == "attentions" and len(path) > 1 else ModelPreset


def _fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _meaning(path: Path) -> str | None:
    field = _fields_of(_model_of(path)).get(str(path[-1]))
    return field.description if field else None


def _known_fields(path: Path, data: Any) -> list[str]:
    model = _model_of(path)
    if model is not SourcedAttention:
        return list(_fields_of(model))
    kind = ATTENTION_TYPES[data["attentions"][path[1]]["attention"]]
    return [*(field.name for field in fields(kind)), "source"]


def suggest(given: object, known: Iterable[str], cutoff: float = 0.6) -> str:
    """``; did you mean 'x'?``, or nothing where no known name is near."""
    nearest = get_close_matches(str(given), list(known), n=1, cutoff=cutoff)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
