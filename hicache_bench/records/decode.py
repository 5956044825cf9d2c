"""From plain data to the dataclasses of a record, with the place named where they do not fit.

What is read is checked by the annotations that wrote it: there is no second description that could differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from hicache_bench.errors import InputError

_Decoder = Callable[[Any], Any]
_T = TypeVar("_T")

_MAX_INT = 2**63
"""No count of bytes or tokens comes near."""

_MAX_FLOAT = 1e150
"""No figure comes near, and sums and products of two below it are numbers."""


class _MismatchError(Exception):
    """Something that does not fit; ``path`` grows from the inside out."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []


def decode(record: type[_T], data: object) -> _T:
    """``data`` as a ``record``; every field must be there, and no other.

    A number that is none (NaN, an infinity) passes for any number: whoever reads decides whether such a
    number may come so far.

    Raises:
        InputError: it does not fit; the message names the place.
    """
    try:
        return cast(_T, _decoder(cast(Any, record))(data))
    except _MismatchError as error:
        place = "".join(reversed(error.path)).removeprefix(".")
        raise InputError(f"{place or 'the record'}: {error.what}") from None


@cache
def type_hints(record: type) -> Mapping[str, Any]:
    """The types of a dataclass's fields, in field order."""
    hints = get_type_hints(record)
    return {field.name: hints[field.name] for field in fields(record)}


@cache
def _decoder(hint: Any) -> _Decoder:
    """The one way to read a value of this type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return _same
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin in (Union, UnionType):
        return _union(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin is Literal:
        return _one_of(arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_decoder(arguments[1]))
    if is_dataclass(hint):
        return _dataclass(cast(type, hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    raise TypeError(f"a record cannot have a field of type {hint}")


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else _refuse("a text", value)


def _bool(value: Any) -> Any:
    return value if isinstance(value, bool) else _refuse("true or false", value)


def _int(value: Any) -> Any:
    if type(value) is int:
        return value if abs(value) < _MAX_INT else _refuse("a whole number below 2**63", value)
    return value if type(value) is float and not math.isfinite(value) else _refuse("a whole number", value)


def _float(value: Any) -> Any:
    if type(value) is float and not math.isfinite(value):
        return value
    if type(value) not in (int, float):
        return _refuse("a number", value)
    return value if abs(value) < _MAX_FLOAT else _refuse(f"a number below {_MAX_FLOAT:g}", value)


def _none(value: Any) -> Any:
    return None if value is None else _refuse("null", value)


_SCALARS: dict[Any, _Decoder] = {str: _text, bool: _bool, int: _int, float: _float, NoneType: _none}


def _refuse(expected: str, value: Any) -> Any:
    found = "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else repr(value)
    raise _MismatchError(f"expected {expected}, found {found if len(found) <= 60 else found[:57] + '...'}")


def _union(choices: tuple[Any, ...]) -> _Decoder:
    decoders = [_decoder(choice) for choice in choices]

    def read(value: Any) -> Any:
        refusals = []
        for decoder in decoders:
            try:
                return decoder(value)
            except _MismatchError as error:  # noqa: PERF203 - few choices, and the first one mostly fits
                refusals.append(error)
        # The choice that understood most of it has the most to say.
        raise max(refusals, key=lambda error: len(error.path))

    return read


def _tuple(arguments: tuple[Any, ...]) -> _Decoder:
    repeated = len(arguments) == 2 and arguments[1] is Ellipsis
    decoders = [_decoder(arguments[0])] if repeated else [_decoder(argument) for argument in arguments]

    def read(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return _refuse("a list", value)
        if not repeated and len(value) != len(decoders):
            raise _MismatchError(f"expected {len(decoders)} entries, found {len(value)}")
        used = decoders * len(value) if repeated else decoders
        return tuple(
            _within(f"[{index}]", decoder, item)
            for index, (decoder, item) in enumerate(zip(used, value, strict=True))
        )

    return read


def _mapping(decoder: _Decoder) -> _Decoder:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return _refuse("an object", value)
        return {key: _within(f".{key}", decoder, item) for key, item in value.items()}

    return read


def _one_of(allowed: tuple[Any, ...]) -> _Decoder:
    def read(value: Any) -> Any:
        return value if value in allowed else _refuse(f"one of {', '.join(map(str, allowed))}", value)

    return read


def _enum(kind: type[Enum]) -> _Decoder:
    values = {member.value: member for member in kind}

    def read(value: Any) -> Any:
        if isinstance(value, (list, dict)) or value not in values:
            return _refuse(f"one of {', '.join(map(str, values))}", value)
        return values[value]

    return read


def _dataclass(kind: type) -> _Decoder:
    decoders = {name: _decoder(hint) for name, hint in type_hints(kind).items()}

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return _refuse("an object", value)
        if value.keys() != decoders.keys():
            missing = [name for name in decoders if name not in value]
            unknown = [name for name in value if name not in decoders]
            raise _MismatchError(
                f"fields missing: {', '.join(missing)}"
                if missing
                else f"unknown fields: {', '.join(unknown)}"
            )
        return kind(**{name: _within(f".{name}", decoder, value[name]) for name, decoder in decoders.items()})

    return read


def _within(step: str, decoder: _Decoder, value: Any) -> Any:
    try:
        return decoder(value)
    except _MismatchError as error:
        error.path.append(step)
        raise
