"""A model as the text of a preset file, in the form of the shipped ones; ``config.load`` reads it back."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from hicache_bench.config.document import read_document
from hicache_bench.config.schema import LAYER_FIELDS, NO_ATTENTION
from hicache_bench.models.spec import Attention, ModelSpec

LINE_WIDTH = 110
_MAX_PERIOD = 64
"""Longest run of different layers that is looked for as a repeated group."""

Layer = tuple[str, ...]
"""Names of the attentions of one layer."""

# What YAML does not take as it is, and what it takes for the end of a line.
_NOT_PRINTABLE = re.compile(
    r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029]"
)
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/ -]*")


@dataclass(frozen=True, slots=True)
class RepeatedLayers:
    """Layers that come ``repeat`` times, one after another."""

    repeat: int
    of: tuple[Layer, ...]


def write_preset(
    spec: ModelSpec,
    *,
    sources: Mapping[str, str],
    summary: str,
    aliases: Sequence[str] = (),
    profile: str | None = None,
    comments: Sequence[str] = (),
) -> str:
    """The text of a preset file that describes ``spec``.

    ``sources`` names where the dimensions of each attention come from, ``comments`` are lines for the head of
    the file. Fields that have their default value are left out, layers that repeat are written once.
    """
    lines = [f"# {line}".rstrip() for text in comments for line in _wrapped(text, LINE_WIDTH - 2)]
    lines += ["schema: 1", f"name: {spec.name}"]
    if aliases:
        lines.append(f"aliases: [{', '.join(map(_scalar, aliases))}]")
    lines += _text("summary", summary, "")
    lines += _text("architecture", spec.architecture, "")
    if spec.revision is not None:
        lines += _text("revision", spec.revision, "")
    lines.append(f"served_by: [{', '.join(spec.served_by)}]")
    if profile is not None:
        lines.append(f"profile: {profile}")
    lines += [f"{name}: {_scalar(getattr(spec, name))}" for name in _settings(spec)]
    lines += ["", "attentions:"]
    for name, attention in spec.attentions.items():
        lines += [f"  {_scalar(name)}:", *_dimensions(attention), *_text("source", sources[name], "    ")]
    for field in LAYER_FIELDS:
        if layers := getattr(spec, field):
            lines += ["", f"{field}:", *_layers(layers)]
    return "\n".join(lines) + "\n"


def _settings(spec: ModelSpec) -> Iterator[str]:
    """Fields with a value that has to be said."""
    yield from ("page_tokens", "engine_default_page_tokens", "kv_dtype")
    defaults = {field.name: field.default for field in fields(ModelSpec)}
    for name in ("state_dtype", "conv_dtype", "index_dtype", "logical_anchor"):
        if getattr(spec, name) != defaults[name]:
            yield name


def _dimensions(attention: Attention) -> Iterator[str]:
    for field in fields(attention):
        value = getattr(attention, field.name)
        if field.name == "extra":
            if value:
                yield "    extra:"
            for tensor in value:
                shape = ", ".join(map(str, tensor.shape))
                name, dtype = _scalar(tensor.name), _scalar(tensor.dtype)
                yield f"      - {{name: {name}, shape: [{shape}], dtype: {dtype}}}"
        elif value is not None:
            yield f"    {field.name}: {value}"


def _layers(layers: Sequence[Layer]) -> Iterator[str]:
    for entry in group_layers(layers):
        if isinstance(entry, RepeatedLayers):
            yield f"  - repeat: {entry.repeat}"
            first, *rest = _filled(f"of: [{', '.join(map(_layer, entry.of))}]".split(" "), LINE_WIDTH - 6)
            yield f"    {first}"
            yield from (f"      {line}" for line in rest)
        else:
            yield f"  - {_layer(entry)}"


def group_layers(layers: Sequence[Layer]) -> Iterator[Layer | RepeatedLayers]:
    """``layers`` with every repetition that saves layers as a group."""
    start = 0
    while start < len(layers):
        best = RepeatedLayers(1, (layers[start],))
        for period in range(1, min(_MAX_PERIOD, (len(layers) - start) // 2) + 1):
            repeat = _repeats(layers, start, period)
            if repeat > 1 and (repeat - 1) * period > (best.repeat - 1) * len(best.of):
                best = RepeatedLayers(repeat, tuple(layers[start : start + period]))
        yield best if best.repeat > 1 else best.of[0]
        start += best.repeat * len(best.of)


def _repeats(layers: Sequence[Layer], start: int, period: int) -> int:
    """How often the ``period`` layers at ``start`` come one after another."""
    end = start + period
    while end < len(layers) and layers[end] == layers[end - period]:
        end += 1
    return (end - start) // period


def _layer(names: Layer) -> str:
    return _scalar(" + ".join(names)) if names else NO_ATTENTION


def _text(field: str, value: str, indent: str) -> list[str]:
    """A line of text; folded below its field where it is long."""
    line = f"{indent}{field}: {_scalar(value)}"
    folds = value.split(" ")
    if len(line) <= LINE_WIDTH or not all(folds) or _NOT_PRINTABLE.search(value):
        return [line]
    return [
        f"{indent}{field}: >-",
        *(f"{indent}  {part}" for part in _filled(folds, LINE_WIDTH - len(indent) - 2)),
    ]


def _filled(words: Sequence[str], width: int) -> Iterator[str]:
    """Words on lines of ``width``: broken only where one space stood, which is how YAML joins them."""
    line = words[0]
    for word in words[1:]:
        if len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line += f" {word}"
    yield line


def _wrapped(text: str, width: int) -> list[str]:
    printable = _NOT_PRINTABLE.sub(" ", text)
    return textwrap.wrap(printable, width, break_long_words=False, break_on_hyphens=False) or [""]


def _scalar(value: object) -> str:
    """A value as one line of YAML: text is quoted unless it reads back as the same text without quotes."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and not value.endswith(" ") and read_document(value).data == value:
        return value
    return _NOT_PRINTABLE.sub(_escaped, json.dumps(value, ensure_ascii=False))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
